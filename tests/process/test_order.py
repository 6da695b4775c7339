"""Order that pays: what is sent first, as the endpoint saw it, in one process and over a broker; outputs as ever."""

import json
import random
import signal
from collections.abc import Callable

import pytest

from tests.lab import Lab, Run, assert_outputs_whole, batch_line
from tests.process.steps import until_said

GROUPS, EACH, PREFIX_BYTES = 30, 6, 2_560
CACHE_BLOCKS = 40 * 6  # six of the thirty prefixes
COUNT = GROUPS * EACH
IDS = [f"a{number:05d}" for number in range(COUNT)]


def prefix(group: int) -> str:
    """Return the beginning that a group shares, and no other."""
    return "".join(random.Random(group).choices("abcdefgh ", k=PREFIX_BYTES))


def write_shared(lab: Lab) -> None:
    """Write an input in which each prefix comes again only after all the others."""
    lines = []
    for number, custom_id in enumerate(IDS):
        body = json.loads(batch_line(custom_id, "a question"))
        body["body"]["messages"].insert(0, {"role": "system", "content": prefix(number % GROUPS)})
        lines.append(json.dumps(body) + "\n")
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(lines))


def arrived(lab: Lab) -> list[str]:
    """Return the items in the order in which their requests came."""
    return list(lab.judged().items)


@pytest.fixture(params=["embedded", "scaled"])
def lab(request: pytest.FixtureRequest, make_lab: Callable[..., Lab]) -> Lab:
    made = make_lab(latency_ms=5, prefix_cache_blocks=CACHE_BLOCKS)
    if request.param == "scaled":
        made.env["BATCHRUN_BROKER"] = request.getfixturevalue("redis_url")
    return made


def crew(lab: Lab) -> Run | None:
    if "BATCHRUN_BROKER" not in lab.env:
        return None
    run = lab.start("worker", "--alone", "-c", "4")
    until_said(run, "is ready")
    return run


def test_grouped_prefixes_are_found_in_the_endpoints_cache(lab: Lab) -> None:
    write_shared(lab)
    hits = {}
    worker = crew(lab)
    for order in ("input", "prefix"):
        out = f"{order}.jsonl"
        lab.write_spec(f"{order}.json", task_id=order, order=order, concurrency=4, output_file=f"./outputs/{out}")
        assert lab.mock is not None
        lab.mock.reset()
        run = lab.run("submit", f"jobs/{order}.json")
        assert run.wait() == 0, run.err
        stats = lab.mock.stats()
        assert stats["billed"] == COUNT
        hits[order] = stats["prefix_hits"] / stats["prefix_queries"]
        assert_outputs_whole(lab, IDS, output=out, errors=f"{order}.errors.jsonl")
    assert hits["input"] < 0.15, hits
    assert hits["prefix"] > 0.6, hits  # at best five of six, but for the trial
    if worker is not None:
        worker.kill(signal.SIGTERM)
        assert worker.wait() == 0


def test_the_longest_go_first_and_the_outputs_stay_in_input_order(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=1)
    lengths = random.Random(1).sample(range(1, 4_000), 60)
    (lab.folder / "inputs" / "in.jsonl").write_text(
        "".join(batch_line(custom_id, max_tokens=most) for custom_id, most in zip(IDS, lengths, strict=False))
    )
    lab.write_spec(order="longest", concurrency=1)
    run = lab.run("submit", "jobs/job.json", "--no-trial")
    assert run.wait() == 0, run.err
    by_length = sorted(zip(lengths, IDS, strict=False), reverse=True)
    assert arrived(lab) == [custom_id for _, custom_id in by_length]
    assert_outputs_whole(lab, IDS[:60])


def test_an_order_that_is_told_later_holds_for_what_is_left(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=1)
    (lab.folder / "inputs" / "in.jsonl").write_text(
        "".join(batch_line(custom_id, max_tokens=number + 1) for number, custom_id in enumerate(IDS[:30]))
    )
    lab.write_spec(concurrency=1, trial={"size": 5})
    assert lab.run("trial", "jobs/job.json").wait() == 0
    tried = arrived(lab)
    lab.write_spec(concurrency=1, order="longest", trial={"size": 5})
    run = lab.run("submit", "jobs/job.json", "-y")
    assert run.wait() == 0, run.err
    left = [custom_id for custom_id in reversed(IDS[:30]) if custom_id not in tried]
    assert arrived(lab)[len(tried) :] == left
    assert_outputs_whole(lab, IDS[:30])
