"""Command lines as people get them wrong: usage, in words, and nothing is written or sent."""

from pathlib import Path

import pytest

from tests.corpus.bad_specs import PRICE
from tests.corpus.gate import GOOD, Gate

NUMBERS = ("0", "-1", "0.5", "eight", "", " ", "1e3", "10001", "99999999999999999999", "NaN")
AMOUNTS = ("0", "-1", "cheap", "", "NaN", "Infinity", "1e999", "$", "10000000", "99999999999999999999", "1_0", "1e3")
SUBMIT = ("submit", "jobs/job.json")
CALLS: list[tuple[str, ...]] = [
    *((*SUBMIT, "-c", value) for value in NUMBERS),
    *((*SUBMIT, "--trial", value) for value in NUMBERS[1:]),
    *((*SUBMIT, "--max-cost", value) for value in AMOUNTS),
    *((*SUBMIT, "--on-unknown", value) for value in ("", "ask", "HOLD", "retry ")),
    *(("trial", "jobs/job.json", "-n", value) for value in NUMBERS),
    *(("trial", "jobs/job.json", "--sample", value) for value in ("", "best", "Head")),
    *(("validate", "jobs/job.json", "--max-errors", value) for value in NUMBERS[:5]),
    *(("resume", name) for name in ("", " ", "none", "../x", "a\nb", "a/b", "'; drop table jobs; --", "a" * 5_000)),
    ("submit",),
    ("validate",),
    ("resume",),
    ("show", "batch-001"),
    ("sumbit", "jobs/job.json"),
    (*SUBMIT, "--no-such-option"),
    (*SUBMIT, "--max-cost"),
    ("submit", "jobs/none.json"),
    ("submit", "jobs"),
    ("submit", ""),
    ("submit", "a" * 5_000),
    ("submit", "a" * 5_000 + ".jsonl"),
    (*SUBMIT, "--db", "mysql://127.0.0.1/x"),
    (*SUBMIT, "--broker", "nonsense"),
    (*SUBMIT, "--env-file", "none.env"),
]


@pytest.fixture
def priced(gate: Gate, tmp_path: Path) -> Gate:
    """A gate with a good job that has a price, so that a limit on cost is not wrong for want of one."""
    gate = Gate(tmp_path, gate.variables)
    gate.write(spec=GOOD | {"price": PRICE})
    return gate


@pytest.mark.parametrize(
    "arguments", CALLS, ids=[" ".join(call)[:50].encode("unicode_escape").decode() for call in CALLS]
)
def test_a_wrong_command_line_is_usage_and_changes_nothing(arguments: tuple[str, ...], priced: Gate) -> None:
    before = priced.look()
    ended = priced.call(*arguments, "--json")
    assert ended.code == 2, ended.out + ended.err
    assert ended.error["exit_code"] == 2
    assert ended.error["message"]
    assert ended.err == ""
    assert priced.look() == before
