"""The ledger against a small model: workers that die, wake and hear late, a person who decides, a job that ends.

A failing run prints its steps. LEDGER_EXAMPLES=2000 looks further, at random.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import bindparam, func, select

from batchrun.core.retry import Tries
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.claims import Claim
from batchrun.ledger.consents import Stopped
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import FENCE_BITS, attempts, items
from batchrun.ledger.sweeps import bury
from tests.ledger.desk import NOW, UNKNOWN, WORST_PUSD, Desk, check_job
from tests.ledger.model import FATES, Attempt, Item, Model

ITEMS = 4
EXAMPLES = int(os.environ.get("LEDGER_EXAMPLES", "0"))
OF_ITEMS = (
    select(
        items.c.state,
        items.c.fence,
        items.c.worker_id,
        items.c.tries,
        items.c.throttled_s,
        items.c.reasks,
        items.c.consents,
    )
    .where(items.c.job_id == bindparam("the_job"))
    .order_by(items.c.id)
)
OF_ATTEMPTS = (
    select(
        attempts.c.key,
        attempts.c.state,
        attempts.c.charge,
        func.nullif(attempts.c.cost_pusd, 0),
        attempts.c.reserved_pusd,
    )
    .where(attempts.c.job_id == bindparam("the_job"))
    .order_by(attempts.c.key)
)
ALL = list(range(ITEMS))
FATE = st.sampled_from(["answered", *sorted(FATES)])
OPEN = (ItemState.PENDING, ItemState.RUNNING)
Draw = Callable[[Any], Any]


@dataclass
class Held:
    """A claim as its worker has it in hand, and how far it got with it."""

    number: int
    claim: Claim
    worker: int


class LedgerMachine(RuleBasedStateMachine):
    """Two workers, one person, one sweeper that may be wrong, and a clock."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.held: list[Held] = []  # in the hands of workers that live, whether anybody thinks them dead or not
        self.lost: list[Held] = []  # of workers that died: what they had heard may lie in a spool
        self.shown: list[Stopped] = []

    @initialize(on_unknown=st.sampled_from(["hold", "hold", "retry"]), limit=st.sampled_from([None, None, None, 6]))
    def open(self, on_unknown: str, limit: int | None) -> None:
        limit = None if limit is None else limit * WORST_PUSD
        self.desk = Desk.open(self.ledger, ITEMS, on_unknown=on_unknown, retry_times=1, max_cost_pusd=limit)
        self.workers = [self.desk.worker, self.desk.hire()]
        self.model = Model([Item(ready_at=NOW) for _ in range(ITEMS)], on_unknown, 1, NOW, limit)

    def attempt(self, held: Held) -> Attempt:
        return self.model.items[held.number].attempts[held.claim.fence]

    def has_items(self, *states: ItemState) -> bool:
        return any(item.state in states for item in self.model.items)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Let one of the things happen that can happen now.

        One rule, and not one for each: hypothesis leaves rules out of a run, and a run without settling leads nowhere.
        """
        choices = [name for name, (weight, can) in self.chances().items() for _ in range(weight) if can]
        getattr(self, data.draw(st.sampled_from(choices)))(data.draw)

    def chances(self) -> dict[str, tuple[int, bool]]:
        """Return how often each thing happens, and whether it can happen now."""
        has, state = self.has_items, self.model.state
        return {
            "claim": (4, has(ItemState.PENDING)),
            "settle": (6, bool(self.held)),
            "release": (1, any(self.attempt(held).fate is None for held in self.held)),
            "learn_late": (3, any(map(self.can_teach, self.lost))),
            "decide": (3, has(ItemState.IN_DOUBT, ItemState.FAILED)),
            "die": (1, bool(self.held)),
            "follow_policy": (1, has(ItemState.IN_DOUBT, ItemState.FAILED, ItemState.RUNNING)),
            "cancel": (1, state == "in_progress" and has(*OPEN)),
            "pause_or_resume": (1 if state == "in_progress" else 6, state in ("in_progress", "paused")),
            "end": (2, True),
            "reopen": (6, state in ("completed", "cancelled")),
            "purge": (2, state in ("completed", "cancelled") and not self.model.is_purged and not self.has_open()),
        }

    def has_open(self) -> bool:
        made = (attempt for item in self.model.items for attempt in item.attempts.values())
        return any(attempt.state is AttemptState.INTENT for attempt in made)

    # -- workers ----------------------------------------------------------------------------------------------------

    def claim(self, draw: Draw) -> None:
        """A worker claims, now or when every wait is over, and perhaps sends at once."""
        worker, numbers = draw(st.sampled_from(self.workers)), draw(st.sampled_from([ALL, ALL, ALL[:2], ALL[2:]]))
        self.desk.now = self.model.now = self.model.now + draw(st.sampled_from([60.0, 60.0, 0.0]))
        found = self.desk.claim(*sorted(numbers), worker=worker)
        expected = self.model.claim(numbers, worker)
        assert [one.item_id for one in found] == [self.desk.item_ids[number] for number in expected]
        for number, one in zip(expected, found, strict=True):
            self.held.append(Held(number, one, worker))
            self.attempt(self.held[-1]).fate = draw(st.none() | FATE)

    def settle(self, draw: Draw) -> None:
        """A request leaves, if it has not yet; its worker hears what came of it, or loses patience.

        The worker holds the permit to send, whatever has become of the item since.
        """
        held = draw(st.sampled_from(self.held))
        attempt = self.attempt(held)
        attempt.fate = attempt.fate or draw(FATE)
        what = attempt.evidence if draw(st.booleans()) or attempt.fate == "not connected" else UNKNOWN
        settled = self.desk.settle_in_a_group(held.claim, what, worker=held.worker)
        tries = held.claim.tries
        assert settled.value == self.model.record(held.number, held.claim.fence, what, by=held.worker, tries=tries)
        if draw(st.integers(0, 2)):  # else it says so once more, some time
            self.held.remove(held)
            self.lost.append(held)

    def release(self, draw: Draw) -> None:
        """A worker gives back what it has not sent; the write may be made twice."""
        held = draw(st.sampled_from([held for held in self.held if self.attempt(held).fate is None]))
        self.held.remove(held)
        for _ in range(draw(st.integers(1, 2))):
            self.desk.release(held.claim, worker=held.worker)
            self.model.release(held.number, held.claim.fence, held.worker)

    def learn_late(self, draw: Draw) -> None:
        """Something is learnt of an attempt long after: a spool turned up, somebody imported an answer."""
        self.learn(draw(st.sampled_from([held for held in self.lost if self.can_teach(held)])))

    def can_teach(self, held: Held) -> bool:
        """Say whether there is a reply to an attempt that the ledger has not heard of."""
        attempt = self.attempt(held)
        is_open = attempt.state in (AttemptState.INTENT, AttemptState.UNKNOWN)
        return is_open and attempt.evidence.outcome not in (AttemptState.UNKNOWN, AttemptState.NOT_SENT)

    def learn(self, held: Held) -> None:
        """A sweeper judges a reply by the account that the item had before the attempt."""
        attempt, item, what = self.attempt(held), self.model.items[held.number], self.attempt(held).evidence
        counted = item.tries if attempt.state is AttemptState.INTENT else max(0, item.tries - 1)
        tries = Tries(counted, item.throttled_s, item.reasks)
        settled = self.desk.adopt(held.claim.key, what)
        assert settled is not None
        expected = self.model.record(held.number, held.claim.fence, what, by=held.worker, tries=tries)
        assert settled.value == expected

    def die(self, draw: Draw) -> None:
        """A worker is found dead and another takes its place. The sweeper may be wrong: then the worker goes on."""
        worker, begun = draw(st.sampled_from(self.workers)), None
        if draw(st.booleans()):
            mine = [held for held in self.held if held.worker == worker]
            self.held = [held for held in self.held if held.worker != worker]
            self.lost += mine
            for held in filter(self.can_teach, mine):  # what it had heard lies in its spool, and is read first
                if draw(st.booleans()):
                    self.learn(held)
            if draw(st.booleans()):  # its marks can be seen, and some of what it had marked it did not come to send
                begun = {held.claim.key for held in mine if self.is_marked(held, draw)}
        self.desk.rescue(worker, begun=begun)
        self.model.rescue(worker, sees_marks=begun is not None)
        with self.ledger.write() as connection:
            bury(connection, worker, now=self.desk.now)
        self.model.dead.add(worker)
        self.workers[self.workers.index(worker)] = self.desk.hire()

    def is_marked(self, held: Held, draw: Draw) -> bool:
        if self.attempt(held).fate is not None or draw(st.booleans()):
            self.model.mark(held.number, held.claim.fence)
        return self.attempt(held).is_marked

    # -- a person ---------------------------------------------------------------------------------------------------

    def decide(self, draw: Draw) -> None:
        """Somebody decides about what was shown, perhaps long ago."""
        if not self.shown or draw(st.integers(0, 2)):
            self.shown = self.desk.shown(draw(st.sampled_from([ItemState.IN_DOUBT, ItemState.FAILED])))
        verb = draw(st.sampled_from(["consent", "consent", "consent", "give_up"]))
        pairs = [(self.desk.item_ids.index(one.item_id), one.fence) for one in self.shown]
        assert getattr(self.desk, verb)(self.shown) == getattr(self.model, verb)(pairs)

    def follow_policy(self, draw: Draw) -> None:
        self.model.on_unknown = draw(st.sampled_from(["hold", "retry"]))
        self.desk.set(on_unknown=self.model.on_unknown)
        assert self.desk.retry_by_policy(1) == self.model.retry_by_policy()

    def cancel(self, _draw: Draw) -> None:
        assert self.desk.cancel() == self.model.cancel_pending()
        self.model.state, self.model.was_cancelled = "cancelling", True

    def pause_or_resume(self, _draw: Draw) -> None:
        turns = {"in_progress": ("pause", "paused"), "paused": ("resume", "in_progress")}
        name, self.model.state = turns[self.model.state]
        assert self.desk.move(name, reason="because")

    def end(self, _draw: Draw) -> None:
        """The holder closes the job where nothing is left to do."""
        may = self.model.state in ("in_progress", "cancelling") and not self.has_items(*OPEN)
        assert self.desk.move("finalize") is may
        if may:
            assert self.desk.move("complete") is not self.model.was_cancelled
            assert self.desk.move("close") is self.model.was_cancelled
            self.model.state = "cancelled" if self.model.was_cancelled else "completed"

    def reopen(self, draw: Draw) -> None:
        assert self.desk.move("reopen") is not self.model.is_purged
        if not self.model.is_purged:
            self.model.state, self.model.was_cancelled = "in_progress", False
        if self.model.is_purged or draw(st.booleans()):
            assert self.desk.reopen_cancelled() == self.model.reopen_cancelled()

    def purge(self, _draw: Draw) -> None:
        """A person lets it be forgotten. What is learnt later still counts, and nothing is sent again."""
        self.desk.purge()
        self.model.is_purged = True

    # -- what must hold after each step -----------------------------------------------------------------------------

    @invariant()
    def the_ledger_agrees_with_the_model_and_its_books_add_up(self) -> None:
        job_id = self.desk.job_id
        with self.ledger.read() as connection:
            rows = connection.execute(OF_ITEMS, {"the_job": job_id}).all()
            made = connection.execute(OF_ATTEMPTS, {"the_job": job_id}).all()
            job = check_job(connection, job_id)
        assert list(map(tuple, rows)) == [
            (item.state, item.fence, item.worker, item.tries, item.throttled_s, item.reasks, item.consents)
            for item in self.model.items
        ]
        assert list(map(tuple, made)) == [
            (item_id << FENCE_BITS | fence, one.state, one.charge, one.cost or None, one.reserved)
            for item_id, item in zip(self.desk.item_ids, self.model.items, strict=True)
            for fence, one in sorted(item.attempts.items())
        ]
        assert (job.spent_pusd, job.reserved_pusd) == (self.model.spent, self.model.reserved)
        assert job.state == self.model.state

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            assert not self.desk.events("invariant_alarm"), "nobody lied, so nothing was contradicted"

    @invariant()
    def nothing_was_billed_in_silence(self) -> None:
        self.model.check_truth()


@pytest.mark.timeout(900 if EXAMPLES else 180)
def test_the_ledger_follows_its_model_and_bills_nothing_in_silence(shared_ledger: Ledger) -> None:
    examples = EXAMPLES or (50 if shared_ledger.is_sqlite else 12)
    run_state_machine_as_test(
        lambda: LedgerMachine(shared_ledger),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=not EXAMPLES,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
