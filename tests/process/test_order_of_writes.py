"""In which order bytes leave and are made durable, as the kernel saw it; and what a disk's I/O error makes of a job."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import services
from tests.conftest import server_unavailable
from tests.lab import QUICK, Lab, assert_outputs_whole
from tests.process.steps import assert_sent_once, assert_settled, ids

COUNT = 4
CALLS = "openat,write,pwrite64,sendto,sendmsg,writev,fsync,fdatasync,rename,renameat,renameat2"
LINE = re.compile(r"^(\d+) +(.*)$")
RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")


@pytest.fixture
def strace() -> str:
    """The program; skipped at home where there is none."""
    try:
        return services.find_program("strace", package="strace")
    except services.ServerUnavailableError as reason:
        server_unavailable(str(reason))
        raise


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab(latency_ms=5)
    lab.write_input(COUNT)
    lab.write_spec(concurrency=1)
    return lab


@dataclass(frozen=True)
class Call:
    """One system call of the traced process; `text` has the paths and addresses of its descriptors."""

    text: str
    began: int  # line numbers of the trace
    ended: int


def _traced(strace: str, lab: Lab, *options: str, command: tuple[str, ...]) -> tuple[list[Call], int, str]:
    """Run a command under strace; return its calls in the order in which they began, its exit code and its words."""
    trace = lab.folder / "trace.txt"
    traced = [strace, "-f", "-yy", "-s", "4096", "--seccomp-bpf", "-o", str(trace), "-e", f"trace={CALLS}", *options]
    done = subprocess.run(
        [*traced, sys.executable, "-m", "batchrun", *command],
        cwd=lab.folder,
        env=os.environ | QUICK | {"OPENAI_BASE_URL": lab.base_url or "", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return list(_read(trace)), done.returncode, done.stdout + done.stderr


def _read(trace: Path) -> list[Call]:
    calls, unfinished = [], {}
    for number, line in enumerate(trace.read_text(errors="replace").splitlines()):
        found = LINE.match(line)
        if found is None:
            continue
        pid, text = found.groups()
        if text.endswith("<unfinished ...>"):
            unfinished[pid] = (text.removesuffix("<unfinished ...>"), number)
        elif (resumed := RESUMED.match(text)) is not None:
            first, began = unfinished.pop(pid)
            calls.append(Call(first + resumed[2], began, number))
        else:
            calls.append(Call(text, number, number))
    return sorted(calls, key=lambda call: call.began)


def _matching(calls: list[Call], pattern: str) -> list[Call]:
    return [call for call in calls if re.search(pattern, call.text)]


def test_bytes_leave_and_are_made_durable_in_the_order_that_the_promise_needs(lab: Lab, strace: str) -> None:
    calls, code, said = _traced(strace, lab, command=("submit", "jobs/job.json", "--no-trial"))
    assert code == 0, said
    _assert_intents_and_answers_are_durable_in_time(calls)
    for name in ("out.jsonl", "out.errors.jsonl", ".out.jsonl.epoch"):
        _assert_put_into_place_whole(calls, name)


def _assert_intents_and_answers_are_durable_in_time(calls: list[Call]) -> None:
    """An intent is on disk before the first byte of its request leaves, and an answer before it is shown or let go.

    Between the two the request is marked as begun.
    """
    logged = _matching(calls, r"^pwrite64\(\d+<[^>]*ledger\.db-(wal|journal)>")
    synced = _matching(calls, r"^f(data)?sync\(\d+<[^>]*ledger\.db(-wal|-journal)?>")
    sent = _matching(calls, r"^(sendto|sendmsg|write|writev)\(\d+<TCP:.*X-Client-Request-Id: br-")
    marked = _matching(calls, r"^pwrite64\(\d+<[^>]*\.marks>, .*, 16, (?!0\))")
    framed = _matching(calls, r"^pwrite64\(\d+<[^>]*\.spool\.[ab]>, \"BRSPOOL1")
    zeroed = _matching(calls, r"^pwrite64\(\d+<[^>]*\.spool\.[ab]>, \"\\0\\0")
    grown = _matching(calls, r"^write\(\d+<[^>]*out\.jsonl\.partial>")
    assert len(sent) == len(framed) == len(marked) == COUNT, (len(sent), len(framed), len(marked))
    assert zeroed
    assert grown

    def is_durable_between(after: Call, before: Call) -> bool:
        """Something was written to the ledger's log and synced, all of it in between."""
        written = [call.ended for call in logged if after.ended <= call.began and call.ended < before.began]
        return any(min(written) < sync.began and sync.ended < before.began for sync in synced if written)

    opened = _matching(calls, r"^openat\(.*ledger\.db")[0]
    for number, request in enumerate(sent):
        # With one slot, what was written since the answer before is this request's intent.
        assert is_durable_between(framed[number - 1] if number else opened, request), request
        assert request.ended <= framed[number].began
        assert marked[number].ended <= request.began
    for frame, request in zip(framed, sent, strict=True):
        attempt = re.search(r"X-Client-Request-Id: (br-[\w-]+)", request.text)
        assert attempt is not None
        shown = next(call for call in grown if attempt[1] in call.text)
        let_go = next(call for call in zeroed if call.began > frame.ended)
        assert is_durable_between(frame, shown), frame
        assert is_durable_between(frame, let_go), frame


def _assert_put_into_place_whole(calls: list[Call], name: str) -> None:
    """A file is synced before its rename, and its folder after it."""
    rename = _matching(calls, rf'^rename\w*\(.*/\.{re.escape(name)}\.tmp-\w+", .*/{re.escape(name)}"')[-1]
    temp = re.search(rf"\.{re.escape(name)}\.tmp-\w+", rename.text)
    assert temp is not None
    synced = _matching(calls, rf"^fsync\(\d+<[^>]*{re.escape(temp[0])}>")
    assert len(synced) == 1
    assert synced[0].ended < rename.began
    assert all(call.ended < synced[0].began for call in _matching(calls, rf"^write\(\d+<[^>]*{re.escape(temp[0])}>"))
    folder = [call for call in _matching(calls, r"^fsync\(\d+<[^>]*/outputs>") if call.began > rename.ended]
    assert folder, f"the folder is not synced after {name} was put into place"


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        (".batchrun/ledger.db-wal", "fsync,fdatasync:error=EIO:when=6+"),  # each thread is counted by itself
        ("outputs", "fsync:error=EIO:when=1+"),
    ],
)
def test_an_input_output_error_stops_the_job_in_words_and_loses_nothing(
    path: str, fault: str, lab: Lab, strace: str
) -> None:
    (lab.folder / ".batchrun").mkdir()
    only = ("-P", str(lab.folder / path), "-e", f"inject={fault}")
    _, code, said = _traced(strace, lab, *only, command=("submit", "jobs/job.json", "--no-trial"))
    assert code in (1, 5), said
    assert "Traceback" not in said
    assert "unexpected" not in said
    assert "batchrun resume" in said
    run = lab.run("submit", "jobs/job.json", "--no-trial")
    assert run.wait() in (0, 6), run.err
    assert_settled(lab, count=COUNT, doubts_at_most=1, concurrency=1)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))
