"""Everything dies, again and again, while many workers work on one job: nothing is lost, nothing is billed twice."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from batchrun.core.states import ItemState, JobState
from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import assert_sent_once, ids, until, until_said
from tests.restartable import RestartablePostgres, RestartableRedis

pytestmark = [pytest.mark.slow, pytest.mark.process]
SUBMIT = ("submit", "jobs/job.json", "--no-trial")
COUNT = 2_000


@pytest.fixture
def redis() -> Iterator[RestartableRedis]:
    server = RestartableRedis()
    yield server
    server.close()


@pytest.fixture
def postgres() -> Iterator[RestartablePostgres]:
    server = RestartablePostgres()
    yield server
    server.close()


@pytest.mark.timeout(300)
def test_ten_kinds_of_death_lose_nothing_and_bill_nothing_twice(
    make_lab: Callable[..., Lab], redis: RestartableRedis, postgres: RestartablePostgres
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    lab = make_lab(latency_ms=60)
    lab.db = postgres.url
    lab.env |= {"BATCHRUN_BROKER": redis.url, "BATCHRUN_HEARTBEAT_S": "0.5"}
    lab.write_input(COUNT)
    lab.write_spec(concurrency=12)
    bosses = [lab.start("worker", "-c", "8", "-n", f"w{number}") for number in range(3)]
    for boss in bosses:
        until_said(boss, "is ready")
    run = lab.start(*SUBMIT)

    def signal_a_worker(number: int) -> None:
        for child in dice.choice(bosses).children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    def restart_redis() -> None:
        redis.kill()
        redis.start()

    def restart_postgres() -> None:
        postgres.stop_at_once()
        postgres.start()

    deaths: list[Callable[[], object]] = [
        *[lambda: signal_a_worker(signal.SIGKILL)] * 10,
        *[lambda: signal_a_worker(signal.SIGQUIT)] * 5,
        *[lambda: signal_a_worker(signal.SIGTERM)] * 5,
        *[restart_redis] * 5,
        *[lambda: redis.server.ask("FLUSHALL")] * 2,
        *[restart_postgres] * 3,
    ]
    dice.shuffle(deaths)
    for number, die in enumerate(deaths, start=1):
        lab.await_arrivals(number * COUNT // (len(deaths) + 2), run=run, timeout_s=90)
        assert run.process.is_alive(), (seed, number, run.err)
        die()
    assert run.wait(120) in (0, 6), (seed, run.err)
    standing = assert_accounts_agree(lab)
    assert standing.job.state is JobState.COMPLETED, seed
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))
    assert standing.counts[ItemState.COMPLETED] + standing.counts[ItemState.IN_DOUBT] == COUNT, (seed, standing.counts)
    assert standing.counts[ItemState.IN_DOUBT] <= 10 * 8, (seed, standing.counts)
    for boss in bosses:
        boss.kill(signal.SIGTERM)
        assert boss.wait() in (0, 143), boss.err  # 143: its worker was just being started again


@pytest.mark.timeout(120)
@pytest.mark.parametrize("away", ["redis", "postgres"])
def test_what_is_away_for_longer_than_every_timeout_delays_and_loses_nothing(
    away: str, make_lab: Callable[..., Lab], redis: RestartableRedis, postgres: RestartablePostgres
) -> None:
    lab = make_lab(latency_ms=100)
    lab.db = postgres.url
    lab.env |= {"BATCHRUN_BROKER": redis.url, "BATCHRUN_DEAD_AFTER_S": "2", "BATCHRUN_HEARTBEAT_S": "0.5"}
    lab.write_input(400)
    lab.write_spec(concurrency=8)
    crew = [lab.start("worker", "--alone", "-c", "8") for _ in range(2)]
    for one in crew:
        until_said(one, "is ready")
    run = lab.start(*SUBMIT)
    lab.await_arrivals(60, run=run)
    (redis if away == "redis" else postgres).kill()
    if away == "redis":
        lab.await_arrivals(200, run=run)  # from the ledger alone
        redis.start()
    else:
        before = lab.arrivals()
        until(lambda: lab.judged().by_outcome["answered"] >= before, "what was in flight is answered")
        time.sleep(6)  # longer than what anybody waits for anything here
        assert lab.arrivals() <= before + 8, "nothing is sent that was not written down"
        postgres.start()
    assert run.wait(90) == 0, run.err
    assert_sent_once(lab)
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, ids(400))
    for one in crew:
        one.kill(signal.SIGTERM)
        assert one.wait() == 0, one.err
