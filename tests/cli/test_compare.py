"""`batchrun compare`: two jobs with their answers, two results, and the exit codes of limits."""

import json
import re
from collections.abc import Callable

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.bench.measurements import group_of, ladder, measurement_of, run_of
from tests.lab import Lab

REFUSED = {"status": 400, "json": {"error": {"message": "no", "code": "context_length_exceeded"}}}
EXAMPLE = "batchrun compare batch-001 batch-002 --fail-if 'p95_e2el>+10%'"


def test_two_jobs_are_compared_with_their_answers(
    make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    rules = [{"when": {"item": "a00001"}, "replies": [REFUSED, {"answer": {}}], "then": "again"}]
    lab, _ = make_scripted(rules=rules, default={"answer": {}})
    lab.write_input(6)
    for name in ("batch-001", "batch-002"):
        lab.write_spec(f"{name}.json", task_id=name, output_file=f"outputs/{name}.jsonl")
        assert lab.run("submit", f"jobs/{name}.json", "--no-trial").wait() in (0, 3)
    run = lab.run("compare", "batch-001", "batch-002", "--answers", "pairs.jsonl", "-o", "both.html", "--json")
    assert run.wait() == 0, run.err
    found = run.json
    assert {name: found["answers"][name] for name in ("equal", "different", "only_a", "only_b")} == {
        "equal": 5,
        "different": 0,
        "only_a": 0,
        "only_b": 1,
    }
    pairs = [json.loads(line) for line in (lab.folder / "pairs.jsonl").read_text().splitlines()]
    assert [one["verdict"] for one in pairs] == ["equal"] * 5 + ["only_b"]
    assert "only in B" in (lab.folder / "both.html").read_text()
    typed = lab.run("compare", "batch-001", "batch-002", "--fail-if", "p95_e2el>+100000%")
    assert typed.wait() == 0
    assert "were measured 1 time" in typed.out
    broken = lab.run("compare", "batch-001", "batch-002", "--fail-if", "failed_share<-10%")
    assert broken.wait() == 7, broken.out
    assert "failed_share<-10%: 0.1667 -> 0" in broken.out


def test_two_results_are_compared_and_refused_where_they_were_not_asked_the_same(lab: Lab) -> None:
    def write(name: str, speed: float, **changes: object) -> None:
        runs = [run_of(level=level, round_no=no, requests=24, speed=speed) for no in (1, 2, 3) for level in (4, 8)]
        (lab.folder / name).write_text(measurement_of(runs, groups=[group_of(**changes)]).to_json())

    write("slow.json", 1.0)
    write("same.json", 1.0)
    write("fast.json", 1.3)
    write("other.json", 1.0, model="another")
    equal = lab.run("compare", "slow.json", "same.json", "--fail-if", "p95_e2el>+0%")
    assert equal.wait() == 0, equal.out
    assert "There is no clear difference between slow.json and same.json" in equal.out
    faster = lab.run("compare", "slow.json", "fast.json")
    assert "are clearly better" in faster.out
    assert re.search(r"output_throughput .* \+\d\d\.\d% better", faster.out)
    assert lab.run("compare", "fast.json", "slow.json", "--fail-if", "p95_e2el>+10%").wait() == 7
    refused = lab.run("compare", "slow.json", "other.json")
    assert refused.wait() == 2
    assert "not asked the same: model" in " ".join(refused.err.split())
    assert lab.run("compare", "slow.json", "other.json", "--force").wait() == 0
    assert lab.run("compare", "slow.json").wait() == 2


def test_the_two_groups_of_one_result_are_compared(lab: Lab) -> None:
    runs = [*ladder(group="A"), *ladder(group="B", speed=1.2)]
    (lab.folder / "ab.json").write_text(measurement_of(runs).to_json())
    run = lab.run("compare", "ab.json", "--json")
    assert run.wait() == 0, run.err
    assert (run.json["a"], run.json["b"]) == ("A", "B")
    assert all(one["is_better"] for one in run.json["figures"] if one["figure"] == "output_throughput")
