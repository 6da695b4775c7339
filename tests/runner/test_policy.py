"""The retry policy: tenacity's strategies asked for single decisions."""

from batchrun.runner.policy import make_policy


def test_waits_double_up_to_the_longest_and_chance_takes_at_most_half() -> None:
    sure = make_policy(on_unknown="hold", retry_times=9, chance=lambda: 1.0, first_wait_s=1.0, longest_wait_s=20.0)
    half = make_policy(on_unknown="hold", retry_times=9, chance=lambda: 0.0, first_wait_s=1.0, longest_wait_s=20.0)
    assert [sure.backoff_s(counted) for counted in range(1, 8)] == [1, 2, 4, 8, 16, 20, 20]
    assert [half.backoff_s(counted) for counted in range(1, 4)] == [0.5, 1, 2]


def test_retry_times_counts_retries_after_the_first_try() -> None:
    for retry_times in (0, 1, 3):
        policy = make_policy(on_unknown="hold", retry_times=retry_times, chance=lambda: 0.5)
        allowed = [counted for counted in range(1, 10) if not policy.is_spent(counted)]
        assert len(allowed) == retry_times


def test_an_item_throttled_for_long_is_asked_less_often() -> None:
    policy = make_policy(on_unknown="hold", retry_times=3, chance=lambda: 0.5)
    assert policy.throttle_s(0.0) == 1.0
    assert policy.throttle_s(40.0) == 10.0
    assert policy.throttle_s(4_000.0) == 60.0
