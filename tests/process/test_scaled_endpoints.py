"""Several endpoints and several workers on one job, and one of the endpoints dies: judged by the endpoints' logs."""

import signal
from collections import Counter
from collections.abc import Callable
from itertools import chain

import pytest

from batchrun.core.states import ItemState
from batchrun.mock.log import read_log
from batchrun.mock.process import MockProcess
from tests.lab import Lab, assert_outputs_whole
from tests.process.steps import ids, until, until_said
from tests.process.test_several_endpoints import answered, make_several

__all__ = ["make_several"]

COUNT, SLOTS = 150, 9


@pytest.mark.parametrize("on_unknown", ["hold", "retry"])
def test_with_several_workers_an_endpoint_that_dies_costs_doubts_and_no_second_bill(
    make_several: Callable[..., tuple[Lab, list[MockProcess]]], redis_url: str, on_unknown: str
) -> None:
    lab, mocks = make_several(*[{"latency_ms": 150.0}] * 3)
    lab.env["BATCHRUN_BROKER"] = redis_url
    crew = [lab.start("worker", "--alone", "-c", "4") for _ in range(3)]
    for one in crew:
        until_said(one, "is ready")
    lab.write_input(COUNT)
    lab.write_spec(
        concurrency=SLOTS,
        retry_times=5,
        on_unknown=on_unknown,
        endpoints=[{"base_url": mock.base_url} for mock in mocks],
    )
    run = lab.start("submit", "jobs/job.json", "--no-trial", "--no-progress")
    until(lambda: sum(answered(mocks).values()) >= 30, "some are answered")
    until(lambda: mocks[0].stats()["in_flight"] > 0, "the first endpoint has some in hand")
    mocks[0].kill()
    assert run.wait(120) in ((0, 6) if on_unknown == "hold" else (0,)), run.err
    standing = lab.standing()
    doubts = standing.counts[ItemState.IN_DOUBT]
    assert standing.counts[ItemState.COMPLETED] + doubts == COUNT
    assert doubts <= SLOTS
    found = +answered(mocks)
    arrived = [set(read_log(mock.log_path).items) for mock in mocks if mock.log_path is not None]
    if on_unknown == "hold":
        assert max(Counter(chain(*arrived)).values()) == 1, "no item went to two endpoints"
        assert set(found.values()) == {1}
    else:
        assert sum(found.values()) - COUNT <= SLOTS, "only what the dead one had in hand was asked again"
        assert_outputs_whole(lab, ids(COUNT))
    assert all(mock.stats()["posts"] > 0 for mock in mocks[1:])
    for one in crew:
        one.kill(signal.SIGTERM)
        assert one.wait(30) == 0, one.err
