"""CP-05G: a ladder that sends the same prompts at each step measures the prefix cache from the second step on."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import select

from batchrun.bench.workload import Prompts
from batchrun.core.measuring.document import Measurement
from batchrun.endpoint.body import read_json
from batchrun.ledger.schema import items, jobs, requests
from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests.lab import Lab

HEAD = 64
LADDER, ROUNDS, EACH = "1,4,8", 3, 6


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    log = tmp_path / "requests.jsonl"
    with MockProcess(MockConfig(log_path=str(log), answer_tokens=4)) as mock:
        made = Lab(tmp_path, base_url=mock.base_url, log=log)
        yield made
        made.stop()


def sent(lab: Lab) -> dict[str, list[str]]:
    """Return every prompt that any job of the ledger sent, by job."""
    found: dict[str, list[str]] = {}
    with lab.ledger().read() as connection:
        query = select(jobs.c.task_id, requests.c.body).join(items, items.c.job_id == jobs.c.id)
        for name, body in connection.execute(query.join(requests, requests.c.item_id == items.c.id)):
            found.setdefault(name, []).append(read_json(bytes(body)).value["messages"][-1]["content"])
    return found


@pytest.mark.process
@pytest.mark.timeout(120)
def test_no_two_requests_of_a_ladder_begin_alike_and_the_report_says_so(lab: Lab) -> None:
    flags = ("-w", "mixed", "-n", str(EACH), "--pause", "0", "--seed", "7")
    run = lab.run("bench", *flags, "-c", LADDER, "--rounds", str(ROUNDS))
    assert run.wait() == 0, run.err
    again = lab.run("bench", *flags, "-c", "1", "--rounds", "1")  # it meets the caches that the first one filled
    assert again.wait() == 0, again.err
    by_job = sent(lab)
    steps = [prompts for name, prompts in by_job.items() if "-r" in name]
    assert [len(prompts) for prompts in steps] == [EACH] * (3 * ROUNDS + 1)
    everything = [prompt for prompts in by_job.values() for prompt in prompts]
    assert len({prompt[:HEAD] for prompt in everything}) == len(everything)
    judged = lab.judged()
    assert (judged.posts, len({arrival.body_sha for item in judged.items.values() for arrival in item.arrivals})) == (
        len(everything),
        len(everything),
    )
    assert "no two prompts begin alike" in run.out
    assert "seed 7" in run.out
    for path in (lab.folder / "measurements").glob("*.json"):
        workload = Measurement.from_json(path.read_text()).setup.workload
        assert (workload.is_varied, workload.seed, workload.is_shuffled) == (True, 7, True)


@pytest.mark.process
def test_a_prefix_that_is_shared_on_purpose_is_said_to_be(lab: Lab) -> None:
    flags = ("-w", "200x4", "-n", "3", "-c", "2", "--rounds", "2", "--pause", "0", "--shared-prefix", "100")
    run = lab.run("bench", *flags)
    assert run.wait() == 0, run.err
    prompts = [prompt for name, found in sent(lab).items() if "-r" in name for prompt in found]
    assert all(one[:HEAD] == other[:HEAD] for one, other in pairwise(prompts))
    assert len(set(prompts)) == len(prompts)
    assert "the first 100 tokens shared on purpose" in run.out


def without_marks() -> None:
    """Let every prompt of a number be the same in all runs, as careless tools do."""
    Prompts.mark = lambda self, run, number: f"{number:016d}"  # type: ignore[method-assign]


@pytest.mark.process
def test_a_ladder_of_equal_prompts_is_caught(tmp_path: Path) -> None:
    flags = ("-w", "300x4", "-n", "3", "-c", "1,2", "--rounds", "1", "--pause", "0", "--warm-up", "0")
    settings = MockConfig(answer_tokens=4, prefix_cache_blocks=10_000)
    with MockProcess(settings) as mock:
        honest = Lab(tmp_path, base_url=mock.base_url)
        try:
            run = honest.run("bench", *flags)
            assert run.wait() == 0, run.err
            assert "a cache flatters" not in run.out
            careless = honest.start("bench", *flags, before=without_marks)
            assert careless.wait() == 0, careless.err
        finally:
            honest.stop()
    assert "warn  2 at once, round 1: a cache flatters it: the server knew 9" in careless.out
