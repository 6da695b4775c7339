"""The gate that a job must pass before anything happens: a folder, the real command, and what it leaves behind."""

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from batchrun.cli.main import run
from tests.cli.contract import faults_of

GOOD: dict[str, Any] = {
    "task_id": "batch-001",
    "model": "mock",
    "input_file": "inputs/in.jsonl",
    "output_file": "outputs/out.jsonl",
    "max_tokens": 64,
    "concurrency": 8,
    "retry_times": 3,
}
SPEC = "jobs/job.json"
SECRET = "sk-secret-1"  # what people write where no key belongs: never repeated


def good_line(number: int = 0) -> bytes:
    """Return one line that nothing is wrong with."""
    return b'{"custom_id": "good-%d", "body": {"messages": [{"role": "user", "content": "hello"}]}}' % number


@dataclass(frozen=True)
class Told:
    """One fault that must be told."""

    where: str  # all of `where`, such as "input line 2"
    words: str = ""  # what the fault or its hint must say


@dataclass(frozen=True)
class Ended:
    """How the command ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> dict[str, Any]:
        """Return the error object that it printed, which follows its schema."""
        value = json.loads(self.out)
        assert faults_of(value) == []
        found: dict[str, Any] = value["error"]
        return found


@dataclass
class Gate:
    """A folder with a spec and an input. Nothing in it may change but what a test writes."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("jobs", "inputs", "outputs"):
            (self.folder / name).mkdir(exist_ok=True)

    def write(self, *, spec: str | bytes | Mapping[str, Any] = GOOD, content: bytes | None = None) -> None:
        """Write the spec, and the input unless it is as it was."""
        if isinstance(spec, Mapping):
            spec = json.dumps(spec, indent=1)
        _write(self.folder / SPEC, spec if isinstance(spec, bytes) else spec.encode())
        _write(self.folder / "inputs" / "in.jsonl", good_line() + b"\n" if content is None else content)

    def call(self, *arguments: str) -> Ended:
        """Run `batchrun ARGUMENTS...` here, in this process."""
        out, err = io.StringIO(), io.StringIO()
        with chdir(self.folder), _environment(self.variables), redirect_stdout(out), redirect_stderr(err):
            code = run(list(arguments))
        return Ended(code, out.getvalue(), err.getvalue())

    def refuses(self, told: Iterable[Told], *flags: str, command: str = "submit", whole: bool = True) -> Ended:
        """Assert that the job does not pass: exit 2, these faults and no others, and nothing has changed.

        Args:
            whole: these are all the faults that may be told.
        """
        before = self.look()
        ended = self.call(command, SPEC, "--json", *flags)
        after = self.look()
        if after != before:
            self._clear(before)
        assert ended.code == 2, f"exit {ended.code}: {ended.out}{ended.err}"
        assert "Traceback" not in ended.out + ended.err
        assert SECRET not in ended.out + ended.err
        assert ended.err == "", f"this was said before the refusal: {ended.err}"
        assert after == before, f"left behind or changed: {sorted(set(after.items()) ^ set(before.items()))}"
        if wanted := list(told):
            _compare(wanted, ended.error.get("faults", []), whole=whole)
        return ended

    def look(self) -> dict[str, str]:
        """Return every file and folder with what it holds."""
        found = {}
        for folder, folders, files in os.walk(self.folder):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                found[os.path.relpath(path, self.folder)] = _content(path)
        return found

    def _clear(self, before: Mapping[str, str]) -> None:
        for name in sorted(self.look().keys() - before.keys(), reverse=True):
            path = self.folder / name
            rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _write(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.unlink(missing_ok=True)  # some file systems flush a file that is cut to nothing, and this is done often
        path.write_bytes(content)


def _content(path: str) -> str:
    if os.path.islink(path):
        return f"-> {os.readlink(path)}"
    about = os.stat(path)
    return f"{about.st_mode:o}" if os.path.isdir(path) else f"{about.st_mode:o} {about.st_size} {about.st_mtime_ns}"


def _compare(wanted: list[Told], faults: list[dict[str, Any]], *, whole: bool) -> None:
    said = "\n".join(f"  {fault['where']}: {fault['what']} | {fault['hint']}" for fault in faults) or "  nothing"
    for one in wanted:
        near = [fault for fault in faults if fault["where"] == one.where]
        assert near, f"nobody named {one.where!r}; told was\n{said}"
        assert any(one.words in f"{fault['what']} {fault['hint']}" for fault in near), f"no {one.words!r} in\n{said}"
    if whole:
        assert sorted(fault["where"] for fault in faults) == sorted(one.where for one in wanted), said


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
