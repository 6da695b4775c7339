"""A ledger of the past is resumed by this release: what it knows is kept, and nothing of it is sent again unasked."""

from collections.abc import Callable
from shutil import copytree

import pytest

from batchrun.core.states import ItemState
from batchrun.ledger.schema import SCHEMA_REVISION
from tests.lab import Lab, assert_outputs_whole
from tests.ledger.past import Past, all_pasts
from tests.process.steps import TASK

RESUME = ("resume", TASK)
# Its dead are on another host, where nobody can look at their locks: their counters alone speak for them.
SOON = {"BATCHRUN_DEAD_AFTER_S": "1.0", "BATCHRUN_HEARTBEAT_S": "0.2"}


def _name(past: Past) -> str:
    return f"{past.revision} on {past.back_end}"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.parametrize("past", all_pasts(), ids=_name)
def test_a_ledger_of_the_past_goes_on_and_sends_only_what_was_never_sent(
    past: Past, make_lab: Callable[..., Lab], request: pytest.FixtureRequest
) -> None:
    lab = make_lab()
    lab.env |= SOON
    if past.back_end == "postgres":
        lab.db = request.getfixturevalue("postgres_url")
    past.restore(lab)
    if past.revision != SCHEMA_REVISION:
        refused = lab.run(*RESUME)
        assert (refused.wait(), "batchrun db upgrade" in refused.err) == (1, True), refused.err
        assert lab.run("db", "upgrade").wait() == 0
    before = past.items
    ended = lab.run(*RESUME)
    assert ended.wait() == 6, ended.err
    sent = set(lab.judged().items)
    assert sent == {item for item, state in before.items() if state == "pending"}
    assert lab.judged().billed == len(sent)
    standing = lab.standing()
    states = list(before.values())
    assert standing.counts[ItemState.COMPLETED] == states.count("completed") + states.count("pending")
    assert standing.counts[ItemState.IN_DOUBT] == states.count("in_doubt") + states.count("running")
    assert standing.counts[ItemState.FAILED] == states.count("failed")
    assert_outputs_whole(lab, sorted(before))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(120)
def test_a_copy_that_is_run_after_the_first_is_refused_and_sends_nothing(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.env |= SOON
    Past(SCHEMA_REVISION, "sqlite").restore(lab)
    copytree(lab.folder / ".batchrun", lab.folder / "copy")
    assert lab.run(*RESUME).wait() == 6
    arrived = lab.arrivals()
    again = lab.run(*RESUME, "--db", str(lab.folder / "copy" / "ledger.db"))
    assert again.wait() == 1, again.err
    assert "another copy of ledger" in again.err
    assert "Nothing was sent" in again.err
    assert "\n  try: go on with that one" in again.err
    assert lab.arrivals() == arrived


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(120)
def test_a_ledger_that_was_emptied_is_no_new_one(make_lab: Callable[..., Lab]) -> None:
    """It was once: every item was sent, and billed, a second time."""
    lab = make_lab(latency_ms=30)
    lab.write_input(12)
    lab.write_spec(concurrency=2, trial={"size": 3})
    run = lab.start("submit", "jobs/job.json")
    lab.await_arrivals(7, run=run)
    run.kill()
    run.wait()
    arrived = lab.judged().posts
    (lab.folder / ".batchrun" / "ledger.db").write_bytes(b"")
    for command in (("submit", "jobs/job.json"), RESUME, ("status",), ("db", "check"), ("db", "upgrade"), ("doctor",)):
        refused = lab.run(*command)
        assert refused.wait() == 1, (command, refused.err)
        assert "has been in use" in refused.err + refused.out, command
    assert lab.judged().posts == arrived
    (lab.folder / ".batchrun" / "ledger.db").unlink()
    assert lab.run("submit", "jobs/job.json").wait() == 0  # to begin anew is a user's right
