"""The rule of the rate windows, with the store's clock as an argument. queue/windows.lua is its twin, line by line.

Two bounds hold at once. A window counts what was granted, in buckets, and closes when the limit is reached: never more
than the limit. A debt grows with each grant and drains at the steady rate: the minute is not spent in its first second.
"""

from collections.abc import Callable, Iterable, Sequence
from math import floor

from batchrun.core.rate import MINUTE, Ask, Caller, Delta, Grant, Limits, Permit, Reason, Verdict, Window


class Count:
    """What one limit counts: requests, or tokens."""

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.total = 0  # over the buckets that still count
        self.debt = 0.0  # granted ahead of the steady rate

    def add(self, bucket: int, amount: int) -> None:
        """Count an amount, or less of it (below zero); never less than nothing."""
        amount = max(amount, -self.buckets.get(bucket, 0))
        self.buckets[bucket] = self.buckets.get(bucket, 0) + amount
        self.total += amount
        self.debt = max(0.0, self.debt + amount)

    def forget(self, bucket: int) -> None:
        self.total -= self.buckets.pop(bucket, 0)

    def drain(self, passed_us: int, limit: int | None, window: Window) -> None:
        """Let the debt drain at the rate of today's limit; of a higher limit it inherits no more than one window."""
        self.debt = 0.0 if limit is None else max(0.0, min(self.debt, limit) - passed_us * limit / window.span_us)


class Book:
    """The windows of one job."""

    def __init__(self, window: Window = MINUTE) -> None:
        self._window = window
        self._epoch = ""  # "": nothing is known
        self._begin("", now_us=0)

    def _begin(self, epoch: str, *, now_us: int) -> None:
        """Begin to count from nothing, closed until whatever left before has left the window too."""
        self._epoch = epoch
        self._offset_us = 0
        self._now_us = now_us
        self._closed_until_us = now_us + self._window.span_us
        self._requests, self._tokens = Count(), Count()
        self._turn, self._turn_at_us, self._turn_until_us = "", 0, 0

    def answer(self, ask: Ask, *, time_us: int) -> Verdict:
        """Answer one question at `time_us` of a clock that may step."""
        self._look_at_clock(ask, time_us)
        if ask.is_fresh:
            self._closed_until_us = min(self._closed_until_us, self._now_us)
        if ask.epoch == self._epoch:
            self._apply(ask.deltas)
        granted, wait_us, reason = 0, 0, None
        for tokens in ask.tokens:
            wait_us, reason = self._wait(ask, tokens)
            if reason is not None:
                break
            self._requests.add(self._bucket, 1)
            self._tokens.add(self._bucket, tokens)
            if self._turn == ask.asker:
                self._turn = ""
            granted += 1
        return Verdict(granted, wait_us, reason, self._now_us, self._epoch, self._bucket)

    @property
    def _bucket(self) -> int:
        return self._now_us // self._window.bucket_us

    def _look_at_clock(self, ask: Ask, time_us: int) -> None:
        """Advance to now, by a clock that may have been set, unless what was counted is lost."""
        is_known = ask.epoch == self._epoch
        # An asker that has seen a later moment than the book has: this is an older copy of the book.
        if not self._epoch or (is_known and ask.seen_us > self._now_us):
            self._begin(ask.nonce, now_us=time_us)
            return
        before_us, now_us = self._now_us, time_us + self._offset_us
        witness_us = max(ask.witness_us, before_us)
        if now_us < before_us:  # set back: go on from where we were
            now_us = before_us
        elif is_known and now_us > witness_us + round(self._window.clock_slack_s * 1e6):  # set forward
            now_us = witness_us
        self._offset_us, self._now_us = now_us - time_us, now_us
        self._pass(before_us, ask.limits)

    def _pass(self, before_us: int, limits: Limits) -> None:
        """Forget the buckets that have left the window, and let the debts drain."""
        size, count = self._window.bucket_us, self._window.buckets
        first, last = before_us // size - count + 1, min(self._now_us // size - count, before_us // size)
        for bucket in range(first, last + 1):
            self._requests.forget(bucket)
            self._tokens.forget(bucket)
        self._requests.drain(self._now_us - before_us, limits.rpm, self._window)
        self._tokens.drain(self._now_us - before_us, limits.tpm, self._window)

    def _apply(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            if delta.bucket > self._bucket - self._window.buckets:
                self._requests.add(delta.bucket, delta.requests)
                self._tokens.add(delta.bucket, delta.tokens)

    def _wait(self, ask: Ask, tokens: int) -> tuple[int, Reason | None]:
        """Return how long the next request must wait, in microseconds, and for what; None if it may leave."""
        rpm, tpm, now_us = ask.limits.rpm, ask.limits.tpm, self._now_us
        if tpm is not None and tokens > tpm:
            return 0, Reason.TOO_LARGE
        if now_us < self._closed_until_us:
            return self._closed_until_us - now_us, Reason.LOST
        is_anothers = self._turn not in ("", ask.asker) and now_us < self._turn_until_us
        if tpm is not None and is_anothers:
            return max(self._turn_at_us - now_us, 0), Reason.TOKENS
        for_requests_us = max(self._pace(self._requests, rpm), self._room(self._requests, rpm, 1))
        room_us = self._room(self._tokens, tpm, tokens)
        for_tokens_us = max(self._pace(self._tokens, tpm), room_us)
        if tpm is not None and room_us and tokens > self._burst(tpm):
            # Room for a large item never comes while smaller ones take what is freed: the others let it gather.
            self._turn, self._turn_at_us = ask.asker, now_us + room_us
            self._turn_until_us = now_us + round(self._window.turn_s * 1e6)
        if for_tokens_us > for_requests_us:
            return for_tokens_us, Reason.TOKENS
        return for_requests_us, Reason.REQUESTS if for_requests_us else None

    def _burst(self, limit: int) -> float:
        """Return the debt up to which requests leave at once."""
        return limit * (self._window.burst_s * 1e6) / self._window.span_us

    def _pace(self, count: Count, limit: int | None) -> int:
        """Return how long the debt takes to drain far enough."""
        if limit is None or count.debt <= self._burst(limit):
            return 0
        return floor((min(count.debt, limit) - self._burst(limit)) * self._window.span_us / limit) + 1

    def _room(self, count: Count, limit: int | None, amount: int) -> int:
        """Return how long it takes until enough has left the window."""
        if limit is None or count.total + amount <= limit:
            return 0
        excess, freed, oldest = count.total + amount - limit, 0, self._bucket - self._window.buckets + 1
        for bucket in range(oldest, self._bucket + 1):
            freed += count.buckets.get(bucket, 0)
            if freed >= excess:
                return (bucket + self._window.buckets) * self._window.bucket_us - self._now_us
        raise AssertionError("what is counted lies in the window's buckets")


class LocalWindows:
    """The rate windows of a job that one process performs."""

    def __init__(self, *, clock: Callable[[], float], window: Window = MINUTE) -> None:
        """Begin with nothing known; `clock` gives seconds since boot, sleep included."""
        self._clock = clock
        self._book = Book(window)
        self._caller = Caller(window, clock=clock, name="here")

    async def take(self, limits: Limits, tokens: Sequence[int], *, is_fresh: bool = False) -> Grant:
        now = self._clock()
        ask = self._caller.ask(limits, tokens, is_fresh=is_fresh)
        return self._caller.hear(ask, self._book.answer(ask, time_us=int(now * 1e6)), asked_at=now)

    def give_back(self, permits: Iterable[Permit]) -> None:
        self._caller.give_back(permits)

    def correct(self, permit: Permit, used_tokens: int) -> None:
        self._caller.correct(permit, used_tokens)

    async def close(self) -> None:
        """Forget the windows."""
