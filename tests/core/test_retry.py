"""What follows from each outcome, as a table."""

from dataclasses import replace

import pytest

from batchrun.core.outcome import Charge, Evidence, Scope
from batchrun.core.retry import Decision, OnUnknown, RetryPolicy, Tries, decide, without_resend
from batchrun.core.states import AttemptState as A
from batchrun.core.states import ItemState as I


def _policy(on_unknown: OnUnknown, *, retry_times: int = 2) -> RetryPolicy:
    return RetryPolicy(
        on_unknown=on_unknown,
        is_spent=lambda counted: counted >= retry_times + 1,
        backoff_s=lambda counted: float(counted),
        throttle_s=lambda throttled_s: 5.0,
        throttle_budget_s=60.0,
    )


def _evidence(outcome: A, cause: str | None = None, scope: Scope = Scope.ITEM, wait: float | None = None) -> Evidence:
    return Evidence(outcome, cause, cause and f"{cause}!", Charge.NONE, None, scope=scope, retry_after_s=wait)


FRESH, LAST = Tries(0, 0.0), Tries(2, 0.0)
# outcome, cause, scope, Retry-After; tries before; where to under hold; where to under retry; counted
TABLE = [
    (_evidence(A.ANSWERED), FRESH, I.COMPLETED, I.COMPLETED, 1),
    (_evidence(A.NOT_SENT, "connect", Scope.UNREACHABLE), FRESH, I.PENDING, I.PENDING, 0),
    (_evidence(A.NOT_SENT, "connect", Scope.UNREACHABLE), LAST, I.PENDING, I.PENDING, 0),
    (_evidence(A.REFUSED, "bad_request"), FRESH, I.FAILED, I.FAILED, 1),
    (_evidence(A.REFUSED, "context_length"), FRESH, I.FAILED, I.FAILED, 1),
    (_evidence(A.REFUSED, "server_error"), FRESH, I.PENDING, I.PENDING, 1),
    (_evidence(A.REFUSED, "server_error"), LAST, I.FAILED, I.FAILED, 1),
    (_evidence(A.REFUSED, "rate_limited", Scope.THROTTLE, 7.0), LAST, I.PENDING, I.PENDING, 0),
    # Longer than any item may wait: the job stops, and the item is there for another day.
    (_evidence(A.REFUSED, "rate_limited", Scope.THROTTLE, 61.0), FRESH, I.PENDING, I.PENDING, 0),
    (_evidence(A.REFUSED, "overloaded", Scope.THROTTLE), FRESH, I.PENDING, I.PENDING, 0),
    (_evidence(A.REFUSED, "auth", Scope.EVERYONE), LAST, I.PENDING, I.PENDING, 0),
    (_evidence(A.UNUSABLE, "no_choices"), FRESH, I.FAILED, I.PENDING, 1),
    (_evidence(A.UNUSABLE, "no_choices"), LAST, I.FAILED, I.FAILED, 1),
    (_evidence(A.UNKNOWN, "timeout"), FRESH, I.IN_DOUBT, I.PENDING, 1),
    (_evidence(A.UNKNOWN, "timeout"), LAST, I.IN_DOUBT, I.FAILED, 1),
]


@pytest.mark.parametrize(("evidence", "tries", "held", "retried", "counted"), TABLE)
def test_what_follows_from_an_outcome(evidence: Evidence, tries: Tries, held: I, retried: I, counted: int) -> None:
    for on_unknown, to in (("hold", held), ("retry", retried)):
        decision = decide(evidence, tries, _policy(on_unknown))  # type: ignore[arg-type]
        assert (decision.to, decision.counted) == (to, counted), on_unknown


def test_an_invalid_answer_is_asked_again_only_as_often_as_the_job_said() -> None:
    invalid = _evidence(A.ANSWERED, "invalid_answer")
    for on_unknown in ("hold", "retry"):
        for reask in (0, 2):
            rules = replace(_policy(on_unknown), reask=reask)  # type: ignore[arg-type]
            decisions = [decide(invalid, Tries(0, 0.0, reasks), rules) for reasks in range(4)]
            assert [one.to for one in decisions] == [I.PENDING] * reask + [I.FAILED] * (4 - reask)
            assert [one.reasks for one in decisions] == [1] * reask + [0] * (4 - reask)
            assert all(one.counted == (one.to is I.FAILED) for one in decisions)  # retry_times is for other things


def test_an_open_intent_is_no_outcome() -> None:
    with pytest.raises(ValueError, match="open intent"):
        decide(_evidence(A.INTENT), FRESH, _policy("hold"))


def test_retry_times_0_means_one_try() -> None:
    assert decide(_evidence(A.REFUSED, "server_error"), FRESH, _policy("hold", retry_times=0)).to is I.FAILED


def test_a_throttled_item_waits_as_long_as_asked_and_its_waits_add_up() -> None:
    decision = decide(_evidence(A.REFUSED, "rate_limited", Scope.THROTTLE, 7.0), Tries(0, 50.0), _policy("hold"))
    assert (decision.wait_s, decision.throttled_s) == (7.0, 7.0)
    over = decide(_evidence(A.REFUSED, "rate_limited", Scope.THROTTLE, 7.0), Tries(0, 57.0), _policy("hold"))
    assert over.to is I.FAILED
    assert "throttled too long" in (over.message or "")


def test_a_retry_waits_at_least_as_long_as_the_server_asked() -> None:
    assert decide(_evidence(A.REFUSED, "server_error", wait=9.0), FRESH, _policy("hold")).wait_s == 9.0
    assert decide(_evidence(A.REFUSED, "server_error", wait=0.1), FRESH, _policy("hold")).wait_s == 1.0


@pytest.mark.parametrize(
    ("outcome", "to"),
    [
        (A.UNKNOWN, I.IN_DOUBT),
        (A.UNUSABLE, I.FAILED),
        (A.ANSWERED, I.FAILED),
        (A.REFUSED, I.PENDING),
        (A.NOT_SENT, I.PENDING),
    ],
)
def test_a_cancelled_job_sends_nothing_again(outcome: A, to: I) -> None:
    assert without_resend(Decision(I.PENDING, counted=1), _evidence(outcome)).to is to


def test_a_decision_that_ends_the_item_is_not_changed_by_a_cancel() -> None:
    decision = Decision(I.COMPLETED, counted=1)
    assert without_resend(decision, _evidence(A.ANSWERED)) is decision


@pytest.mark.parametrize("asked_s", [0.0, 0.001, 0.999])
def test_to_be_asked_back_at_once_costs_the_items_budget_all_the_same(asked_s: float) -> None:
    decision = decide(_evidence(A.REFUSED, "rate_limited", Scope.THROTTLE, asked_s), Tries(0, 58.0), _policy("hold"))
    assert decision.to is I.FAILED
    first = decide(_evidence(A.REFUSED, "rate_limited", Scope.THROTTLE, asked_s), FRESH, _policy("hold"))
    assert (first.to, first.wait_s, first.throttled_s) == (I.PENDING, 5.0, 5.0)
