"""`batchrun doctor`."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import columns_of, duration, emit, fold, next_lines
from batchrun.errors import BatchrunError, UsageFault

if TYPE_CHECKING:
    from batchrun.core.spec import JobSpec
    from batchrun.runner.doctor.finding import Check, Finding, Section
    from batchrun.runner.specs import Written
    from batchrun.settings import Origin, Settings
    from batchrun.wiring import Named

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
NAME = 12  # columns of the longest name


@make_command("batchrun doctor jobs/job.json")
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@click.option("--send", is_flag=True, help="Send one real request of a few tokens. It may be billed.")
@click.option("--probe-replay", is_flag=True, help="With --send: send it twice under one idempotency key.")
def command(context: Context, spec: Path | None, send: bool, probe_replay: bool) -> int:
    """Look at all that a job needs: ok, warn or fail, each with its mend.

    Ledger, broker, workers, endpoint and key, clock, versions; with a SPEC its files and its model, too. Nothing is
    made or changed, and nothing is sent that costs, but for --send: one request that no ledger keeps, or two.
    """
    import time

    from batchrun.runner.doctor.finding import Level, examine

    if send and spec is None:
        raise UsageFault("--send needs a SPEC: its model is asked", hint="batchrun doctor jobs/job.json --send")
    if probe_replay and not send:
        raise UsageFault("--probe-replay sends two requests", hint="batchrun doctor SPEC --send --probe-replay")
    checks = list(_checks(context, spec, send=send, probe_replay=probe_replay))
    began = time.monotonic()
    sections = examine(checks)
    levels = [found.level for section in sections for found in section.findings]
    worst = next((level for level in (Level.FAIL, Level.WARN) if level in levels), Level.OK)
    if context.json:
        emit("doctor", {"level": worst, "findings": [row for section in sections for row in _rows(section)]})
    else:
        _show(context, sections, spec, took_s=time.monotonic() - began)
    return 1 if worst is Level.FAIL else 0


def _checks(context: Context, path: Path | None, *, send: bool, probe_replay: bool) -> "Iterator[Check]":
    from batchrun.core.concurrency import Concurrency
    from batchrun.queue.inspection import broker_check
    from batchrun.runner.doctor.files import files_check
    from batchrun.runner.doctor.finding import Check
    from batchrun.runner.doctor.ledger import ledger_check
    from batchrun.runner.doctor.machine import machine_check
    from batchrun.runner.doctor.workers import workers_check
    from batchrun.runner.specs import read_specs

    settings = context.settings()
    written = [] if path is None else read_specs([path])
    specs = [_read(one) for one in written]
    good = [spec for spec in specs if spec is not None]
    yield from (files_check(one, spec) for one, spec in zip(written, specs, strict=True))
    yield ledger_check(settings.db, home=settings.home, has_broker=settings.broker is not None)
    if settings.broker is None:
        told = "none named: a job runs in the process that submits it"
        yield Check("broker", None, lambda notes: notes.ok("embedded", told))
    else:
        yield broker_check(settings.broker)
    yield workers_check(settings.db, has_broker=settings.broker is not None)
    yield from _endpoint_checks(settings, context.origins(), good, send=send, probe_replay=probe_replay)
    yield machine_check(concurrency=max((Concurrency.of(spec.concurrency).high for spec in good), default=None))


def _read(written: "Written") -> "JobSpec | None":
    from batchrun.core.spec_check import check_spec

    return check_spec(written.text, where=written.where)[0]


def _endpoint_checks(
    settings: "Settings",
    origins: "dict[str, Origin]",
    specs: "Sequence[JobSpec]",
    *,
    send: bool,
    probe_replay: bool,
) -> "Iterator[Check]":
    """Yield one look for each endpoint that these specs, or the environment, name."""
    from batchrun.runner.doctor.endpoint import Target, endpoint_check, no_endpoint_check
    from batchrun.runner.doctor.sending import sending_check
    from batchrun.wiring import name_endpoints

    def endpoints_of(spec: "JobSpec") -> "tuple[Any, ...]":
        return spec.base_url, spec.api_key_env, spec.endpoints

    for base_url, variable, endpoints in list(dict.fromkeys(map(endpoints_of, specs))) or [(None, None, ())]:
        going = tuple(spec for spec in specs if endpoints_of(spec) == (base_url, variable, endpoints))
        try:
            named = name_endpoints(settings, base_url=base_url, api_key_env=variable, endpoints=endpoints)
        except BatchrunError as fault:
            yield no_endpoint_check(fault)
            continue
        for one in named:
            key: str | BatchrunError
            try:
                key = one.access(settings).key
            except BatchrunError as fault:
                key = fault
            there = tuple(_as_asked(spec, one) for spec in going)
            named_by = "the spec" if base_url or endpoints else _told(origins["base_url"])
            key_from = _key_from(settings, origins, one.variable) if one.has_key else None
            yield endpoint_check(Target(one.base_url, named_by, key, key_from, there))
            if send and there and isinstance(key, str):
                yield sending_check(there[0], base_url=one.base_url, key=key, probes_replay=probe_replay)


def _as_asked(spec: "JobSpec", one: "Named") -> "JobSpec":
    """Return a spec as this endpoint meets it: with its own name for the model, where it has one."""
    own = None if one.own is None else one.own.model
    return spec if own is None else spec.model_copy(update={"model": own})


def _key_from(settings: "Settings", origins: "dict[str, Origin]", variable: str | None) -> str | None:
    if variable is not None:
        return f"{variable} (the spec's api_key_env)" if os.environ.get(variable) else None
    return None if settings.reveal_key() is None else _told(origins["api_key"])


def _told(origin: "Origin") -> str:
    where = {"env_file": " in the env file", "environment": ""}.get(origin.source, "")
    return f"{origin.name or origin.source}{where}"


def _rows(section: "Section") -> "Iterator[dict[str, str | None]]":
    for found in section.findings:
        yield {
            "area": section.area,
            "subject": section.subject,
            "name": found.name,
            "level": found.level,
            "message": found.said,
            "mend": found.mend,
        }


# -- the screen -----------------------------------------------------------------------------------------------------


def _show(context: Context, sections: "Sequence[Section]", spec: Path | None, *, took_s: float) -> None:
    counts = dict.fromkeys(COLOURS, 0)
    for section in sections:
        for found in section.findings:
            counts[found.level] += 1
        shown = [found for found in section.findings if found.mend or not context.quiet]
        if shown:
            _line(f"{section.area}  {section.subject}" if section.subject else section.area)
        for found in shown:
            _finding(found)
    _line(", ".join(f"{count} {level}" for level, count in counts.items()) + f"   ({duration(took_s)})")
    if not counts["fail"] and not context.quiet:
        for line in next_lines([f"batchrun submit {spec}" if spec else "batchrun doctor jobs/job.json"]):
            _line(line)


def _finding(found: "Finding") -> None:
    _line(f"  {found.level:<4}  {found.name:<{NAME}}  {found.said}", colour=COLOURS[found.level], indent=NAME + 10)
    if found.mend:
        _line(f"  {'':<4}  {'':<{NAME}}  mend: {found.mend}", indent=NAME + 16)


def _line(text: str, *, colour: str | None = None, indent: int = 2) -> None:
    """Print a line, folded to the terminal; of a finding, the level has its colour."""
    from batchrun.core.printable import visible

    columns = columns_of(sys.stdout)
    text = visible(text)
    lines = [text] if columns is None else _folded(text, columns, indent)
    first = lines[0]
    if colour is not None and columns is not None and not os.environ.get("NO_COLOR"):
        first = first[:2] + click.style(first[2:6], fg=colour) + first[6:]
    for line in (first, *lines[1:]):
        click.echo(line)


def _folded(text: str, columns: int, indent: int) -> list[str]:
    if indent > columns // 2:
        return fold(text, columns).split("\n")
    import textwrap

    return textwrap.wrap(
        text,
        columns,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]
