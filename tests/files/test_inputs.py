"""An input file is checked as a whole, and what it holds is handed out in its order under lasting ids."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.core.request import Defaults, draft_request
from batchrun.errors import BadInput
from batchrun.files.inputs import InputItem, RejectedLine, read_items, survey
from tests.files.input_files import DEFAULTS, bare, ids_of, items_of, line, prompt_of, told, written

# Files as people have them


def test_a_file_is_counted_and_its_items_come_in_its_order(tmp_path: Path) -> None:
    path = written(tmp_path, [line("a"), line("b"), b"", line("c")])
    found = survey(path, DEFAULTS)
    assert (found.lines, found.items, found.rejected, found.fault_count) == (4, 3, 0, 0)
    assert found.size_bytes == path.stat().st_size
    items = list(read_items(path, DEFAULTS, found))
    assert [(item.position, item.line_no, item.custom_id) for item in items] == [(0, 1, "a"), (1, 2, "b"), (2, 4, "c")]


def test_line_separators_of_unicode_stay_inside_their_string(tmp_path: Path) -> None:
    prompts = ["one\u2028two", "one\u2029two", "one\u0085two", "plain"]
    path = written(tmp_path, [line(f"i{number}", prompt) for number, prompt in enumerate(prompts)])
    assert [prompt_of(item) for item in items_of(path)] == prompts


def test_a_lone_surrogate_is_sent_as_a_replacement_character_and_noted(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [line("a"), line("b", "cut @").replace(b"@", rb"\ud83d"), line("c", "whole @").replace(b"@", rb"\ud83d\udc4d")],
    )
    a, b, c = items_of(path)
    assert isinstance(a, InputItem)
    assert isinstance(b, InputItem)
    assert prompt_of(b) == "cut \ufffd"
    assert (a.request.note, b.request.note) == (None, "1 lone surrogate replaced by U+FFFD")
    assert prompt_of(c) == "whole \U0001f44d"


def test_a_file_saved_on_windows_is_read_as_it_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(line(name, "hi") + b"\r\n" for name in ("a", "b", "c")))
    assert ids_of(path) == ["a", "b", "c"]
    assert {prompt_of(item) for item in items_of(path)} == {"hi"}


def test_blank_lines_are_no_items_and_the_last_newline_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n" + line("a") + b"\n\n  \t \r\n" + line("b") + b"\n\n" + b"{oops\n" + line("c"))
    found = survey(path, DEFAULTS)
    assert (found.lines, found.items) == (8, 3)
    assert told(found)[0].startswith("input line 7: ")


def test_fields_of_one_vendor_pass_and_models_of_lines_win(tmp_path: Path) -> None:
    path = written(tmp_path, [line("a", top_k=20, thinking={"type": "disabled"}), line("b", model="other"), line("c")])
    items = [item for item in items_of(path) if isinstance(item, InputItem)]
    assert [item.request.model for item in items] == ["job-model", "other", "job-model"]
    body = json.loads(items[0].request.body)
    assert (body["top_k"], body["thinking"], body["max_tokens"]) == (20, {"type": "disabled"}, 64)


def test_a_nul_in_a_prompt_is_sent_and_in_an_id_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [line("a", "nul \x00 inside"), line("b\x00")])
    assert told(survey(path, DEFAULTS)) == [
        "input line 2: 'custom_id' holds the control character U+0000 (character 2)"
    ]
    first = items_of(path, skip_invalid=True)[0]
    assert prompt_of(first) == "nul \x00 inside"


def test_a_line_of_eight_megabytes_is_an_item_like_any_other(tmp_path: Path) -> None:
    path = written(tmp_path, [line("big", "x" * (8 << 20)), line("small")])
    assert [len(prompt_of(item)) for item in items_of(path)] == [8 << 20, 14]


# Faults


def test_all_faults_are_told_in_one_go_in_line_order(tmp_path: Path) -> None:
    rows = [line("a1"), b"{oops", line("a3"), line("a1", "again"), b'{"custom_id": "a5"}']
    rows += [line(f"c{number}") for number in range(20)] + [line("s", stream="yes")]
    found = survey(written(tmp_path, rows), DEFAULTS)
    assert [fault.where for fault in found.faults] == [f"input line {number}" for number in (2, 4, 5, 26)]
    assert found.faults[1].what == "custom_id 'a1' was already used on line 1"
    assert (found.items, found.rejected, found.fault_count) == (22, 4, 4)
    with pytest.raises(BadInput) as caught:
        read_items(written(tmp_path, rows), DEFAULTS, found)
    assert caught.value.total == 4


def test_of_thousands_of_faults_the_first_are_told_and_the_total(tmp_path: Path) -> None:
    path = written(tmp_path, [line("good"), *[line(f"i{number}", stream="yes") for number in range(3_000)]])
    found = survey(path, DEFAULTS)
    assert [fault.where for fault in found.faults] == [f"input line {number}" for number in range(2, 22)]
    assert found.fault_count == 3_000
    assert len(survey(path, DEFAULTS, max_faults=3).faults) == 3


def test_a_fault_that_every_line_has_is_told_once(tmp_path: Path) -> None:
    rows = [json.dumps({"key": f"r{number}", "request": {"contents": []}}).encode() for number in range(3)]
    found = survey(written(tmp_path, rows), DEFAULTS)
    assert found.fault_count == 1
    assert "input lines 1 to 3: all 3 are alike: each is of Gemini's batch format" in told(found)[0]
    assert "fields found: key, request" in told(found)[0]
    assert "fields wanted: custom_id, method, url, body" in told(found)[0]
    assert (found.items, found.rejected) == (0, 3)


def test_lines_that_are_no_objects_are_named_and_the_good_ones_kept(tmp_path: Path) -> None:
    rows = [
        line("a"),
        b"[1, 2, 3]",
        b'"hello"',
        b"null",
        b"42",
        b'{"custom_id": "b", "url": "/v1/chat/completions", "body": "t"}',
    ]
    found = survey(written(tmp_path, [*rows, line("h")]), DEFAULTS)
    assert [fault.where for fault in found.faults] == [f"input line {number}" for number in range(2, 7)]
    assert found.items == 2


def test_missing_null_and_empty_ids_of_batch_lines_are_told_together(tmp_path: Path) -> None:
    rows = [line("a"), line("x").replace(b'"custom_id": "x", ', b""), line(None), line(""), line("e")]
    assert told(survey(written(tmp_path, rows), DEFAULTS)) == [
        "input line 2: 'custom_id' is missing",
        "input line 3: 'custom_id' is null",
        "input line 4: 'custom_id' is empty",
    ]


@pytest.mark.parametrize(
    ("row", "name", "kept_id"),
    [
        (line("a").replace(b'"method"', b'"url": "/v1/responses", "method"'), "url", "a"),
        (line("a").replace(b'"method"', b'"custom_id": "b", "method"'), "custom_id", "line-1"),
        (line("a", model="x", temperature="y").replace(b'"temperature"', b'"model"'), "model", "a"),
        (b'{"id": "a", "messages": [{"role": "user", "content": "x"}], "seed": 1, "seed": 2}', "seed", "a"),
    ],
)
def test_a_name_that_stands_twice_is_a_fault(tmp_path: Path, row: bytes, name: str, kept_id: str) -> None:
    path = written(tmp_path, [row, line("z")])
    assert told(survey(path, DEFAULTS)) == [f"input line 1: '{name}' stands twice in one object"]
    assert ids_of(path, skip_invalid=True) == [kept_id, "z"]


@pytest.mark.parametrize(
    "row",
    [
        line("a:b", "time: 12:30", metadata={"a:": ":"}),
        line("a", "x").replace(b'"x"', rb'"\u003a \u0022:"'),
        line("a", tools=[{"model": 1, "messages": {"content": 2}}, {"model": 1}]),
        b'{ "id" : "a" , "messages" : [ { "role" : "user" , "content" : ":" } ] }',
    ],
)
def test_colons_and_escapes_make_no_name_stand_twice(tmp_path: Path, row: bytes) -> None:
    assert survey(written(tmp_path, [row]), DEFAULTS).fault_count == 0


def test_numbers_beyond_all_bounds_are_faults_and_big_ones_are_kept(tmp_path: Path) -> None:
    rows = [
        b'{"messages": [{"role": "user", "content": "Infinity"}], "x": %s}' % number
        for number in (b"1e999", b"NaN", b"9" * 40)
    ]
    found = survey(written(tmp_path, rows), DEFAULTS)
    assert [fault.where for fault in found.faults] == ["input line 1", "input line 2"]
    last = items_of(tmp_path / "in.jsonl", skip_invalid=True)[2]
    assert isinstance(last, InputItem)
    assert json.loads(last.request.body)["x"] == int("9" * 40)


# Files that are no JSONL


def pretty(count: int) -> bytes:
    return b"\n".join(json.dumps(json.loads(line(f"i{number}")), indent=2).encode() for number in range(count))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty: no items"),
        (b"\n  \n\r\n", "holds only blank lines: no items"),
        (b"\xef\xbb\xbf", "holds only blank lines: no items"),
        (b"\x28\xb5\x2f\xfdrest", "is zstd-compressed, which is not read"),
        (line("a").decode().encode("utf-16"), "is encoded in UTF-16, only UTF-8 is read"),
        (line("a").decode().encode("utf-16-le"), "is encoded in UTF-16"),
        (line("a").decode().encode("utf-16-be"), "is encoded in UTF-16"),
        (pretty(1), "holds JSON written over several lines"),
        (pretty(500), "holds JSON written over several lines"),
        (b"\n" + pretty(2).replace(b"  ", b""), "holds JSON written over several lines"),
        (b"[\n" + line("a") + b",\n" + line("b") + b"\n]\n", "holds one array around everything"),
        (json.dumps([json.loads(line("a"))] * 3, indent=4).encode(), "holds one array around everything"),
        (b"[" + line("a") + b",\n" + line("b") + b"]", "holds one array around everything"),
    ],
)
def test_a_file_that_is_no_jsonl_is_named_as_what_it_is_in_one_message(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    for skip_invalid in (False, True):
        found = survey(path, DEFAULTS, skip_invalid=skip_invalid)
        (message,) = told(found)
        assert f"in.jsonl': {words}" in message
        assert (found.items, found.fault_count) == (0, 1)
        with pytest.raises(BadInput):
            found.check()


def test_an_array_on_one_line_is_one_fault_with_the_command_that_mends_it(tmp_path: Path) -> None:
    (fault,) = survey(written(tmp_path, [b"[" + line("a") + b", " + line("b") + b"]"]), DEFAULTS).faults
    assert fault.what == "is an array, not an object"
    assert "jq -c '.[]'" in str(fault.hint)


def test_an_object_over_several_lines_among_good_ones_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a") + b"\n" + pretty(1) + b"\n" + line("b") + b"\n")
    found = survey(path, DEFAULTS)
    assert told(found) == ["input line 2: is not whole: an object begins here and does not end on this line"]
    assert ids_of(path, skip_invalid=True) == ["a", "line-2", "b"]


def test_a_line_cut_short_swallows_no_good_line_after_it(tmp_path: Path) -> None:
    for rows in (
        [line("a")[:-20], b" " + line("b"), line("c")],
        [line("z"), line("a")[:-20], b"\t" + line("b"), line("c")],
    ):
        path = written(tmp_path, rows)
        found = survey(path, DEFAULTS)
        assert found.fault_count == 1
        assert ids_of(path, skip_invalid=True)[-2:] == ["b", "c"]


# Ids


def test_a_repeated_id_names_both_lines_also_when_only_its_text_is_equal(tmp_path: Path) -> None:
    path = written(tmp_path, [line("7"), line("x"), line(7), line("x"), line("x")])
    found = survey(path, DEFAULTS)
    assert told(found) == [
        "input line 3: custom_id '7' was already used on line 1",
        "input line 4: custom_id 'x' was already used on line 2",
        "input line 5: custom_id 'x' was already used on line 2",
    ]
    assert ids_of(path, skip_invalid=True) == ["7", "x", "line-3", "line-4", "line-5"]


def test_a_line_inserted_on_top_renames_nothing(tmp_path: Path) -> None:
    rows = [bare("one"), bare("two"), bare("one")]
    before = ids_of(written(tmp_path, rows))
    after = ids_of(written(tmp_path, [bare("new"), *rows]))
    assert after[1:] == before
    assert [custom_id.rsplit("-", 1)[1] for custom_id in before] == ["1", "1", "2"]
    assert all(custom_id.startswith("auto-") and len(custom_id) == len("auto--1") + 16 for custom_id in before)


def test_a_changed_default_renames_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, [bare("one"), bare("one")])
    other = Defaults("another", 7, DEFAULTS.endpoint, {"seed": 3})
    renamed = [item.custom_id for item in read_items(path, other, survey(path, other))]
    assert renamed == ids_of(path)


def test_contents_that_come_more_than_once_are_known_by_their_key(tmp_path: Path) -> None:
    path = written(tmp_path, [bare("one"), bare("two"), bare("one"), line("a", "one"), line("b", "one")])
    found = survey(path, DEFAULTS)
    assert found.repeated == {draft_request(json.loads(bare("one")), DEFAULTS).content_key}


def test_an_own_id_that_equals_one_made_up_is_a_repeat(tmp_path: Path) -> None:
    made_up = ids_of(written(tmp_path, [bare("one"), bare("one")]))[1]
    path = written(tmp_path, [line(made_up, "other"), bare("one"), bare("one")])
    assert told(survey(path, DEFAULTS)) == [f"input line 3: custom_id '{made_up}' was already used on line 1"]
    assert ids_of(written(tmp_path, [line(made_up, "other"), bare("one")]))[0] == made_up


# Faulty lines skipped on request


def test_faulty_lines_are_handed_out_as_rejected_in_their_place(tmp_path: Path) -> None:
    path = written(tmp_path, [b"{oops", line("a"), line("s", stream="yes"), line("a"), line("s")])
    found = survey(path, DEFAULTS, skip_invalid=True)
    found.check()
    got = list(read_items(path, DEFAULTS, found))
    assert [(type(item), item.position, item.line_no, item.custom_id) for item in got] == [
        (RejectedLine, 0, 1, "line-1"),
        (InputItem, 1, 2, "a"),
        (RejectedLine, 2, 3, "s"),
        (RejectedLine, 3, 4, "line-4"),
        (RejectedLine, 4, 5, "line-5"),
    ]
    assert got[3].message == "custom_id 'a' was already used on line 2"  # type: ignore[union-attr]
    assert (found.items, found.rejected) == (1, 4)


def test_the_stand_in_of_a_faulty_line_takes_nobody_elses_id(tmp_path: Path) -> None:
    path = written(tmp_path, [b"{oops", line("line-1"), line("line-4"), line("line-4"), line("line-5"), b"]"])
    got = ids_of(path, skip_invalid=True)
    assert got == ["line-1-rejected", "line-1", "line-4", "line-4-rejected", "line-5", "line-6"]


def test_a_file_without_any_good_line_does_not_start_even_so(tmp_path: Path) -> None:
    found = survey(written(tmp_path, [b"{oops", b"[]"]), DEFAULTS, skip_invalid=True)
    with pytest.raises(BadInput):
        found.check()


# Reading again


@pytest.mark.parametrize("change", [b"x", b" ", b"\n"])
def test_a_file_that_changed_between_the_looks_is_refused(tmp_path: Path, change: bytes) -> None:
    path = written(tmp_path, [line("a"), line("b")])
    found = survey(path, DEFAULTS)
    path.write_bytes(path.read_bytes() + change)
    with pytest.raises(BadInput, match="fault") as caught:
        list(read_items(path, DEFAULTS, found))
    assert "changed while it was read" in caught.value.faults[0].what


def test_a_file_that_changed_but_not_in_length_is_refused_at_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, [line("a", "left"), line("b", "left")])
    found = survey(path, DEFAULTS)
    path.write_bytes(path.read_bytes().replace(b"left", b"main"))
    with pytest.raises(BadInput):
        list(read_items(path, DEFAULTS, found))


def test_a_file_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        survey(tmp_path / "none.jsonl", DEFAULTS)
    assert "does not exist" in str(caught.value.faults[0])


PIECES = st.sampled_from(
    [
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b'"',
            b"'",
            b"\\",
            b"\\ud83d",
            b"\r",
            b"\n",
            b" ",
            b"\0",
            b"\xff",
            b"\xef\xbb\xbf",
        ),
        *(
            b"1e999",
            b"NaN",
            b"null",
            b'"id": 7',
            b'{"id": "line-2"',
            line("a"),
            line("b")[:-9],
            line("line-3"),
            line(None),
        ),
        *(bare("one"), bare("two", stream="yes"), line("a", stream="yes")),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(PIECES | st.binary(max_size=8), max_size=12).map(b"".join) | st.lists(PIECES).map(b"\n".join))
def test_any_bytes_give_items_or_faults_and_every_id_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(content)
    found = survey(path, DEFAULTS, skip_invalid=True)
    if not found.items:
        assert found.fault_count
        return
    got = list(read_items(path, DEFAULTS, found))
    assert sum(isinstance(item, InputItem) for item in got) == found.items
    assert len(got) == found.items + found.rejected
    assert [item.position for item in got] == list(range(len(got)))
    assert max(Counter(item.custom_id for item in got).values()) == 1
