"""`batchrun chaos`: its rounds are drawn from their seed, its verdict can fail, and its table says what was seen."""

from collections import Counter
from pathlib import Path

import pytest

from batchrun.cli.chaos import Storm
from batchrun.cli.context import Context
from batchrun.cli.main import run
from batchrun.cli.ordeal import FAULTS, draw
from batchrun.cli.ordeal_play import Play
from batchrun.cli.ordeal_verdict import TASK, Report, _named, _silent
from batchrun.cli.proof import count_bills, prove_each
from batchrun.ledger.jobs import move_job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.register import write_items
from tests.ledger.desk import NOW, hire, line, register
from tests.test_demo import arrival

KEPT = Report(1, "hold, 60 items", deaths=3, requests=61, billed=60, answers=58, doubts=2, consents=1)
BROKEN = Report(2, "hold, 70 items", deaths=4, silent_second_bills=1, lost_items=2, violations=["not so: no item ..."])


def test_a_round_is_drawn_from_seed_and_number_alone_and_every_kind_is_drawn() -> None:
    rounds = [draw(7, number) for number in range(1, 300)]
    assert rounds == [draw(7, number) for number in range(1, 300)]
    assert rounds[0] != draw(8, 1)
    assert {one.policy for one in rounds} == {"hold", "retry"}
    assert {one.processes for one in rounds} == {1, 2, 3}
    assert {name for one in rounds for name in one.faults} == set(FAULTS)
    strikes = [strike for one in rounds for strike in (*one.strikes, *one.strikes_after)]
    assert {strike.how for strike in strikes} == {"kill", "term", "stop"}
    assert {strike.after_s is None for strike in strikes} == {True, False}
    assert all((strike.after_s is None) != (strike.after_requests is None) for strike in strikes)
    assert all(sum(one.faults.values()) < 0.5 and one.strikes for one in rounds)


def named(item: str, name: str) -> str:
    return arrival(item).replace("{", f'{{"client_request_id": "{name}", ', 1)


def test_a_request_without_a_row_or_that_was_never_sent_or_sent_twice_is_a_violation() -> None:
    bills = count_bills([named("a", "br-1"), named("b", "br-2")])
    assert prove_each(bills, {"br-1": "answered", "br-2": "unknown", "br-3": "intent"}).holds
    assert "br-2" in prove_each(bills, {"br-1": "answered"}).seen
    assert not prove_each(bills, {"br-1": "answered", "br-2": "not_sent"}).holds
    again = count_bills([named("a", "br-1"), named("a", "br-1")])
    assert not prove_each(again, {"br-1": "answered"}).holds
    assert not prove_each(count_bills([arrival("a")]), {"br-1": "answered"}).holds


def test_a_second_bill_is_silent_unless_somebody_agreed_to_it_or_the_ledger_names_it() -> None:
    bills = count_bills([arrival("a"), arrival("a"), arrival("b"), arrival("x")])
    assert _silent(bills, ["a", "b"], Counter()) == 2  # a's second, and x's, which nobody asked for
    assert _silent(bills, ["a", "b", "x"], Counter({"a": 1})) == 0
    assert _named({"a": [("br-1", "unknown"), ("br-2", "answered")], "b": [("br-3", "refused")]}) == {"a": 1, "b": 0}


def test_a_job_is_counted_once_it_is_registered_and_not_while_its_items_are_written(tmp_path: Path) -> None:
    play = Play(draw(7, 1), tmp_path, lambda words: None)
    ledger = Ledger(f"sqlite:///{tmp_path}/.batchrun/ledger.db", folder=tmp_path / ".batchrun")
    assert play._count_items() == (None, 0)
    job = register(ledger, 2, holder=hire(ledger), task_id=TASK)
    assert play._count_items() == (None, 0)
    write_items(ledger, job.id, [line(0), line(1)], trial=(), now=NOW)
    with ledger.write() as connection:
        assert move_job(connection, job.id, "open", now=NOW)
    assert play._count_items() == (2, 2)


def make_storm(folder: Path, *reports: Report, as_json: bool = False) -> Storm:
    return Storm(Context(json=as_json), folder, 7, reports=list(reports))


def test_a_kept_promise_is_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make_storm(tmp_path, KEPT).close(kept=False) == 0
    said = capsys.readouterr().out
    assert "verdict: no silent second bill, no lost item\n" in said
    assert "3 deaths by kill -9, 60 requests billed, 1 item sent again by consent" in said


def test_a_violation_is_exit_7_and_says_how_to_play_its_round_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_storm(tmp_path, KEPT, BROKEN).close(kept=True) == 7
    said = capsys.readouterr().out
    assert "BROKEN: 1 silent second bill, 2 lost items" in said
    assert "batchrun chaos --seed 7 --round 2" in said
    assert str(tmp_path) in said


def test_chaos_takes_no_foreign_ledger() -> None:
    assert run(["chaos", "--db", "other.db"]) == 2
    assert run(["chaos", "--broker", "redis://127.0.0.1:1/0"]) == 2
