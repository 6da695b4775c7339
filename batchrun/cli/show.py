"""`batchrun show`."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import dollars, duration, emit, next_lines, put, put_whole, rfc3339
from batchrun.core.printable import clip, one_line
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.core.states import ItemState

CUT_AT = 300  # characters of a prompt or an answer that are shown without being asked for
BILLED = {"yes": "billed", "perhaps": "possibly billed", "no": "not billed"}
OUTCOMES = {"intent": "under way", "not_sent": "not sent"}


@make_command("batchrun show batch-001 ticket-007")
@click.argument("job", type=JOB)
@click.argument("item", required=False)
@click.option("--request", "with_request", is_flag=True, help="The request's whole body.")
@click.option("--response", "with_response", is_flag=True, help="The whole bodies that came back.")
@click.option("--full", is_flag=True, help="Both.")
def command(context: Context, job: str, item: str | None, with_request: bool, with_response: bool, full: bool) -> int:
    """Show one item with all its attempts: when, how long, what came, and whether it was billed."""
    from batchrun.runner.show import show_item, some_items

    with_request, with_response = with_request or full, with_response or full
    with context.ledger() as ledger:
        if item is None:
            raise _which(job, some_items(ledger, job))
        shown = show_item(ledger, job, item)
    if context.json:
        emit("item", _json(shown, with_request=with_request, with_response=with_response))
        return 0
    for line in _head(shown):
        put(line)
    for attempt in shown["attempts"]:
        for line in _attempt_lines(attempt):
            put(line)
        if with_response and attempt["raw"]:
            put_whole(f"     {attempt['raw'].decode('utf-8', 'replace')}")
        if attempt["waited_s"] is not None:
            put(f"     waited {duration(attempt['waited_s'])}")
    for line in _contents(shown, with_request=with_request, with_response=with_response):
        put(line)
    if with_request and shown["body"]:
        put_whole(shown["body"].decode("utf-8", "replace"))
    for line in _what_next(shown):
        put(line)
    return 0


def _which(job: str, some: "Sequence[tuple[str, ItemState]]") -> UsageFault:
    """Say which item may be meant where none was named."""
    ids = ", ".join(f"{one_line(name)} ({state.value.replace('_', ' ')})" for name, state in some)
    what = f"name one item of {job!r} by its id, the custom_id of its line" + (f", such as {ids}" if ids else "")
    return UsageFault(what, hint=f"batchrun show {job} {shlex.quote(some[0][0]) if some else 'ITEM'}")


def _head(shown: dict[str, Any]) -> Iterator[str]:
    line = f"input line {shown['line_no']:,}, {one_line(shown['model'] or 'no model')}"
    yield f"{one_line(shown['custom_id'])}  {shown['state'].replace('_', ' ')}  ({line})"
    attempts = shown["attempts"]
    if shown["message"] and not (attempts and attempts[-1]["message"] == shown["message"]):
        yield f"  {shown['cause']}: {one_line(shown['message'])}"
    if shown["cached_from"]:
        yield f"  cached: the answer of attempt {shown['cached_from']}, which asked the same; nothing was sent or paid"
    if shown["note"] and shown["note"] != shown["message"]:
        yield f"  note: {one_line(shown['note'])}"


# -- attempts ---------------------------------------------------------------------------------------------------------


def _attempt_lines(attempt: dict[str, Any]) -> Iterator[str]:
    from batchrun.core.outcome import RELEASED

    at = datetime.fromtimestamp(attempt["sent_at"] or attempt["claimed_at"], UTC)
    when = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    status = f"HTTP {attempt['http_status']}, " if attempt["http_status"] else ""
    outcome = OUTCOMES.get(attempt["state"], attempt["state"])
    yield f"  {attempt['no']}  {when}  {duration(attempt['duration_s'])}  {outcome}, {status}{_bill(attempt)}"
    if attempt["cause"] == RELEASED:
        yield "     given back before it was sent"
    elif attempt["cause"]:
        yield f"     {attempt['cause']}" + (f": {one_line(attempt['message'])}" if attempt["message"] else "")
    if facts := ", ".join(_facts(attempt)):
        yield f"     {facts}"
    superseded = "" if attempt["is_current"] else f", of revision {attempt['revision']} (superseded)"
    yield f"     {attempt['attempt_id']} -> {attempt['endpoint']}{superseded}"


def _bill(attempt: dict[str, Any]) -> str:
    words, certain, most = BILLED[attempt["billed"]], attempt["cost_pusd"], attempt["reserved_pusd"]
    if certain:
        words += f" {dollars(certain)}"
    if most and attempt["billed"] != "no":
        words += f" (at most {dollars(most)}{' more' if certain else ''})"
    reported = attempt["reported_pusd"]
    return words if reported is None else f"{words}; the endpoint says {dollars(reported)}"


def _facts(attempt: dict[str, Any]) -> Iterator[str]:
    if attempt["finish_reason"]:
        yield f"finish_reason {one_line(attempt['finish_reason'])}"
    if attempt["prompt_tokens"] is not None or attempt["completion_tokens"] is not None:
        yield "{} in / {} out tokens".format(*(_told(attempt[f"{one}_tokens"]) for one in ("prompt", "completion")))
    if attempt["cached_tokens"]:
        yield f"{attempt['cached_tokens']:,} of them from the provider's cache"
    if attempt["reasoning_tokens"]:
        yield f"{attempt['reasoning_tokens']:,} tokens of reasoning"
    if attempt["warning"]:
        yield f"worth a look: {attempt['warning']}"


def _told(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


# -- request and answer -----------------------------------------------------------------------------------------------


def _contents(shown: dict[str, Any], *, with_request: bool, with_response: bool) -> Iterator[str]:
    """Return the request and the answer in a few lines each, as far as they are not shown whole."""
    from batchrun.core.answer_view import view_answer
    from batchrun.core.request_view import limits_words, prompt_words, read_request
    from batchrun.runner.purged import purged_when
    from batchrun.runner.show import telling_answer

    job = shown["job"]
    if job.is_purged:
        yield f"  its request and answers were purged {purged_when(job)}"
        return
    if body := shown["body"]:
        request = read_request(body)
        limits = limits_words(request)
        yield f"  request   POST {shown['path']}, {len(body):,} bytes" + (f", {limits}" if limits else "")
        if not with_request:
            yield f"            {_cut(prompt_words(request))}"
    if (raw := telling_answer(shown)) and not with_response:
        view = view_answer(raw)
        words = view.words if view else raw.decode("utf-8", "replace")
        yield f"  {'answer' if view else 'body':<8}  {_cut(words)}"


def _cut(words: str) -> str:
    line = one_line(words)
    return line if len(line) <= CUT_AT else f"{clip(line, CUT_AT)} (cut: --full shows it whole)"


def _what_next(shown: dict[str, Any]) -> Iterator[str]:
    """Say why an item that stopped was not sent again, and what can be done about it."""
    from batchrun.runner.show import what_next, why_not_again

    if why := why_not_again(shown):
        yield f"  no retry  {why}"
    if hint := what_next(shown):
        yield f"  do        {hint.words}"
        yield from next_lines(hint.command.split(" && "))


# -- for scripts ------------------------------------------------------------------------------------------------------


def _json(shown: dict[str, Any], *, with_request: bool, with_response: bool) -> dict[str, Any]:
    from batchrun.core.prices import usd
    from batchrun.runner.show import what_next, why_not_again

    attempts = []
    for attempt in shown["attempts"]:
        values = {
            name: attempt[name]
            for name in (
                "no", "attempt_id", "state", "endpoint", "duration_s", "waited_s", "http_status", "cause", "message",
                "finish_reason", "warning", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens",
                "charge", "billed", "request_id", "response_id", "worker", "revision",
            )
        }  # fmt: skip
        cost, kept = attempt["cost_pusd"], attempt["reserved_pusd"]
        values["cost_usd"] = None if cost is None else usd(cost)
        values["possible_usd"] = usd(kept) if kept and attempt["billed"] != "no" else None
        reported = attempt["reported_pusd"]
        values["reported_usd"] = None if reported is None else usd(reported)
        values |= {
            name: rfc3339(attempt[name]) for name in ("queued_at", "claimed_at", "sent_at", "first_byte_at", "ended_at")
        }
        if with_response:
            values["raw"] = None if attempt["raw"] is None else attempt["raw"].decode("utf-8", "replace")
        attempts.append(values)
    names = ("custom_id", "line_no", "state", "model", "cause", "message", "note", "revision", "consents", "path")
    values = {name: shown[name] for name in (*names, "cached_from")} | {"attempts": attempts}
    hint = what_next(shown)
    values["not_sent_again"] = why_not_again(shown)
    values |= {"hint": hint and hint.words, "next_command": hint and hint.command}
    values["purged_at"] = rfc3339(shown["job"].purged_at)
    if with_request:
        values["request"] = None if shown["body"] is None else shown["body"].decode("utf-8", "replace")
    return values
