"""A report for programs: as one JSON object, and as a table with one line a load."""

import csv
import io
from dataclasses import asdict
from typing import Any

from batchrun.bench.report.content import Report
from batchrun.bench.report.diagnosed import WEIGHTS, Diagnosed, diagnose_all
from batchrun.bench.subject import Subject
from batchrun.core.measuring.document import all_requests, figure_names
from batchrun.core.measuring.layers import layers_of


def to_values(subject: Subject, report: Report) -> dict[str, Any]:
    """Return what the report is made of, for JSON; times are seconds or, where the name says so, milliseconds."""
    measurement, facts = subject.measurement, subject.facts
    document = measurement.without_requests().to_values()
    layers = []
    for load in measurement.loads:
        runs = [
            run
            for run in measurement.runs
            if (run.group, run.level, run.max_tokens) == (load.group, load.level, load.max_tokens)
        ]
        found = layers_of(all_requests(runs), runs[-1].observations)
        layers += [
            {"group": load.group, "level": load.level, "max_tokens": load.max_tokens, **asdict(one)} for one in found
        ]
    job = None
    if facts is not None:
        job = {
            "state": facts.job.state.value,
            "counts": {state.value: count for state, count in facts.counts.items()},
            "attempts": {state.value: count for state, count in facts.attempts.by_state.items()},
            "failures": [{"cause": one.cause, "state": one.state, "count": one.count} for one in facts.failures],
            "mean_again_s": facts.mean_again_s,
        }
    return {
        "subject": subject.name,
        "verdict": report.verdict,
        "is_good": report.is_good,
        "warnings": list(report.warnings),
        "setup": document["setup"],
        "loads": document["loads"],
        "knees": document["knees"],
        "layers": layers,
        "findings": findings_values(diagnose_all(measurement, facts)),
        "job": job,
    }


def findings_values(diagnosed: Diagnosed) -> list[dict[str, Any]]:
    """Return what was found, for JSON."""
    return [
        {
            "group": group,
            "level": load.level,
            "layer": one.layer,
            "weight": WEIGHTS[one.weight],
            "share": one.share,
            "evidence": one.evidence,
            "advice": list(one.advice),
        }
        for group, load, findings in diagnosed
        for one in findings
    ]


def to_csv(subject: Subject) -> str:
    """Write one line a load: what it was, and median, lowest and highest round of each figure."""
    names = figure_names()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    writer.writerow(["group", "level", "max_tokens", "rounds", "requests", "failed", *figures])
    for load in subject.measurement.loads:
        cells: list[Any] = [load.group, load.level, load.max_tokens, load.rounds, load.requests, load.failed]
        for name in names:
            found = load.figures.get(name)
            cells += ["", "", ""] if found is None else [found.median, found.low, found.high]
        writer.writerow(cells)
    return out.getvalue()
