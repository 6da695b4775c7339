"""What every form of the rate windows must do: the same scenarios for the one in the process and the one in Redis."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.core.rate import MINUTE, Limits, Reason
from tests.core.rate_scene import DEMAND, SPAN_S, Scene, demand, most_in_any_window, play_anything
from tests.examples import drawn


class RateConformance:
    """The scenarios. A form's own test class inherits them and says how to set its scene."""

    def scene(self) -> Scene:
        raise NotImplementedError

    # -- the limit ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("rpm", "minutes"), [(1, 20), (7, 10), (60, 4), (900, 3)])
    def test_a_constant_demand_gets_nearly_all_requests_of_the_limit_and_never_more(
        self, rpm: int, minutes: int
    ) -> None:
        scene = self.scene()
        start = scene.now
        sends = demand(scene, scene.process(is_fresh=True), Limits(rpm), [1], until_s=start + 60 * minutes)
        assert most_in_any_window([(at, 1) for at, _ in sends]) <= rpm
        assert len(sends) >= 0.95 * rpm * minutes

    @pytest.mark.parametrize("sizes", [[1000], [4000, 100, 700, 100, 100], [20_000]])
    def test_a_constant_demand_gets_nearly_all_tokens_of_the_limit_and_never_more(self, sizes: list[int]) -> None:
        scene, tpm, minutes = self.scene(), 100_000, 8
        start = scene.now
        sends = demand(scene, scene.process(is_fresh=True), Limits(None, tpm), sizes, until_s=start + 60 * minutes)
        assert most_in_any_window(sends) <= tpm
        assert sum(tokens for _, tokens in sends) >= 0.95 * tpm * minutes

    @settings(max_examples=drawn(8), deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(
        rpm=st.integers(1, 400),
        tpm=st.integers(1_000, 1_000_000),
        shares=st.lists(st.floats(0.001, 0.02), min_size=1, max_size=9),
        phase_s=st.floats(0, 1),
    )
    def test_any_constant_demand_gets_nearly_all_of_either_limit(
        self, rpm: int, tpm: int, shares: list[float], phase_s: float
    ) -> None:
        for limits, sizes in ((Limits(rpm), [1]), (Limits(None, tpm), [max(1, int(share * tpm)) for share in shares])):
            scene = self.scene()
            scene.now += phase_s
            sends = demand(scene, scene.process(is_fresh=True), limits, sizes, until_s=scene.now + 240)
            limit, used = (limits.tpm, sends) if limits.tpm else (limits.rpm or 0, [(at, 1) for at, _ in sends])
            assert most_in_any_window(used) <= limit
            assert sum(amount for _, amount in used) >= 0.95 * 4 * limit - 1

    def test_both_limits_hold_together(self) -> None:
        scene, limits = self.scene(), Limits(120, 10_000)
        start = scene.now
        sends = demand(scene, scene.process(is_fresh=True), limits, [10, 200], until_s=start + 180)
        assert most_in_any_window([(at, 1) for at, _ in sends]) <= 120
        assert 9_500 <= most_in_any_window(sends) <= 10_000

    def test_a_minute_is_not_spent_in_its_first_second(self) -> None:
        scene, rpm = self.scene(), 600
        start = scene.now
        moments = [at for at, _ in demand(scene, scene.process(is_fresh=True), Limits(rpm), [1], until_s=start + 200)]
        share = rpm / SPAN_S  # of one second
        assert most_in_any_window([(at, 1) for at in moments], 1.0) <= (MINUTE.burst_s + 1) * share + 2
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        assert max(gaps) <= MINUTE.burst_s + 2 / share

    def test_silence_is_not_saved_up(self) -> None:
        scene, rpm = self.scene(), 600
        process = scene.process(is_fresh=True)
        assert process.take(Limits(rpm), [1]).permits
        scene.now += 300
        grant = process.take(Limits(rpm), [1] * 600)
        assert len(grant.permits) <= MINUTE.burst_s * rpm / SPAN_S + 1

    def test_all_processes_share_one_limit(self) -> None:
        scene, rpm = self.scene(), 100
        processes = [scene.process(is_fresh=True) for _ in range(4)]
        start, sends = scene.now, []
        while scene.now < start + 180:
            for process in processes:
                sends += [(scene.now, 1)] * len(process.take(Limits(rpm), [1] * 3).permits)
            scene.now += 0.3
        assert most_in_any_window(sends) <= rpm
        assert len(sends) >= 0.95 * 3 * rpm

    @pytest.mark.parametrize("first_granted_s", [0.0, 0.2499])  # at the beginning, and at the end of a bucket
    def test_a_permit_used_late_and_one_used_at_once_do_not_meet_in_a_window(self, first_granted_s: float) -> None:
        scene, rpm = self.scene(), 60
        scene.now += first_granted_s
        start = scene.now
        sends = demand(scene, scene.process(is_fresh=True), Limits(rpm), [1], until_s=start + 130)
        late_s = MINUTE.use_within_s - 0.001
        moved = [(at + late_s if at < start + SPAN_S - 1 else at, 1) for at, _ in sends]
        assert most_in_any_window(moved) == rpm

    def test_a_wait_is_neither_too_short_nor_too_long(self) -> None:
        scene, limits = self.scene(), Limits(30, 10_000)
        process = scene.process(is_fresh=True)
        for number in range(60):
            tokens = 100 + 37 * (number % 11)
            grant = process.take(limits, [tokens] * 8)
            assert grant.wait_s
            scene.now += grant.wait_s - 1e-4
            assert not process.take(limits, [tokens]).permits
            scene.now += 2e-4
            assert process.take(limits, [tokens]).permits

    # -- items that do not fit ----------------------------------------------------------------------------------------

    def test_an_item_larger_than_a_whole_minute_is_refused_with_a_reason_and_no_wait(self) -> None:
        scene = self.scene()
        process = scene.process(is_fresh=True)
        grant = process.take(Limits(None, 10_000), [100, 10_001, 100])
        assert [permit.tokens for permit in grant.permits] == [100]
        assert (grant.reason, grant.wait_s) == (Reason.TOO_LARGE, None)
        assert grant.message == "the item may use 10,001 tokens, and tpm 10,000 is all that a minute allows"

    def test_an_item_of_exactly_a_minutes_budget_gets_its_turn(self) -> None:
        scene = self.scene()
        process = scene.process(is_fresh=True)
        assert process.take(Limits(None, 10_000), [1]).permits
        grant = process.take(Limits(None, 10_000), [10_000])
        assert grant.wait_s == pytest.approx(SPAN_S, abs=MINUTE.bucket_s)
        scene.now += SPAN_S
        assert process.take(Limits(None, 10_000), [10_000]).permits

    def test_a_large_item_is_not_starved_by_the_small_ones_of_others(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        small, large = scene.process(is_fresh=True), scene.process()
        demand(scene, small, limits, [50], until_s=scene.now + 70)  # the window is full now
        asked_at = scene.now
        while not (grant := large.take(limits, [4_000])).permits:
            assert scene.now - asked_at <= 0.5 * SPAN_S  # room for four tenths of the minute has to gather
            small.take(limits, [50] * 40)
            scene.now += min(grant.wait_s or 0.0, 0.5)
        assert demand(scene, small, limits, [50], until_s=scene.now + 35)  # the small ones go on after it

    def test_a_turn_ends_when_it_has_been_used(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        small, large = scene.process(is_fresh=True), scene.process()
        demand(scene, small, limits, [50], until_s=scene.now + 60)
        while not (grant := large.take(limits, [400])).permits:
            scene.now += min(grant.wait_s or 0.0, 0.1)
        start = scene.now
        assert demand(scene, small, limits, [50], until_s=start + MINUTE.turn_s / 2)

    def test_an_item_that_is_not_large_holds_nobody_back(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        process, other = scene.process(is_fresh=True), scene.process()
        demand(scene, process, limits, [50], until_s=scene.now + 60)
        while process.take(limits, [50]).permits:
            scene.now += 0.05
        scene.now += (process.take(limits, [50]).wait_s or 0.0) + 1e-4  # and then this process is killed
        assert other.take(limits, [50]).permits

    def test_a_turn_that_nobody_claims_lapses(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        small, large = scene.process(is_fresh=True), scene.process()
        demand(scene, small, limits, [50], until_s=scene.now + 70)
        assert large.take(limits, [9_000]).reason is Reason.TOKENS  # and then this process is killed
        start = scene.now
        sends = demand(scene, small, limits, [50], until_s=start + 60)
        assert sends[0][0] - start <= 2 * MINUTE.turn_s + MINUTE.burst_s
        assert sum(tokens for _, tokens in sends) >= 0.9 * 10_000

    # -- what was not used, and what was really used ----------------------------------------------------------------

    def test_what_is_given_back_can_be_granted_again(self) -> None:
        scene, limits = self.scene(), Limits(600, 60_000)
        process, other = scene.process(is_fresh=True), scene.process()
        grant = process.take(limits, [100] * 40)
        assert grant.permits
        assert not other.take(limits, [100]).permits
        process.windows.give_back(grant.permits)
        process.take(limits, [])
        assert len(other.take(limits, [100] * 40).permits) == len(grant.permits)

    def test_real_usage_is_counted_in_the_moment_of_the_permit(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        process = scene.process(is_fresh=True)
        [permit] = process.take(limits, [10_000]).permits
        scene.now += 30
        assert process.take(limits, [5_000]).wait_s == pytest.approx(SPAN_S - 30, abs=2 * MINUTE.bucket_s)
        process.windows.correct(permit, 4_000)
        assert process.take(limits, [5_000]).permits
        assert not process.take(limits, [2_000]).permits
        scene.now += SPAN_S - 30
        assert process.take(limits, [5_000]).permits  # the 4,000 have left the window, the 5,000 have not
        assert not process.take(limits, [1_000]).permits

    def test_a_correction_is_made_once(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        process = scene.process(is_fresh=True)
        first, _second = (process.take(limits, [size]).permits[0] for size in (300, 9_000))
        process.windows.correct(first, 0)
        for _ in range(3):
            process.take(limits, [])
        scene.now += SPAN_S - 1
        assert not process.take(limits, [1_001]).permits
        assert process.take(limits, [1_000]).permits

    def test_usage_above_the_estimate_closes_the_window(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        process = scene.process(is_fresh=True)
        [permit] = process.take(limits, [100]).permits
        process.windows.correct(permit, 12_000)
        grant = process.take(limits, [100])
        assert grant.reason is Reason.TOKENS
        assert grant.wait_s == pytest.approx(SPAN_S, abs=MINUTE.bucket_s)

    @pytest.mark.parametrize("used", [1, 20_000])
    def test_a_correction_that_comes_after_the_window_changes_nothing(self, used: int) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        process = scene.process(is_fresh=True)
        [permit] = process.take(limits, [10_000]).permits
        scene.now += SPAN_S + 1
        process.windows.correct(permit, used)
        assert process.take(limits, [10_000]).permits
        assert not process.take(limits, [1]).permits

    def test_a_permit_given_back_twice_frees_no_more_than_was_taken(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        process = scene.process(is_fresh=True)
        grant = process.take(limits, [10_000])
        process.windows.give_back([*grant.permits, *grant.permits])
        assert process.take(limits, [10_000]).permits
        scene.now += SPAN_S - 1
        assert not process.take(limits, [1]).permits

    def test_a_permit_lapses(self) -> None:
        scene = self.scene()
        [permit] = scene.process(is_fresh=True).take(Limits(60), [1]).permits
        assert permit.is_usable(scene.now + MINUTE.use_within_s - 0.01)
        assert not permit.is_usable(scene.now + MINUTE.use_within_s)

    # -- limits that change -----------------------------------------------------------------------------------------

    def test_a_raised_limit_is_in_effect_at_once(self) -> None:
        scene = self.scene()
        process = scene.process(is_fresh=True)
        demand(scene, process, Limits(6), [1], until_s=scene.now + 30)
        start = scene.now
        sends = demand(scene, process, Limits(600), [1], until_s=start + 10)
        assert sends[0][0] - start <= 0.2
        assert len(sends) >= 0.9 * 600 / SPAN_S * 10

    def test_a_lowered_limit_is_in_effect_at_once(self) -> None:
        scene = self.scene()
        process = scene.process(is_fresh=True)
        demand(scene, process, Limits(600), [1], until_s=scene.now + 90)
        start = scene.now
        sends = demand(scene, process, Limits(6), [1], until_s=start + 600)
        assert most_in_any_window([(at, 1) for at, _ in sends]) <= 6
        assert sends[0][0] - start == pytest.approx(SPAN_S, abs=1.0)  # what left before still counts
        assert len(sends) >= 0.95 * 6 * (600 - SPAN_S) / 60 - 1

    def test_what_left_without_a_limit_counts_when_one_is_set(self) -> None:
        scene = self.scene()
        process = scene.process(is_fresh=True)
        assert len(process.take(Limits(), [10] * 50).permits) == 50
        scene.now += 10
        grant = process.take(Limits(50), [10])
        assert grant.wait_s == pytest.approx(SPAN_S - 10, abs=MINUTE.bucket_s)

    # -- loss -------------------------------------------------------------------------------------------------------

    def test_a_window_that_nobody_knows_stays_closed_until_a_whole_one_has_passed(self) -> None:
        scene, limits = self.scene(), Limits(600)
        process, other = scene.process(), scene.process()
        grant = process.take(limits, [1])
        assert (grant.permits, grant.reason) == ((), Reason.LOST)
        assert grant.wait_s == pytest.approx(SPAN_S)
        scene.now += SPAN_S - 0.01
        assert other.take(limits, [1]).reason is Reason.LOST
        scene.now += 0.02
        assert process.take(limits, [1]).permits

    def test_it_opens_at_once_where_the_ledger_knows_that_nothing_was_sent(self) -> None:
        scene = self.scene()
        assert scene.process().take(Limits(600), [1], is_fresh=True).permits

    def test_a_process_that_was_granted_something_cannot_call_a_lost_window_fresh(self) -> None:
        scene, limits = self.scene(), Limits(600)
        process, other = scene.process(is_fresh=True), scene.process()
        assert process.take(limits, DEMAND).permits
        scene.lose()
        assert process.take(limits, DEMAND, is_fresh=True).reason is Reason.LOST
        assert other.take(limits, DEMAND).reason is Reason.LOST

    def test_what_is_given_back_after_a_loss_opens_nothing(self) -> None:
        scene, limits = self.scene(), Limits(600)
        process = scene.process(is_fresh=True)
        grant = process.take(limits, DEMAND)
        scene.lose()
        process.take(limits, [])
        process.windows.give_back(grant.permits)
        scene.now += SPAN_S - 0.01
        assert process.take(limits, [1]).reason is Reason.LOST

    def test_what_is_noted_of_a_lost_window_does_not_count_in_the_next(self) -> None:
        scene, limits = self.scene(), Limits(None, 10_000)
        process, other = scene.process(is_fresh=True), scene.process()
        [permit] = process.take(limits, [100]).permits
        process.windows.correct(permit, 12_000)
        scene.lose()
        other.take(limits, [], is_fresh=True)
        assert process.take(limits, [100]).permits

    def test_a_window_restored_from_an_older_copy_counts_as_lost(self) -> None:
        scene, limits = self.scene(), Limits(600)
        process, other = scene.process(is_fresh=True), scene.process()
        other.take(limits, [1])
        restore = scene.save()
        scene.now += 5
        assert process.take(limits, [1] * 20).permits
        restore()
        assert process.take(limits, [1]).reason is Reason.LOST
        assert other.take(limits, [1]).reason is Reason.LOST
        scene.now += SPAN_S
        assert other.take(limits, [1]).permits

    # -- clocks -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("step_s", [-86_400.0, -61.0, -5.0, 5.0, 61.0, 86_400.0])
    def test_a_step_of_the_stores_clock_opens_no_second_window_and_closes_none(self, step_s: float) -> None:
        scene, limits = self.scene(), Limits(300)
        process = scene.process(is_fresh=True)
        sends = demand(scene, process, limits, [1], until_s=scene.now + 100)
        start = scene.now
        scene.store_ahead_s += step_s
        sends += demand(scene, process, limits, [1], until_s=start + 200)
        assert most_in_any_window([(at, 1) for at, _ in sends]) <= 300
        assert len([at for at, _ in sends if at > start]) >= 0.94 * 300 * 200 / 60

    @settings(
        max_examples=drawn(40),
        deadline=None,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(data=st.data(), limits=st.builds(Limits, st.integers(1, 40), st.none() | st.integers(10, 2_000)))
    def test_whatever_happens_no_window_holds_more_than_the_limit(self, data: st.DataObject, limits: Limits) -> None:
        play_anything(self.scene(), data, limits)
