"""`batchrun show`."""

from typing import Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import dollars, duration, emit, put, rfc3339


@make_command("batchrun show batch-001 ticket-0007")
@click.argument("job")
@click.argument("item")
@click.option("--request", "with_request", is_flag=True, help="The request's body too.")
@click.option("--response", "with_response", is_flag=True, help="The raw answers too.")
def command(context: Context, job: str, item: str, with_request: bool, with_response: bool) -> int:
    """Show one item with all its attempts: when, how long, what came, and whether it was billed."""
    from batchrun.runner.show import show_item

    with context.ledger() as ledger:
        shown = show_item(ledger, job, item)
    if context.json:
        emit("item", _json(shown, with_request=with_request, with_response=with_response))
        return 0
    put(f"{shown['custom_id']}  {shown['state'].replace('_', ' ')}  (input line {shown['line_no']}, {shown['model']})")
    attempts = shown["attempts"]
    if shown["message"] and not (attempts and attempts[-1]["message"] == shown["message"]):
        put(f"  {shown['cause']}: {shown['message']}")
    if shown["note"]:
        put(f"  note: {shown['note']}")
    for number, attempt in enumerate(attempts, start=1):
        for line in _attempt_lines(number, attempt):
            put(line)
        if with_response and attempt["raw"]:
            click.echo(f"     {attempt['raw'].decode('utf-8', 'replace')}")
    if with_request and shown["body"]:
        click.echo(f"  request  POST {shown['path']}\n     {shown['body'].decode('utf-8', 'replace')}")
    return 0


_BILLED = {"certain": "billed", "possible": "possibly billed", "none": "not billed"}


def _attempt_lines(number: int, attempt: dict[str, Any]) -> list[str]:
    at = rfc3339(attempt["sent_at"] or attempt["claimed_at"])
    what = [attempt["state"].replace("_", " ")]
    if attempt["http_status"]:
        what.append(f"HTTP {attempt['http_status']}")
    if attempt["finish_reason"]:
        what.append(f"finish_reason {attempt['finish_reason']}")
    if attempt["completion_tokens"] is not None:
        what.append(f"{attempt['prompt_tokens']} in / {attempt['completion_tokens']} out tokens")
    cost = f" {dollars(attempt['cost_pusd'])}" if attempt["cost_pusd"] else ""
    what.append(_BILLED[attempt["charge"]] + cost)
    lines = [f"  {number}  {at}  {duration(attempt['duration_s'])}  {', '.join(what)}"]
    if attempt["cause"]:
        lines.append(f"     {attempt['cause']}" + (f": {attempt['message']}" if attempt["message"] else ""))
    return [*lines, f"     {attempt['attempt_id']} -> {attempt['endpoint']}"]


def _json(shown: dict[str, Any], *, with_request: bool, with_response: bool) -> dict[str, Any]:
    attempts = []
    for attempt in shown["attempts"]:
        values = {
            name: attempt[name]
            for name in (
                "attempt_id", "state", "endpoint", "duration_s", "http_status", "cause", "message", "finish_reason",
                "warning", "prompt_tokens", "completion_tokens", "charge", "request_id", "response_id", "worker",
            )
        }  # fmt: skip
        values |= {
            name: rfc3339(attempt[name]) for name in ("queued_at", "claimed_at", "sent_at", "first_byte_at", "ended_at")
        }
        if with_response:
            values["raw"] = None if attempt["raw"] is None else attempt["raw"].decode("utf-8", "replace")
        attempts.append(values)
    names = ("custom_id", "line_no", "state", "model", "cause", "message", "note", "revision", "consents", "path")
    values = {name: shown[name] for name in names} | {"attempts": attempts}
    if with_request:
        values["request"] = None if shown["body"] is None else shown["body"].decode("utf-8", "replace")
    return values
