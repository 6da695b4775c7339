"""`batchrun compare SPEC --shadow URL`: one input, two endpoints; each is billed once, and doubts stay doubts."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run
from tests.process.steps import gated

REFUSED = {"status": 400, "json": {"error": {"message": "no", "code": "context_length_exceeded"}}}
CUT = {"break_at": "head", "billed": True}


@pytest.fixture
def two(
    make_lab: Callable[..., Lab], make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]]
) -> Callable[..., tuple[Lab, ScriptedEndpoint]]:
    """Return a function that makes a lab with its own endpoint, and a second one that follows a script."""

    def make(rules: list[dict[str, Any]] | None = None, **settings: Any) -> tuple[Lab, ScriptedEndpoint]:
        lab = make_lab(**settings)
        _, second = make_scripted(rules=rules or [], default={"answer": {}})
        return lab, second

    return make


def shadowed(lab: Lab, second: str, *more: str, spec: str = "jobs/job.json") -> Run:
    return lab.run("compare", spec, "--shadow", second, "--json", *more)


def test_a_share_of_the_input_goes_to_both_endpoints_once_and_the_same_command_again_sends_nothing(
    lab: Lab, make_lab: Callable[..., Lab]
) -> None:
    other = make_lab("other")
    assert other.base_url is not None
    lab.write_input(40)
    lab.write_spec()
    run = shadowed(lab, other.base_url, "--share", "25", "--answers", "pairs.jsonl")
    assert run.wait() == 0, run.err
    found = run.json
    assert found["shadow"] == {"items": 10, "share": 25.0, "seed": 0}
    assert (found["answers"]["equal"], found["answers"]["different"]) == (10, 0), "two mocks of one seed say the same"
    assert found["differences"] == []
    for one in (lab, other):
        judged = one.judged()
        assert (judged.posts, judged.billed) == (10, 10)
    again = shadowed(lab, other.base_url, "--share", "25")
    assert again.wait() == 0, again.err
    assert (lab.judged().posts, other.judged().posts) == (10, 10)
    more = shadowed(lab, other.base_url, "--share", "50", "--seed", "7")
    assert more.wait() == 0, more.err
    assert more.json["shadow"]["items"] == 20
    assert (lab.judged().billed, other.judged().billed) == (30, 30)


def test_what_the_second_endpoint_refuses_or_leaves_in_doubt_stands_on_one_side_alone(
    two: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    lab, second = two(
        [
            {"when": {"item": "a00001"}, "replies": [REFUSED], "then": "again"},
            {"when": {"item": "a00002"}, "replies": [CUT], "then": "again"},
        ]
    )
    lab.write_input(6)
    lab.write_spec()
    limit = ("--fail-if", "failed_share>+0%")
    run = shadowed(lab, second.base_url, "--share", "100", *limit)
    assert run.wait() == 7, run.err
    found = run.json
    told = {name: found["answers"][name] for name in ("equal", "different", "only_a", "only_b")}
    assert told == {"equal": 0, "different": 4, "only_a": 2, "only_b": 0}
    share = next(one for one in found["figures"] if one["figure"] == "failed_share")
    assert (share["a"]["median"], share["b"]["median"]) == (0.0, pytest.approx(2 / 6))
    assert "failed_share" in found["broken"][0]["words"]
    again = shadowed(lab, second.base_url, "--share", "100")
    assert again.wait() == 6, "the doubt is a doubt"
    assert len(second.requests) == 6, "what may be billed is not sent again, and what was refused for good is not"


def test_a_second_endpoint_that_a_guard_stops_is_compared_as_far_as_it_came(
    two: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    unknown = {"status": 404, "json": {"error": {"message": "no such model", "code": "model_not_found"}}}
    lab, second = two([{"when": {}, "replies": [unknown], "then": "again"}])
    lab.write_input(12)
    lab.write_spec(concurrency=2)
    run = shadowed(lab, second.base_url, "--share", "100")
    assert run.wait() == 5, run.err
    assert (run.json["answers"]["only_a"], run.json["answers"]["only_b"]) == (12, 0)
    assert lab.judged().billed == 12


def test_a_kill_in_the_middle_bills_no_item_twice(make_lab: Callable[..., Lab]) -> None:
    lab, other = make_lab(ttft_ms=150.0), make_lab("other", ttft_ms=150.0)
    assert other.base_url is not None
    assert other.log is not None
    lab.write_input(24)
    lab.write_spec(concurrency=4)
    with gated(other, admits=6):
        run = lab.start("compare", "jobs/job.json", "--shadow", other.base_url, "--share", "100")
        other.await_arrivals(6, run=run)
        run.kill(signal.SIGKILL)
        assert run.wait() == -9
    again = shadowed(lab, other.base_url, "--share", "100")
    assert again.wait() in (0, 6), again.err
    found, judged = again.json, other.judged()
    done = found["answers"]["equal"] + found["answers"]["different"]
    doubts = found["answers"]["only_a"]
    assert done + doubts == 24
    assert done <= judged.billed <= done + doubts
    assert lab.judged().billed == 24
    assert not judged.repeated
    assert not lab.judged().repeated


def test_the_key_of_one_endpoint_is_not_sent_to_the_other(
    make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    lab, first = make_scripted(rules=[], default={"answer": {}})
    _, second = make_scripted("second", rules=[], default={"answer": {}})
    lab.env["OPENAI_API_KEY"] = "sk-first"
    lab.write_input(4)
    lab.write_spec(idempotency_header="Idempotency-Key", on_unknown="retry")
    assert shadowed(lab, second.base_url, "--share", "100").wait() == 0
    assert {one.headers["authorization"] for one in first.requests} == {"Bearer sk-first"}
    assert not [one for one in second.requests if "sk-first" in str(one.headers)]
    assert not [one for one in second.requests if "idempotency-key" in one.headers]
    lab.env["SECOND_KEY"] = "sk-second"
    run = shadowed(lab, second.base_url, "--share", "50", "--shadow-key-env", "SECOND_KEY", "--shadow-model", "other")
    assert run.wait() == 0, run.err
    assert {one.headers["authorization"] for one in second.requests[4:]} == {"Bearer sk-second"}
    assert {one.json["model"] for one in second.requests[4:]} == {"other"}
    assert {one.json["model"] for one in first.requests} == {"mock"}
    assert run.json["differences"] == ["model: 'mock' and 'other'"]


def test_rows_and_templates_are_sent_to_both_as_the_same_whole_requests(
    make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    lab, first = make_scripted(rules=[], default={"answer": {}})
    _, second = make_scripted("second", rules=[], default={"answer": {}})
    rows = [{"id": f"r{number}", "text": f'a \\ " ü {number}'} for number in range(5)]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lab.write_spec(prompt_template="Sum up: {{ text }}", system="Be brief.", params={"temperature": 0})
    run = shadowed(lab, second.base_url, "--share", "100")
    assert run.wait() == 0, run.err
    assert sorted(one.body for one in first.requests) == sorted(one.body for one in second.requests)
    assert {one.json["messages"][0]["content"] for one in second.requests} == {"Be brief."}
    assert run.json["answers"]["equal"] == 5


def test_a_limit_on_the_cost_needs_the_second_endpoints_price(lab: Lab, make_lab: Callable[..., Lab]) -> None:
    other = make_lab("other")
    assert other.base_url is not None
    lab.write_input(4)
    lab.write_spec(price={"input_per_1m_usd": 1, "output_per_1m_usd": 2}, max_cost_usd=5)
    refused = lab.run("compare", "jobs/job.json", "--shadow", other.base_url)
    assert refused.wait() == 2
    assert "--shadow-price" in refused.err
    assert lab.run("compare", "jobs/job.json", "batch-002", "--shadow", other.base_url).wait() == 2
    assert (lab.judged().posts, other.judged().posts) == (0, 0)
    run = shadowed(lab, other.base_url, "--share", "100", "--shadow-price", "10,20")
    assert run.wait() == 0, run.err
    cost = next(one for one in run.json["figures"] if one["figure"] == "cost_usd")
    assert cost["b"]["median"] == pytest.approx(10 * cost["a"]["median"])
