"""Requests and tokens a minute, over all workers of a job: what is asked, and what is granted.

The rule and its form for one process are in rate_book.py; queue/windows.lua is the same rule for many processes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Protocol

ASK_AGAIN_S = 1.0  # however long the wait: limits change while a job runs, and a turn lapses


@dataclass(frozen=True, slots=True)
class Window:
    """How a minute is measured. The defaults are the real minute; tests shorten it."""

    length_s: float = 60.0
    use_within_s: float = 1.0  # a permit is used within this, or not at all
    bucket_s: float = 0.25  # what was granted together is forgotten together
    clock_slack_s: float = 0.25  # a step of the store's clock up to this may pass unseen
    burst_s: float = 2.0  # after silence, this much of the steady rate may leave at once
    least_wait_s: float = 0.05  # who has to wait waits for this: a share of it then leaves together, for one question
    turn_s: float = 2.0  # so long a large item's turn is kept for a worker that does not ask again

    @property
    def bucket_us(self) -> int:
        return round(self.bucket_s * 1e6)

    @property
    def buckets(self) -> int:
        """For how many buckets a grant counts: it may be used late, its bucket may have just ended, a clock may lie."""
        return ceil(round((self.length_s + self.use_within_s + self.clock_slack_s) * 1e6) / self.bucket_us) + 1

    @property
    def span_us(self) -> int:
        """In this time the limit is granted once: a little more than the window."""
        return self.buckets * self.bucket_us


MINUTE = Window()


@dataclass(frozen=True, slots=True)
class Limits:
    """What may leave in any one window. None is no limit; a limit is at least 1."""

    rpm: int | None = None
    tpm: int | None = None


class Reason(StrEnum):
    """Why a request may not leave now."""

    REQUESTS = "rpm"  # the requests of the window are used up
    TOKENS = "tpm"  # its tokens are, or a larger item of another worker waits for them
    LOST = "rate_window_lost"  # nobody knows what left during the last window
    UNREACHABLE = "rate_window_unreachable"  # no answer from the store: no limiter, no send
    TOO_LARGE = "too_large"  # the item alone needs more tokens than a whole window has


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to start one request. It lapses: unused, it goes back with `give_back`."""

    tokens: int  # reserved
    use_before: float  # on the clock of the process that asked, in seconds
    epoch: str  # which life of the window granted it,
    bucket: int  # and where it is counted there

    def is_usable(self, now: float) -> bool:
        """Say whether the request may start at `now`, the moment of its first byte."""
        return now < self.use_before


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer: permits for the first so many of what was asked for, and what holds the next one back."""

    permits: tuple[Permit, ...]
    wait_s: float | None = 0.0  # until the next could leave; None: no waiting helps
    reason: Reason | None = None  # None: all were granted
    message: str | None = None


class RateWindows(Protocol):
    """The windows of one job as one process sees them. To be called from one event loop; never raises for the store."""

    async def take(self, limits: Limits, tokens: Sequence[int], *, is_fresh: bool = False) -> Grant:
        """Ask for a permit for each of some requests, in the order in which they are to leave.

        After `wait_s`, or ASK_AGAIN_S if that is less, ask again. An empty `tokens` only delivers what was noted.

        Args:
            tokens: what each may use at most, prompt and answer together, from 0.
            is_fresh: the ledger, looked at just now, knows of no request sent within the last window: a window that
                is missing may open at once. Ignored once this object has been granted a permit: then it knows better.
        """
        ...

    def give_back(self, permits: Iterable[Permit]) -> None:
        """Note that these were not used and never will be. Told with the next `take`."""
        ...

    def correct(self, permit: Permit, used_tokens: int) -> None:
        """Note what a request really used; counted in the moment of its permit. Told with the next `take`."""
        ...

    async def close(self) -> None:
        """Tell what is noted, and let go of the store."""
        ...


@dataclass(frozen=True, slots=True)
class Delta:
    """A correction of what a bucket counts."""

    bucket: int
    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the windows. Times are microseconds: `*_us` of the store's clock where nothing else is said."""

    limits: Limits
    tokens: tuple[int, ...]
    asker: str  # the same for all questions of one process
    nonce: str  # never used before: the epoch's name if this question begins one
    is_fresh: bool
    epoch: str = ""  # the one this process knows; "" before its first answer
    seen_us: int = 0  # the time of its last answer
    witness_us: int = 0  # that, and what has passed since on this process's own clock, which nobody sets
    deltas: tuple[Delta, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer of the windows."""

    granted: int
    wait_us: int
    reason: Reason | None
    now_us: int
    epoch: str
    bucket: int


class Caller:
    """One process's side of the conversation: its own clock, what it last heard, and the corrections it still owes."""

    def __init__(self, window: Window, *, clock: Callable[[], float], name: str) -> None:
        self._window = window
        self._clock = clock
        self._name = name
        self._asks = 0
        self._heard: Verdict | None = None
        self._heard_at = 0.0
        self._was_granted = False
        self._owed: dict[tuple[str, int], tuple[int, int]] = {}

    def give_back(self, permits: Iterable[Permit]) -> None:
        for permit in permits:
            self._owe(permit, requests=-1, tokens=-permit.tokens)

    def correct(self, permit: Permit, used_tokens: int) -> None:
        self._owe(permit, requests=0, tokens=used_tokens - permit.tokens)

    def _owe(self, permit: Permit, *, requests: int, tokens: int) -> None:
        key = (permit.epoch, permit.bucket)
        before = self._owed.get(key, (0, 0))
        self._owed[key] = (before[0] + requests, before[1] + tokens)

    @property
    def owes(self) -> bool:
        return bool(self._owed)

    def ask(self, limits: Limits, tokens: Sequence[int], *, is_fresh: bool) -> Ask:
        """Phrase the next question."""
        self._asks += 1
        nonce = f"{self._name}-{self._asks}"
        is_fresh = is_fresh and not self._was_granted
        if self._heard is None:
            return Ask(limits, tuple(tokens), self._name, nonce, is_fresh)
        epoch, seen_us = self._heard.epoch, self._heard.now_us
        deltas = tuple(
            Delta(bucket, *counts) for (of, bucket), counts in self._owed.items() if of == epoch and any(counts)
        )
        self._owed.clear()
        witness_us = seen_us + int((self._clock() - self._heard_at) * 1e6)
        return Ask(limits, tuple(tokens), self._name, nonce, is_fresh, epoch, seen_us, witness_us, deltas)

    def hear(self, ask: Ask, verdict: Verdict, *, asked_at: float) -> Grant:
        """Take the answer to a question that was put at `asked_at`, on this process's clock."""
        self._heard, self._heard_at = verdict, self._clock()
        self._was_granted = self._was_granted or verdict.granted > 0
        use_before = asked_at + self._window.use_within_s
        permits = tuple(
            Permit(tokens, use_before, verdict.epoch, verdict.bucket) for tokens in ask.tokens[: verdict.granted]
        )
        if verdict.reason is None:
            return Grant(permits)
        is_hopeless = verdict.reason is Reason.TOO_LARGE
        wait_s = None if is_hopeless else max(verdict.wait_us / 1e6, self._window.least_wait_s)
        return Grant(permits, wait_s, verdict.reason, _explain(verdict, ask))

    def miss(self, ask: Ask) -> None:
        """Note that a question got no answer. It may have been heard: what frees is not told again, what fills is."""
        for delta in ask.deltas:
            before = self._owed.get((ask.epoch, delta.bucket), (0, 0))
            self._owed[ask.epoch, delta.bucket] = (before[0], before[1] + max(0, delta.tokens))


def _explain(verdict: Verdict, ask: Ask) -> str:
    match verdict.reason:
        case Reason.REQUESTS:
            return f"rpm {ask.limits.rpm:,} is used up"
        case Reason.TOO_LARGE:
            needed = ask.tokens[verdict.granted]
            return f"the item may use {needed:,} tokens, and tpm {ask.limits.tpm:,} is all that a minute allows"
        case Reason.LOST:
            return "what was sent during the last minute is not known: nothing is sent until it has passed"
        case _:
            return f"tpm {ask.limits.tpm:,} is used up"
