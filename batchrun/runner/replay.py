"""Doubts settled by asking again under the same idempotency key: the endpoint gives the answer it has, unbilled."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from batchrun.core.outcome import Evidence, Reply, Scope
from batchrun.core.rate import Limits
from batchrun.core.request import most_tokens
from batchrun.core.retry import Decision, decide
from batchrun.core.states import AttemptState, ItemState
from batchrun.errors import UsageFault
from batchrun.ledger.jobs import Job, write_anew
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker
from batchrun.ledger.replays import Place, Replay, first_attempt, replay
from batchrun.ledger.settle import settle
from batchrun.runner.evidence import describe
from batchrun.runner.gear import Gear
from batchrun.runner.hold import holding
from batchrun.runner.means import Endpoint, Rules
from batchrun.runner.reconcile import Doubt
from batchrun.runner.settlement import make_settlement

TRIES = 6  # of one doubt in one call
LONGEST_WAIT_S = 30.0
CONFLICT = 409  # under a re-used key: the first request is still at work


class Replayed(StrEnum):
    """What asking again for one doubt came to."""

    COMPLETED = "completed"  # the answer came; with the first attempt it is one bill
    FAILED = "failed"  # what came is no answer
    IN_DOUBT = "in_doubt"  # nothing that ends the doubt came
    NO_KEY = "no_key"  # sent without a key, elsewhere, by another account, or too long ago: nothing was sent
    LEFT = "left"  # not asked for any more, since the endpoint refuses


@dataclass(frozen=True, slots=True)
class Again:
    """One doubt that was asked for again."""

    custom_id: str
    attempt_id: str  # of the doubt
    result: Replayed
    note: str | None = None


def replay_doubts(
    ledger: Ledger,
    job: Job,
    doubts: Sequence[Doubt],
    *,
    gear: Gear,
    worker: Worker,
    is_dry: bool = False,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> list[Again]:
    """Ask for these doubts again where their keys are good; the job is held meanwhile, so nobody else sends.

    Args:
        is_dry: only say for which doubts that can be done.

    Raises:
        UsageFault: the spec does not say that the endpoint honours keys.
        JobBusy: another living process holds the job.
        EndpointFault: there is no endpoint, or no key for it.
    """
    rules = gear.rules_of(job)
    if rules.account is None:
        raise UsageFault(
            f"the spec of job {job.task_id!r} does not say that its endpoint replays answers",
            hint='if it does: add "idempotency_header": "Idempotency-Key" to the spec; doctor --probe-replay tries it',
        )
    ways = gear.ways_of(job)
    endpoints = {way.address: way.endpoint for way in ways}
    limits = {way.address: way.limits for way in ways if way.limits is not None}
    retention_s = job.spec["idempotency_retention_s"]
    places = {one: Place(one, account, retention_s) for one in endpoints if (account := rules.account_at(one))}
    if is_dry:
        asyncio.run(_close(endpoints))
        with ledger.read() as connection:
            good = [
                one.endpoint in places
                and first_attempt(connection, one.item.item_id, places[one.endpoint], now=time.time()) is not None
                for one in doubts
            ]
        return [
            Again(one.item.custom_id, one.attempt_id, Replayed.IN_DOUBT if is_good else Replayed.NO_KEY)
            for one, is_good in zip(doubts, good, strict=True)
        ]
    with holding(ledger, job, worker, gear):
        return asyncio.run(_Round(ledger, job, rules, endpoints, limits, places, worker, sleep).run(doubts))


@dataclass
class _Round:
    """All the doubts of one call."""

    ledger: Ledger
    job: Job
    rules: Rules
    endpoints: dict[str, Endpoint]  # by address
    limits: dict[str, Limits]  # of those that have their own
    places: dict[str, Place]
    worker: Worker
    sleep: Callable[[float], Awaitable[None]]
    refusals: dict[str, str | None] = field(default_factory=dict)  # by address, of all requests: no other is sent there

    async def run(self, doubts: Sequence[Doubt]) -> list[Again]:
        slots, self._turn = asyncio.Semaphore(self.job.concurrency), asyncio.Lock()

        async def one(doubt: Doubt) -> Again:
            async with slots:
                return await self._settle_doubt(doubt)

        try:
            return await asyncio.gather(*(one(doubt) for doubt in doubts))
        finally:
            await _close(self.endpoints)

    async def _settle_doubt(self, doubt: Doubt) -> Again:
        def again(result: Replayed, note: str | None = None) -> Again:
            return Again(doubt.item.custom_id, doubt.attempt_id, result, note)

        fence, note, where = doubt.item.fence, None, doubt.endpoint
        if where not in self.places:
            return again(Replayed.NO_KEY)
        for number in range(TRIES):
            if where in self.refusals:
                return again(Replayed.LEFT, self.refusals[where])
            claim = await asyncio.to_thread(self._claim, doubt.item.item_id, fence, where)
            if claim is None:
                return again(Replayed.NO_KEY if not number else Replayed.IN_DOUBT, note)
            evidence = await self._ask(claim, where)
            decision = _decide(evidence, claim, self.rules)
            await asyncio.to_thread(self._settle, claim, evidence, decision, where)
            self.worker.spool.settled(claim.key)
            self.worker.marks.settled(claim.key)
            note = evidence.message
            if decision.to is not ItemState.IN_DOUBT:
                done = decision.to is ItemState.COMPLETED
                return again(Replayed.COMPLETED if done else Replayed.FAILED, None if done else note)
            if evidence.scope is Scope.EVERYONE:
                self.refusals[where] = note
            if not _may_pass(evidence):
                break
            fence += 1
            if number < TRIES - 1:
                await self.sleep(min(LONGEST_WAIT_S, max(evidence.retry_after_s or 0.0, 2.0**number)))
        return again(Replayed.IN_DOUBT, note)

    def _claim(self, item_id: int, fence: int, where: str) -> Replay | None:
        with self.ledger.write() as connection:
            return replay(
                connection,
                job_id=self.job.id,
                item_id=item_id,
                fence=fence,
                worker_id=self.worker.id,
                place=self.places[where],
                now=time.time(),
            )

    async def _ask(self, claim: Replay, where: str) -> Evidence:
        async with self._turn:
            await self.sleep(self._gap_s(claim, where))
        self.worker.marks.begin(claim.key)
        exchange = await self.endpoints[where].exchange(
            path=claim.path,
            body=claim.body,
            attempt_id=self.ledger.attempt_id(claim.key),
            idempotency_key=claim.idempotency_key,
        )
        if isinstance(exchange, Reply):
            clean = self.rules.judge.clean(exchange, claim.path)
            self.worker.spool.append(claim.key, describe(clean, claim.path), clean.body)
        return self.rules.judge(exchange, claim.path)

    def _gap_s(self, claim: Replay, where: str) -> float:
        """Return the time after which the next request may leave, so that the limits a minute hold."""
        limits = self.limits.get(where) or Limits(self.job.rpm, self.job.tpm)
        of_requests = 60.0 / limits.rpm if limits.rpm else 0.0
        of_tokens = 60.0 * most_tokens(claim.path, claim.body) / limits.tpm if limits.tpm else 0.0
        return max(of_requests, of_tokens)

    def _settle(self, claim: Replay, evidence: Evidence, decision: Decision, where: str) -> None:
        settlement = make_settlement(
            evidence,
            decision,
            key=claim.key,
            job_id=claim.job_id,
            worker_id=self.worker.id,
            price=self.rules.price_at(where),
            reserved_pusd=0,
            now=time.time(),
        )
        with self.ledger.write() as connection:
            settle(connection, settlement)
            if decision.to is not ItemState.IN_DOUBT:
                write_anew(connection, claim.job_id, now=time.time())


async def _close(endpoints: dict[str, Endpoint]) -> None:
    for endpoint in endpoints.values():
        await endpoint.close()


def _decide(evidence: Evidence, claim: Replay, rules: Rules) -> Decision:
    """Only a complete reply under the key ends the doubt; any other leaves it as it was."""
    if evidence.outcome in (AttemptState.ANSWERED, AttemptState.UNUSABLE):
        decision = decide(evidence, claim.tries, rules.policy)
        if decision.to is not ItemState.PENDING:
            return decision
        return Decision(ItemState.FAILED, counted=1, cause=evidence.cause, message=evidence.message)
    return Decision(ItemState.IN_DOUBT, cause=claim.cause, message=claim.message)


def _may_pass(evidence: Evidence) -> bool:
    """Say whether asking once more may bring what this time did not: it costs nothing."""
    if evidence.outcome is AttemptState.REFUSED:
        return evidence.status == CONFLICT or evidence.scope is Scope.THROTTLE or evidence.cause == "server_error"
    return evidence.outcome in (AttemptState.NOT_SENT, AttemptState.UNKNOWN)
