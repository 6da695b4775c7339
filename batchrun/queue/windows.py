"""The rate windows of a job that many processes perform: one book in Redis, and the rule in a script run there."""

import asyncio
import json
import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from batchrun.core.rate import MINUTE, Ask, Caller, Grant, Limits, Permit, Reason, Verdict, Window

SCRIPT = files("batchrun.queue").joinpath("windows.lua").read_text(encoding="utf-8")
ANSWER_WITHIN_S = 0.5  # a socket that is silent for longer is given up
CALL_WITHIN_S = 1.5  # name, connection, password, script and answer together
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
KEEP_MS = 24 * 3600 * 1000  # a book that nobody asks is forgotten: whoever then asks waits for a minute
_TROUBLE = (redis.RedisError, OSError, TimeoutError)


class RedisWindows:
    """The rate windows of one job, shared with all processes that name the same ledger and book."""

    def __init__(
        self,
        url: str,
        *,
        ledger_id: str,
        book: str,
        clock: Callable[[], float],
        window: Window = MINUTE,
        server_clock: Callable[[], float] | None = None,
    ) -> None:
        """Name the book; the first `take` connects.

        Args:
            url: redis://... or rediss://...
            ledger_id: its keys in Redis begin with `batchrun:<ledger id>:`.
            book: which of that ledger's: a job's number, and of several endpoints which one.
            clock: seconds since boot on this host, sleep included.
            server_clock: stands for the clock of Redis in tests: seconds since the epoch.
        """
        self._key = f"batchrun:{ledger_id}:rate:{book}"
        self._clock = clock
        self._window = window
        self._server_clock = server_clock
        self._caller = Caller(window, clock=clock, name=secrets.token_hex(8))
        self._client = Redis.from_url(
            url,
            socket_timeout=ANSWER_WITHIN_S,
            socket_connect_timeout=ANSWER_WITHIN_S,
            socket_keepalive=True,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),  # an answer that is late is asked for again by us, and bounded by us
        )
        self._script = self._client.register_script(SCRIPT)
        self._turn = asyncio.Lock()
        self._limits = Limits()
        self._misses = 0
        self._missed_at = self._asks_again_at = 0.0
        self._trouble = ""

    async def take(self, limits: Limits, tokens: Sequence[int], *, is_fresh: bool = False) -> Grant:
        came_at = self._clock()
        async with self._turn:
            self._limits = limits
            now = self._clock()
            if now < self._asks_again_at or came_at < self._missed_at:  # whoever queued has heard that answer too
                return self._unreachable(now)
            ask = self._caller.ask(limits, tokens, is_fresh=is_fresh)
            try:
                async with asyncio.timeout(CALL_WITHIN_S):
                    said = await self._script(keys=[self._key], args=[self._phrase(ask)])
            except BaseException as error:
                # Whether it was heard is unknown: permits that were granted unheard count as used.
                self._caller.miss(ask)
                await self._client.connection_pool.disconnect()  # no later question may get this one's answer
                if not isinstance(error, _TROUBLE):
                    raise
                return self._missed(error)
            self._misses = 0
            granted, wait_us, reason, now_us, epoch, bucket = said
            verdict = Verdict(granted, wait_us, Reason(reason) if reason else None, now_us, epoch, bucket)
            return self._caller.hear(ask, verdict, asked_at=now)

    def _phrase(self, ask: Ask) -> str:
        """Return a question as the script reads it; it cannot tell null from a value, so what is None is left out."""
        question = {
            "rpm": ask.limits.rpm,
            "tpm": ask.limits.tpm,
            "tokens": ask.tokens,
            "asker": ask.asker,
            "nonce": ask.nonce,
            "is_fresh": ask.is_fresh,
            "epoch": ask.epoch,
            "seen_us": ask.seen_us,
            "witness_us": ask.witness_us,
            "deltas": [(delta.bucket, delta.requests, delta.tokens) for delta in ask.deltas],
            "bucket_us": self._window.bucket_us,
            "buckets": self._window.buckets,
            "clock_slack_us": round(self._window.clock_slack_s * 1e6),
            "burst_us": self._window.burst_s * 1e6,
            "turn_us": round(self._window.turn_s * 1e6),
            "time_us": None if self._server_clock is None else int(self._server_clock() * 1e6),
            "keep_ms": KEEP_MS,
        }
        return json.dumps({name: value for name, value in question.items() if value is not None})

    def _missed(self, error: BaseException) -> Grant:
        """Take note that Redis did not answer; it is asked again after a pause that doubles, up to a second."""
        self._trouble = next(iter(str(error).splitlines()), "") or "no answer in time"
        pause_s = min(FIRST_PAUSE_S * 2**self._misses, LONGEST_PAUSE_S)
        self._misses = min(self._misses + 1, 10)
        now = self._missed_at = self._clock()
        self._asks_again_at = now + pause_s * (0.5 + random.random() / 2)
        return self._unreachable(now)

    def _unreachable(self, now: float) -> Grant:
        message = f"Redis, which counts rpm and tpm, does not answer: {self._trouble}"
        return Grant((), max(0.001, self._asks_again_at - now), Reason.UNREACHABLE, message)

    def give_back(self, permits: Iterable[Permit]) -> None:
        self._caller.give_back(permits)

    def correct(self, permit: Permit, used_tokens: int) -> None:
        self._caller.correct(permit, used_tokens)

    async def close(self) -> None:
        if self._caller.owes:
            await self.take(self._limits, [])
        await self._client.aclose()
