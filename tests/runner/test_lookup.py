"""Doubts settled by asking: what is found is taken once, what is not found changes nothing, and nothing is sent."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from batchrun.core.outcome import Break, BreakKind, Reply
from batchrun.core.prices import Price
from batchrun.errors import UsageFault
from batchrun.runner.lookup import ENOUGH, Looked, Result, look_up_doubts
from batchrun.runner.reconcile import list_doubts
from tests.runner.bench import Bench, Endpoint, broken, reply

PRICE = Price(input_per_1m_usd=1, output_per_1m_usd=2)
WORST = 1_000_000_000
ANSWER = json.loads(reply().body)


class Log(Endpoint):
    """An endpoint that answers the first items, loses the rest, and keeps rows about some of them."""

    def __init__(self, lost: int = 1) -> None:
        super().__init__(self._answer)
        self._lost = lost
        self.rows: dict[str, Any] = {}
        self.silence: list[Reply | Break] = []  # what it answers first
        self.asked = 0

    async def _answer(self, custom_id: str, nth: int) -> Reply | Break:
        return broken() if int(custom_id[1:]) < self._lost else reply()

    async def get(self, path: str, *, limit_s: float) -> Reply | Break:
        self.asked += 1
        if self.silence:
            return self.silence.pop(0)
        wanted = path.partition("request_id=")[2]
        row = self.rows.get(wanted)
        return reply(body=[] if row is None else [{"request_id": wanted, "status": "success", **row}])


def make(folder: Path, *, lost: int = 1, count: int = 3) -> tuple[Bench, Log]:
    log = Log(lost)
    bench = Bench(folder, count=count, concurrency=2, endpoint=log, price=PRICE, worst_pusd=WORST)
    with bench.ledger.write() as connection:
        spec = json.dumps({**bench.job.spec, "lookup": "litellm"})
        connection.execute(text("UPDATE jobs SET spec = :spec"), {"spec": spec})
    bench.run()
    return bench, log


def ask(bench: Bench, *, is_dry: bool = False) -> list[Looked]:
    """Ask about all that is in doubt."""

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    waits: list[float] = []
    job, doubts = list_doubts(bench.ledger, "job")
    looked = look_up_doubts(bench.ledger, job, doubts, gear=bench.gear(), is_dry=is_dry, sleep=sleep)
    bench.said += [f"{seconds:g}" for seconds in waits]
    return looked


def doubt_ids(bench: Bench) -> list[str]:
    return [doubt.attempt_id for doubt in list_doubts(bench.ledger, "job")[1]]


def one(bench: Bench, column: str) -> Any:
    with bench.ledger.read() as connection:
        return connection.execute(text(f"SELECT {column} FROM attempts WHERE key >> 20 = 1")).scalar_one()


def test_an_answer_that_is_found_is_taken_priced_and_not_sent_for(tmp_path: Path) -> None:
    bench, log = make(tmp_path)
    (name,) = doubt_ids(bench)
    sent_at = one(bench, "sent_at")
    log.rows[name] = {"response": ANSWER, "prompt_tokens": 10, "completion_tokens": 5}
    assert [one.result for one in ask(bench, is_dry=True)] == [Result.ADOPTED]
    assert bench.counts == {"completed": 2, "in_doubt": 1}
    assert [(one.custom_id, one.result) for one in ask(bench)] == [("a0", Result.ADOPTED)]
    assert bench.counts == {"completed": 3}
    assert (bench.job.spent_pusd, bench.job.reserved_pusd) == (3 * 20_000_000, 0)
    assert (len(log.sent), one(bench, "sent_at"), one(bench, "duration_s")) == (3, sent_at, None)
    assert ask(bench) == []


def test_a_bill_without_its_answer_is_certain_and_the_item_stays_in_doubt(tmp_path: Path) -> None:
    bench, log = make(tmp_path)
    (name,) = doubt_ids(bench)
    log.rows[name] = {"prompt_tokens": 10, "completion_tokens": 5}
    assert bench.job.reserved_pusd == WORST
    assert [one.result for one in ask(bench)] == [Result.CHARGED]
    assert bench.counts == {"completed": 2, "in_doubt": 1}
    assert (bench.job.spent_pusd, bench.job.reserved_pusd) == (3 * 20_000_000, 0)
    (doubt,) = list_doubts(bench.ledger, "job")[1]
    assert (doubt.is_charged, doubt.cost_pusd, doubt.possible_pusd) == (True, 20_000_000, None)
    # The answer turns up after all: it is not counted a second time.
    ask(bench)
    log.rows[name] |= {"response": ANSWER}
    assert [one.result for one in ask(bench)] == [Result.ADOPTED]
    assert (bench.job.spent_pusd, bench.job.reserved_pusd) == (3 * 20_000_000, 0)


def test_a_bill_without_counts_keeps_the_worst_case_reserved(tmp_path: Path) -> None:
    bench, log = make(tmp_path)
    log.rows[doubt_ids(bench)[0]] = {"spend": 0.5}
    assert [one.result for one in ask(bench)] == [Result.CHARGED]
    assert (bench.job.spent_pusd, bench.job.reserved_pusd) == (2 * 20_000_000, WORST)
    assert one(bench, "charge") == "certain"


def test_what_is_not_found_stays_as_it_was(tmp_path: Path) -> None:
    bench, _ = make(tmp_path, lost=2)
    before = bench.counts, bench.job.reserved_pusd
    assert {one.result for one in ask(bench)} == {Result.NOT_FOUND}
    assert (bench.counts, bench.job.reserved_pusd) == before


def test_what_is_stored_and_useless_fails_the_item(tmp_path: Path) -> None:
    bench, log = make(tmp_path)
    log.rows[doubt_ids(bench)[0]] = {"response": {"choices": []}, "prompt_tokens": 10, "completion_tokens": 5}
    assert [one.result for one in ask(bench)] == [Result.USELESS]
    assert bench.counts == {"completed": 2, "failed": 1}


def test_a_question_is_asked_again_and_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    bench, log = make(tmp_path)
    log.silence = [reply(429, {}, retry_after="9"), broken(BreakKind.TIMEOUT)]
    log.rows[doubt_ids(bench)[0]] = {"response": ANSWER}
    assert [one.result for one in ask(bench)] == [Result.ADOPTED]
    assert (log.asked, bench.said[-2:]) == (3, ["9", "1"])


@pytest.mark.parametrize(("silence", "most"), [(broken(), 4 * (ENOUGH + 8)), (reply(401, {}), 8)])
def test_an_endpoint_that_gives_no_word_is_not_asked_for_ever(tmp_path: Path, silence: Any, most: int) -> None:
    bench, log = make(tmp_path, lost=11, count=40)
    log.silence = [silence] * 1_000
    bench.run()  # eleven doubts in a row stop nothing; the twelfth would
    looked = ask(bench)
    assert len(looked) == 11
    assert {one.result for one in looked} == {Result.NOT_ASKED}
    assert all(one.note for one in looked)
    assert log.asked <= most


def test_a_request_that_went_elsewhere_is_not_asked_for_here(tmp_path: Path) -> None:
    bench, log = make(tmp_path)
    log.address = "http://127.0.0.1:2/v1"
    (looked,) = ask(bench)
    assert (looked.result, log.asked) == (Result.NOT_ASKED, 0)
    assert looked.note == "it went to http://127.0.0.1:1/v1: set OPENAI_BASE_URL to that to ask there"


def test_a_spec_that_does_not_say_how_is_told_how(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=1, endpoint=Log(1))
    bench.run()
    with pytest.raises(UsageFault) as fault:
        ask(bench)
    assert '"lookup": "openai"' in str(fault.value.hint)
