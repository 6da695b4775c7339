"""What is not strict JSON is refused in words that say what to change."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.line import LineFault
from batchrun.files.strict_json import is_strict_json, parse_line


def fault_of(raw: bytes) -> LineFault:
    with pytest.raises(LineFault) as caught:
        parse_line(raw)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "what", "hint"),
    [
        (b'{"a": 1,}', "is not JSON: trailing comma (column 9)", "take out the comma"),
        (b'{"a": 1},', "is not JSON: a comma stands behind the object", "nothing between them"),
        (b'{"a": 1} {"b": 2}', "holds two values, the second from column 10", "jq -c ."),
        (b'{"a": 1}, {"b": 2}', "holds two values", "jq -c ."),
        (b'{"a": 1}\r{"b": 2}', "holds two values", "jq -c ."),
        (b'{"a": 1} done', "is not JSON: something stands behind the first value (column 10)", "take it out"),
        (b'{"a": [1', "is not whole: an object begins here and does not end on this line", "jq -c ."),
        (b'{"a": "cut', "is not whole: an object begins here", "jq -c ."),
        (b"[1,", "is not whole: an array begins here", "jq -c ."),
        (b'{"a": NaN}', "is not JSON: it has no NaN and no Infinity (column 7)", "write null"),
        (b'{"a": -Infinity}', "is not JSON: it has no NaN and no Infinity", "write null"),
        (b'{"a": True}', "is not JSON: it has no True", "write true"),
        (b'{"a": None}', "is not JSON: it has no None", "write null"),
        (b"{'a': 1}", "is not JSON: single quotes (column 2)", "json.dumps"),
        ("{\u201ca\u201d: 1}".encode(), "is not JSON: a curly quote (column 2)", "plain"),
        (b'{"a": 1} // note', "is not JSON: something stands behind", "take it out"),
        (b'{"a": 1, // note', "is not JSON: it has no comments", "take the comment out"),
        (b"# note", "is not JSON: it has no comments (column 1)", "take the comment out"),
        (b'{"a": "tab\there"}', "is not JSON: control character", "write it as an escape"),
        (b'{"a": 01}', "is not JSON: invalid number (column 8)", "json.dumps"),
        (b"{oops", "is not JSON: key must be a string (column 2)", "double quotes"),
        (b"question,answer", "is not JSON: expected value (column 1)", "json.dumps"),
        (b"\0\0\0", "holds only NUL bytes", "take the line out"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark", "EF BB BF"),
        (b'{"a": "caf\xe9"}', "is not UTF-8 (byte 0xe9 at column 11)", "iconv"),
        (b'{"a": "\xed\xa0\x80"}', "is not UTF-8 (byte 0xed at column 8)", "iconv"),
        (b"[" * 100_000, "is nested more than 200 levels deep", "flatten it"),
        (b'{"a": ' * 3_000 + b'"\\ud83d"' + b"}" * 3_000, "is nested more than 200 levels deep", "flatten it"),
        (b'{"a": %s}' % (b"9" * 5_000), "is not JSON: number out of range", "as a string"),
        (b'{"a": "\\ud83d", "b": NaN}', "is not JSON:", "json.dumps"),
    ],
)
def test_broken_json_is_named_with_its_place_and_the_edit(raw: bytes, what: str, hint: str) -> None:
    fault = fault_of(raw)
    assert fault.what.startswith(what)
    assert len(fault.what) < 120
    assert hint in fault.hint


@pytest.mark.parametrize(
    ("raw", "value"),
    [(rb'"\ud83d"', "\ud83d"), (rb'"\ud83d\ud83d\udc4d"', "\ud83d\U0001f44d"), (rb'{"\udc00": 1}', {"\udc00": 1})],
)
def test_lone_surrogates_are_read(raw: bytes, value: Any) -> None:
    assert parse_line(raw) == value


@given(raw=st.binary() | st.text().map(str.encode) | st.from_regex(rb'[\[\]{}",:\\ud8\-0-9eE.NaTrufls ]*'))
def test_any_bytes_are_a_value_or_a_fault(raw: bytes) -> None:
    try:
        parse_line(raw)
    except LineFault:
        return
    json.loads(raw)


@pytest.mark.parametrize("raw", [b"{}", b' [1, 2.5e3, "\\ud83d"]\r\n', b'"x"', b"[" * 300 + b"]" * 300])
def test_strict_json_is_known(raw: bytes) -> None:
    assert is_strict_json(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"NaN",
        b"[Infinity]",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'"\xff"',
        b'"\n"',
        b"{}{}",
        b"<html>",
        b"[" * 100_000,
        b'["\\ud83d", NaN]',
    ],
)
def test_what_is_no_strict_json_is_known(raw: bytes) -> None:
    assert not is_strict_json(raw)
