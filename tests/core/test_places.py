"""Every key and element of a JSON text is found on its line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.places import Places

TEXT = """{
 "a": 1, "b": {
  "a": [10,
   {"c": null}, "x"
  ]
 },
 "\\u0063":
  "two"
}"""


@pytest.mark.parametrize(
    ("path", "line_no"),
    [
        (("a",), 2),
        (("b",), 2),
        (("b", "a"), 3),
        (("b", "a", 0), 3),
        (("b", "a", 1), 4),
        (("b", "a", 1, "c"), 4),
        (("b", "a", 2), 4),
        (("c",), 7),
        (("b", "a", 9), 3),
        (("b", "none", "deeper"), 2),
        (("none",), None),
    ],
)
def test_a_key_is_found_by_its_path_and_else_what_stands_around_it(
    path: tuple[str | int, ...], line_no: int | None
) -> None:
    assert Places(TEXT).line_of(*path) == line_no


def test_a_key_that_stands_twice_is_found_where_it_counts() -> None:
    places = Places('{"a": {"x": 1},\n"b": 2,\n"a": {"y": 3,\n"y": 4}}')
    assert places.repeated == [("a",), ("a", "y")]
    assert places.line_of("a") == 3
    assert places.line_of("a", "x") == 3  # the first "a" is gone
    assert places.line_of("a", "y") == 4


def test_values_that_json_does_not_have_are_found_as_written() -> None:
    spots = Places('{"a": NaN, "b": [1e999, -Infinity]}').spots
    assert [spots[path].text for path in (("a",), ("b", 0), ("b", 1))] == ["NaN", "1e999", "-Infinity"]


@given(st.text('{}[],:"\\ \n\ta1'))
def test_any_text_has_places_or_none(text: str) -> None:
    lines = text.count("\n") + 1
    assert all(1 <= spot.line_no <= lines for spot in Places(text).spots.values())


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in paths_of(part, (*path, key)))]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans())
def test_of_any_value_every_part_is_found_and_nothing_else(value: Any, is_ascii: bool) -> None:
    places = Places(json.dumps(value, indent=1, ensure_ascii=is_ascii))
    assert sorted(places.spots, key=repr) == sorted(paths_of(value), key=repr)
    assert places.repeated == []
