"""A job's retry policy, made of tenacity's wait and stop strategies: asked for decisions; the ledger is the loop."""

from collections.abc import Callable

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_exponential

from batchrun.core.retry import OnUnknown, RetryPolicy

_NOBODY = Retrying()


def make_policy(
    *,
    on_unknown: OnUnknown,
    retry_times: int,
    chance: Callable[[], float],
    first_wait_s: float = 1.0,
    longest_wait_s: float = 60.0,
    throttle_budget_s: float = 3600.0,
    reask: int = 0,
) -> RetryPolicy:
    """Make a job's policy: doubling waits with jitter, `retry_times` retries after the first try.

    Args:
        chance: returns a number in [0, 1); the jitter takes up to half of a wait away.
        first_wait_s: the wait after the first try, before jitter.
        longest_wait_s: no wait is longer.
        throttle_budget_s: total waiting that throttling may cost one item.
        reask: how often an item is asked again for an invalid answer.
    """
    wait = wait_exponential(multiplier=first_wait_s, max=longest_wait_s)
    stop = stop_after_attempt(retry_times + 1)

    def backoff_s(counted: int) -> float:
        return float(wait(_after(counted))) * (0.5 + 0.5 * chance())

    def throttle_s(throttled_s: float) -> float:
        # An item that has waited long already is asked less often; never more often than first_wait_s.
        return min(longest_wait_s, max(first_wait_s, throttled_s / 4)) * (0.75 + 0.5 * chance())

    return RetryPolicy(
        on_unknown=on_unknown,
        is_spent=lambda counted: bool(stop(_after(counted))),
        backoff_s=backoff_s,
        throttle_s=throttle_s,
        throttle_budget_s=throttle_budget_s,
        reask=reask,
    )


def _after(attempts: int) -> RetryCallState:
    state = RetryCallState(retry_object=_NOBODY, fn=None, args=(), kwargs={})
    state.attempt_number = max(1, attempts)
    return state
