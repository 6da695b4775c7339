"""Faulty specs: each is refused with its line and in words, before anything is sent or written."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cli.schema_values import ANYTHING
from tests.corpus.bad_specs import FAMILIES, KEYS, VALIDATOR, BadSpec, span_of, with_value, written
from tests.corpus.gate import SPEC, Gate
from tests.examples import drawn

WHERE = re.compile(rf"{re.escape(SPEC)}(?: line (\d+))?\Z")


def fault_of(bad: BadSpec, faults: list[dict[str, Any]]) -> str | None:
    """Return in what the faults that were told differ from those that there are; None where they are right."""
    said = "; ".join(f"{fault['where']}: {fault['what']} | {fault['hint']}" for fault in faults)
    for fault in faults:
        where = WHERE.match(fault["where"])
        if where is None or not bad.first <= int(where[1] or 0) <= bad.last:
            return f"line {bad.first} to {bad.last} was meant, told was {said!r}"
    for words in bad.words:
        if words not in said and words not in said.replace('"', "'"):  # a name that holds a quote stands in double ones
            return f"nobody said {words!r}: {said!r}"
    return None if faults else "no fault was told"


@pytest.mark.parametrize("family", FAMILIES, ids=[family.__name__ for family in FAMILIES])
def test_a_faulty_spec_is_named_with_its_line(family: Callable[[], Iterator[BadSpec]], gate: Gate) -> None:
    wrong = []
    for bad in family():
        gate.write(spec=bad.text, content=bad.content + b"\n")
        try:
            ended = gate.refuses([])
            fault = fault_of(bad, ended.error["faults"])
        except (AssertionError, KeyError) as error:
            fault = str(error)
        if fault is not None:
            wrong.append(f"{bad.name}: {fault}")
    assert not wrong, f"{len(wrong)} of them:\n" + "\n".join(wrong[:40])


@settings(max_examples=drawn(100), deadline=None)
@given(key=st.sampled_from(KEYS), value=ANYTHING)
@example(key="trial", value={"'": 1})
def test_any_value_that_the_schema_refuses_is_named_with_its_line(gate: Gate, key: str, value: Any) -> None:
    spec = with_value(key, value)
    if VALIDATOR.is_valid(spec):
        return
    text = written(spec)
    gate.write(spec=text)
    fault = fault_of(BadSpec(key, text, *span_of(text, key), (f"'{key}",)), gate.refuses([]).error["faults"])
    assert fault is None, text
