"""`completion`: a shell completes commands, options and jobs: quickly, and without a word where it cannot."""

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from batchrun.cli.context import Context
from batchrun.cli.main import cli, run
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.names import MOST_NAMES, job_names
from tests.cli.contract import read_stream
from tests.cli.terminal import has_more
from tests.ledger.desk import hire
from tests.ledger.desk import register as register_job

BIN = Path(sys.executable).parent
OF_A_JOB = ["status", "resume", "failures", "show", "retry-failed", "reconcile", "cancel", "export"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def register(ledger: Ledger, name: str) -> None:
    register_job(ledger, 1, holder=hire(ledger), task_id=name)


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    """The folder's ledger, open, with three jobs."""
    ledger = Ledger(f"sqlite:///{folder}/.batchrun/ledger.db", folder=folder / ".batchrun")
    for name in ("batch-001", "batch-002", "other"):
        register(ledger, name)
    yield ledger
    ledger.close()


def complete(line: str, *, shell: str = "bash") -> list[str]:
    """Return what the shell would be told for a line of which the last word is being typed."""
    words = line.split(" ")
    env = {
        **os.environ,
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_BATCHRUN_COMPLETE": f"{shell}_complete",
    }
    if shell == "fish":
        env["COMP_CWORD"] = words[-1]
    ended = subprocess.run([BIN / "batchrun"], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stderr == ""
    return [told for told in ended.stdout.splitlines() if told]


def values(line: str) -> list[str]:
    return [told.partition(",")[2] for told in complete(line)]


# -- what is completed ------------------------------------------------------------------------------------------------


def test_commands_and_options_are_completed_without_a_ledger(folder: Path) -> None:
    assert values("batchrun re") == ["resume", "retry-failed", "revalidate", "reconcile", "report"]
    assert values("batchrun submit --on-un") == ["--on-unknown"]
    assert values("batchrun submit --on-unknown ") == ["hold", "retry"]
    assert values("batchrun completion ") == ["bash", "zsh", "fish"]
    assert complete("batchrun submit jo") == ["file,jo"]
    assert values("batchrun status ") == []
    assert complete("batchrun status jobs/") == ["file,jobs/"]  # a spec's file stands for its job
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("command", OF_A_JOB)
def test_the_names_of_jobs_are_completed_the_latest_first(command: str) -> None:
    shell = BashComplete(cli, {"obj": Context()}, "batchrun", "_BATCHRUN_COMPLETE")
    told = {word: [item.value for item in shell.get_completions([command], word)] for word in ("", "ba", "nothing")}
    assert told == {"": ["other", "batch-002", "batch-001"], "ba": ["batch-002", "batch-001"], "nothing": []}


def test_the_ledger_that_the_line_names_is_asked(ledger: Ledger, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    address = f"sqlite:///{folder}/.batchrun/ledger.db"
    assert values("batchrun status ") == []
    assert len(values(f"batchrun --db {address} status ")) == 3
    assert len(values(f"batchrun status --db {address} ")) == 3
    (elsewhere / "other.env").write_text(f"BATCHRUN_DB={address}\n")
    assert len(values("batchrun status --env-file other.env ")) == 3
    monkeypatch.setenv("BATCHRUN_DB", address)
    assert len(values("batchrun status ")) == 3


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.usefixtures("ledger")
def test_other_shells_are_told_as_well(shell: str) -> None:
    told = "\n".join(complete("batchrun resume ot", shell=shell))
    assert "other" in told
    assert "batch-001" not in told


# -- quick, and quiet -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["nonsense://x", "sqlite:///no/such/file.db", "postgresql://127.0.0.1:1/db"])
def test_a_ledger_that_cannot_be_asked_gives_no_word(
    address: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHRUN_DB", address)
    began = time.monotonic()
    assert complete("batchrun resume ") == []
    assert time.monotonic() - began < 30
    assert list(folder.iterdir()) == []


def test_a_file_that_is_no_ledger_and_a_setting_that_cannot_be_give_no_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "x.db").write_bytes(b"no database" * 1000)
    monkeypatch.setenv("BATCHRUN_DB", "sqlite:///x.db")
    assert complete("batchrun resume ") == []
    monkeypatch.setenv("BATCHRUN_DEAD_AFTER_S", "soon")
    assert complete("batchrun resume ") == []


def test_a_look_at_the_names_leaves_nothing_behind(ledger: Ledger, folder: Path) -> None:
    ledger.close()
    before = sorted(path.name for path in (folder / ".batchrun").iterdir())
    assert job_names("sqlite:///.batchrun/ledger.db", "") == ["other", "batch-002", "batch-001"]
    assert sorted(path.name for path in (folder / ".batchrun").iterdir()) == before


def test_a_writer_does_not_keep_the_names_back(ledger: Ledger) -> None:
    with ledger.write():
        assert job_names("sqlite:///.batchrun/ledger.db", "o") == ["other"]


def test_names_come_in_bounded_number_and_are_taken_literally(ledger: Ledger) -> None:
    for number in range(MOST_NAMES + 5):
        register(ledger, f"many_{number}")
    assert len(job_names("sqlite:///.batchrun/ledger.db", "many")) == MOST_NAMES
    assert job_names("sqlite:///.batchrun/ledger.db", "%") == []
    assert job_names("sqlite:///.batchrun/ledger.db", "BATCH") == []


def test_the_names_of_a_ledger_in_postgres(make_postgres_database: Callable[[], str], folder: Path) -> None:
    address = make_postgres_database()
    ledger = Ledger(address, folder=folder)
    try:
        register(ledger, "batch-001")
        assert job_names(address, "ba") == ["batch-001"]
        assert job_names(address.replace("postgresql://", "postgresql+psycopg://"), "x") == []
    finally:
        ledger.close()


def test_completing_a_name_needs_little_time(ledger: Ledger) -> None:
    look = "import sys, batchrun.ledger.names as names; names.job_names(*sys.argv[1:]); print(*sys.modules)"
    address = "sqlite:///.batchrun/ledger.db"
    printed = subprocess.run([sys.executable, "-c", look, address, ""], capture_output=True, text=True, check=True)
    assert set(printed.stdout.split()) & {"sqlalchemy", "alembic", "openai", "httptools", "celery", "rich"} == set()


# -- the scripts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_and_given_as_json(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_BATCHRUN_COMPLETE={shell}_complete" in script
    assert run(["completion", shell, "--json"]) == 0
    (value,) = read_stream(capsys.readouterr().out)
    assert (value["shell"], value["script"].strip()) == (shell, script.strip())


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.usefixtures("ledger")
def test_the_tab_key_works_in_a_real_bash(folder: Path) -> None:
    bash = Terminal(["bash", "--norc", "--noprofile", "-i"], folder)
    try:
        bash.type("PS1='ready$ '; eval \"$(batchrun completion bash)\"; echo on\\ce\n")
        bash.wait_for("once")
        bash.type("batchrun stat\t")
        bash.wait_for("batchrun status ")
        bash.type("oth\t")
        bash.wait_for("batchrun status other ")
    finally:
        bash.end()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.seen = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
            os.execvpe(arguments[0], arguments, {**os.environ, "PATH": path, "TERM": "dumb", "COLUMNS": "80"})

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07", "", self.seen):
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{self.seen}"
            if has_more(self._fd, 0.1):
                self.seen += os.read(self._fd, 65_536).decode("utf-8", "replace")

    def end(self) -> None:
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        os.close(self._fd)
