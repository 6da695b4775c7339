"""Answers from a file: taken by the request they belong to, once, and not one of them where a line is faulty."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from batchrun.core.outcome import Break, Reply
from batchrun.core.prices import Price
from batchrun.errors import BadInput
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import consent
from batchrun.runner.imports import Import, import_answers
from batchrun.runner.reconcile import list_doubts
from tests.runner.bench import Bench, Endpoint, broken, reply

PRICE = Price(input_per_1m_usd=1, output_per_1m_usd=2)
WORST = 1_000_000_000
COST = 20_000_000
BODY = json.loads(reply().body)


def make(folder: Path, *, lost: int = 2) -> Bench:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if int(custom_id[1:]) >= lost:
            return reply()
        return reply(500, "bare", x_request_id=f"their-{custom_id}") if custom_id == "a1" else broken()

    bench = Bench(folder, count=4, endpoint=Endpoint(answer), price=PRICE, worst_pusd=WORST)
    bench.run()
    assert bench.counts == {"completed": 4 - lost, "in_doubt": lost}
    return bench


def take(bench: Bench, *lines: Any, **options: Any) -> Import:
    path = bench.folder / "answers.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return import_answers(bench.ledger, bench.job, path, gear=bench.gear(), **options)


def ids(bench: Bench) -> dict[str, str]:
    return {doubt.item.custom_id: doubt.attempt_id for doubt in list_doubts(bench.ledger, "job")[1]}


def batch_line(body: Any = BODY, **more: Any) -> dict[str, Any]:
    """Return a line of OpenAI Batch's output."""
    return {
        "id": "batch_req_1",
        "response": {"status_code": 200, "request_id": "r", "body": body},
        "error": None,
    } | more


@pytest.mark.parametrize("form", ["plain", "batch", "ours"])
def test_an_answer_is_taken_by_its_attempt_and_priced(tmp_path: Path, form: str) -> None:
    bench = make(tmp_path)
    name = ids(bench)["a0"]
    line = {
        "plain": {"attempt_id": name, "response": BODY},
        "batch": batch_line(attempt_id=name),
        "ours": batch_line(id=name, custom_id="a0", batchrun={"attempt_id": name}),
    }[form]
    assert take(bench, line, is_dry=True).taken[0].attempt_id == name
    assert bench.counts == {"completed": 2, "in_doubt": 2}
    assert [(one.custom_id, one.is_certain) for one in take(bench, line).taken] == [("a0", True)]
    assert bench.counts == {"completed": 3, "in_doubt": 1}
    assert (bench.job.spent_pusd, bench.job.reserved_pusd) == (3 * COST, WORST)
    again = take(bench, line)
    assert (again.taken, again.not_needed, bench.job.spent_pusd) == ([], 1, 3 * COST)


def test_an_answer_is_taken_by_what_the_endpoint_called_its_request(tmp_path: Path) -> None:
    bench = make(tmp_path)
    (taken,) = take(bench, {"request_id": "their-a1", "response": BODY}).taken
    assert (taken.custom_id, taken.is_certain) == ("a1", True)


def test_by_its_item_alone_an_answer_is_taken_and_its_bill_stays_open(tmp_path: Path) -> None:
    bench = make(tmp_path)
    other = batch_line(id="br-0123456789ab-1-1", custom_id="a0")  # of another ledger: not this ledger's request
    assert [(one.custom_id, one.is_certain) for one in take(bench, other).taken] == [("a0", False)]
    assert (bench.counts, bench.job.spent_pusd) == ({"completed": 3, "in_doubt": 1}, 2 * COST)
    assert bench.job.reserved_pusd == 2 * WORST


def test_an_item_with_two_requests_in_doubt_needs_to_be_told_which(tmp_path: Path) -> None:
    bench = make(tmp_path)
    job, doubts = list_doubts(bench.ledger, "job", custom_ids=["a0"])
    first = doubts[0].attempt_id
    with bench.ledger.write() as connection:
        assert consent(connection, job.id, [doubts[0].item], now=0.0) == 1
    bench.run()
    assert bench.counts == {"completed": 2, "in_doubt": 2}
    with pytest.raises(BadInput) as fault:
        take(bench, {"custom_id": "a0", "response": BODY})
    assert first in fault.value.faults[0].hint
    assert [one.custom_id for one in take(bench, {"attempt_id": first, "response": BODY}).taken] == ["a0"]
    assert take(bench, {"custom_id": "a0", "response": BODY}).taken == []  # it has its answer


FAULTY = [
    ("{no json\n", "line 2"),
    ("[1]\n", "is no JSON object"),
    ({"response": BODY}, "names no request"),
    ({"attempt_id": 7, "response": BODY}, "names no request"),
    ({"custom_id": "a1"}, "has no 'response'"),
    ({"custom_id": "a1", "response": "text"}, "has no 'response'"),
    ({"custom_id": "a1", "response": {"status_code": "200", "body": BODY}}, "'status_code'"),
    ({"custom_id": "a1", "response": {}}, "is no answer"),
    ({"custom_id": "a1", "response": {"body": "<html>"}}, "is no answer"),
    ({"custom_id": "a1", "response": {"choices": []}}, "is no answer"),
    ('{"custom_id": "a1", "response": {"choices": NaN}}\n', "line 2"),
    ({"custom_id": "a0", "response": BODY | {"id": "another"}}, "another answer on line 1"),
]


def test_one_faulty_line_and_nothing_is_taken(tmp_path: Path) -> None:
    bench = make(tmp_path)
    for line, words in FAULTY:
        with pytest.raises(BadInput) as fault:
            take(bench, {"custom_id": "a0", "response": BODY}, line)
        (found,) = fault.value.faults
        assert words in str(found), line
        assert (found.where.endswith("line 2"), bool(found.hint)) == (True, True), line
        assert bench.counts == {"completed": 2, "in_doubt": 2}, line


def test_what_is_not_needed_or_tells_of_an_error_is_counted(tmp_path: Path) -> None:
    bench = make(tmp_path)
    name = ids(bench)["a0"]
    found = take(
        bench,
        {"custom_id": "a3", "response": BODY},
        {"custom_id": "unheard", "response": BODY},
        {"attempt_id": f"{name}9", "response": BODY},
        "\n",
        {"custom_id": "a0", "response": None, "error": {"message": "expired"}},
        {"custom_id": "a1", "response": {"status_code": 500, "body": {"error": {}}}},
    )
    assert (found.lines, found.taken, found.not_needed, found.without_answer) == (5, [], 3, 2)
    assert bench.counts == {"completed": 2, "in_doubt": 2}


def test_only_the_named_items_are_taken_from_a_packed_file_too(tmp_path: Path) -> None:
    bench = make(tmp_path)
    lines = "".join(json.dumps({"custom_id": name, "response": BODY}) + "\n" for name in ("a0", "a1"))
    path = tmp_path / "answers.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    found = import_answers(bench.ledger, bench.job, path, gear=bench.gear(), custom_ids=["a1"])
    assert [one.custom_id for one in found.taken] == ["a1"]
    with pytest.raises(BadInput):
        import_answers(bench.ledger, bench.job, tmp_path / "none.jsonl", gear=bench.gear())


def test_an_answer_to_what_was_given_up_is_taken_and_the_raw_one_kept(tmp_path: Path) -> None:
    bench = make(tmp_path)
    _, doubts = list_doubts(bench.ledger, "job")
    with bench.ledger.write() as connection:
        assert job_moves.move_job(connection, bench.job_id, "finalize", now=0.0)
        assert job_moves.move_job(connection, bench.job_id, "complete", now=0.0)
        connection.execute(text("UPDATE items SET state = 'failed' WHERE custom_id = 'a0'"))
    take(bench, {"attempt_id": doubts[0].attempt_id, "response": BODY})
    assert bench.counts == {"completed": 3, "in_doubt": 1}
    assert bench.job.state == "finalizing"  # the outputs are to be written anew
    with bench.ledger.read() as connection:
        raw = connection.execute(text("SELECT raw FROM answers ORDER BY key")).scalars().first()
    assert json.loads(raw) == BODY
