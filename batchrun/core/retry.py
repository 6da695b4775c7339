"""What follows from an outcome: complete, try again, give up, or hold as a doubt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from batchrun.core.outcome import Evidence, Scope
from batchrun.core.quick import quick
from batchrun.core.states import AttemptState, ItemState

OnUnknown = Literal["hold", "retry"]
SHORTEST_WAIT_S = 1.0


@quick
@dataclass(frozen=True, slots=True)
class Tries:
    """What an item has been through since the last consent, this attempt not counted."""

    counted: int  # attempts that counted against retry_times
    throttled_s: float  # waits that throttling has cost
    reasks: int = 0  # times that it was asked again for an invalid answer, consents or not


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The rules of one job. The waits are tenacity's, chance included; this module only asks for them."""

    on_unknown: OnUnknown
    is_spent: Callable[[int], bool]  # is_spent(counted): no further try after this many
    backoff_s: Callable[[int], float]  # backoff_s(counted): the wait after this many tries
    throttle_s: Callable[[float], float]  # throttle_s(throttled_s so far): the wait where the endpoint names none
    throttle_budget_s: float = 3600.0
    reask: int = 0  # how often an item may be asked again for an invalid answer: each time a further bill


@quick
@dataclass(frozen=True, slots=True)
class Decision:
    """Where the item goes, and what is added to its account."""

    to: ItemState
    counted: int = 0  # tries added
    throttled_s: float = 0.0  # throttle time added
    reasks: int = 0  # re-asks added
    wait_s: float = 0.0  # not to be claimed before
    cause: str | None = None
    message: str | None = None


def decide(evidence: Evidence, tries: Tries, policy: RetryPolicy) -> Decision:
    """Say what follows from `evidence` for the item whose attempt it was."""
    if evidence.outcome is AttemptState.ANSWERED and evidence.cause is None:
        return Decision(ItemState.COMPLETED, counted=1)
    match evidence.outcome:
        case AttemptState.ANSWERED if tries.reasks < policy.reask:
            return Decision(ItemState.PENDING, reasks=1, cause=evidence.cause, message=evidence.message)
        case AttemptState.ANSWERED:
            return Decision(ItemState.FAILED, counted=1, cause=evidence.cause, message=evidence.message)
        case AttemptState.NOT_SENT:
            return Decision(
                ItemState.PENDING, wait_s=policy.backoff_s(1), cause=evidence.cause, message=evidence.message
            )
        case AttemptState.REFUSED:
            return _after_refusal(evidence, tries, policy)
        case AttemptState.UNUSABLE:
            return _again(evidence, tries, policy, otherwise=ItemState.FAILED)
        case AttemptState.UNKNOWN:
            return _again(evidence, tries, policy, otherwise=ItemState.IN_DOUBT)
        case AttemptState.INTENT:
            raise ValueError("an open intent is no outcome")


def _after_refusal(evidence: Evidence, tries: Tries, policy: RetryPolicy) -> Decision:
    """A refusal costs nothing, so trying again needs no consent; only its kind says whether it can help."""
    match evidence.scope:
        case Scope.THROTTLE:
            wait_s = evidence.retry_after_s
            if wait_s is None or wait_s < SHORTEST_WAIT_S:  # "at once" is no wait: it must cost the item's budget
                wait_s = max(wait_s or 0.0, policy.throttle_s(tries.throttled_s))
            if wait_s > policy.throttle_budget_s:
                return Decision(ItemState.PENDING, cause=evidence.cause, message=evidence.message)  # the job stops
            if tries.throttled_s + wait_s > policy.throttle_budget_s:
                return Decision(
                    ItemState.FAILED, cause=evidence.cause, message=f"throttled too long: {evidence.message}"
                )
            return Decision(
                ItemState.PENDING, throttled_s=wait_s, wait_s=wait_s, cause=evidence.cause, message=evidence.message
            )
        case Scope.EVERYONE:
            # Whether it is this item's own fault the performer's breaker finds out; until then the item waits.
            return Decision(
                ItemState.PENDING, wait_s=policy.backoff_s(1), cause=evidence.cause, message=evidence.message
            )
        case Scope.UNREACHABLE:
            return Decision(
                ItemState.PENDING, wait_s=policy.backoff_s(1), cause=evidence.cause, message=evidence.message
            )
        case Scope.ITEM:
            if evidence.cause in ("server_error", "overloaded", "error_in_answer"):
                return _retry(evidence, tries, policy, otherwise=ItemState.FAILED)
            return Decision(ItemState.FAILED, counted=1, cause=evidence.cause, message=evidence.message)


def _again(evidence: Evidence, tries: Tries, policy: RetryPolicy, *, otherwise: ItemState) -> Decision:
    """An attempt that may have been paid for: only a standing consent sends the item again."""
    if policy.on_unknown == "hold":
        return Decision(otherwise, counted=1, cause=evidence.cause, message=evidence.message)
    return _retry(evidence, tries, policy, otherwise=ItemState.FAILED)


def _retry(evidence: Evidence, tries: Tries, policy: RetryPolicy, *, otherwise: ItemState) -> Decision:
    counted = tries.counted + 1
    if policy.is_spent(counted):
        return Decision(otherwise, counted=1, cause=evidence.cause, message=evidence.message)
    wait_s = policy.backoff_s(counted)
    if evidence.retry_after_s is not None:
        wait_s = max(wait_s, evidence.retry_after_s)
    return Decision(ItemState.PENDING, counted=1, wait_s=wait_s, cause=evidence.cause, message=evidence.message)


# Where an item stops that may be paid for already, and is not sent again.
_STOPPED = {
    AttemptState.UNKNOWN: ItemState.IN_DOUBT,
    AttemptState.UNUSABLE: ItemState.FAILED,
    AttemptState.ANSWERED: ItemState.FAILED,
}


def without_resend(decision: Decision, evidence: Evidence) -> Decision:
    """Turn a decision to try again into the one for a job that is being cancelled: nothing is sent again."""
    if decision.to is not ItemState.PENDING:
        return decision
    to = _STOPPED.get(evidence.outcome, ItemState.PENDING)
    return Decision(to, counted=decision.counted, cause=decision.cause, message=decision.message)
