"""Faulty input lines: each is refused with its line and in words, before anything is sent or written."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from tests.cli.schema_values import ANYTHING
from tests.corpus.bad_lines import BODIES, FAMILIES, BadLine, batch, line
from tests.corpus.gate import SPEC, Gate, Told, good_line
from tests.examples import drawn

LINE = 2  # of the faulty line, between two good ones


def file_of(*lines: bytes) -> bytes:
    """Write a file that has these lines between two good ones."""
    return b"\n".join([good_line(1), *lines, good_line(2)]) + b"\n"


@pytest.mark.parametrize("family", FAMILIES, ids=[family.__name__ for family in FAMILIES])
def test_a_faulty_line_is_named_with_its_line(family: Callable[[], Iterator[BadLine]], gate: Gate) -> None:
    wrong = []
    for bad in family():
        gate.write(content=file_of(bad.raw))
        try:
            gate.refuses([Told(f"input line {LINE}", bad.words)])
        except (AssertionError, KeyError) as error:
            wrong.append(f"{bad.name}: {error}")
    assert not wrong, f"{len(wrong)} of them:\n" + "\n".join(wrong[:40])


def test_all_faulty_lines_of_a_file_are_named_at_once_and_in_order(gate: Gate) -> None:
    wrong = [bad for family in FAMILIES for bad in family()]
    lines = [one for number, bad in enumerate(wrong) for one in (good_line(number), bad.raw)]
    gate.write(content=b"\n".join(lines))
    told = [Told(f"input line {2 * number}", bad.words) for number, bad in enumerate(wrong, start=1)]
    ended = gate.refuses(told, "--max-errors", "1000000", command="validate")
    assert [fault["where"] for fault in ended.error["faults"]] == [one.where for one in told]
    few = gate.refuses([], "--max-errors", "7", command="validate").error
    assert (len(few["faults"]), few["total"]) == (7, len(wrong))


# -- ids that stand twice ---------------------------------------------------------------------------------------------

ALIKE = [(1, "1"), ("1", 1), ("x", "x"), (0, "0"), (-1, "-1"), (10**20, str(10**20)), (7, 7), ("\u00e9", "\u00e9")]


@pytest.mark.parametrize(("one", "other"), ALIKE)
@pytest.mark.parametrize("names", [("custom_id", "custom_id"), ("id", "custom_id"), ("custom_id", "id"), ("id", "id")])
@pytest.mark.parametrize("between", [0, 3])
def test_an_id_that_stands_twice_names_both_lines(
    one: object, other: object, names: tuple[str, str], between: int, gate: Gate
) -> None:
    first, second = (
        {name: value, **BODIES["/v1/chat/completions"]} for name, value in zip(names, (one, other), strict=True)
    )
    fill = [b"" if number % 2 else good_line(10 + number) for number in range(between)]
    gate.write(content=file_of(line(first), *fill, line(second)))
    gate.refuses([Told(f"input line {LINE + 1 + between}", f"was already used on line {LINE}")])


# -- lines that nobody thought of -------------------------------------------------------------------------------------

GOOD_LINES = [line(batch(path)) for path in BODIES] + [line(BODIES["/v1/chat/completions"]), good_line(7)]
BYTES = st.sampled_from([*b"{}[]\",:\\\x00\xff\x80\t 0-eE.tfn/'#\x1b\xef\xe2"])


def is_object(raw: bytes) -> bool:
    """Say whether a line is one object of strict JSON, by another parser than the one that is used."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        return isinstance(json.loads(raw.decode(), parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False


@settings(max_examples=drawn(250), deadline=None)
@given(good=st.sampled_from(GOOD_LINES), data=st.data())
def test_a_line_that_was_cut_or_mistyped_is_named(gate: Gate, good: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(good) - 1))
    length = data.draw(st.sampled_from([0, 1, 2, len(good)]))
    put = bytes(data.draw(st.lists(BYTES, max_size=3)))
    raw = good[:at] + put + good[at + length :]
    assume(raw.strip() and b"\n" not in raw and not is_object(raw))
    note(f"the line: {raw!r}")
    gate.write(content=file_of(raw))
    gate.refuses([Told(f"input line {LINE}")])


@settings(max_examples=drawn(200), deadline=None)
@given(value=ANYTHING)
def test_any_value_that_asks_for_nothing_is_named(gate: Gate, value: Any) -> None:
    assume(not isinstance(value, dict) or not {"messages", "prompt", "input", "body"} & value.keys())
    note(f"the line: {line(value)!r}")
    gate.write(content=file_of(line(value)))
    gate.refuses([Told(f"input line {LINE}")])


FIELDS = st.sampled_from(
    ["messages", "model", "max_tokens", "n", "stream", "custom_id", "url", "method", "body", "api_key", "best_of"]
)


@settings(max_examples=drawn(250), deadline=None)
@given(path=st.sampled_from(sorted(BODIES)), field=FIELDS, value=ANYTHING, is_inside=st.booleans())
def test_any_value_of_any_field_is_taken_or_named_and_nothing_else(
    gate: Gate, path: str, field: str, value: Any, is_inside: bool
) -> None:
    row = batch(path, body=BODIES[path] | {field: value}) if is_inside else batch(path) | {field: value}
    note(f"the line: {line(row)!r}")
    gate.write(content=file_of(line(row)))
    ended = gate.call("validate", SPEC, "--json")
    assert ended.err == ""
    if ended.code != 0:
        gate.refuses([Told(f"input line {LINE}")])
