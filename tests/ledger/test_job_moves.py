"""Every move of a job from every state, what must hold beside the state, and who holds a job."""

from collections.abc import Callable

import pytest
from sqlalchemy import select, update

from batchrun.core.concurrency import Concurrency
from batchrun.core.states import JOB_MOVES, ItemState, JobState, is_final
from batchrun.errors import IllegalMove, JobNotFound
from batchrun.ledger import jobs
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.register import write_items
from batchrun.ledger.schema import items
from batchrun.ledger.schema import jobs as jobs_table
from tests.ledger.desk import ANSWERED, NOW, SERVER_ERROR, UNKNOWN, Desk, hire, line, register, snapshot

J = JobState


def _row(desk: Desk) -> dict[str, object]:
    with desk.ledger.read() as connection:
        return dict(connection.execute(select(jobs_table).where(jobs_table.c.id == desk.job_id)).one()._mapping)


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("name", list(JOB_MOVES))
def test_a_job_moves_from_the_states_of_the_table_and_from_no_other(ledger: Ledger, name: str, state: J) -> None:
    desk = Desk.open(ledger)
    desk.settle(
        desk.claim_one(), ANSWERED
    )  # nothing is pending or running: no guard beside the state stands in the way
    desk.force_job(state=state, was_cancelled=name == "close", ended_at=NOW)
    before, rows_before = _row(desk), snapshot(ledger, without=())

    moved = desk.move(name, reason="why", message="in words")

    after = _row(desk)
    if state in JOB_MOVES[name].sources:
        assert moved
        assert (after["state"], after["reason"], after["message"]) == (JOB_MOVES[name].target, "why", "in words")
        assert [event["detail"] for event in desk.events(name)][-1] == {"reason": "why", "message": "in words"}
    else:
        assert not moved
        assert after == before
        assert snapshot(ledger, without=()) == rows_before


def test_a_job_is_finished_only_when_no_item_is_pending_or_running(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    assert not desk.move("finalize")
    claimed = desk.claim_one()
    assert not desk.move("finalize")
    desk.settle(claimed, UNKNOWN)
    assert desk.move("finalize"), "a doubt waits for a person, not for the job"
    assert desk.job.state is J.FINALIZING


def test_a_superseded_item_does_not_keep_a_job_from_its_end(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    with ledger.write() as connection:
        connection.execute(update(items).values(is_current=False))
    desk.force_job(total=0)
    assert desk.move("finalize")


def test_a_cancelled_job_closes_and_any_other_completes(ledger: Ledger) -> None:
    plain, cancelled = Desk.open(ledger), Desk.open(ledger)
    cancelled.cancel()
    for desk in (plain, cancelled):
        if desk is plain:
            desk.settle(desk.claim_one(), ANSWERED)
        assert desk.move("finalize")
    assert not plain.move("close")
    assert not cancelled.move("complete")
    assert plain.move("complete")
    assert cancelled.move("close")
    assert (plain.job.state, cancelled.job.state) == (J.COMPLETED, J.CANCELLED)
    assert plain.job.ended_at == cancelled.job.ended_at == NOW


def test_a_job_that_was_cancelled_is_open_again_without_a_trace_of_it(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.cancel()
    assert desk.move("finalize")
    assert desk.move("close")
    assert desk.move("reopen")
    job = desk.job
    assert (job.state, job.was_cancelled, job.ended_at) == (J.IN_PROGRESS, False, None)


def test_a_probe_lifts_only_its_own_pause(desk: Desk) -> None:
    assert desk.move("pause", reason="auth", message="the key is wrong")
    assert not desk.move("resume", only_reason="endpoint_down")
    assert desk.job.reason == "auth"
    assert desk.move("resume", only_reason="auth")
    assert desk.job.reason is None


def test_a_move_that_is_the_holders_is_made_by_nobody_else(desk: Desk) -> None:
    stranger = desk.hire()
    with desk.ledger.write() as connection:
        assert jobs.take(connection, desk.job_id, worker_id=desk.worker, instead_of=None, now=NOW)
    before = snapshot(desk.ledger, without=())
    assert not desk.move("pause", reason="auth", holder=stranger)
    assert snapshot(desk.ledger, without=()) == before
    assert desk.move("pause", reason="auth", holder=desk.worker)


def _end(desk: Desk, *, cancelled: bool = False) -> None:
    if cancelled:
        desk.cancel()
    assert desk.move("finalize")
    assert desk.move("close" if cancelled else "complete")


def _write_anew(desk: Desk) -> None:
    with desk.ledger.write() as connection:
        jobs.write_anew(connection, desk.job_id, now=NOW)


@pytest.mark.parametrize("cancelled", [False, True], ids=["completed", "cancelled"])
def test_what_is_settled_after_the_end_is_written_and_nothing_is_sent(ledger: Ledger, cancelled: bool) -> None:
    desk = Desk.open(ledger, 2)
    first, second = desk.claim()
    desk.settle(first, UNKNOWN)
    desk.settle(second, ANSWERED)
    _end(desk, cancelled=cancelled)
    desk.adopt(first.key, ANSWERED)
    _write_anew(desk)
    assert (desk.job.state, desk.job.was_cancelled) == (J.FINALIZING, cancelled)
    assert desk.claim() == []
    assert desk.move("close" if cancelled else "complete")


def test_a_job_is_open_again_where_a_late_refusal_made_an_item_pending(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    claimed = desk.claim_one()
    desk.settle(claimed, UNKNOWN)
    _end(desk)
    desk.adopt(claimed.key, SERVER_ERROR)
    _write_anew(desk)
    assert (desk.state(), desk.job.state) == ("pending", J.IN_PROGRESS)


def test_a_cancelled_job_is_not_opened_by_what_comes_late(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    claimed = desk.claim_one()
    desk.settle(claimed, UNKNOWN)
    _end(desk, cancelled=True)
    desk.adopt(claimed.key, SERVER_ERROR)
    _write_anew(desk)
    assert (desk.states(), desk.job.state) == (["cancelled"] * 2, J.FINALIZING)


@pytest.mark.parametrize("state", [J.IN_PROGRESS, J.PAUSED, J.CANCELLING, J.FINALIZING, J.VALIDATING])
def test_a_job_that_has_not_ended_is_written_when_it_ends(desk: Desk, state: JobState) -> None:
    desk.force_job(state=state)
    before = snapshot(desk.ledger, without=())
    _write_anew(desk)
    assert snapshot(desk.ledger, without=()) == before


def test_a_job_opens_only_when_all_its_items_are_written(ledger: Ledger) -> None:
    worker = hire(ledger)
    job = register(ledger, 3, holder=worker)

    def opens() -> bool:
        with ledger.write() as connection:
            return jobs.move_job(connection, job.id, "open", now=NOW)

    assert not opens()
    write_items(ledger, job.id, [line(0), line(1)], trial=(), now=NOW)
    assert not opens()
    write_items(ledger, job.id, [line(2, is_rejected=True)], trial=(), now=NOW)
    assert opens()


def test_cancel_takes_the_pending_items_and_leaves_the_others(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 4)
    running, done, doubtful = desk.claim(0, 1, 2)
    desk.settle(done, ANSWERED)
    desk.settle(doubtful, UNKNOWN)
    assert desk.cancel() == 1
    assert desk.states() == ["running", "completed", "in_doubt", "cancelled"]
    assert desk.job.state is J.CANCELLING
    assert desk.cancel() == 0, "to cancel again changes nothing"
    desk.settle(running, ANSWERED)
    assert desk.states()[0] == "completed"


@pytest.mark.parametrize("state", [J.VALIDATING, J.FINALIZING, J.COMPLETED, J.FAILED])
def test_a_job_that_cannot_be_cancelled_says_so_and_stays(desk: Desk, state: JobState) -> None:
    desk.force_job(state=state)
    before = snapshot(desk.ledger)
    with pytest.raises(IllegalMove, match=f"is {state} and cannot be cancelled"):
        desk.cancel()
    assert snapshot(desk.ledger) == before


def test_a_paused_job_can_be_cancelled(desk: Desk) -> None:
    assert desk.move("pause", reason="trial_gate")
    assert desk.cancel() == 1


def test_one_of_two_takes_a_job_and_only_its_holder_drops_it(desk: Desk) -> None:
    first, second = desk.worker, desk.hire()

    def take(worker: int, instead_of: int | None) -> bool:
        with desk.ledger.write() as connection:
            return jobs.take(connection, desk.job_id, worker_id=worker, instead_of=instead_of, now=NOW)

    def drop(worker: int) -> None:
        with desk.ledger.write() as connection:
            jobs.drop(connection, desk.job_id, worker_id=worker, active_s=2.5)

    assert take(first, None)
    assert not take(second, None)
    assert take(second, first)
    assert not take(second, first), "who was found dead holds it no more"
    drop(first)
    assert desk.job.holder == second
    drop(second)
    assert (desk.job.holder, desk.job.active_s) == (None, 2.5)


def test_a_name_is_given_to_one_job_only(ledger: Ledger) -> None:
    worker = hire(ledger)
    register(ledger, 1, holder=worker, task_id="twice")
    before = snapshot(ledger)
    with pytest.raises(AssertionError):
        register(ledger, 1, holder=worker, task_id="twice")
    assert snapshot(ledger) == before


def test_a_job_that_is_not_there_is_not_found(ledger: Ledger) -> None:
    with ledger.read() as connection, pytest.raises(JobNotFound, match="no job 'ghost'"):
        jobs.find_job(connection, "ghost")


def test_settings_change_with_an_event_that_says_what_changed(desk: Desk) -> None:
    desk.set(on_unknown="retry", concurrency=Concurrency.of(4), max_cost_pusd=5)
    assert [event["detail"] for event in desk.events("settings")] == [{"on_unknown": "retry", "max_cost_pusd": 5}]
    desk.set(on_unknown="retry", concurrency=None)
    assert len(desk.events("settings")) == 1
    assert (desk.job.on_unknown, desk.job.concurrency, desk.job.max_cost_pusd) == ("retry", 4, 5)


def test_a_message_that_no_back_end_could_keep_is_kept_readable(desk: Desk) -> None:
    assert desk.move("pause", reason="auth", message="half \ud83d of a pair, and \0")
    assert desk.job.message == "half \ufffd of a pair, and \ufffd"


@pytest.mark.parametrize(
    ("moves", "started_at"), [([], None), (["start"], NOW), (["start", "start"], NOW)], ids=["never", "once", "twice"]
)
def test_the_first_start_counts(desk: Desk, moves: list[str], started_at: float | None) -> None:
    for number, _ in enumerate(moves):
        with desk.ledger.write() as connection:
            jobs.start(connection, desk.job_id, now=NOW + number)
    assert desk.job.started_at == started_at


@pytest.fixture
def throttle(desk: Desk) -> Callable[[float, float], tuple[float | None, float | None]]:
    def set_it(wait_s: float, now: float) -> tuple[float | None, float | None]:
        with desk.ledger.write() as connection:
            jobs.set_throttle(connection, desk.job_id, wait_s=wait_s, now=now)
        return desk.job.throttle_until_at, desk.job.throttle_wait_s

    return set_it


def test_a_throttle_is_lengthened_and_never_cut_short(
    throttle: Callable[[float, float], tuple[float | None, float | None]],
) -> None:
    assert throttle(10.0, NOW) == (NOW + 10, 10.0)
    assert throttle(5.0, NOW + 1) == (NOW + 10, 10.0)
    assert throttle(20.0, NOW + 1) == (NOW + 21, 20.0)


def test_a_throttle_from_before_the_clock_was_set_back_is_replaced(
    throttle: Callable[[float, float], tuple[float | None, float | None]],
) -> None:
    throttle(10.0, NOW)
    assert throttle(5.0, NOW - 3600) == (NOW - 3595, 5.0)


def test_jobs_are_listed_with_the_latest_first(ledger: Ledger) -> None:
    desks = [Desk.open(ledger) for _ in range(3)]
    with ledger.read() as connection:
        assert [job.id for job in jobs.list_jobs(connection)] == [desk.job_id for desk in reversed(desks)]
        assert jobs.find_job(connection, desks[0].job.task_id).id == desks[0].job_id


def test_a_registration_that_has_ended_well_is_not_begun_again(ledger: Ledger) -> None:
    """Else a process that had looked before the end would forget items that were sent since."""
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), ANSWERED)
    before = snapshot(ledger)
    with pytest.raises(IllegalMove, match="its registration has ended"), ledger.write() as connection:
        jobs.restart_registration(connection, desk.job_id, total=9, input_digest="x", params_digest="y")
    assert snapshot(ledger) == before


def test_a_failed_registration_is_begun_again(ledger: Ledger) -> None:
    worker = hire(ledger)
    job = register(ledger, 1, holder=worker)
    with ledger.write() as connection:
        assert jobs.move_job(connection, job.id, "fail", now=NOW, reason="input", message="the input changed")
        jobs.restart_registration(connection, job.id, total=2, input_digest="x", params_digest="y")
        again = jobs.read_job(connection, job.id)
    assert (again.state, again.total, again.reason, again.ended_at) == (J.VALIDATING, 2, None, None)
    assert (again.input_digest, again.params_digest) == ("x", "y")


def test_item_states_and_job_states_know_which_are_final() -> None:
    assert {state for state in ItemState if not is_final(state)} == {ItemState.PENDING, ItemState.RUNNING}
