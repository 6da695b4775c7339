"""Which items two endpoints are both sent, and what of a spec is true of its own endpoint alone."""

import json

import pytest

from batchrun.core.measuring.shadowing import Shadow, drawn, how_many, shadow_name, side_specs, without_model
from batchrun.core.spec import TASK_ID, JobSpec

NAMES = [f"a{number}" for number in range(1_000)]
SPEC = {
    "task_id": "batch-001",
    "model": "turbo-opt",
    "input_file": "in.jsonl",
    "output_file": "out.jsonl",
    "max_tokens": 8,
    "concurrency": 2,
    "retry_times": 1,
    "params": {"temperature": 0},
    "system": "Be brief.",
    "trial": {"size": 5},
    "error_file": "bad.jsonl",
}
OF_ONE = {
    "api_key_env": "MY_KEY",
    "price": {"input_per_1m_usd": 1, "output_per_1m_usd": 2},
    "price_from": "genai-prices:openai",
    "on_unknown": "retry",
    "lookup": "openai",
    "idempotency_header": "Idempotency-Key",
    "unknown_statuses": [404],
    "refused_statuses": [502],
}


def sides(spec: dict[str, object], **about: object) -> tuple[dict[str, object], dict[str, object]]:
    shadow = Shadow(**({"base_url": "http://other/v1", "share": 1.0} | about))  # type: ignore[arg-type]
    return side_specs(spec, shadow, name="n", input_file="drawn.jsonl", folder="f")


def test_a_draw_is_the_same_again_and_a_larger_one_holds_the_smaller_one() -> None:
    few, many = drawn(NAMES, count=50, seed=1), drawn(reversed(NAMES), count=200, seed=1)
    assert (len(few), len(many)) == (50, 200)
    assert few < many
    assert drawn(NAMES, count=50, seed=2) != few


@pytest.mark.parametrize(
    ("items", "share", "count"), [(40, 0.25, 10), (3, 0.1, 1), (7, 1.0, 7), (1_000_000, 0.001, 1_000)]
)
def test_a_share_is_at_least_one_item(items: int, share: float, count: int) -> None:
    assert how_many(items, share) == count


def test_nothing_that_is_true_of_one_endpoint_alone_is_taken_for_true_of_the_other() -> None:
    ours, theirs = sides({**SPEC, **OF_ONE, "base_url": "http://own/v1"})
    assert OF_ONE.items() <= ours.items()
    assert not OF_ONE.keys() & theirs.keys()
    assert (ours["base_url"], theirs["base_url"]) == ("http://own/v1", "http://other/v1")


def test_of_every_key_of_a_spec_it_is_decided_whether_it_is_true_of_the_second_endpoint_too() -> None:
    of_the_job = {
        "task_id",
        "model",
        "input_file",
        "output_file",
        "base_url",
        "endpoint",
        "max_tokens",
        "params",
        "metadata",
    }
    of_the_work = {"concurrency", "retry_times", "timeout_s", "rpm", "tpm", "order", "cache", "measure"}
    of_the_stops = {"fail_on_error", "endpoint_down_limit_s", "max_prompt_tokens"}
    of_the_answers = {"response_schema", "accept_fenced", "reask"}
    held = of_the_job | of_the_work | of_the_stops | of_the_answers
    _, theirs = sides(dict.fromkeys(JobSpec.model_fields, "x"))
    assert set(theirs) == held, "a new key: is it true of any endpoint, or of the spec's own alone?"


def test_both_sides_send_the_same_lines_and_write_files_of_their_own() -> None:
    ours, theirs = sides(SPEC)
    assert ours["input_file"] == theirs["input_file"] == "drawn.jsonl"
    assert (ours["task_id"], theirs["task_id"]) == ("n-a", "n-b")
    assert ours["output_file"] != theirs["output_file"]
    for side in (ours, theirs):
        assert not {"system", "trial", "error_file"} & side.keys(), "the lines have the system message already"
        assert side["params"] == {"temperature": 0}


def test_a_limit_on_the_cost_holds_where_the_price_is_known() -> None:
    price = {"input_per_1m_usd": "3", "output_per_1m_usd": "4"}
    spec = {**SPEC, **OF_ONE, "max_cost_usd": "5"}
    _, priced = sides(spec, price=price)
    assert (priced["price"], priced["max_cost_usd"]) == (price, "5")
    assert "max_cost_usd" not in sides(spec)[1]


def test_the_longest_name_of_a_job_leaves_room_for_its_shadows() -> None:
    name = shadow_name("x" * 100, "http://a/v1", 0.1)
    assert TASK_ID.match(f"{name}-a")
    assert name == shadow_name("x" * 100, "http://a/v1", 0.1) != shadow_name("x" * 100, "http://b/v1", 0.1)


def test_a_model_goes_out_of_a_request_and_nothing_else() -> None:
    body = {"model": "turbo-opt", "messages": [{"role": "user", "content": "ü"}], "seed": 2**60}
    assert json.loads(without_model(json.dumps(body).encode())) == {key: body[key] for key in ("messages", "seed")}
