"""Values that a JSON Schema describes, for hypothesis: as much of the language as our own schemas use."""

import re
from typing import Any

from hypothesis import strategies as st

Values = st.SearchStrategy[Any]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING: Values = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KNOWN = {
    *("$ref", "type", "enum", "const", "anyOf", "description", "default", "title", "pattern", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "items", "properties", "required", "examples"),
    *("minItems", "maxItems", "uniqueItems", "additionalProperties", "propertyNames", "minProperties"),
}


def values_of(schema: dict[str, Any], whole: dict[str, Any]) -> Values:
    """Return a strategy of the values that `schema`, a part of `whole`, accepts; a keyword not known here fails."""
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    if "$ref" in schema:
        return values_of(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        return st.one_of([values_of(part, whole) for part in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    kinds = schema.get("type", "anything")
    return st.one_of([_OF_TYPE[kind](schema, whole) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _string(schema: dict[str, Any], whole: dict[str, Any]) -> Values:
    if pattern := schema.get("pattern"):
        return st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True).filter(lambda text: "\n" not in text)
    return st.text(
        st.characters(codec="utf-8"),
        min_size=schema.get("minLength", 0),
        max_size=min(schema.get("maxLength", 30), 600),
    )


def _integer(schema: dict[str, Any], whole: dict[str, Any]) -> Values:
    return st.integers(schema.get("minimum"), schema.get("maximum"))


def _number(schema: dict[str, Any], whole: dict[str, Any]) -> Values:
    least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    return st.floats(
        least, most, allow_nan=False, allow_infinity=False, exclude_min="exclusiveMinimum" in schema
    ) | st.integers(
        None if least is None else int(least) + ("exclusiveMinimum" in schema), None if most is None else int(most)
    )


def _array(schema: dict[str, Any], whole: dict[str, Any]) -> Values:
    return st.lists(
        values_of(schema.get("items", {}), whole),
        min_size=schema.get("minItems", 0),
        max_size=schema.get("maxItems", 4),
        unique_by=repr if schema.get("uniqueItems") else None,
    )


def _object(schema: dict[str, Any], whole: dict[str, Any]) -> Values:
    properties = {name: values_of(part, whole) for name, part in schema.get("properties", {}).items()}
    needed = {name: properties.pop(name) for name in schema.get("required", ())}
    named = st.fixed_dictionaries(needed, optional=properties)
    others = schema.get("additionalProperties", True)
    if others is False:
        return named
    names = TEXTS
    if "propertyNames" in schema:
        never = whole["$defs"][schema["propertyNames"]["not"]["$ref"].rpartition("/")[2]]["enum"]
        names = TEXTS.filter(lambda name: name not in never)
    more = st.dictionaries(names, ANYTHING if others is True else values_of(others, whole), max_size=3)
    return st.tuples(more, named).map(lambda pair: {**pair[0], **pair[1]})


_OF_TYPE = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "array": _array,
    "object": _object,
    "boolean": lambda schema, whole: st.booleans(),
    "null": lambda schema, whole: st.none(),
    "anything": lambda schema, whole: ANYTHING,
}
