"""CSV and Parquet hold every item with its own figures, and are read back as what was written."""

import csv
import io
import json
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.states import ItemState
from batchrun.errors import UsageFault
from batchrun.files import parquet_output
from batchrun.files.csv_output import CsvOutput
from batchrun.files.derived import DerivedFile
from batchrun.files.outputs import Asked, OutputItem
from batchrun.files.parquet_output import ParquetOutput, refuse_without_pyarrow
from batchrun.files.table_rows import Layout, Row, table_rows
from tests.files.test_outputs import FAILED, ITEM

TWO = json.dumps(
    {"choices": [{"text": "a", "finish_reason": "stop"}, {"text": "b", "finish_reason": "length"}]}
).encode()
VECTOR = json.dumps({"data": [{"embedding": [0.5, -1]}]}).encode()
WHOLE = Layout(vectors=True, prompts=True, inputs=("id", "n", "gone"))
BODY = b'{"prompt":["p","q"]}'


class Memory:
    """A file that is kept in memory: for the tests of many examples."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def rows_by_name(item: OutputItem, layout: Layout) -> list[dict[str, Any]]:
    names = [column.name for column in layout.columns]
    return [dict(zip(names, row, strict=True)) for row in table_rows(item, layout)]


def to_csv(path: Path, rows: list[Row], layout: Layout, **options: Any) -> bytes:
    with DerivedFile(path) as file:
        output = CsvOutput(file, layout.columns, **options)
        for row in rows:
            output.write(row)
        output.close()
    return path.read_bytes()


def to_parquet(path: Path, rows: list[Row], layout: Layout) -> pyarrow.Table:
    with DerivedFile(path) as file:
        output = ParquetOutput(file, layout.columns)
        for row in rows:
            output.write(row)
        output.close()
    return pyarrow.parquet.read_table(path)


# -- rows -------------------------------------------------------------------------------------------------------------


def test_a_completed_item_is_a_row_with_its_answer_and_its_figures() -> None:
    (row,) = rows_by_name(ITEM, Layout())
    assert row == {
        "custom_id": "q-1",
        "state": "completed",
        "choice": 0,
        "finish_reason": "stop",
        "text": "café \n \u2028",
        "tool_calls": None,
        "model": "m",
        "prompt_tokens": 11,
        "completion_tokens": 5,
        "attempts": 2,
        "duration_s": 1.25,
        "cost_usd": Decimal("0.000021"),
        "error_cause": None,
        "error_message": None,
    }


def test_a_failed_item_is_a_row_that_says_why() -> None:
    (row,) = rows_by_name(FAILED, Layout())
    assert (row["state"], row["choice"], row["text"]) == ("failed", None, None)
    assert (row["error_cause"], row["error_message"], row["attempts"]) == ("bad_request", "no such field", 2)


@pytest.mark.parametrize("state", [ItemState.REJECTED, ItemState.CANCELLED, ItemState.IN_DOUBT])
def test_every_other_item_is_a_row_named_by_its_state(state: ItemState) -> None:
    (row,) = rows_by_name(replace(ITEM, state=state, raw=None, attempts=0), Layout())
    assert (row["state"], row["error_cause"], row["choice"]) == (state.value, state.value, None)
    assert row["error_message"]


def test_each_choice_is_a_row_and_the_requests_figures_stand_once() -> None:
    first, second = rows_by_name(replace(ITEM, raw=TWO), Layout())
    assert [(row["choice"], row["text"], row["finish_reason"]) for row in (first, second)] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]
    assert (first["completion_tokens"], first["cost_usd"], first["attempts"]) == (5, Decimal("0.000021"), 2)
    assert (second["completion_tokens"], second["cost_usd"], second["attempts"], second["model"]) == (
        None,
        None,
        None,
        "m",
    )


def test_what_was_asked_stands_beside_each_answer() -> None:
    row = {"id": "r1", "n": [1, {"x": None}], "unused": 1}
    first, second = rows_by_name(replace(ITEM, raw=TWO, asked=Asked("/v1/completions", BODY, row)), WHOLE)
    assert (first["prompt"], second["prompt"]) == ("p", "q")
    assert first["request"] == BODY.decode()
    assert (first["input.id"], first["input.n"], first["input.gone"]) == ("r1", '[1,{"x":null}]', None)


def test_a_rejected_line_keeps_its_row_and_has_no_request() -> None:
    rejected = replace(ITEM, state=ItemState.REJECTED, raw=None, asked=Asked(None, None, {"id": "r"}))
    (row,) = rows_by_name(rejected, WHOLE)
    assert (row["prompt"], row["request"], row["input.id"]) == (None, None, "r")


def test_an_input_column_can_hide_none_of_ours() -> None:
    layout = Layout(prompts=True, inputs=("text", "state", "prompt"))
    names = [column.name for column in layout.columns]
    assert len(names) == len(set(names))


# -- CSV --------------------------------------------------------------------------------------------------------------


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=3))
def test_any_text_comes_back_from_csv(texts: list[str]) -> None:
    file = Memory()
    output = CsvOutput(file, Layout().columns)  # type: ignore[arg-type]
    for text in texts:
        for row in table_rows(replace(ITEM, raw=json.dumps({"choices": [{"text": text}]}).encode()), Layout()):
            output.write(row)
    read = list(csv.DictReader(io.StringIO(file.data.decode(), newline=""), strict=True))
    assert [row["text"] for row in read] == texts
    assert file.data.endswith(b"\n")


def test_csv_quotes_what_a_reader_could_take_for_an_end_and_nothing_else(tmp_path: Path) -> None:
    texts = ["plain", "a,b", 'say "x"', "two\nlines", "old\rmac", "a\u2028b", " blank ", ""]
    rows = [
        next(table_rows(replace(ITEM, raw=json.dumps({"choices": [{"text": t}]}).encode()), Layout())) for t in texts
    ]
    written = to_csv(tmp_path / "o.csv", rows, Layout()).decode()
    for quoted in ('"a,b"', '"say ""x"""', '"two\nlines"', '"old\rmac"', '"a\u2028b"', '" blank "', ',"",'):
        assert quoted in written
    assert ",plain," in written
    assert "\r\n" not in written
    assert not written.startswith("\ufeff")


def test_no_value_is_an_empty_cell_and_an_empty_text_is_two_quotes(tmp_path: Path) -> None:
    empty = replace(ITEM, raw=b'{"choices": [{"text": ""}]}')
    rows = [next(table_rows(item, Layout())) for item in (empty, FAILED)]
    first, second = to_csv(tmp_path / "o.csv", rows, Layout()).decode().splitlines()[1:]
    assert first.startswith('q-1,completed,0,stop,"",,m,')
    assert second.startswith("q-1,failed,,,,,m,")


def test_figures_are_written_so_that_anything_reads_them(tmp_path: Path) -> None:
    item = replace(ITEM, raw=VECTOR, cost_usd="0.000000000001", duration_s=0.00001234)
    text = to_csv(tmp_path / "o.csv", list(table_rows(item, Layout(vectors=True))), Layout(vectors=True)).decode()
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["cost_usd"], float(row["duration_s"])) == ("0.000000000001", 0.000012)
    assert json.loads(row["embedding"]) == [0.5, -1.0]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_formula_stays_as_it_is_unless_a_spreadsheet_is_to_be_kept_from_it(tmp_path: Path, start: str) -> None:
    text = f"{start}cmd|' /c calc'!A1"
    item = replace(ITEM, custom_id=f"{start}q", raw=json.dumps({"choices": [{"text": text}]}).encode())
    for is_safe, before in ((False, ""), (True, "'")):
        written = to_csv(tmp_path / "o.csv", list(table_rows(item, Layout())), Layout(), spreadsheet_safe=is_safe)
        (row,) = csv.DictReader(io.StringIO(written.decode(), newline=""))
        assert (row["custom_id"], row["text"]) == (f"{before}{start}q", f"{before}{text}")
        assert row["cost_usd"] == "0.000021"


# -- Parquet ----------------------------------------------------------------------------------------------------------


def test_parquet_has_a_type_for_each_column(tmp_path: Path) -> None:
    items = [ITEM, FAILED, replace(ITEM, raw=VECTOR), replace(ITEM, raw=TWO)]
    table = to_parquet(tmp_path / "o.parquet", [row for one in items for row in table_rows(one, WHOLE)], WHOLE)
    types = {field.name: str(field.type) for field in table.schema}
    assert types["embedding"] == "list<element: float>"
    assert (types["prompt_tokens"], types["duration_s"]) == ("int64", "double")
    assert types["cost_usd"] == "decimal128(38, 12)"
    assert {types[name] for name in ("custom_id", "text", "request", "input.id")} == {"string"}
    rows = table.to_pylist()
    assert [row["state"] for row in rows] == ["completed", "failed", "completed", "completed", "completed"]
    assert rows[0]["cost_usd"] == Decimal("0.000021")
    assert rows[2]["embedding"] == [0.5, -1.0]
    assert rows[1]["text"] is None


@given(text=st.text(), number=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_any_text_and_number_comes_back_from_parquet(text: str, number: float) -> None:
    file, layout = Memory(), Layout(vectors=True)
    output = ParquetOutput(file, layout.columns)  # type: ignore[arg-type]
    for body in ({"choices": [{"text": text}]}, {"data": [{"embedding": [number]}]}):
        for row in table_rows(replace(ITEM, raw=json.dumps(body).encode()), layout):
            output.write(row)
    output.close()
    said, vector = pyarrow.parquet.read_table(io.BytesIO(file.data)).to_pylist()
    assert said["text"] == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert vector["embedding"] == [number]


def test_halves_of_surrogate_pairs_are_replaced(tmp_path: Path) -> None:
    item = replace(
        ITEM, raw=rb'{"choices": [{"text": "cut \ud83d"}]}', asked=Asked("/v1/completions", BODY, {"id": "\ud83d"})
    )
    rows = list(table_rows(item, WHOLE))
    (row,) = to_parquet(tmp_path / "o.parquet", rows, WHOLE).to_pylist()
    assert (row["text"], row["input.id"]) == ("cut \ufffd", "\ufffd")
    assert "cut \ufffd" in to_csv(tmp_path / "o.csv", rows, WHOLE).decode()


def test_parquet_is_written_a_group_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_output, "GROUP_ROWS", 100)
    monkeypatch.setattr(parquet_output, "GROUP_BYTES", 20_000)
    small, large = (replace(ITEM, raw=json.dumps({"choices": [{"text": "x" * n}]}).encode()) for n in (1, 9_000))
    rows = [row for item in [small] * 250 + [large] * 10 for row in table_rows(item, Layout())]
    to_parquet(tmp_path / "o.parquet", rows, Layout())
    meta = pyarrow.parquet.read_metadata(tmp_path / "o.parquet")
    sizes = [meta.row_group(number).num_rows for number in range(meta.num_row_groups)]
    assert sum(sizes) == 260
    assert sizes[:2] == [100, 100]
    assert max(sizes[3:]) <= 3


def test_a_table_without_rows_is_a_table_with_columns(tmp_path: Path) -> None:
    assert to_parquet(tmp_path / "o.parquet", [], Layout()).num_rows == 0
    assert to_csv(tmp_path / "o.csv", [], Layout()).count(b"\n") == 1


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageFault) as refused:
        refuse_without_pyarrow()
    assert "pip install '.[parquet]'" in str(refused.value.hint)
