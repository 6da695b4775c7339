"""The rows of an input once more: each found by its line, and only in the very file that was registered."""

import gzip
from hashlib import sha256
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from batchrun.errors import BadInput, UsageFault
from batchrun.files import input_rows
from batchrun.files.input_rows import Alongside, InputRows
from tests.files.input_files import line, written


def of(path: Path) -> InputRows:
    return InputRows(path, sha256=sha256(path.read_bytes()).hexdigest())


def test_the_columns_are_those_of_all_rows_in_the_order_in_which_they_come(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"b": 1, "a": 2}', line("q"), b"", b"no json", b'{"c": 3, "a": 4}'])
    rows = of(path)
    assert rows.columns == ("b", "a", "c")
    assert list(rows) == [(1, {"b": 1, "a": 2}), (5, {"c": 3, "a": 4})]


def test_tables_are_read_as_they_were_for_the_job(tmp_path: Path) -> None:
    text = 'id,text\nr1,"two\nlines"\nr2,one\n'
    (tmp_path / "in.csv").write_text(text)
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(text.encode()))
    expected = [(2, {"id": "r1", "text": "two\nlines"}), (4, {"id": "r2", "text": "one"})]
    assert list(of(tmp_path / "in.csv")) == list(of(tmp_path / "in.csv.gz")) == expected
    pyarrow.parquet.write_table(pyarrow.table({"id": ["r1"], "n": [1.5]}), tmp_path / "in.parquet")
    rows = of(tmp_path / "in.parquet")
    assert (rows.columns, list(rows)) == (("id", "n"), [(1, {"id": "r1", "n": 1.5})])


def test_rows_are_found_by_their_lines_going_through_the_file_once(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"n": %d}' % number if number != 3 else line("q") for number in range(1, 8)])
    alongside = Alongside(of(path))
    assert [alongside.row(line_no) for line_no in (1, 3, 4, 6)] == [{"n": 1}, None, {"n": 4}, {"n": 6}]
    alongside.end()


def test_another_file_is_refused_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"n": 1}'])
    with pytest.raises(UsageFault, match="not as it was"):
        InputRows(path, sha256="0" * 64)


@pytest.mark.parametrize("text", [b'{"n": 2}\n', b'{"n": 1}\n{"n": 2}\n', b"", b"\x1f\x8b broken"])
def test_a_file_that_became_another_one_is_refused_at_its_end(tmp_path: Path, text: bytes) -> None:
    path = written(tmp_path, [b'{"n": 1}'])
    rows = of(path)
    path.write_bytes(text)
    with pytest.raises(UsageFault, match="not as it was") as refused:
        list(rows)
    assert refused.value.hint
    with pytest.raises(UsageFault):
        Alongside(rows).end()


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"n": 1}'])
    rows = of(path)
    path.unlink()
    with pytest.raises(BadInput):
        list(rows)


def test_rows_of_very_many_different_fields_make_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_rows, "MOST_COLUMNS", 3)
    assert of(written(tmp_path, [b'{"a": 1, "b": 1}', b'{"c": 1}'])).columns == ("a", "b", "c")
    with pytest.raises(UsageFault, match="too many for a table") as refused:
        of(written(tmp_path, [b'{"a": 1, "b": 1}', b'{"c": 1, "d": 1}']))
    assert "--join-prompt" in str(refused.value.hint)
