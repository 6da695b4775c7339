"""Several real endpoints, whole commands: judged by each endpoint's own log."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batchrun.mock.config import MockConfig
from batchrun.mock.log import read_log
from batchrun.mock.process import MockProcess
from tests.lab import Lab
from tests.process.steps import until

SLOTS, LATENCY_S = 8, 0.4
THIRD = {"latency_ms": 1_000 * LATENCY_S, "slots": SLOTS}
Make = Callable[..., tuple[Lab, list[MockProcess]]]


@pytest.fixture
def make_several(tmp_path: Path) -> Iterator[Make]:
    """Return a function that makes a lab with an endpoint for each of some settings."""
    with ExitStack() as stack:

        def make(*settings: dict[str, Any], name: str = "lab") -> tuple[Lab, list[MockProcess]]:
            folder = tmp_path / name
            folder.mkdir()
            mocks = [
                stack.enter_context(MockProcess(MockConfig(log_path=str(folder / f"{number}.jsonl"), **own)))
                for number, own in enumerate(settings)
            ]
            lab = Lab(folder)
            stack.callback(lab.stop)
            return lab, mocks

        yield make


def moments(mocks: list[MockProcess]) -> list[float]:
    """Return when each request arrived, over all endpoints."""
    found = []
    for mock in mocks:
        assert mock.log_path is not None
        for record in read_log(mock.log_path).items.values():
            found += [datetime.fromisoformat(arrival.at).timestamp() for arrival in record.arrivals]
    return sorted(found)


def answered(mocks: list[MockProcess]) -> Counter[str]:
    """Return how often each item was answered, as the endpoints say."""
    found: Counter[str] = Counter()
    for mock in mocks:
        assert mock.log_path is not None
        for key, record in read_log(mock.log_path).items.items():
            found[key] += sum(arrival.outcome == "answered" for arrival in record.arrivals)
    return found


def test_three_endpoints_of_which_one_dies_and_one_slows_tenfold_are_used_nearly_as_well_as_can_be(
    make_several: Make,
) -> None:
    for number in range(3):  # a busy machine makes one run slow, a slot that is left empty every one
        took_s, ideal_s = _lose_one_and_slow_one(*make_several(*[THIRD] * 3, name=f"lab-{number}"))
        if took_s <= 1.25 * ideal_s:
            return
    raise AssertionError((took_s, ideal_s))


def _lose_one_and_slow_one(lab: Lab, mocks: list[MockProcess]) -> tuple[float, float]:
    """Return how long the job took, and how long it takes where no slot is ever empty, in seconds."""
    count = 260
    lab.write_input(count)
    lab.write_spec(
        concurrency=3 * SLOTS,
        retry_times=5,
        on_unknown="retry",
        trial={"size": 0},
        endpoints=[{"base_url": mock.base_url, "concurrency": SLOTS} for mock in mocks],
    )
    run = lab.start("submit", "jobs/job.json", "--no-progress")
    deadline = time.monotonic() + 60
    while sum(answered(mocks).values()) < 100:
        assert time.monotonic() < deadline, run.err
        assert run.process.is_alive(), run.err
        time.sleep(0.02)
    mocks[0].kill()
    mocks[1].resize(slowdown=10.0)
    changed_at, done = time.time(), sum(answered(mocks).values())
    assert run.wait(120) == 0, run.err
    began_at = moments(mocks)[0]
    ended_at = lab.standing().job.ended_at
    assert ended_at is not None
    # From the change on: what is left, at the rate of the one that is well and the one that has slowed down.
    rate = SLOTS / LATENCY_S + SLOTS / (10 * LATENCY_S)
    ideal_s = (changed_at - began_at) + (count - done) / rate
    assert [len(lab.lines(name)) for name in ("out.jsonl", "out.errors.jsonl")] == [count, 0]
    found = answered(mocks)
    assert len(found) == count
    assert sum(found.values()) - count <= SLOTS, "only what the dead one had in hand was asked again"
    return ended_at - began_at, ideal_s


def test_under_hold_no_item_arrives_at_two_endpoints_although_one_of_them_dies(make_several: Make) -> None:
    lab, mocks = make_several(*[{"latency_ms": 100.0}] * 2)
    lab.write_input(120)
    lab.write_spec(trial={"size": 0}, endpoints=[{"base_url": mock.base_url} for mock in mocks])
    mocks[0].resize(admits=10)  # what comes then waits: something is in its hands when it dies
    run = lab.start("submit", "jobs/job.json", "--no-progress")
    until(lambda: mocks[0].stats()["waiting"] > 0, "the first one has answered ten and has others in hand")
    mocks[0].kill()
    assert run.wait(60) == 6, run.err
    logs = [read_log(mock.log_path) for mock in mocks if mock.log_path is not None]
    assert not set(logs[0].items) & set(logs[1].items)
    standing = lab.standing()
    states = {state.value: number for state, number in standing.counts.items() if number}
    assert states == {"completed": 120 - states["in_doubt"], "in_doubt": states["in_doubt"]}
    assert 1 <= states["in_doubt"] <= 8
    assert standing.attempts.certain_requests <= sum(log.billed for log in logs)
    out = json.loads(lab.run("cost", "batch-001", "--json").out)
    assert {line["endpoint"] for line in out["by_endpoint"]} == {mock.base_url for mock in mocks}
    assert f"going on without {mocks[0].base_url}" in run.err


def test_each_endpoint_gets_its_own_key_and_none_is_ever_written_down(make_several: Make) -> None:
    keys = ["sk-first-0123456789abcdef", "sk-second-fedcba9876543210"]
    lab, mocks = make_several(*[{"api_key": key, "latency_ms": 20.0} for key in keys])
    lab.write_input(40)
    own = [{"base_url": mock.base_url, "api_key_env": f"KEY_{at}"} for at, mock in enumerate(mocks)]
    lab.write_spec(endpoints=own)
    env = {f"KEY_{at}": key for at, key in enumerate(keys)}
    run = lab.run("submit", "jobs/job.json", "--no-progress", env=env)
    assert run.process.exitcode == 0, run.err
    assert all(mock.stats()["posts"] > 0 for mock in mocks)
    looked = lab.run("doctor", "jobs/job.json", env=env)
    assert all(f"{mock.base_url}" in looked.out for mock in mocks)
    written = b"".join(path.read_bytes() for path in lab.folder.rglob("*") if path.is_file())
    assert not any(key.encode() in written for key in keys)


def test_an_endpoint_that_refuses_its_key_is_left_out_and_the_command_says_so(make_several: Make) -> None:
    lab, mocks = make_several({"api_key": "sk-right-0123456789"}, {"latency_ms": 20.0})
    lab.write_input(40)
    lab.write_spec(endpoints=[{"base_url": mocks[0].base_url, "api_key_env": "WRONG"}, {"base_url": mocks[1].base_url}])
    run = lab.run("submit", "jobs/job.json", "--no-progress", env={"WRONG": "sk-wrong-0123456789"})
    assert run.process.exitcode == 0, run.err
    assert len(lab.lines()) == 40
    assert f"going on without {mocks[0].base_url}" in run.err
    looked = lab.run("doctor", "jobs/job.json", env={"WRONG": "sk-wrong-0123456789"})
    assert "set a valid key in WRONG" in looked.out
