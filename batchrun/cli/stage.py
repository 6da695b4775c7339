"""Where `demo` and `chaos` play: a folder of their own with a job, a mock endpoint, and real batchrun processes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import batchrun
from batchrun.errors import BatchrunError

LOG = "requests.jsonl"
FOREIGN = ("BATCHRUN_", "OPENAI_")  # a user's own settings have no part in it


@dataclass
class Place:
    """A folder that goes at the end, unless `is_kept`."""

    path: Path
    is_kept: bool = True


@contextmanager
def kept_apart(name: str, *, keep: bool) -> Iterator[Place]:
    """Make a folder, here if it is to be kept; it goes at the end unless it is wanted or holds evidence of a fault."""
    place = Place(Path(tempfile.mkdtemp(prefix=f"batchrun-{name}-", dir=Path.cwd() if keep else None)))
    try:
        yield place
    except KeyboardInterrupt:
        place.is_kept = keep
        raise
    except BatchrunError as error:
        error.hint = error.hint or f"look into {place.path}"
        raise
    finally:
        if not place.is_kept:
            shutil.rmtree(place.path, ignore_errors=True)


@dataclass
class EndpointLog:
    """The mock's request log while it grows."""

    path: Path
    arrived: int = 0
    ended: int = 0
    _offset: int = 0

    @property
    def in_flight(self) -> int:
        return self.arrived - self.ended

    def look(self) -> bool:
        """Read what is new; say whether a request has come."""
        before = self.arrived
        with self.path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.arrived += whole.count(b'"ev":"arrive"')
        self.ended += whole.count(b'"ev":"end"')
        return self.arrived > before


@dataclass
class Stage:
    """One folder with one job in it, and the endpoint that its processes talk to."""

    folder: Path
    base_url: str
    env: Mapping[str, str] = field(default_factory=dict)  # more variables for every process

    def write_job(self, spec: Mapping[str, Any], lines: Sequence[str]) -> None:
        """Write the job as a user has it: `jobs/job.json`, and its input."""
        for name in ("jobs", "inputs", "outputs"):
            (self.folder / name).mkdir()
        (self.folder / "inputs" / "batch_input.jsonl").write_text("".join(lines))
        paths = {"input_file": "./inputs/batch_input.jsonl", "output_file": "./outputs/batch_output.jsonl"}
        ordered = {"task_id": spec["task_id"], "model": spec["model"], **paths, **spec}
        (self.folder / "jobs" / "job.json").write_text(json.dumps(ordered, indent=2) + "\n")

    def start(
        self, arguments: Sequence[str], *, out: int | IO[str], err: int | IO[str] = subprocess.STDOUT
    ) -> "subprocess.Popen[str]":
        """Start `batchrun ARGUMENTS...` here. Ctrl-C at a terminal does not reach it: whoever started it ends it."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        env |= self.env
        env["OPENAI_BASE_URL"] = self.base_url
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [_home(), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "batchrun", *arguments],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read one of the job's output files."""
        return [json.loads(line) for line in (self.folder / "outputs" / name).read_text().split("\n")[:-1]]


def batch_line(item: str, prompt: str) -> str:
    """Write one OpenAI Batch line; the id in [[ ]] is what the mock's log calls the item."""
    body = {"messages": [{"role": "user", "content": f"[[{item}]] {prompt}"}]}
    return json.dumps({"custom_id": item, "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"


def _home() -> str:
    """Return the folder that holds the package, so that children find it wherever they run."""
    return str(Path(batchrun.__file__).resolve().parents[1])
