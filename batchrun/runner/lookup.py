"""Doubts settled for nothing: the endpoint is asked what became of each request; no trace proves nothing."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt

from batchrun.core.line import CHAT
from batchrun.core.outcome import Evidence, Reply
from batchrun.core.prices import cost_of
from batchrun.core.states import AttemptState
from batchrun.endpoint.lookup import Finding, Found, Means, look_up
from batchrun.errors import UsageFault
from batchrun.ledger.doubts import Unknown, note_charge, unknown_attempts
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import paths_of
from batchrun.ledger.schema import split_key
from batchrun.runner.adoption import adopt
from batchrun.runner.gear import Gear
from batchrun.runner.means import Endpoint, Rules
from batchrun.runner.reconcile import Doubt

AT_ONCE = 8  # questions under way
GAP_S = 0.05  # between two questions
TRIES = 4  # of one question that was not answered
LONGEST_WAIT_S = 30.0
ENOUGH = 5  # unanswered questions in a row, after which no other is asked


class Result(StrEnum):
    """What asking about one attempt came to."""

    ADOPTED = "adopted"  # its answer was there: the item is completed
    USELESS = "useless"  # what was stored is no answer: the item failed
    CHARGED = "charged"  # it was done and charged for certain; the answer is not kept there, so the doubt stays
    NOT_FOUND = "not_found"  # no trace, which proves nothing: the doubt stays
    NOT_ASKED = "not_asked"  # nobody could be asked
    KNOWN = "known"  # in the meantime its outcome became known otherwise


@dataclass(frozen=True, slots=True)
class Looked:
    """One attempt that was asked about."""

    custom_id: str
    attempt_id: str
    result: Result
    note: str | None = None


def means_of(job: Job) -> Means:
    """Return how a job's endpoint can be asked.

    Raises:
        UsageFault: the spec does not say.
    """
    means: Means | None = job.spec.get("lookup")
    if means is None:
        raise UsageFault(
            f"the spec of job {job.task_id!r} does not say how its endpoint can be asked",
            hint='add "lookup": "openai" (stored completions) or "litellm" (spend log) to the spec and submit it again',
        )
    return means


def look_up_doubts(
    ledger: Ledger,
    job: Job,
    doubts: Sequence[Doubt],
    *,
    gear: Gear,
    is_dry: bool = False,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> list[Looked]:
    """Ask about every unknown attempt of these items and take what is found; nothing is sent that could be billed.

    Args:
        is_dry: ask, and leave the ledger as it is.

    Raises:
        UsageFault: the spec does not say how the endpoint can be asked.
        EndpointFault: there is no endpoint, or no key for it.
    """
    means = means_of(job)
    with ledger.read() as connection:
        unknown = unknown_attempts(connection, [doubt.item.item_id for doubt in doubts])
        paths = paths_of(connection, [split_key(one.key)[0] for one in unknown])
    endpoints = {way.address: way.endpoint for way in gear.ways_of(job)}
    inquiry = _Inquiry(ledger, job, means, endpoints, gear.rules_of, paths, is_dry, sleep)
    return asyncio.run(inquiry.run(unknown))


@dataclass
class _Inquiry:
    """All the questions of one call."""

    ledger: Ledger
    job: Job
    means: Means
    endpoints: dict[str, Endpoint]  # by address
    rules_of: Callable[[Job], Rules]
    paths: dict[int, str]
    is_dry: bool
    sleep: Callable[[float], Awaitable[None]]
    silent: Counter[str] = field(default_factory=Counter)  # by address: questions in a row that nobody answered
    last_notes: dict[str, str | None] = field(default_factory=dict)

    async def run(self, unknown: Sequence[Unknown]) -> list[Looked]:
        slots, turn = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

        async def one(attempt: Unknown) -> Looked:
            async with slots:
                async with turn:
                    await self.sleep(GAP_S)
                return await self._look(attempt)

        try:
            return await asyncio.gather(*(one(attempt) for attempt in unknown))
        finally:
            for endpoint in self.endpoints.values():
                await endpoint.close()

    async def _look(self, attempt: Unknown) -> Looked:
        if attempt.endpoint not in self.endpoints:
            note = f"it went to {attempt.endpoint}: set OPENAI_BASE_URL to that to ask there"
            return self._looked(attempt, Result.NOT_ASKED, note)
        where = attempt.endpoint
        if self.silent[where] >= ENOUGH:
            return self._looked(attempt, Result.NOT_ASKED, self.last_notes[where])
        name = self.ledger.attempt_id(attempt.key)
        names = [name] if attempt.request_id in (None, name) else [name, str(attempt.request_id)]
        finding = await self._ask(self.endpoints[where], names)
        if finding.what is Found.NO_WORD:
            self.last_notes[where] = finding.note
            self.silent[where] = self.silent[where] + 1 if finding.wait_s is not None else ENOUGH
            return self._looked(attempt, Result.NOT_ASKED, finding.note)
        self.silent[where] = 0
        return await asyncio.to_thread(self._take, attempt, finding)

    def _looked(self, attempt: Unknown, result: Result, note: str | None) -> Looked:
        return Looked(attempt.custom_id, self.ledger.attempt_id(attempt.key), result, note)

    async def _ask(self, endpoint: Endpoint, ids: Sequence[str]) -> Finding:
        asking = AsyncRetrying(
            sleep=self.sleep,
            stop=stop_after_attempt(TRIES),
            wait=_wait_s,
            retry=retry_if_result(lambda finding: finding.what is Found.NO_WORD and finding.wait_s is not None),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        finding: Finding = await asking(look_up, endpoint, self.means, ids)
        return finding

    def _take(self, attempt: Unknown, finding: Finding) -> Looked:
        """Put a finding into the ledger."""
        if finding.what is Found.NOTHING:
            return self._looked(attempt, Result.NOT_FOUND, finding.note)
        if finding.what is Found.CHARGE:
            if not self.is_dry:
                self._note_charge(attempt, finding)
            return self._looked(attempt, Result.CHARGED, finding.note)
        assert finding.reply is not None
        evidence = self._judge(attempt.key, finding.reply, self.rules_of(self.job))
        if evidence.outcome is AttemptState.ANSWERED and evidence.cause is None:
            looked = self._looked(attempt, Result.ADOPTED, finding.note)
        elif evidence.outcome in (AttemptState.ANSWERED, AttemptState.UNUSABLE):
            looked = self._looked(attempt, Result.USELESS, evidence.message)
        else:  # what is stored is no complete reply
            return self._looked(attempt, Result.NOT_FOUND, evidence.message)
        if self.is_dry or adopt(self.ledger, attempt.key, lambda _: evidence, rules_of=self.rules_of) is not None:
            return looked
        return self._looked(attempt, Result.KNOWN, None)

    def _judge(self, key: int, reply: Reply, rules: Rules) -> Evidence:
        path = self.paths.get(split_key(key)[0], CHAT)
        # The times of the question are not those of the request.
        return replace(rules.judge(reply, path), timing=None)

    def _note_charge(self, attempt: Unknown, finding: Finding) -> None:
        cost = cost_of(self.rules_of(self.job).price_at(attempt.endpoint), finding.usage)
        with self.ledger.write() as connection:
            note_charge(
                connection,
                attempt.key,
                usage=finding.usage,
                cost=cost,
                reported_pusd=finding.reported_pusd,
                now=time.time(),
            )


def _wait_s(state: RetryCallState) -> float:
    """Wait twice as long each time, and at least as long as the endpoint asks for."""
    finding: Finding | None = state.outcome.result() if state.outcome else None
    asked_s = (finding.wait_s if finding else None) or 0.0
    return min(LONGEST_WAIT_S, max(asked_s, 0.5 * 2.0 ** (state.attempt_number - 1)))
