"""Finds how many requests at once an endpoint is worth: it tries more or fewer, and keeps what has proved itself.

A round is measured at the limit that stands, then one at the limit that is tried; the two are compared by Kleinrock's
power of throughput and delay ("Power and deterministic rules of thumb", ICC 1979), with a weight on throughput: of two
limits the larger is worth it if a part of its further slots, `WORTH`, shows as further work done. That is the knee of
an endpoint that begins to queue. Trying and comparing is PCC's way (Dong et al., NSDI 2015). When answers at the same
limit become slower, what that says of a queue is read as TCP Vegas does (Brakmo and Peterson, 1995), and tried like the
rest. Refusals cut at once, without a trial, by a factor, as in TCP.
"""

from dataclasses import dataclass, replace
from math import ceil, log
from typing import Literal

from batchrun.core.concurrency import Concurrency
from batchrun.core.gauge import Seen

WORTH = 0.2  # of the slots added, this part must show as further throughput
STEP = 1.25  # from one limit to the next that is tried; twice as many while everything is new
CUT = 0.7  # after a refusal
SLOWER = 0.7  # below this part of its former speed an endpoint is looked at again
QUEUES = 0.9  # below this part of the best speed seen an endpoint may have a queue, and fewer may do as much
FAILED_SHARE = 0.05  # above it, and one more, nothing grows
USED_SHARE = 0.7  # below it the limit is not what holds the job back
FEWEST_ANSWERS, FEWEST_TO_COMPARE, MOST_ANSWERS = 8, 24, 400  # of a round
FORGETS = 0.05  # of the difference to the best speed, each round
REST_S = 2.0  # a round in which nothing is tried lasts at least so long
FIRST_REST, LONGEST_REST = 2, 16  # rounds between two trials
FIRST_SHUN, LONGEST_SHUN = 32, 1024  # rounds in which a limit that was refused is not tried again

Reason = Literal["start", "more", "fewer", "back", "throttled", "failing", "slower", "unused"]


@dataclass(frozen=True, slots=True)
class Change:
    """The limit is another one now."""

    before: int
    after: int
    reason: Reason
    message: str  # for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """What is known of an endpoint, and the limit that is in force. A value: each round makes a new one."""

    low: int
    high: int
    kept: int  # the limit that has proved itself
    tried: int | None = None  # the limit in force where another one is being tried
    speed: float | None = None  # at `kept`, in the last round there
    quickest: float = 0.0  # about the best speed at any limit, slowly forgotten
    latency_s: float = 0.0  # of the last round
    is_starting: bool = True  # nothing but growth so far: it doubles
    is_upward: bool = True  # what is tried next
    rests: int = 0  # rounds until then
    patience: int = FIRST_REST  # rests after the next trial that brings nothing
    refused: int | None = None  # a limit at which it refused
    shuns: int = 0  # rounds until so many may be tried again
    shunning: int = FIRST_SHUN  # rounds after the next refusal
    round_no: int = 1

    @classmethod
    def within(cls, bounds: Concurrency, *, now: int | None = None) -> "Climb":
        """Begin a climb, from `now` where the job had a limit before."""
        first = bounds.first if now is None else min(max(now, bounds.low), bounds.high)
        return cls(low=bounds.low, high=bounds.high, kept=first)

    @property
    def bounds(self) -> Concurrency:
        return Concurrency(self.low, self.high)

    @property
    def limit(self) -> int:
        """Requests that may be in flight now, over all processes."""
        return self.kept if self.tried is None else self.tried

    def needs(self) -> int:
        """Return how many answers make a round."""
        fewest = FEWEST_ANSWERS if self.is_starting else FEWEST_TO_COMPARE
        return min(max(fewest, self.limit), MOST_ANSWERS)


Step = tuple[Climb, Change | None]


def climb(now: Climb, seen: Seen) -> Step | None:
    """Decide what follows from a round; None while it has not shown enough."""
    if seen.throttled:
        return _cut(now, seen)
    is_resting = now.tried is None and not now.is_starting
    if seen.answers + seen.failed < now.needs() or (is_resting and seen.open_s < REST_S):
        return None
    now = replace(now, round_no=now.round_no + 1, shuns=max(0, now.shuns - 1))
    of, speed = seen.answers + seen.failed, seen.speed
    if speed is None or seen.failed > 1 + FAILED_SHARE * of:
        return _hold(now, "failing", f"{seen.failed} of {of} requests failed: nothing grows meanwhile")
    quickest = max(speed, now.quickest - FORGETS * (now.quickest - speed))
    now = replace(now, quickest=quickest, latency_s=seen.latency_s)
    if seen.used_s < USED_SHARE * now.limit * seen.open_s:
        return _hold(now, "unused", f"the job does not use {now.limit} at once")
    if now.tried is not None and now.speed is not None:
        return _compare(now, now.tried, now.speed, speed)
    return _stand(now, speed)


def _stand(now: Climb, speed: float) -> Step:
    """Take the measure of the limit that stands, and try another one when it is time."""
    before, now = now.speed, replace(now, speed=speed)
    if before is not None and speed < SLOWER * before and now.kept > now.low:
        fewer = max(now.low, min(now.kept - 1, ceil(now.kept * speed / before)))
        why = f"a request takes {before / speed:.1f} times as long as it did: does the endpoint queue?"
        return _try(now, fewer, "slower", why)
    if now.rests > 0:
        return replace(now, rests=now.rests - 1), None
    return _next(now)


def _next(now: Climb) -> Step:
    """Try the next limit in the direction in which it goes, or in the other where there is none."""
    for upward in (now.is_upward, not now.is_upward):
        other = _above(now) if upward else _below(now)
        if other is not None:
            now = replace(now, is_upward=upward)
            if now.is_starting:
                return _try(now, other, "start", f"{now.kept} at once went well: twice as many")
            return _try(now, other, "more" if upward else "fewer", f"does {other} at once do {_hoped(upward)}?")
    return _rest(replace(now, is_starting=False)), None


def _hoped(upward: bool) -> str:
    return "more" if upward else "as much"


def _above(now: Climb) -> int | None:
    most = now.high
    if now.shuns and now.refused is not None:  # what it takes lies between: half-way, again and again
        most = min(most, (now.kept + now.refused) // 2)
    more = min(most, now.kept * 2 if now.is_starting else max(now.kept + 1, round(now.kept * STEP)))
    return more if more > now.kept else None


def _below(now: Climb) -> int | None:
    if now.is_starting or now.speed is None or now.speed > QUEUES * now.quickest:
        return None  # nothing waits there
    fewer = max(now.low, min(now.kept - 1, round(now.kept / STEP)))
    return fewer if fewer < now.kept else None


def _try(now: Climb, other: int, reason: Reason, message: str) -> Step:
    return replace(now, tried=other), Change(now.kept, other, reason, message)


def _compare(now: Climb, tried: int, before: float, speed: float) -> Step:
    """Keep the limit that was tried, or go back: by the power of both."""
    gained = log(tried * speed / (now.kept * before))  # throughput is slots times speed
    times = f"{tried * speed / (now.kept * before):.2f} times the work of {now.kept}"
    if gained > WORTH * log(tried / now.kept):
        now = replace(now, kept=tried, tried=None, speed=speed, patience=FIRST_REST)
        return _next(now)
    back = replace(now, tried=None, is_upward=not now.is_upward if not now.is_starting else True, is_starting=False)
    back = replace(back, rests=0) if now.is_starting else _rest(back)
    return back, Change(tried, now.kept, "back", f"{tried} at once did {times}")


def _rest(now: Climb) -> Climb:
    return replace(now, rests=now.patience, patience=min(2 * now.patience, LONGEST_REST))


def _hold(now: Climb, reason: Reason, message: str) -> Step:
    """Let nothing grow: what was tried is off without a verdict, what stood stands."""
    if now.tried is None:
        return now, None
    back = replace(now, tried=None, is_starting=now.is_starting and reason == "unused")
    return _rest(back), Change(now.tried, now.kept, reason, message)


def _cut(now: Climb, seen: Seen) -> Step | None:
    """Answer a refusal: what was tried above is off, else the limit becomes smaller."""
    limit = now.limit
    if now.tried is not None and now.tried > now.kept:
        kept = now.kept
    else:
        kept = max(now.low, min(limit - 1, int(limit * CUT)))
    after = _rest(
        replace(
            now,
            kept=kept,
            tried=None,
            speed=None,
            is_starting=False,
            is_upward=True,
            refused=limit,
            shuns=now.shunning,
            shunning=min(2 * now.shunning, LONGEST_SHUN),
            round_no=now.round_no + 1,
        )
    )
    if kept == limit:
        return after, None
    return after, Change(limit, kept, "throttled", f"the endpoint refused {seen.throttled} at {limit} at once")
