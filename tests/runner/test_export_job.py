"""`export`: a job's answers in any format and order, what was asked beside them, and never over others' files."""

import asyncio
import csv
import json
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from batchrun.core.concurrency import Concurrency
from batchrun.core.outcome import Break, Reply
from batchrun.errors import IllegalMove, UsageFault
from batchrun.files.inputs import survey
from batchrun.ledger import jobs as job_moves
from batchrun.ledger import results
from batchrun.ledger.consents import cancel_pending
from batchrun.ledger.purge import begin_purge
from batchrun.ledger.results import stream_results
from batchrun.runner.export import write_outputs
from batchrun.runner.export_job import Exported, Wish, export_job
from batchrun.runner.finalize import finalize
from tests.files.input_files import DEFAULTS, written
from tests.runner.bench import Bench, Endpoint, broken, reply

COUNT = 8


async def _mixed(custom_id: str, nth: int) -> Reply | Break:
    """Answer the odd ones, the later ones first; refuse, break or leave the even ones."""
    number = int(custom_id[1:])
    await asyncio.sleep((COUNT - number) / 400)
    if number == 2:
        return reply(400, {"error": {"message": "no such field"}})
    if number == 4:
        return broken()
    message = {"role": "assistant", "content": f"answer, {number}"}
    return reply(body={"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A job that has ended, with an item of each kind."""
    (tmp_path / "in.jsonl").write_text("the input\n")
    made = Bench(tmp_path, count=COUNT, concurrency=COUNT, endpoint=Endpoint(_mixed))
    respec(made, input_file=str(tmp_path / "in.jsonl"))
    made.run()
    finalize(made.ledger, made.job, holder=made.worker.id)
    yield made
    made.ledger.close()


def respec(bench: Bench, **changes: Any) -> None:
    with bench.ledger.write() as connection:
        spec = json.dumps({**bench.job.spec, "prompt_template": None, **changes})
        job_moves.change_settings(connection, bench.job_id, now=time.time(), spec=spec)


def register_other(bench: Bench, *, output_file: str, error_file: str) -> None:
    """Register another job, which has written nothing yet."""
    files = {"output_file": str(bench.folder / output_file), "error_file": str(bench.folder / error_file)}
    values = {"input_digest": "", "params_digest": "", "on_unknown": "hold", "max_cost_pusd": None}
    limits = {"total": 0, "phase": "full", "concurrency": Concurrency.of(1), "retry_times": 0}
    with bench.ledger.write() as connection:
        spec = {**bench.job.spec, **files}
        job_moves.register_job(
            connection, task_id="other", spec=spec, holder=bench.worker.id, now=0.0, **values, **limits
        )


def export(bench: Bench, output: Path, **wish: Any) -> Exported:
    return export_job(bench.ledger, "job", Wish(output, **wish))


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def test_a_table_has_every_item_in_input_order(bench: Bench, tmp_path: Path) -> None:
    made = export(bench, tmp_path / "o.csv")
    rows = read_csv(tmp_path / "o.csv")
    assert [row["custom_id"] for row in rows] == [f"a{number}" for number in range(COUNT)]
    assert [row["state"] for row in rows].count("completed") == COUNT - 2
    assert (rows[2]["error_cause"], rows[2]["text"]) == ("bad_request", "")
    assert (rows[4]["state"], rows[4]["error_cause"]) == ("in_doubt", "connection_lost")
    assert rows[5]["text"] == "answer, 5"
    assert (made.format, made.count, made.items, made.left, made.errors) == ("csv", COUNT, COUNT, 0, None)


def test_csv_and_parquet_say_the_same(bench: Bench, tmp_path: Path) -> None:
    for name in ("o.csv", "o.parquet"):
        export(bench, tmp_path / name, join="prompt")
    table = pyarrow.parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert len(table) == COUNT
    for cells, row in zip(read_csv(tmp_path / "o.csv"), table, strict=True):
        assert list(cells) == list(row)
        for name, value in row.items():
            written = Decimal(cells[name]) if isinstance(value, Decimal) else cells[name]
            assert written == (value if isinstance(value, Decimal) else "" if value is None else str(value)), name
        assert cells["prompt"] == cells["custom_id"]


def test_in_order_of_finish_the_first_answer_comes_first(bench: Bench, tmp_path: Path) -> None:
    made = export(bench, tmp_path / "o.jsonl", order="finish")
    ids = [json.loads(line)["custom_id"] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    with bench.ledger.read() as connection:
        ended = dict(
            connection.exec_driver_sql("SELECT custom_id, ended_at FROM items JOIN attempts ON key = answer_key").all()
        )
    assert ids == sorted(ended, key=lambda custom_id: (ended[custom_id], custom_id))
    assert ids != sorted(ids), "they did not come in the order of the input"
    assert (made.count, made.error_count) == (COUNT - 2, 2)


def test_jsonl_with_the_prompts_is_the_same_lines_with_one_key_more(bench: Bench, tmp_path: Path) -> None:
    export(bench, tmp_path / "plain.jsonl")
    export(bench, tmp_path / "joined.jsonl", join="prompt")
    for name in ("{}.jsonl", "{}.errors.jsonl"):
        plain = (tmp_path / name.format("plain")).read_text().splitlines()
        joined = [json.loads(line) for line in (tmp_path / name.format("joined")).read_text().splitlines()]
        for line, more in zip(plain, joined, strict=True):
            asked = more["batchrun"].pop("input")
            assert asked["path"] == "/v1/chat/completions"
            assert asked["body"]["messages"][0]["content"] == more["custom_id"]
            assert json.loads(line) == more


def test_a_job_that_runs_is_exported_so_far(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=3)
    respec(bench, input_file=str(tmp_path / "in.jsonl"))
    made = export(bench, tmp_path / "o.csv")
    assert (made.items, made.left, read_csv(tmp_path / "o.csv")) == (0, 3, [])
    with bench.ledger.write() as connection:
        cancel_pending(connection, bench.job_id)
    assert export(bench, tmp_path / "o.csv").items == 3


def test_a_transaction_never_holds_more_than_a_few_large_answers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = results._fitting
    monkeypatch.setattr(results, "_FIRST", 1)
    monkeypatch.setattr(results, "_CHUNK_BYTES", 400)  # an answer has about 120
    monkeypatch.setattr(results, "_fitting", lambda rows: asked.append(real(rows)) or asked[-1])
    ids = [row.custom_id for row in stream_results(bench.ledger, bench.job_id)]
    assert ids == [f"a{number}" for number in range(COUNT)]
    assert max(asked) <= 4
    assert len(asked) >= 2


# -- rows of the input ------------------------------------------------------------------------------------------------


@pytest.fixture
def of_rows(bench: Bench, tmp_path: Path) -> Path:
    """Say that the job was made of rows: line 1 is a request, lines 2 to 8 are rows, one of them faulty."""
    lines = [b'{"custom_id": "a0", "body": {"messages": [{"role": "user", "content": "a0"}]}}']
    lines += [b'{"id": "a%d", "title": "T%d", "n": [%d]}' % (n, n, n) for n in range(1, COUNT)]
    lines[3] = b'{"broken'
    path = written(tmp_path, lines, "rows.jsonl")
    respec(bench, input_file=str(path), prompt_template="{{ title }}")
    seen = survey(path, DEFAULTS)
    with bench.ledger.write() as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET input_digest = '{seen.sha256}'")
    return path


def test_each_answer_has_its_own_row_beside_it(bench: Bench, of_rows: Path, tmp_path: Path) -> None:
    export(bench, tmp_path / "o.csv", join="input")
    rows = read_csv(tmp_path / "o.csv")
    assert list(rows[0])[-5:] == ["prompt", "request", "input.id", "input.title", "input.n"]
    for number, row in enumerate(rows):
        has_row = number not in (0, 3)
        assert (row["input.id"], row["input.title"]) == ((f"a{number}", f"T{number}") if has_row else ("", ""))
        assert row["input.n"] == (f"[{number}]" if has_row else "")
        assert row["prompt"] == f"a{number}"
    export(bench, tmp_path / "o.jsonl", join="input")
    last = json.loads((tmp_path / "o.jsonl").read_text().splitlines()[-1])
    assert last["batchrun"]["input"]["row"] == {"id": "a7", "title": "T7", "n": [7]}


def test_a_job_of_requests_joins_what_was_asked_and_needs_no_input_file(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").unlink()
    export(bench, tmp_path / "o.csv", join="input")
    assert list(read_csv(tmp_path / "o.csv")[0])[-2:] == ["prompt", "request"]


@pytest.mark.parametrize("how", ["changed", "grown", "gone"])
def test_rows_of_another_file_are_never_joined(bench: Bench, of_rows: Path, tmp_path: Path, how: str) -> None:
    if how == "gone":
        of_rows.unlink()
    else:
        text = of_rows.read_text()
        of_rows.write_text(text.replace("T5", "T6") if how == "changed" else text + '{"id": "more"}\n')
    (tmp_path / "o.csv").write_text("before")
    with pytest.raises(UsageFault) as refused:
        export(bench, tmp_path / "o.csv", join="input")
    assert "--join-prompt" in str(refused.value.hint)
    assert (tmp_path / "o.csv").read_text() == "before"
    assert export(bench, tmp_path / "o.csv", join="prompt").count == COUNT


def test_a_file_that_changes_after_the_look_at_it_is_noticed(
    bench: Bench, of_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "o.csv").write_text("before")

    def changed_meanwhile(*args: Any, **options: Any) -> bool:
        of_rows.write_text(of_rows.read_text().replace("T7", "T8"))
        return False

    monkeypatch.setattr("batchrun.runner.export_job.asks_for", changed_meanwhile)
    with pytest.raises(UsageFault, match="is not as it was"):
        export(bench, tmp_path / "o.csv", join="input")
    assert (tmp_path / "o.csv").read_text() == "before"
    assert not list(tmp_path.glob(".o*"))


def test_rows_are_not_joined_in_order_of_finish(bench: Bench, of_rows: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="order of finish"):
        export(bench, tmp_path / "o.csv", join="input", order="finish")


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["in.jsonl", "ledger.db", "out.errors.jsonl", "other.jsonl", "in.errors.jsonl"])
def test_what_is_no_output_of_the_job_is_not_replaced(bench: Bench, tmp_path: Path, name: str) -> None:
    """The last one by the error file that would come beside it."""
    register_other(bench, output_file="other.jsonl", error_file="in.errors.jsonl")
    for path in ("other.jsonl", "in.errors.jsonl"):
        (tmp_path / path).write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    output = tmp_path / ("in.jsonl" if name == "in.errors.jsonl" else name)
    for path in (output, tmp_path / "link"):
        with pytest.raises(UsageFault, match="would be replaced"):
            export(bench, path, format="jsonl")
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize(
    "name", ["later.jsonl", "link/later.jsonl", "dangling.jsonl", "failed.jsonl", "later.jsonl.partial", "failed"]
)
def test_the_output_of_a_job_that_has_not_written_it_yet_is_not_taken_from_it(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    """The last one by the error file that would come beside it."""
    error_file = "failed.errors.jsonl" if name == "failed" else "failed.jsonl"
    register_other(bench, output_file="later.jsonl", error_file=error_file)
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "later.jsonl")
    with pytest.raises(UsageFault, match="would be replaced"):
        export(bench, tmp_path / name, format="jsonl")
    assert {path.name for path in tmp_path.iterdir()}.isdisjoint({"later.jsonl", "failed.jsonl", error_file, "failed"})


@pytest.mark.parametrize(("name", "errors"), [("o.txt", "o.errors.txt"), ("o", "o.errors.jsonl")])
def test_failures_stand_beside_an_export_as_they_stand_beside_a_jobs_output(
    bench: Bench, tmp_path: Path, name: str, errors: str
) -> None:
    assert export(bench, tmp_path / name).errors == tmp_path / errors
    assert len((tmp_path / errors).read_text().splitlines()) == 2


def test_the_jobs_own_output_by_another_name_has_the_jobs_own_error_file(bench: Bench, tmp_path: Path) -> None:
    respec(bench, error_file=str(tmp_path / "wrong.jsonl"))
    (tmp_path / "link").symlink_to(tmp_path)
    made = export(bench, tmp_path / "link" / "out.jsonl")
    assert (made.output, made.errors) == (tmp_path / "out.jsonl", tmp_path / "wrong.jsonl")


def test_the_jobs_own_output_may_be_written_anew(bench: Bench, tmp_path: Path) -> None:
    before = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").unlink()
    export_job(bench.ledger, "job")
    assert (tmp_path / "out.jsonl").read_bytes() == before
    export(bench, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(Path("o.csv"), format="parquet"), "is named .csv, and the format is parquet"),
        (Wish(Path("o.jsonl"), format="csv"), "is named .jsonl"),
        (Wish(format="csv"), "needs a name"),
        (Wish(Path("o.jsonl"), spreadsheet_safe=True), "CSV alone"),
        (Wish(Path("o.parquet"), spreadsheet_safe=True), "CSV alone"),
    ],
)
def test_a_wish_that_contradicts_itself_is_refused(wish: Wish, words: str) -> None:
    with pytest.raises(UsageFault, match=words) as refused:
        wish.format_of()
    assert refused.value.hint


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (Wish(), "jsonl"),
        (Wish(Path("o.CSV")), "csv"),
        (Wish(Path("o.parquet")), "parquet"),
        (Wish(Path("o.txt")), "jsonl"),
        (Wish(Path("o.txt"), format="csv"), "csv"),
    ],
)
def test_the_format_is_the_one_wished_for_or_the_names(wish: Wish, expected: str) -> None:
    assert wish.format_of() == expected


# -- purged jobs ------------------------------------------------------------------------------------------------------


def test_a_job_that_is_purged_while_its_outputs_are_written_keeps_the_old_ones(bench: Bench, tmp_path: Path) -> None:
    before = (tmp_path / "out.jsonl").read_bytes()

    def purge_at_the_third(lines: int) -> None:
        if lines == 3:
            with bench.ledger.write() as connection:
                begin_purge(connection, bench.job_id, holder=bench.worker.id, now=time.time())

    with pytest.raises(IllegalMove, match="was purged"):
        write_outputs(bench.ledger, bench.job, wrote=purge_at_the_third)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    (tmp_path / "o.csv").write_text("before")
    with pytest.raises(IllegalMove, match="its outputs cannot be written again"):
        export(bench, tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text() == "before"


def test_the_outputs_of_a_purged_job_are_not_written_anew_where_they_are_missing(bench: Bench, tmp_path: Path) -> None:
    with bench.ledger.write() as connection:
        begin_purge(connection, bench.job_id, holder=bench.worker.id, now=time.time())
    (tmp_path / "out.jsonl").unlink()
    assert finalize(bench.ledger, bench.job, holder=bench.worker.id) is None
    assert not (tmp_path / "out.jsonl").exists()
