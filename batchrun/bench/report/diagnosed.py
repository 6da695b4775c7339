"""The section that says where a load is slow, and what to try."""

from dataclasses import replace

from batchrun.bench.job import JobFacts
from batchrun.bench.report.content import Section
from batchrun.core.measuring.diagnosis import Finding, Weight, diagnose
from batchrun.core.measuring.document import Measurement
from batchrun.core.measuring.symptoms import Symptoms, symptoms_of

WEIGHTS = {Weight.INVALID: "invalid", Weight.FAULT: "fault", Weight.SLOW: "slow", Weight.NOTE: "note"}
ONCE = frozenset({Weight.NOTE, Weight.INVALID})
Diagnosed = list[tuple[str, Symptoms, list[Finding]]]


def diagnose_all(measurement: Measurement, facts: JobFacts | None = None) -> Diagnosed:
    """Return what was found at each load of each group: group, load, findings.

    What is only worth knowing, and what makes all figures doubtful, is told once, at the highest load.
    """
    found: Diagnosed = []
    for group in measurement.setup.groups:
        loads = symptoms_of(measurement, group.name)
        if facts is not None:
            loads = [replace(load, rpm=facts.job.rpm, tpm=facts.job.tpm) for load in loads]
        found += [(group.name, load, findings) for load, findings in diagnose(loads)]
    kept: Diagnosed = []
    told: set[tuple[str, str]] = set()
    for group_name, load, findings in reversed(found):
        new = [one for one in findings if one.weight not in ONCE or (group_name, one.layer) not in told]
        told |= {(group_name, one.layer) for one in findings}
        kept.append((group_name, load, new))
    return kept[::-1]


def diagnosis_section(measurement: Measurement, facts: JobFacts | None = None) -> Section:
    """Show the findings at each load, what matters most first."""
    several = len(measurement.setup.groups) > 1
    found = []
    for group, load, findings in diagnose_all(measurement, facts):
        where = f"{group}, {load.level:g}" if several else f"{load.level:g}"
        for one in findings:
            title = f"{one.layer}, at {where} ({WEIGHTS[one.weight]})"
            found.append((title, f"{one.evidence}. Try: {'; '.join(one.advice)}."))
    words = () if found else ("No layer stands out.",)
    return Section("Diagnosis", "diagnosis", words=words, definitions=tuple(found))
