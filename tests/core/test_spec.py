"""The job spec: the seven keys alone, and every fault named with its line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.spec import NOT_YET, JobSpec, check_spec, parse_spec
from batchrun.errors import BadInput

SEVEN: dict[str, Any] = {
    "task_id": "batch-001",
    "model": "turbo-opt",
    "input_file": "./inputs/batch_input.jsonl",
    "output_file": "./outputs/batch_output.jsonl",
    "max_tokens": 256,
    "concurrency": 8,
    "retry_times": 3,
}


def _faults(**changes: Any) -> list[str]:
    text = json.dumps({key: value for key, value in (SEVEN | changes).items() if value != "absent"}, indent=1)
    with pytest.raises(BadInput) as caught:
        parse_spec(text, where="job.json")
    return [f"{fault} | {fault.hint}" for fault in caught.value.faults]


def test_the_seven_keys_work_alone() -> None:
    spec = parse_spec(json.dumps(SEVEN), where="job.json")
    assert (spec.concurrency, spec.timeout_s, spec.endpoint, spec.on_unknown) == (
        8,
        600.0,
        "/v1/chat/completions",
        None,
    )


@pytest.mark.parametrize("value", [0, -1, 0.5, "eight", "8", True, None, [], 10_001])
def test_a_concurrency_that_makes_no_sense_is_refused(value: Any) -> None:
    (fault,) = _faults(concurrency=value)
    assert "'concurrency' must be" in fault
    assert "line 7" in fault


def test_every_fault_is_named_at_once() -> None:
    faults = _faults(concurrency=0, retry_times=-1, modle="x", task_id="a/b", max_tokens="absent")
    assert len(faults) == 5
    assert any("unknown key 'modle' | did you mean 'model'?" in fault for fault in faults)
    assert any("'max_tokens' is missing" in fault for fault in faults)


@pytest.mark.parametrize("key", NOT_YET)
def test_a_key_of_a_coming_release_is_refused_and_not_ignored(key: str) -> None:
    (fault,) = _faults(**{key: 1})
    assert "not available in this release" in fault


def test_a_key_pasted_where_a_variables_name_belongs_is_not_repeated() -> None:
    (fault,) = _faults(api_key_env="sk-very-secret-1234567890")
    assert "secret" not in fault
    assert "NAME" in fault


@pytest.mark.parametrize("key", ["api_key", "token"])
def test_a_secret_does_not_belong_in_a_spec(key: str) -> None:
    (fault,) = _faults(**{key: "sk-very-secret"})
    assert "very-secret" not in fault
    assert "OPENAI_API_KEY" in fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[]", "one JSON object, found an array"),
        ('{"a": 1,}', "comma"),
        ("{// x\n}", "no comments"),
        ('{"task_id": NaN}', "NaN is not JSON"),
        ("{\u201ctask_id\u201d: 1}", "curly"),
        ("{} {}", "one object a file"),
    ],
)
def test_broken_json_is_named_as_what_it_is(text: str, said: str) -> None:
    _, faults, _ = check_spec(text, where="job.json")
    assert any(said in f"{fault} {fault.hint}" for fault in faults)


def test_a_repeated_key_is_a_fault_with_its_line() -> None:
    text = json.dumps(SEVEN)[:-1] + ',\n "model": "other"}'
    _, faults, _ = check_spec(text, where="job.json")
    assert [fault.what for fault in faults] == ["'model' stands twice"]


def test_a_system_message_is_of_the_endpoints_that_know_one() -> None:
    (fault,) = _faults(system="Be brief.", endpoint="/v1/embeddings")
    assert "'system' is of chat and responses, the job's endpoint is /v1/embeddings" in fault
    assert parse_spec(json.dumps(SEVEN | {"system": "Be brief."}), where="x").system == "Be brief."


@pytest.mark.parametrize("key", ["model", "prompt_template", "system", "input_file"])
def test_half_a_surrogate_in_a_spec_is_a_fault(key: str) -> None:
    (fault,) = _faults(**{key: "\ud800"})
    assert f"{key!r} holds half of a surrogate pair" in fault
    (fault,) = _faults(endpoint="\ud800")
    assert fault.isprintable()


def test_a_limit_on_cost_needs_a_price() -> None:
    (fault,) = _faults(max_cost_usd=2)
    assert "needs a 'price'" in fault


def test_money_keeps_its_decimal_digits() -> None:
    price = {"input_per_1m_usd": 0.1, "output_per_1m_usd": "0.30"}
    spec = parse_spec(json.dumps(SEVEN | {"price": price, "max_cost_usd": 0.7}), where="job.json")
    assert spec.price is not None
    assert (str(spec.price.input_per_1m_usd), str(spec.max_cost_usd)) == ("0.1", "0.7")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=4
    )
)
def test_no_value_of_any_key_raises_anything_but_faults(value: Any) -> None:
    for key in JobSpec.model_fields:
        spec, faults, _ = check_spec(json.dumps(SEVEN | {key: value}), where="job.json")
        assert (spec is None) == bool(faults)
