"""Rows of data become requests by the job's template: from JSONL, CSV and Parquet, packed or not."""

import datetime
import decimal
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from batchrun.core.request import Defaults
from batchrun.files.inputs import InputItem, RejectedLine, read_items, survey
from batchrun.files.sources import peek
from batchrun.files.template import Template, TemplateFault
from tests.files.input_files import CHAT, line, prompt_of, told, written


def with_template(template: str, *, endpoint: str = CHAT, system: str | None = None) -> Defaults:
    return Defaults("job-model", 64, endpoint, {}, system=system, prompt_template=template)


def items(path: Path, template: str, **options: Any) -> list[InputItem | RejectedLine]:
    defaults = with_template(template, **options)
    return list(read_items(path, defaults, survey(path, defaults)))


def prompts(path: Path, template: str) -> list[str]:
    return [prompt_of(item) for item in items(path, template)]


def faults(path: Path, template: str) -> list[str]:
    return told(survey(path, with_template(template)))


def body_of(item: InputItem | RejectedLine) -> dict[str, Any]:
    assert isinstance(item, InputItem)
    body: dict[str, Any] = json.loads(item.request.body)
    return body


# Rows


def test_a_row_becomes_the_request_its_template_writes_and_nothing_else_of_it_is_sent(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"id": "r-1", "title": "Dune", "model": "not-sent", "temperature": 9}'])
    (item,) = items(path, "Review {{ title }}.", system="Be brief.")
    assert prompts(path, "{{ id }}: {{ title }}") == ["r-1: Dune"]
    assert item.custom_id == "r-1"
    assert body_of(item) == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Review Dune."}],
        "model": "job-model",
        "max_tokens": 64,
    }


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/completions", {"prompt": "Review Dune.", "model": "job-model", "max_tokens": 64}),
        ("/v1/embeddings", {"input": "Review Dune.", "model": "job-model"}),
        (
            "/v1/responses",
            {"input": "Review Dune.", "model": "job-model", "max_output_tokens": 64, "instructions": "Be brief."},
        ),
    ],
)
def test_a_row_goes_to_the_jobs_endpoint(tmp_path: Path, endpoint: str, body: dict[str, Any]) -> None:
    path = written(tmp_path, [b'{"title": "Dune"}'])
    (item,) = items(path, "Review {{ title }}.", endpoint=endpoint, system="Be brief.")
    assert isinstance(item, InputItem)
    assert (item.request.path, body_of(item)) == (endpoint, body)


def test_with_a_template_a_batch_line_stays_a_request_and_all_else_is_a_row(tmp_path: Path) -> None:
    rows = [line("a", "asked"), b'{"prompt": "p"}', b'{"prompt": "q", "url": "u", "method": "m", "body": "text"}']
    assert prompts(written(tmp_path, rows), "<{{ prompt }}>") == ["asked", "<p>", "<q>"]


def test_a_changed_template_renames_no_row(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"title": "Dune"}', b'{"title": "Emma"}', b'{"title": "Dune"}'])
    before, after = items(path, "Review {{ title }}."), items(path, "Praise {{ title }}.")
    assert [item.custom_id for item in before] == [item.custom_id for item in after]
    assert len({item.custom_id for item in before}) == 3
    assert with_template("a").digest() != with_template("b").digest()


def test_a_field_that_is_missing_or_null_is_named_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"title": "Dune"}', b'{"titel": "Emma"}', b'{"title": null}', b'{"title": " "}'])
    assert faults(path, "{{ title }}") == [
        "input line 2: has no field 'title', which prompt_template uses (fields found: titel)",
        "input line 3: field 'title' is null",
        "input line 4: gives an empty prompt",
    ]
    assert prompts(written(tmp_path, [b'{"title": null}']), "Title: {{ title or '-' }}") == ["Title: -"]


@pytest.mark.parametrize(
    ("row", "template", "hint"),
    [
        (b'{"titel": "Emma"}', "{{ title }}", "did you mean {{ titel }}?"),
        (b'{"n": 1}', "{{ title }}", "write it into the row, or name in prompt_template what the row has"),
        (b'{"n": 1}', "{{ n.deep.er }}", "write it into the row"),
        (b'{"n": 0}', "{{ 1 / n }}", "mend the row"),
        (b'{"title": null}', "{{ title }}", "fill it in"),
        (b'{"title": " "}', "{{ title }}", "fill in the fields"),
    ],
)
def test_a_row_that_a_template_cannot_take_says_what_to_change(
    tmp_path: Path, row: bytes, template: str, hint: str
) -> None:
    (fault,) = survey(written(tmp_path, [row]), with_template(template)).faults
    assert hint in fault.hint


def test_values_that_are_no_text_are_written_as_json(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"n": 7, "x": 0.5, "yes": true, "tags": ["a", "\\u00fc"], "deep": {"a": null}}'])
    assert prompts(path, "{{ n }} {{ x }} {{ yes }} {{ tags }} {{ deep }} {{ row.tags[1] }}") == [
        '7 0.5 true ["a", "ü"] {"a": null} ü'
    ]


def test_half_a_surrogate_in_a_row_is_replaced_and_noted(tmp_path: Path) -> None:
    (item,) = items(written(tmp_path, [b'{"title": "a\\ud800b"}']), "{{ title }}")
    assert prompt_of(item) == "a\ufffdb"
    assert isinstance(item, InputItem)
    assert item.request.note == "1 lone surrogate replaced by U+FFFD"


def test_a_name_that_stands_twice_in_a_row_is_a_fault(tmp_path: Path) -> None:
    path = written(tmp_path, [b'{"title": "a", "title": "b"}'])
    assert faults(path, "{{ title }}") == ["input line 1: 'title' stands twice in one object"]


def test_a_row_without_a_template_is_told_of_one(tmp_path: Path) -> None:
    found = survey(written(tmp_path, [b'{"id": 7, "question": "Why?"}']), Defaults("m", 9, CHAT, {}))
    assert 'add "prompt_template" to the spec, such as "{{ question }}"' in str(found.faults[0].hint)


# Templates


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ title", "unexpected end of template"),
        ("a\n{% if %}", "Expected an expression"),
        ("{{ title|shout }}", "No filter named 'shout'"),
    ],
)
def test_what_is_no_template_says_so_with_its_line(source: str, words: str) -> None:
    with pytest.raises(TemplateFault, match=words) as caught:
        Template(source)
    assert caught.value.line_no == source.count("\n") + 1


@pytest.mark.parametrize("source", ["{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}", "{{ " + "-" * 20_000 + "1 }}"])
def test_a_template_that_is_nested_without_end_is_none(source: str) -> None:
    with pytest.raises(TemplateFault, match="cannot be compiled"):
        Template(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ title.__class__.__mro__ }}",
        "{{ ''.__class__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ row.clear() }}{{ title }}",
        "{% include '/etc/passwd' %}",
        "{{ 1 // 0 }}",
        "{{ dict }}",
        "{{ range(9) }}",
        "{{ title.missing.deeper }}",
    ],
)
def test_a_template_reaches_nothing_but_its_row(tmp_path: Path, source: str) -> None:
    path = written(tmp_path, [b'{"title": "Dune"}'])
    (message,) = faults(path, source)
    assert message.startswith("input line 1: ")


def test_a_template_keeps_its_text_as_it_stands() -> None:
    assert Template("<b>{{ x }}</b>\n").render({"x": "a & <i>"}) == "<b>a & <i></b>\n"


def test_the_texts_of_rows_are_no_templates() -> None:
    assert Template("{{ x }}").render({"x": "{{ y }}{% raise %}"}) == "{{ y }}{% raise %}"


# The system message


def test_a_system_message_is_added_where_a_line_brings_none(tmp_path: Path) -> None:
    own = json.dumps({"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}]}).encode()
    path = written(tmp_path, [line("a", "u"), own])
    defaults = Defaults("m", 9, CHAT, {}, system="Be brief.")
    first, second = read_items(path, defaults, survey(path, defaults))
    assert [message["role"] for message in body_of(first)["messages"]] == ["system", "user"]
    assert [message["role"] for message in body_of(second)["messages"]] == ["developer", "user"]
    assert body_of(first)["model"] == "m"


# CSV


def csv_file(folder: Path, text: str, name: str = "in.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_a_csv_file_is_read_as_rfc_4180_has_it(tmp_path: Path) -> None:
    text = '\ufeffid,title,note\r\n1,"Dune, ""one""",x\r\n\r\n2,"two\nlines",y\r\n3,last,z'
    path = csv_file(tmp_path, text)
    found = items(path, "{{ title }}")
    assert [item.line_no for item in found] == [2, 4, 6], "the line on which the record begins"
    assert [item.custom_id for item in found] == ["1", "2", "3"]
    assert [prompt_of(item) for item in found] == ['Dune, "one"', "two\nlines", "last"]


@pytest.mark.parametrize(("delimiter", "name"), [(";", "in.csv"), ("\t", "in.tsv"), ("|", "in.csv")])
def test_the_delimiter_is_the_headers(tmp_path: Path, delimiter: str, name: str) -> None:
    path = csv_file(tmp_path, f"id{delimiter}title\n1{delimiter}a, b\n", name)
    assert prompts(path, "{{ title }}") == ["a, b"]


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    path = csv_file(tmp_path, ",title\n0,Dune\n")
    assert prompts(path, "{{ row }}") == ['{"title": "Dune"}']


def test_faulty_records_are_named_by_their_line_and_the_rest_can_run(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'id,title\na,one\nb\nc,"x" y\nd,caf\xe9\ne,two\na,three\n')
    assert faults(path, "{{ title }}") == [
        "input line 3: has 1 fields, the header names 2",
        "input line 4: is not CSV: ',' expected after '\"'",
        "input line 5: is not UTF-8 (byte 0xe9)",
        "input line 7: custom_id 'a' was already used on line 2",
    ]
    defaults = with_template("{{ title }}")
    found = list(read_items(path, defaults, survey(path, defaults, skip_invalid=True)))
    assert [type(item) for item in found] == [InputItem, *[RejectedLine] * 3, InputItem, RejectedLine]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty: no items"),
        ("title,title\na,b\n", "names the column 'title' twice"),
        (",,\n1,2,3\n", "has no header"),
        ('"title" x\na\n', "a header that is no CSV"),
        ("title\n", "holds only blank lines: no items"),
    ],
)
def test_a_csv_file_without_a_header_or_rows_is_one_fault(tmp_path: Path, text: str, words: str) -> None:
    (message,) = faults(csv_file(tmp_path, text), "{{ title }}")
    assert words in message


def test_a_table_without_a_template_is_one_fault_with_its_columns(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "id,name,question\n" + "1,a,b\n" * 50)
    found = survey(path, Defaults("m", 9, CHAT, {}))
    assert "is a table (columns: id, name, question), and the spec has no prompt_template" in told(found)[0]
    assert '"{{ question }}"' in str(found.faults[0].hint)
    assert found.fault_count == 1


# gzip


def test_a_packed_file_is_read_as_the_file_in_it(tmp_path: Path) -> None:
    plain = b"".join(line(f"i{number}") + b"\n" for number in range(3000))
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(plain[:1000]) + gzip.compress(plain[1000:]) + b"\0" * 512)  # two members, padded
    defaults = Defaults("m", 9, CHAT, {})
    found = list(read_items(path, defaults, survey(path, defaults)))
    assert [item.custom_id for item in found] == [f"i{number}" for number in range(3000)]
    packed = tmp_path / "in.csv.gz"
    packed.write_bytes(gzip.compress(b"title\nDune\n"))
    assert prompts(packed, "{{ title }}") == ["Dune"]


def test_what_unpacks_to_a_hundred_times_its_size_is_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(line("a") + b"\n" + b" " * (80 << 20) + b"\n" + line("b") + b"\n"))
    assert path.stat().st_size < 1 << 20
    assert told(survey(path, Defaults("m", 9, CHAT, {}))) == [
        "input line 2: is longer than 64 MiB, the most that is read"
    ]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda packed: packed[: len(packed) // 2], "is a gzip file that was cut short"),
        (lambda packed: packed[:-3], "is a gzip file that was cut short"),
        (lambda packed: packed[:20] + b"\xff" * 40 + packed[60:], "is a damaged gzip file"),
        (lambda packed: packed + b"more", "is a damaged gzip file"),
        (lambda packed: b"{}", "is named .gz and is no gzip file"),
        (lambda packed: gzip.compress("a".encode("utf-16")), "is encoded in UTF-16"),
        (lambda packed: gzip.compress(packed), "is packed with gzip twice"),
    ],
)
def test_a_packed_file_that_is_not_whole_is_one_fault(tmp_path: Path, spoil: Any, words: str) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(spoil(gzip.compress(b"".join(line(f"i{number}") + b"\n" for number in range(500)))))
    for skip_invalid in (False, True):
        found = survey(path, Defaults("m", 9, CHAT, {}), skip_invalid=skip_invalid)
        assert words in told(found)[0]
        assert found.items == 0


# Parquet


def parquet_file(folder: Path, columns: dict[str, list[Any]]) -> Path:
    import pyarrow
    from pyarrow import parquet

    path = folder / "in.parquet"
    parquet.write_table(pyarrow.table(columns), path, row_group_size=7)
    return path


def test_a_parquet_file_is_read_row_by_row(tmp_path: Path) -> None:
    path = parquet_file(tmp_path, {"id": list(range(5000)), "title": [f"t{number}" for number in range(5000)]})
    found = items(path, "<{{ title }}>")
    assert [(item.line_no, item.custom_id, prompt_of(item)) for item in found] == [
        (number + 1, str(number), f"<t{number}>") for number in range(5000)
    ]


def test_parquet_values_become_json_or_a_fault(tmp_path: Path) -> None:
    path = parquet_file(
        tmp_path,
        {
            "day": [datetime.date(2026, 1, 2)],
            "price": [decimal.Decimal("1.50")],
            "tags": [["a", "b"]],
            "gone": [float("nan")],
            "raw": [b"\xff"],
        },
    )
    assert faults(path, "{{ day }}") == ["input line 1: column 'raw' holds bytes, which JSON cannot carry"]
    path = parquet_file(tmp_path, {"day": [datetime.date(2026, 1, 2)], "price": [decimal.Decimal("1.50")]})
    assert prompts(path, "{{ day }} {{ price }}") == ["2026-01-02 1.50"]
    path = parquet_file(tmp_path, {"gone": [float("nan")]})
    assert faults(path, "{{ gone }}") == ["input line 1: field 'gone' is null"]


def test_a_parquet_value_that_python_cannot_hold_is_the_fault_of_its_row(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    days = pyarrow.array([1, 2**31 - 1, 2], type=pyarrow.int32()).cast(pyarrow.date32())
    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"day": days}), path)
    (message,) = faults(path, "{{ day }}")
    assert message.startswith("input line 2: holds a value that cannot be read: ")
    defaults = with_template("{{ day }}")
    found = list(read_items(path, defaults, survey(path, defaults, skip_invalid=True)))
    assert [type(item) for item in found] == [InputItem, RejectedLine, InputItem]


def test_a_parquet_file_that_names_a_column_twice_is_one_fault(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["t", "t"]), path)
    assert "names the column 't' twice" in faults(path, "{{ t }}")[0]


@pytest.mark.parametrize("keep", [4, 60, -8])
def test_a_damaged_parquet_file_is_one_fault(tmp_path: Path, keep: int) -> None:
    path = parquet_file(tmp_path, {"title": [f"t{number}" for number in range(100)]})
    path.write_bytes(path.read_bytes()[:keep])
    (message,) = faults(path, "{{ title }}")
    assert "is a damaged Parquet file" in message


# A first look


def test_a_peek_gives_the_first_objects_of_any_format(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "id,title\n1,a\n2,b\n")
    assert peek(path, count=1) == [{"id": "1", "title": "a"}]
    assert peek(written(tmp_path, [b"", b'{"a": 1}']), count=9) == [{"a": 1}]
