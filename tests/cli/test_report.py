"""`batchrun report` and `batchrun diagnose`: of a job whose endpoint says hostile words, and of a result file."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.bench.measurements import ladder, measurement_of
from tests.lab import Lab

WORDS = "<script>alert(document.cookie)</script> | too long"
REFUSED = {"status": 400, "json": {"error": {"message": WORDS, "code": "context_length_exceeded"}}}


def test_a_job_is_reported_and_diagnosed(make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]]) -> None:
    rules = [{"when": {"item": "a00001"}, "replies": [REFUSED], "then": "again"}]
    lab, _ = make_scripted(rules=rules, default={"answer": {}})
    lab.write_input(8)
    lab.write_spec(price={"input_per_1m_usd": 1, "output_per_1m_usd": 2})
    assert lab.run("submit", "jobs/job.json", "--no-trial").wait() == 3
    run = lab.run("report", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert "batch-001 is completed: 7 of 8 items answered" in run.out
    page = (lab.folder / "batch-001.report.html").read_text()
    assert "&lt;script&gt;alert(document.cookie)" in page
    assert "<script" not in page
    assert "it cost $" in page
    (load,) = csv.DictReader(lab.run("report", "batch-001", "--format", "csv").out.splitlines())
    assert (load["group"], load["requests"], load["failed"]) == ("batch-001", "8", "1")
    values = lab.run("report", "batch-001", "--json").json
    standing = lab.run("status", "batch-001", "--json").json
    figure = values["loads"][0]["figures"]["p50_e2el"]["median"] / 1000
    assert abs(figure - standing["timing"]["e2el_p50_s"]) < 1e-6
    diagnosis = lab.run("diagnose", "batch-001")
    assert "1 of 8 requests failed: 1 context_length" in " ".join(diagnosis.out.split())


def test_a_result_file_is_reported_and_what_is_none_is_refused(lab: Lab) -> None:
    (lab.folder / "r.json").write_text(measurement_of(ladder(rounds=1)).to_json())
    (lab.folder / "other.txt").write_text("no result")
    run = lab.run("report", "r.json", "-o", "out.md")
    assert run.wait() == 0, run.err
    assert (lab.folder / "out.md").read_text().startswith("# turbo-short\n")
    assert "server's queue" in lab.run("diagnose", "r.json").out
    text = (lab.folder / "r.json").read_text()
    (lab.folder / "nan.json").write_text(text.replace('"level":1', '"level":NaN'))
    assert lab.run("report", "nan.json").wait() == 2
    refused = lab.run("report", "other.txt", "--json")
    assert refused.wait() == 2
    assert "is no result that can be read" in json.loads(refused.out)["error"]["message"]
    assert lab.run("report", "r.json", "-o", "no/such/folder.html").wait() == 2
    assert not Path(lab.folder / "no").exists()
