"""kill -9 at any moment, then resume: nothing is silently billed twice, nothing is lost."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.core.states import ItemState
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole, comparable

COUNT, CONCURRENCY = 150, 8
IDS = [f"a{number:05d}" for number in range(COUNT)]
MOMENTS = ("trial", "early", "middle", "late", "start", "end")


def _kill_at(lab: Lab, run: Run, moment: str, dice: random.Random) -> None:
    """Wait for a random instant of one phase of the job, and kill the process there."""
    match moment:
        case "start":  # reading, registering, entering items
            run.process.join(dice.uniform(0.05, 0.5))
        case "trial":
            lab.await_arrivals(dice.randint(1, 9), run=run)
        case "early":
            lab.await_arrivals(dice.randint(11, 40), run=run)
        case "middle":
            lab.await_arrivals(dice.randint(41, 110), run=run)
        case "late":
            lab.await_arrivals(dice.randint(111, COUNT), run=run)
        case "end":  # the last answers, and the writing of the outputs
            lab.await_arrivals(COUNT, run=run)
            run.process.join(dice.uniform(0.02, 0.12))
    time.sleep(dice.uniform(0, 0.01))  # the instant itself is random
    run.kill()
    run.process.join()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    from batchrun.mock.config import MockConfig
    from batchrun.mock.process import MockProcess

    folder = tmp_path_factory.mktemp("undisturbed")
    with MockProcess(MockConfig(latency_ms=20, log_path=str(folder / "requests.jsonl"))) as mock:
        lab = Lab(folder, base_url=mock.base_url, log=folder / "requests.jsonl")
        lab.write_input(COUNT)
        lab.write_spec(concurrency=CONCURRENCY)
        assert lab.run("submit", "jobs/job.json").wait() == 0
        return list(comparable(folder / "outputs" / "out.jsonl"))


@pytest.mark.parametrize("number", range(20))
def test_a_killed_job_is_finished_by_resume_and_bills_nothing_twice(
    number: int, make_lab: Callable[..., Lab], undisturbed: list[bytes]
) -> None:
    seed = f"kill-{number}"
    dice = random.Random(seed)
    lab = make_lab(latency_ms=20)
    lab.write_input(COUNT)
    lab.write_spec(concurrency=CONCURRENCY)
    first = lab.start("submit", "jobs/job.json")
    _kill_at(lab, first, MOMENTS[number % len(MOMENTS)], dice)

    kills, doubts_allowed = 1, CONCURRENCY
    command = ("resume", "batch-001")
    if dice.random() < 0.3:  # and once more, during the resume
        again = lab.start(*command)
        again.process.join(dice.uniform(0.2, 0.6))
        again.kill()
        again.process.join()
        kills += 1
    last = lab.run(*command)
    if last.wait() == 2:  # it died before the job was registered: nothing had been sent
        assert lab.arrivals() == 0, (seed, last.err)
        last = lab.run("submit", "jobs/job.json")
    assert last.wait() in (0, 6), (seed, last.err)

    standing = assert_accounts_agree(lab)
    doubts = standing.counts[ItemState.IN_DOUBT]
    assert standing.counts[ItemState.COMPLETED] + doubts == COUNT, seed
    assert doubts <= kills * doubts_allowed, (seed, doubts)
    assert all(item.billed_count <= 1 for item in lab.judged().items.values()), seed
    assert_outputs_whole(lab, IDS)

    settled = lab.run("reconcile", "batch-001", "--retry", "-y")
    assert settled.wait() == 0, (seed, settled.err)
    standing = assert_accounts_agree(lab)
    assert standing.counts[ItemState.COMPLETED] == COUNT, seed
    assert list(comparable(Path(lab.folder / "outputs" / "out.jsonl"))) == undisturbed, seed
    billed_twice = [item for item in lab.judged().items.values() if item.billed_count > 1]
    assert len(billed_twice) <= doubts, seed
