"""`batchrun diagnose`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import duration, emit, next_lines, put
from batchrun.cli.subjects import SUBJECT

if TYPE_CHECKING:
    from batchrun.bench.report.diagnosed import Diagnosed
    from batchrun.bench.subject import Subject
    from batchrun.core.measuring.symptoms import Symptoms


@make_command("batchrun diagnose batch-001")
@click.argument("subject", metavar="RESULT|JOB", type=SUBJECT)
def command(context: Context, subject: str) -> int:
    """Say where a job or a measurement is slow, layer by layer, and what to try next.

    Input lengths, our queue, the connection, the server's queue, prefill, decode, retries and throttling, the client
    itself, parameters: each finding has its evidence, and a lower concurrency is the first thing to try.
    """
    from batchrun.bench.report.diagnosed import diagnose_all
    from batchrun.bench.subject import read_subject

    read = read_subject(subject, context.ledger)
    found = diagnose_all(read.measurement, read.facts)
    if context.json:
        emit("diagnosis", _json(read, found))
        return 0
    for line in _lines(read, found):
        put(line)
    return 0


def _lines(read: "Subject", found: "Diagnosed") -> Iterator[str]:
    several = len(read.measurement.setup.groups) > 1
    word = "concurrency" if read.measurement.setup.arrivals.kind in ("closed", "job") else "requests a second"
    for group, load, findings in found:
        where = f"{group}, {word} {load.level:g}" if several else f"{word} {load.level:g}"
        yield f"{read.name}: {where}{_layers(load)}"
        if not findings:
            yield "  no layer stands out"
        for one in findings:
            yield f"  {one.layer:<22}  {one.evidence}"
            for number, advice in enumerate(one.advice):
                yield f"  {'':<22}  {'try:' if number == 0 else 'then:'} {advice}"
    yield from next_lines([f"batchrun report {read.name}"])


def _layers(load: "Symptoms") -> str:
    parts = [f"{layer.name} {duration(layer.mean_s)}" for layer in load.layers if layer.share >= 0.01]
    return f"; of a request: {', '.join(parts)}" if parts else "; nothing was answered"


def _json(read: "Subject", found: "Diagnosed") -> dict[str, Any]:
    from batchrun.bench.report.data import findings_values

    return {"subject": read.name, "findings": findings_values(found)}
