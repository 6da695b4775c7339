"""One item with its whole history."""

import difflib
import shlex
from typing import Any

from batchrun.core.outcome import Charge, Kind
from batchrun.core.states import AttemptState, ItemState
from batchrun.errors import UsageFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import count_items, first_items, item_history, some_item_names
from batchrun.ledger.schema import split_key
from batchrun.runner.hints import Hint, Seen, hint_for, kind_of

LISTED = 5
GIVEN_UP = "given_up"
BILLED = {Charge.CERTAIN: "yes", Charge.POSSIBLE: "perhaps", Charge.NONE: "no"}


def show_item(ledger: Ledger, task_id: str, custom_id: str) -> dict[str, Any]:
    """Return one item: its row, its request, and every attempt in order of time, superseded revisions' ones included.

    To what the ledger keeps of an attempt comes `no` (from 1), `attempt_id`, `billed` (yes, no, perhaps) and
    `waited_s`, the seconds from its end until the next one was sent. Bodies are bytes, None where none is (left).

    Raises:
        JobNotFound, UsageFault: there is no such job or item.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        shown = item_history(connection, job.id, custom_id)
        has_answers = count_items(connection, job.id)[ItemState.COMPLETED] > 0
        near = [] if shown else some_item_names(connection, job.id, like=custom_id)
    if shown is None:
        close = difflib.get_close_matches(custom_id, near, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageFault(
            f"job {task_id!r} has no item {custom_id!r}: ids are those of its input file",
            hint=f"{hint}batchrun failures {task_id} --items lists what stopped",
        )
    attempts = shown["attempts"]
    for number, attempt in enumerate(attempts, start=1):
        attempt["no"] = number
        attempt["attempt_id"] = ledger.attempt_id(attempt["key"])
        attempt["raw"] = None if attempt["raw"] is None else bytes(attempt["raw"])
        attempt["billed"] = BILLED[Charge(attempt["charge"])]
        attempt["waited_s"] = _gap_s(attempt, attempts[number]) if number < len(attempts) else None
    key = shown["answer_key"]
    is_copied = key is not None and split_key(key)[0] != shown["id"]
    shown["cached_from"] = ledger.attempt_id(key) if is_copied else None
    shown["copied"] = bytes(shown["copied"]) if is_copied and shown["copied"] is not None else None
    shown["body"] = None if shown["body"] is None else bytes(shown["body"])
    shown["job"] = job
    shown["has_answers"] = has_answers
    return shown


def why_not_again(shown: dict[str, Any]) -> str | None:
    """Say why an item that may have been billed was not sent again; None where it was, or where that is not so."""
    state, attempts = ItemState(shown["state"]), shown["attempts"]
    if state not in (ItemState.FAILED, ItemState.IN_DOUBT) or shown["cause"] == GIVEN_UP or not attempts:
        return None
    if (
        attempts[-1]["billed"] == "no"
        or shown["job"].on_unknown != "hold"
        or kind_of(shown["cause"], state) is Kind.PERMANENT
    ):
        return None
    bill = "was billed" if attempts[-1]["billed"] == "yes" else "may have been billed"
    return f"it {bill}, and on_unknown is hold: it is not sent again unless you say so"


def what_next(shown: dict[str, Any]) -> Hint | None:
    """Say what can be done about an item that stopped, and what sends this one item again; None where it did not."""
    job, state, item = shown["job"], ItemState(shown["state"]), shlex.quote(shown["custom_id"])
    if state not in (ItemState.FAILED, ItemState.IN_DOUBT, ItemState.REJECTED):
        return None
    hint = hint_for(job, shown["cause"], state, Seen(shown["message"], has_answers=shown["has_answers"]))
    if job.is_purged or state is ItemState.REJECTED:
        return hint
    if state is ItemState.IN_DOUBT:
        return Hint(hint.words, f"batchrun reconcile {job.task_id} --retry --item {item}")
    if hint.command.startswith("batchrun retry-failed") and "&&" not in hint.command:
        every = " --all" if shown["cause"] == GIVEN_UP else ""
        return Hint(hint.words, f"batchrun retry-failed {job.task_id} --item {item}{every}")
    return hint


def some_items(ledger: Ledger, task_id: str) -> list[tuple[str, ItemState]]:
    """Return a few of a job's items to choose from: those in doubt and failed first.

    Raises:
        JobNotFound: there is no such job.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        found = [
            row
            for state in (ItemState.IN_DOUBT, ItemState.FAILED, None)
            for row in first_items(connection, job.id, state=state, limit=LISTED)
        ]
    return list(dict.fromkeys(found))[:LISTED]


def telling_answer(shown: dict[str, Any]) -> bytes | None:
    """Return the body that tells the item's story: the answer, or else the last body that came at all."""
    if shown["copied"] is not None:
        copied: bytes = shown["copied"]
        return copied
    attempts = shown["attempts"]
    answered = [one for one in attempts if one["key"] == shown["answer_key"]]
    came = answered or [one for one in attempts if one["raw"] and one["state"] != AttemptState.ANSWERED]
    raw: bytes | None = came[-1]["raw"] if came else None
    return raw


def _gap_s(attempt: dict[str, Any], after: dict[str, Any]) -> float | None:
    """Return the time between an attempt's end and the next one's start, in seconds; wall clocks may have been set."""
    began_at = after["sent_at"] or after["claimed_at"]
    if attempt["ended_at"] is None:
        return None
    return float(max(0.0, began_at - attempt["ended_at"]))
