"""Building a report out of a measurement, or of a job."""

from dataclasses import replace

from batchrun import __version__
from batchrun.bench.job import JobFacts
from batchrun.bench.report.content import Report, Section, table
from batchrun.bench.report.diagnosed import diagnosis_section
from batchrun.bench.report.job_sections import cost_section, cost_words, job_setup, reliability_section
from batchrun.bench.report.loads import loads_section
from batchrun.bench.report.server import server_section
from batchrun.bench.report.setup import definitions_section, reliability_rows, setup_section
from batchrun.bench.report.times import time_section
from batchrun.bench.report.verdict import verdict_of, verdict_of_job
from batchrun.core.measuring.document import Measurement
from batchrun.core.wording import several


def warnings_of(measurement: Measurement) -> list[str]:
    """Return what makes the figures doubtful: of warnings that differ in numbers alone the first, and how many."""
    kinds: dict[str, list[str]] = {}
    for warning in (warning for run in measurement.runs for warning in run.warnings):
        kinds.setdefault("".join(letter for letter in warning if not letter.isdigit()), []).append(warning)
    runs = several(len(measurement.runs), "run")
    many = len(measurement.runs) > 1
    told = [f"{same[0]} (in {len(same)} of {runs})" if many else same[0] for same in kinds.values()]
    return list(dict.fromkeys([*measurement.warnings, *told]))


def build_report(measurement: Measurement, facts: JobFacts | None = None) -> Report:
    """Make the report of a measurement; with `facts`, of the job that it is."""
    setup = setup_section(measurement)
    if facts is not None:
        setup = replace(setup, facts=(*setup.facts[:-1], *job_setup(facts), setup.facts[-1]))
    rows = reliability_rows(measurement)
    failures = table("Failed requests", ("load", "cause", "requests", "share"), rows, words=2)
    reliability = Section(
        "Reliability",
        "reliability",
        words=() if rows else ("Every request was answered.",),
        tables=(failures,) if rows else (),
    )
    sections = (
        setup,
        loads_section(measurement),
        diagnosis_section(measurement, facts),
        time_section(measurement),
        reliability if facts is None else reliability_section(facts),
        server_section(measurement),
        *(() if facts is None else (cost_section(facts.receipt),)),
        definitions_section(measurement),
    )
    if facts is None:
        verdict, is_good = verdict_of(measurement)
    else:
        verdict, is_good = verdict_of_job(measurement, facts, cost_words(facts.receipt))
    return Report(
        title=measurement.id,
        verdict=verdict,
        is_good=is_good,
        warnings=tuple(warnings_of(measurement)),
        sections=tuple(section for section in sections if not section.is_empty),
        made_by=f"batchrun {__version__}",
    )
