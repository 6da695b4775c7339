"""`batchrun schema`: the spec's schema says what the check says, and every kind can be had."""

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from batchrun.cli.main import run
from batchrun.cli.schemas import kinds, output_schema
from batchrun.core.client_options import CLIENT_OPTIONS
from batchrun.core.spec import OF_ONE_ENDPOINT, JobSpec
from batchrun.core.spec_check import check_spec
from batchrun.core.spec_schema import spec_schema
from tests.cli.schema_values import ANYTHING, values_of
from tests.core.specs import SEVEN
from tests.examples import drawn

SCHEMA = spec_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
KEYS = sorted(JobSpec.model_fields)
PRICE = {"input_per_1m_usd": 1, "output_per_1m_usd": "0.6"}


def is_taken(spec: dict[str, Any]) -> bool:
    """Say whether `check_spec` takes a spec."""
    found, faults, _ = check_spec(json.dumps(spec), where="job.json")
    assert (found is None) == bool(faults)
    return found is not None


def has_whole_float(value: Any) -> bool:
    """Say whether a value holds a number such as 8.0, which is an integer to JSON Schema and none to us."""
    if isinstance(value, dict | list):
        return any(map(has_whole_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and value.is_integer()


# -- the spec's schema and the check ----------------------------------------------------------------------------------


FLAT = {name: SCHEMA[name] for name in ("type", "properties", "required", "additionalProperties")}


@settings(max_examples=drawn(150), deadline=None)
@given(values_of(FLAT, SCHEMA))
def test_a_spec_that_the_schema_describes_is_taken(spec: dict[str, Any]) -> None:
    spec["price"] = spec.get("price") or PRICE  # a limit on cost needs one
    if spec.get("endpoints"):
        for key in OF_ONE_ENDPOINT:
            spec.pop(key, None)
    if spec.get("system") is not None:
        spec["endpoint"] = "/v1/responses"
    assert VALIDATOR.is_valid(spec)
    assume(not set(spec.get("unknown_statuses", ())) & set(spec.get("refused_statuses", ())))
    low, _, high = str(spec["concurrency"]).partition("-")
    assume(not high or int(low) < int(high))
    found, faults, _ = check_spec(json.dumps(spec), where="job.json")
    assert [str(fault) for fault in faults] == []
    assert found is not None


@settings(max_examples=drawn(300), deadline=None)
@given(key=st.sampled_from(KEYS), value=ANYTHING)
def test_of_any_value_of_any_key_schema_and_check_say_the_same(key: str, value: Any) -> None:
    assume(not has_whole_float(value))
    spec = SEVEN | {"price": PRICE} | {key: value}
    assert VALIDATOR.is_valid(spec) == is_taken(spec)


@given(key=st.sampled_from(KEYS), data=st.data())
@settings(max_examples=drawn(200), deadline=None)
def test_a_value_beside_the_bounds_is_refused_by_both(key: str, data: st.DataObject) -> None:
    spec = SEVEN | {"price": PRICE} | {key: data.draw(beside(SCHEMA["properties"][key]))}
    assert not VALIDATOR.is_valid(spec)
    assert not is_taken(spec)


def beside(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values just outside of what a property's schema accepts, or of another type."""
    parts = [schema, *schema.get("anyOf", ())]
    bounds = {name: part[name] for part in parts for name in ("minimum", "maximum", "exclusiveMinimum") if name in part}
    outside = [bounds["minimum"] - 1] if "minimum" in bounds else []
    outside += [bounds["maximum"] + 1] if "maximum" in bounds else []
    outside += [bounds["exclusiveMinimum"]] if "exclusiveMinimum" in bounds else []
    outside += [[None], [[1]]]
    if not any(part.get("type") == "boolean" for part in parts):
        outside += [flag for flag in (False, True) if {"const": flag} not in parts]
    if any("minLength" in part or "pattern" in part or "enum" in part for part in parts):
        outside += [""]
    return st.sampled_from([value for value in outside if not isinstance(value, float) or not value.is_integer()])


BAD: list[tuple[str, dict[str, Any]]] = [
    ("a key that is not known", {"concurency": 8}),
    ("white space around a key", {"model ": "m"}),
    ("concurrency 0", {"concurrency": 0}),
    ("concurrency -1", {"concurrency": -1}),
    ("concurrency 0.5", {"concurrency": 0.5}),
    ("concurrency in words", {"concurrency": "eight"}),
    ("concurrency in quotes", {"concurrency": "8"}),
    ("a name with a slash", {"task_id": "a/b"}),
    ("a name that is too long", {"task_id": "a" * 101}),
    ("an empty model", {"model": ""}),
    ("a key in place of its variable's name", {"api_key_env": "sk-1234"}),
    ("an endpoint that is none", {"endpoint": "/v1/messages"}),
    ("a full address as endpoint", {"endpoint": "http://127.0.0.1/v1/chat/completions"}),
    ("params that are a list", {"params": []}),
    ("messages in params", {"params": {"messages": []}}),
    ("a stream in params", {"params": {"stream": True}}),
    ("no time at all", {"timeout_s": 0}),
    ("a word that on_unknown does not know", {"on_unknown": "ask"}),
    ("a status that is no number", {"unknown_statuses": ["500"]}),
    ("a status of success", {"refused_statuses": [200]}),
    ("an unknown key of the trial", {"trial": {"count": 3}}),
    ("a trial that is a number", {"trial": 10}),
    ("half a price", {"price": {"input_per_1m_usd": 1}}),
    ("a price below nothing", {"price": {"input_per_1m_usd": -1, "output_per_1m_usd": 1}}),
    ("a price in words", {"price": {"input_per_1m_usd": "cheap", "output_per_1m_usd": 1}}),
    ("a limit without a price", {"max_cost_usd": 1}),
    ("a limit of nothing", {"max_cost_usd": "0.00", "price": PRICE}),
    ("a system message where there are no messages", {"system": "Be brief.", "endpoint": "/v1/embeddings"}),
    ("metadata that is no text", {"metadata": {"a": 1}}),
]


@pytest.mark.parametrize("changes", [changes for _, changes in BAD], ids=[name for name, _ in BAD])
def test_what_people_get_wrong_is_refused_by_both(changes: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(SEVEN | changes)
    assert not is_taken(SEVEN | changes)


@pytest.mark.parametrize("key", SEVEN)
def test_each_of_the_seven_is_needed_by_both(key: str) -> None:
    spec = {name: value for name, value in SEVEN.items() if name != key}
    assert VALIDATOR.is_valid(SEVEN)
    assert is_taken(SEVEN)
    assert not VALIDATOR.is_valid(spec)
    assert not is_taken(spec)


@pytest.mark.parametrize("option", ["api_key", "base_url", "extraHeaders", "X-Api-Key"])
def test_what_a_client_would_obey_is_marked_by_the_schema_too(option: str) -> None:
    assert option in CLIENT_OPTIONS
    assert not VALIDATOR.is_valid(SEVEN | {"params": {option: "x"}})


def test_the_schema_names_every_key_says_what_it_is_for_and_knows_its_default() -> None:
    properties = SCHEMA["properties"]
    assert set(properties) == {"$schema", *JobSpec.model_fields}
    assert [name for name, part in properties.items() if not part.get("description")] == []
    defaults = {name: part["default"] for name, part in properties.items() if "default" in part}
    assert all(Draft202012Validator(SCHEMA).is_valid(SEVEN | {name: value}) for name, value in defaults.items())
    assert is_taken(SEVEN | defaults)


def test_the_schema_is_one_and_names_no_host() -> None:
    for schema in (SCHEMA, *map(output_schema, kinds())):
        Draft202012Validator.check_schema(schema)
        assert schema["$id"].startswith("urn:batchrun:")


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_specs_schema_and_that_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMA))
    for kind in kinds():
        assert run(["schema", kind]) == 0
        assert json.loads(capsys.readouterr().out)["title"] == kind


def test_the_list_names_every_kind_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "--list"]) == 0
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["spec", *kinds()]
    assert run(["schema", "--list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["kinds"]] == told


def test_a_kind_that_is_not_there_is_named_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "jobstatus"]) == 2
    assert "did you mean `batchrun schema job_status`" in capsys.readouterr().err
    assert run(["schema", "../main"]) == 2
    assert "batchrun schema --list" in capsys.readouterr().err
