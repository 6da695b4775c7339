"""Answers judged by a schema, in real processes: outputs, exit codes and money; the endpoint's own log is the judge."""

import csv
import json
from collections.abc import Callable
from typing import Any

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole

SCHEMA = {"type": "object", "required": ["label"], "properties": {"label": {"enum": ["spam", "ham"]}}}
PRICE = {"input_per_1m_usd": 1, "output_per_1m_usd": 2}
Made = tuple[Lab, ScriptedEndpoint]


def script(wrong: list[int], *, text: str = '{"label": "eggs"}') -> dict[str, Any]:
    """Make a script in which these items are answered with another text than all others."""
    when = {"item": [f"a{number:05d}" for number in wrong]}
    return {
        "rules": [{"when": when, "replies": [{"answer": {"content": text}}], "then": "again"}],
        "default": {"answer": {"content": '{"label": "ham"}'}},
    }


def test_an_invalid_answer_is_paid_told_and_kept_whole_in_every_output(make_scripted: Callable[..., Made]) -> None:
    lab, endpoint = make_scripted(**script([1, 4]))
    lab.write_input(8)
    (lab.folder / "schema.json").write_text(json.dumps(SCHEMA))
    lab.write_spec(response_schema="schema.json", price=PRICE)
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 3, run.err
    assert len(endpoint.requests) == 8
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, [f"a{number:05d}" for number in range(8)])
    wrong = lab.lines("out.errors.jsonl")
    assert [line["error"]["code"] for line in wrong] == ["invalid_answer"] * 2
    assert "$.label" in wrong[0]["error"]["message"]
    assert wrong[0]["response"]["body"]["choices"][0]["message"]["content"] == '{"label": "eggs"}'
    assert wrong[0]["batchrun"]["cost_usd"] == "0.00002"
    lab.run("export", "batch-001", "-o", "outputs/table.csv").wait()
    table = list(csv.DictReader((lab.folder / "outputs" / "table.csv").open()))
    assert [(row["text"], row["error_cause"]) for row in table[:2]] == [
        ('{"label": "ham"}', ""),
        ('{"label": "eggs"}', "invalid_answer"),
    ]
    # Eggs will do after all: judged anew, nothing is sent, and the outputs follow.
    loose = json.loads(json.dumps(SCHEMA).replace('["spam", "ham"]', '["spam", "ham", "eggs"]'))
    (lab.folder / "schema.json").write_text(json.dumps(loose))
    judge = ("revalidate", "batch-001", "--schema", "schema.json", "--json")
    for moved in (2, 0):
        one = lab.run(*judge).json
        assert (one["judged"], one["completed"], one["failed"], one["applied"]) == (8, moved, 0, moved > 0)
    assert len(endpoint.requests) == 8
    assert len(lab.lines()) == 8
    assert lab.lines("out.errors.jsonl") == []
    assert assert_accounts_agree(lab).exit_code == 0


def test_the_gate_stops_on_the_share_of_invalid_answers(make_scripted: Callable[..., Made]) -> None:
    lab, endpoint = make_scripted(**script([0, 1]))
    lab.write_input(30)
    lab.write_spec(response_schema=SCHEMA, trial={"size": 10, "sample": "head", "max_invalid_share": 0.1})
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 5, run.err
    assert "2 of 10 trial answers are not what response_schema asks for" in run.err + run.out
    assert len(endpoint.requests) == 10
