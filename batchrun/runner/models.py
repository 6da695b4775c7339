"""The models that an endpoint does have: told before a job asks for another one, and where it stops for that."""

import asyncio
import difflib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from threading import Thread
from typing import Protocol

from batchrun.endpoint.server import ANY_MODEL
from batchrun.errors import LedgerFault
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.trial import models_not_found
from batchrun.runner.ends import End

REASON = "model_not_found"
NAMED = 10
ASKED_S = 0.8  # that the start of a job may wait for lists of models, of however many endpoints
GRACE_S = 0.1
LEAST = 4  # characters of a name that may stand inside another
CLOSE = 0.6  # likeness (0..1) from which a name may be what was meant


class Lists(Protocol):
    """Lists its models; None where it gives no such list. Never billed, never raises."""

    @property
    def address(self) -> str: ...

    async def models(self) -> list[str] | None: ...


class Closes(Lists, Protocol):
    """One that was opened for this question alone."""

    async def close(self) -> None: ...


async def warn_of_unlisted(asked: Sequence[tuple[Closes, Sequence[str]]], *, within_s: float) -> list[str]:
    """Say of each endpoint that lists its models which of the wanted ones it does not list; close them all.

    A warning and no more: some take names that they do not list. Who gives no list, an empty one, or none in this time,
    is not spoken of.
    """

    async def ask(endpoint: Closes, wanted: Sequence[str]) -> str | None:
        try:
            async with asyncio.timeout(within_s):
                names = await endpoint.models()
        except TimeoutError:
            return None
        lacking = [one for one in wanted if names and not is_listed(one, names)]
        if not lacking or names is None:
            return None
        return f"{endpoint.address} does not list {', '.join(map(repr, lacking))}. {models_words(names, lacking)}"

    try:
        return [said for said in await asyncio.gather(*(ask(*one) for one in asked)) if said is not None]
    finally:
        await asyncio.gather(*(endpoint.close() for endpoint, _ in asked))


def warnings_within(asked: Sequence[tuple[Closes, Sequence[str]]], *, within_s: float) -> list[str]:
    """Return the warnings that are there within this time, in a thread of their own: a name that takes its time to be
    resolved cannot be interrupted, only left behind."""
    found: list[str] = []

    def look() -> None:
        found.extend(asyncio.run(warn_of_unlisted(asked, within_s=within_s)))

    thread = Thread(target=look, name="models", daemon=True)
    thread.start()
    thread.join(within_s + GRACE_S)
    return list(found)


def is_listed(wanted: str, names: Collection[str]) -> bool:
    """Say whether a model is listed: under its name, under the fuller one that some list it by, or by a pattern.

    Ollama takes `llama3` for `llama3:latest`, Gemini lists `models/` before each name, LiteLLM may list `openai/*`.
    """
    if wanted in names or f"{wanted}:latest" in names or f"models/{wanted}" in names:
        return True
    return any(ANY_MODEL in name and fnmatchcase(wanted, name) for name in names)


async def name_models(end: End, endpoints: Sequence[Lists], ledger: Ledger, job: Job) -> End:
    """Add to a stop for a missing model which ones there are, the likeliest first; any other end stays as it is.

    Each endpoint is asked once, and it is no fault where one, or the ledger, does not say.
    """
    trip = end.trip
    if trip is None or trip.reason != REASON:
        return end
    lists = [names for names in await asyncio.gather(*(one.models() for one in endpoints)) if names is not None]
    if not lists:
        return end
    names = list(dict.fromkeys(name for names in lists for name in names))
    with suppress(LedgerFault):
        wanted = await asyncio.to_thread(_refused_models, ledger, job)
        message = f"{trip.message.rstrip('. ')}. {models_words(names, wanted)}"
        return replace(end, trip=replace(trip, message=message))
    return end


def _refused_models(ledger: Ledger, job: Job) -> list[str]:
    with ledger.read() as connection:
        return models_not_found(connection, job.id) or [str(job.spec["model"])]


def models_words(names: Sequence[str], wanted: Sequence[str]) -> str:
    """Say which models there are, at most ten of them, and which may be meant."""
    if not names:
        return "The endpoint lists no model at all"
    ordered = sorted(names, key=lambda name: -_likeness(name, wanted))
    shown, rest = ordered[:NAMED], len(names) - NAMED
    more = f" and {rest:,} more" if rest > 0 else ""
    if _likeness(ordered[0], wanted) < CLOSE:
        return f"The endpoint has {', '.join(map(repr, shown))}{more}"
    others = f" It also has {', '.join(map(repr, shown[1:]))}{more}" if shown[1:] else " It has no other"
    return f"Did you mean {ordered[0]!r}?{others}"


def _likeness(name: str, wanted: Sequence[str]) -> float:
    return max((_likeness_of_two(name.casefold(), one.casefold()) for one in wanted), default=0.0)


def _likeness_of_two(name: str, wanted: str) -> float:
    """Compare two names whole, and without the owner that stands before the slash of either."""
    own, meant = name.rpartition("/")[2], wanted.rpartition("/")[2]
    pairs = ((name, wanted), (own, meant))
    likeness = max(difflib.SequenceMatcher(None, one, other).ratio() for one, other in pairs)
    shorter, longer = sorted((own, meant), key=len)
    if len(shorter) < LEAST or shorter not in longer:
        return likeness
    return max(likeness, CLOSE + (1 - CLOSE) * 0.75 * len(shorter) / len(longer))
