"""The job spec: the seven keys alone, and every fault named with its line."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core.spec import NOT_YET, JobSpec
from batchrun.core.spec_check import check_spec
from batchrun.errors import BadInput
from tests.core.specs import SEVEN, parse_spec


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


def test_a_key_that_is_written_wrongly_is_one_fault() -> None:
    for wrong in ("max_token", "maxtokens", "MAX_TOKENS", " max_tokens"):
        (fault,) = _faults(**{"max_tokens": "absent", wrong: 256})
        assert f"unknown key '{wrong}'" in fault
        assert "max_tokens'" in fault or 'write "max_tokens"' in fault
    (fault,) = _faults(price={"input_per_1m_usd": 1, "output_per_1m": 2})
    assert fault.endswith("did you mean 'output_per_1m_usd'?")
    assert len(_faults(max_tokens="absent", gpus=1)) == 2


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"concurrency": 0}, 'write "concurrency": 8, say'),
        ({"concurrency": "8"}, "write 8 without quotes"),
        ({"concurrency": "automatic"}, 'write "concurrency": 8, say'),
        ({"concurrency": "64-4"}, 'write "concurrency": 8, say'),
        ({"timeout_s": -1}, 'take "timeout_s" out, and it is 600.0'),
        ({"rpm": 0}, "see 'rpm' in docs/job-spec.md, or take it out"),
        ({"trial": {"sizes": 3}}, "unknown key 'trial.sizes' | did you mean 'size'?"),
        ({"trial": {"gpus": 3}}, "known are size, sample, seed, max_failed_share"),
        ({"trial": {"size": "ten"}}, 'take "size" out, and it is 10'),
        ({"price": {"input_per_1m_usd": 1, "output_per_1m": 2}}, "did you mean 'output_per_1m_usd'?"),
        ({"unknown_statuses": [500], "refused_statuses": [500]}, "keep it in one of the two"),
        ({"params": {"messages": []}}, "move it to the lines of input_file"),
        ({"params": {"stream": True}}, "take it out: answers come whole"),
    ],
)
def test_a_fault_says_what_to_write_instead(changes: dict[str, Any], fault: str) -> None:
    assert any(fault in one for one in _faults(**changes)), _faults(**changes)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[]", "a smallest complete spec"),
        ('[{"task_id": "a"}]', "write several specs into a .jsonl file"),
        ('"job"', "a smallest complete spec"),
        ("[" * 100_000, "flatten it"),
        ('{"a": %s}' % ("9" * 5_000), "as a text"),
        ("{task_id: 1}", "double quotes"),
        ('{"a": 1 "b": 2}', "put a comma between"),
        ('{"a" 1}', "put a colon"),
        ('{"a": }', "write a text in double quotes"),
        ('{"a": "b}', "close the text"),
        ('{"a": "b\nc"}', "line break inside a text as \\n"),
        ('{"a": "C:\\x"}', "a backslash inside a text as \\\\"),
        ('{"a": 1} {}', "one object a file"),
    ],
)
def test_a_text_that_is_no_spec_says_what_to_write(text: str, hint: str) -> None:
    spec, (fault,), _ = check_spec(text, where="job.json")
    assert spec is None
    assert hint in fault.hint


@pytest.mark.parametrize("key", NOT_YET)
def test_a_key_of_a_coming_release_is_refused_and_not_ignored(key: str) -> None:
    (fault,) = _faults(**{key: 1})
    assert "not available in this release" in fault


def test_a_key_pasted_where_a_variables_name_belongs_is_not_repeated() -> None:
    (fault,) = _faults(api_key_env="sk-very-secret-1234567890")
    assert "secret" not in fault
    assert "NAME" in fault


HERE, THERE = {"base_url": "http://127.0.0.1:8000/v1"}, {"base_url": "http://127.0.0.1:8001/v1"}
DEAR, CHEAP = ({"input_per_1m_usd": 2 * times, "output_per_1m_usd": 4 * times} for times in (2, 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"endpoints": [{"weight": 2}]}, "'endpoints.0.base_url' is missing"),
        ({"endpoints": [HERE, {**THERE, "wieght": 2}]}, "did you mean 'weight'?"),
        ({"endpoints": [{**HERE, "weight": 0}]}, "'endpoints.0.weight' must be greater than 0"),
        ({"endpoints": [{**HERE, "concurrency": "auto"}]}, "'endpoints.0.concurrency'"),
        (
            {"endpoints": [{**HERE, "price": {"input_per_1m_usd": 1}}]},
            "'endpoints.0.price.output_per_1m_usd' is missing",
        ),
        ({"endpoints": HERE}, "'endpoints' must be"),
        ({"endpoints": [HERE], "base_url": THERE["base_url"]}, "move base_url into each of the endpoints"),
        ({"endpoints": [HERE], "rpm": 60}, "move rpm into each of the endpoints"),
        ({"endpoints": [{**HERE, "price": DEAR}, THERE], "max_cost_usd": 1}, "needs a 'price'"),
    ],
)
def test_a_fault_of_one_of_several_endpoints_is_told_with_its_mend(changes: dict[str, Any], said: str) -> None:
    assert any(said in fault for fault in _faults(**changes)), _faults(**changes)


def test_a_key_pasted_into_one_of_several_endpoints_is_not_repeated() -> None:
    (fault,) = _faults(endpoints=[{**HERE, "api_key_env": "sk-very-secret-1234567890"}])
    assert "secret" not in fault


def test_a_limit_on_cost_reckons_with_the_dearest_endpoint() -> None:
    several = [{**HERE, "price": CHEAP}, {**THERE, "price": DEAR}]
    spec = parse_spec(json.dumps(SEVEN | {"endpoints": several, "max_cost_usd": 1}))
    assert spec.dearest == spec.endpoints[1].price
    mixed = [{**HERE, "price": {**CHEAP, "cached_input_per_1m_usd": 1}}, {**THERE, "price": DEAR}]
    dearest = parse_spec(json.dumps(SEVEN | {"endpoints": mixed})).dearest
    assert dearest is not None
    assert (dearest.input_per_1m_usd, dearest.cached_input_per_1m_usd) == (8 / 2, 1)
    assert parse_spec(json.dumps(SEVEN | {"endpoints": [HERE, THERE], "price": DEAR})).dearest is not None
    assert parse_spec(json.dumps(SEVEN | {"endpoints": [{**HERE, "price": DEAR}, THERE]})).dearest is None


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


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=4
    )
)
def test_no_value_of_any_key_raises_anything_but_faults(value: Any) -> None:
    for key in JobSpec.model_fields:
        spec, faults, _ = check_spec(json.dumps(SEVEN | {key: value}), where="job.json")
        assert (spec is None) == bool(faults)
