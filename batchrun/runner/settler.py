"""What follows from what a request came to: its item, its money, and whether the whole job must slow down or stop.

It decides nothing about outcomes (core/retry does) and knows no status codes (endpoint/classify does).
"""

import time

from batchrun.core.breaker import FailureLimit, Trip
from batchrun.core.gauge import Gauge
from batchrun.core.outcome import Charge, Evidence, Scope
from batchrun.core.request import model_of
from batchrun.core.retry import Decision, decide
from batchrun.core.states import AttemptState, ItemState
from batchrun.errors import LedgerFault
from batchrun.ledger.claims import Claim
from batchrun.ledger.settle import Settled
from batchrun.runner.alarm import Alarm
from batchrun.runner.claimer import Claimer
from batchrun.runner.lane import Lane
from batchrun.runner.lanes import Lanes
from batchrun.runner.means import Log, Means, Rules
from batchrun.runner.settlement import make_settlement
from batchrun.runner.tally import Tally

TOO_LARGE_FOR_TPM = "too_large_for_tpm"


class Settler:
    """Settles the attempts of one job here, each when it is known what it came to."""

    def __init__(
        self,
        *,
        worker_id: int,
        rules: Rules,
        means: Means,
        failures: FailureLimit,
        lanes: Lanes,
        claimer: Claimer,
        tally: Tally,
        alarm: Alarm,
        log: Log,
    ) -> None:
        self.gauge = Gauge()
        self.failures = failures
        self._lanes = lanes
        self._worker_id = worker_id
        self._rules = rules
        self._means = means
        self._claimer = claimer
        self._tally = tally
        self._alarm = alarm
        self._log = log

    async def settle(self, claim: Claim, evidence: Evidence, lane: Lane) -> None:
        """Record an attempt's outcome, move its item, and draw the conclusions."""
        lane.count(claim, evidence)
        if evidence.scope is Scope.EVERYONE and not lane.breaker.has_looked_back:
            lane.breaker.look_back(await self._means.answered_routes(lane.address))
        self.gauge.saw(time.monotonic(), evidence)
        decision = self._decide(claim, evidence, lane)
        settlement = make_settlement(
            evidence,
            decision,
            key=claim.key,
            job_id=claim.job_id,
            worker_id=self._worker_id,
            price=self._rules.price_at(lane.address),
            reserved_pusd=claim.reserved_pusd,
            now=time.time(),
        )
        self._warn_everyone(evidence, lane)
        # crash point: settle-due
        try:
            settled = await self._means.commit.settle(settlement)
        except Exception as error:
            # The answer lies in the spool and waits there for a ledger that takes it.
            message = f"an outcome could not be written: {error}"
            self._alarm.trip(Trip(error.kind if isinstance(error, LedgerFault) else "ledger", message, 5))
            return
        # crash point: settle-known
        self._means.spool.settled(claim.key)
        self._means.marks.settled(claim.key)
        self._claimer.settled(claim.item_id)
        self._after(claim, evidence, decision, settled, lane)

    def _decide(self, claim: Claim, evidence: Evidence, lane: Lane) -> Decision:
        if evidence.cause == TOO_LARGE_FOR_TPM:
            return Decision(ItemState.FAILED, cause=evidence.cause, message=evidence.message)
        if evidence.scope is Scope.EVERYONE:
            model = model_of(claim.body)
            if lane.breaker.is_own_fault(claim.item_id, evidence, path=claim.path, model=model):
                return Decision(ItemState.FAILED, counted=1, cause=evidence.cause, message=evidence.message)
        return decide(evidence, claim.tries, self._rules.policy)

    def _warn_everyone(self, evidence: Evidence, lane: Lane) -> None:
        """Slow the job down at once, before the outcome is durable: the next send must not leave meanwhile."""
        asked_s = evidence.retry_after_s
        if evidence.scope is Scope.THROTTLE and asked_s is not None and asked_s > self._rules.policy.throttle_budget_s:
            trip = Trip("throttled", f"the endpoint asks for {asked_s:,.0f} s: {evidence.message}", 5)
            self._alarm.refused(lane, trip)
        elif evidence.scope is Scope.THROTTLE:
            wait_s = lane.pace.hold(time.monotonic(), asked_s=asked_s, chance=self._means.chance())
            self._claimer.release(lane)
            self._alarm.throttled(lane, evidence, wait_s)
        elif evidence.scope is Scope.UNREACHABLE:
            self._alarm.unreachable(lane, evidence)
        elif evidence.outcome is AttemptState.ANSWERED:
            lane.pace.answered()
        self._cool(evidence, lane)

    def _cool(self, evidence: Evidence, lane: Lane) -> None:
        """Leave an endpoint alone that is not well, where there is another one: else its breaker decides."""
        wait_s = lane.health.saw(evidence)
        if wait_s is None:
            return
        if len(self._lanes.left) == 1:
            lane.health.is_on_trial = False
            return
        lane.pace.wait_until(time.monotonic() + wait_s)
        self._claimer.release(lane)
        self._log("endpoint_cooling", endpoint=lane.address, for_s=wait_s, cause=evidence.cause)
        self._alarm.cooling(lane, evidence, wait_s)

    def _after(self, claim: Claim, evidence: Evidence, decision: Decision, settled: Settled, lane: Lane) -> None:
        if evidence.cause or evidence.warning:
            self._log_attempt(claim, evidence, decision, lane)
        if trip := self.failures.saw(evidence, decision.to):
            self._alarm.trip(trip)
        if trip := lane.breaker.saw(claim.item_id, evidence, decision.to, path=claim.path):
            self._alarm.refused(lane, trip)
        if settled is not Settled.MOVED:
            return
        self._tally.saw(time.monotonic(), evidence, decision.to, custom_id=claim.custom_id)
        if decision.to is ItemState.IN_DOUBT:
            self._alarm.doubted(lane, evidence)
        if decision.to is ItemState.COMPLETED:
            self._tally.completed.append(claim.item_id)
        elif decision.to is ItemState.PENDING:
            self._claimer.later(claim.item_id, decision.wait_s, was_promised=evidence.scope is Scope.THROTTLE)

    def _log_attempt(self, claim: Claim, evidence: Evidence, decision: Decision, lane: Lane) -> None:
        self._log(
            "attempt",
            item=claim.custom_id,
            attempt=self._means.attempt_id(claim.key),
            outcome=evidence.outcome.value,
            cause=evidence.cause or evidence.warning,
            http_status=evidence.status,
            **({"endpoint": lane.address} if len(self._lanes) > 1 else {}),
            item_is=decision.to.value,
            again_in_s=round(decision.wait_s, 3) if decision.to is ItemState.PENDING else None,
            message=evidence.message,
        )


def never_leaves(message: str) -> Evidence:
    """Return what an item's attempt comes to that no minute has room for."""
    return Evidence(AttemptState.NOT_SENT, TOO_LARGE_FOR_TPM, message, Charge.NONE, None)
