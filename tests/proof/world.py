"""All that can happen to a few items, one step at a time, on the model of the ledger: no file, no clock, no network.

The model is the one that the real ledger is held against in tests/ledger/test_machine.py. A step is one thing that one
party does: a worker claims, sends, hears or gives back, dies, or is declared dead while it lives; a sweeper reads a
spool; a person looks and decides on what was seen then. Whoever chooses the steps decides what is proven: all of them
(tests/proof/test_every_state.py) or very many by chance (tests/proof/test_walks.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from batchrun.core.outcome import Charge
from batchrun.core.states import AttemptState, ItemState
from tests.ledger.desk import UNKNOWN
from tests.ledger.model import FATES, Attempt, Item, Model

STOPPED = (ItemState.IN_DOUBT, ItemState.FAILED)
OPEN = (ItemState.PENDING, ItemState.RUNNING)
Step = tuple[Any, ...]  # its name and what it is done to
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Bounds:
    """How much may happen in one world, so that there is an end to it."""

    attempts: int  # of one item
    deaths: int
    wrong_verdicts: int  # living workers that are declared dead
    consents: int
    cancels: int
    fates: tuple[str, ...] = tuple(sorted(FATES))


class World:
    """Two workers, a sweeper that may be wrong, a person, and an endpoint that may do anything."""

    def __init__(self, model: Model, bounds: Bounds) -> None:
        self.model = model
        self.bounds = bounds
        self.workers = [1, 2]  # who may claim; a dead one has a successor with another number
        self.hired = 2
        self.held: tuple[tuple[int, int], ...] = ()  # (item, fence) in the hands of workers that live
        self.fallen: frozenset[int] = frozenset()  # dead, and not declared so yet
        self.shown: tuple[tuple[int, int], ...] = ()  # what the person saw last, which may be long ago
        self.deaths = self.wrong_verdicts = self.consents = self.cancels = 0

    def copy(self) -> "World":
        """Return a world of its own that stands where this one stands."""
        new = _copy(self)
        model = new.model = _copy(self.model)
        model.items = [_copy_item(item) for item in model.items]
        model.dead = set(model.dead)
        new.workers = list(self.workers)
        return new

    def attempt(self, of: tuple[int, int]) -> Attempt:
        return self.model.items[of[0]].attempts[of[1]]

    # -- what can happen now ----------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """Name each step that can be taken now."""
        yield from self._of_workers()
        yield from self._of_sweepers()
        yield from self._of_the_person()

    def _of_workers(self) -> Iterator[Step]:
        if self.model.state == "in_progress":
            for number, item in enumerate(self.model.items):
                if item.state in OPEN and len(item.attempts) < self.bounds.attempts:  # what runs it is refused
                    yield from (("claim", worker, number) for worker in self.workers if worker not in self.fallen)
        for held in self.held:
            attempt = self.attempt(held)
            if not attempt.is_marked:
                yield "mark", held
                yield "release", held
            elif attempt.fate is None:
                yield from (("send", held, fate) for fate in self.bounds.fates)
            else:
                yield "hear", held, True
                if attempt.fate != "not connected":
                    yield "hear", held, False  # it loses patience
        if self.deaths < self.bounds.deaths:
            yield from (("die", worker) for worker in self.workers if self._has_in_hand(worker))

    def _of_sweepers(self) -> Iterator[Step]:
        for worker in self.workers:
            may_err = self.wrong_verdicts < self.bounds.wrong_verdicts and self._has_in_hand(worker)
            if worker in self.fallen or may_err:
                yield "rescue", worker, False
            if worker in self.fallen:
                yield (
                    "rescue",
                    worker,
                    True,
                )  # by a sweeper of its host, where its lock is free
        for number, item in enumerate(self.model.items):
            for fence, attempt in item.attempts.items():
                if (number, fence) not in self.held and self._can_teach(attempt):
                    yield "learn", (number, fence)
        if self.model.on_unknown == "retry" and any(item.state in STOPPED for item in self.model.items):
            yield ("follow_policy",)

    def _of_the_person(self) -> Iterator[Step]:
        model = self.model
        seen = self._stopped()
        if seen and seen != self.shown:
            yield ("look",)
        if self.shown and self.consents < self.bounds.consents:
            yield ("consent",)
        if self.shown:
            yield ("give_up",)
        is_over = not any(item.state in OPEN for item in model.items)
        if model.state in ("in_progress", "cancelling") and is_over:
            yield ("end",)
        if model.state == "in_progress" and self.cancels < self.bounds.cancels and not is_over:
            yield ("cancel",)
        if model.state in ("completed", "cancelled") and any(
            item.state in (ItemState.CANCELLED, ItemState.PENDING) for item in model.items
        ):
            yield ("reopen",)

    def _stopped(self) -> tuple[tuple[int, int], ...]:
        return tuple((number, item.fence) for number, item in enumerate(self.model.items) if item.state in STOPPED)

    def _has_in_hand(self, worker: int) -> bool:
        return any(self.attempt(held).worker == worker for held in self.held) and worker not in self.fallen

    @staticmethod
    def _can_teach(attempt: Attempt) -> bool:
        is_open = attempt.state is AttemptState.INTENT or attempt.state is AttemptState.UNKNOWN
        return is_open and attempt.evidence.outcome not in (AttemptState.UNKNOWN, AttemptState.NOT_SENT)

    # -- taking a step ----------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Let one step happen."""
        name, *about = step
        getattr(self, f"_{name}")(*about)

    def _claim(self, worker: int, number: int) -> None:
        model = self.model
        model.now = max(model.now, model.items[number].ready_at)
        for claimed in model.claim([number], worker):
            self.held += ((claimed, model.items[claimed].fence),)

    def _mark(self, held: tuple[int, int]) -> None:
        self.model.mark(*held)

    def _send(self, held: tuple[int, int], fate: str) -> None:
        self.attempt(held).fate = fate

    def _hear(self, held: tuple[int, int], is_told: bool) -> None:
        attempt = self.attempt(held)
        what = attempt.evidence if is_told else UNKNOWN
        self.model.record(held[0], held[1], what, by=attempt.worker, tries=attempt.tries_before)
        self._let_go(held)

    def _release(self, held: tuple[int, int]) -> None:
        self.model.release(*held, self.attempt(held).worker)
        self._let_go(held)

    def _let_go(self, *gone: tuple[int, int]) -> None:
        self.held = tuple(held for held in self.held if held not in gone)

    def _die(self, worker: int) -> None:
        """It dies. What it had not sent is never sent; nobody knows yet."""
        self.deaths += 1
        self.fallen |= {worker}
        self._let_go(*(held for held in self.held if self.attempt(held).worker == worker))

    def _rescue(self, worker: int, sees_marks: bool) -> None:
        """It is declared dead, rightly or not, and has a successor. If it lives it still holds what it has in hand."""
        if worker not in self.fallen:
            self.wrong_verdicts += 1
        self.model.rescue(worker, sees_marks=sees_marks)
        self.model.dead.add(worker)
        self.fallen -= {worker}
        self.hired += 1
        self.workers[self.workers.index(worker)] = self.hired

    def _learn(self, lost: tuple[int, int]) -> None:
        """A spool is read, or a look-up finds the reply."""
        attempt, item = self.attempt(lost), self.model.items[lost[0]]
        counted = item.tries if attempt.state is AttemptState.INTENT else max(0, item.tries - 1)
        tries = replace(attempt.tries_before, counted=counted, throttled_s=item.throttled_s)
        self.model.record(*lost, attempt.evidence, by=attempt.worker, tries=tries)

    def _follow_policy(self) -> None:
        self.model.retry_by_policy()

    def _look(self) -> None:
        self.shown = self._stopped()

    def _consent(self) -> None:
        self.consents += 1
        self.model.consent(list(self.shown))

    def _give_up(self) -> None:
        self.model.give_up(list(self.shown))

    def _cancel(self) -> None:
        self.cancels += 1
        self.model.cancel_pending()
        self.model.state, self.model.was_cancelled = "cancelling", True

    def _end(self) -> None:
        self.model.state = "cancelled" if self.model.was_cancelled else "completed"

    def _reopen(self) -> None:
        self.model.state, self.model.was_cancelled = "in_progress", False
        self.model.reopen_cancelled()

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Fail where the promise is broken, or the books do not add up."""
        self.model.check_truth()
        for item in self.model.items:
            billed = sum(attempt.is_billed for attempt in item.attempts.values())
            if self.model.on_unknown == "hold":
                assert billed <= 1 + item.consents + item.reasks, "a silent second bill"
            self._check_states(item)

    def _check_states(self, item: Item) -> None:
        """What an item's state says must be true of its attempts."""
        heard = {fence: one for fence, one in item.attempts.items() if one.state is AttemptState.ANSWERED}
        is_answered = any(one.evidence.evidence.cause is None for one in heard.values())  # by one that is valid
        assert (item.state is ItemState.COMPLETED) == is_answered, "a lost answer"
        assert item.answer is None or item.answer in heard
        assert item.answer is None or item.state in (ItemState.COMPLETED, ItemState.FAILED)
        assert not is_answered or item.answer is not None, "completed by nothing"
        if item.state is ItemState.RUNNING:
            assert item.attempts[item.fence].state is AttemptState.INTENT, "running without an open intent"
        doubts = [one for one in item.attempts.values() if one.state is AttemptState.UNKNOWN]
        assert item.state is not ItemState.IN_DOUBT or doubts, "in doubt without a doubtful attempt"
        for one in item.attempts.values():
            assert one.state is not AttemptState.NOT_SENT or one.fate in (None, "not connected"), "called unsent"
            assert one.fate is None or one.charge is not Charge.NONE or not one.is_billed, "a bill that is called free"

    @property
    def is_settled(self) -> bool:
        """True where nothing waits for anything but a person, or the world's bounds forbid another attempt."""
        return all(
            item.state not in OPEN or (item.state is ItemState.PENDING and len(item.attempts) >= self.bounds.attempts)
            for item in self.model.items
        )

    def key(self) -> Key:
        """Return what makes this world another than the next. Times do not: every wait is over at the next claim.

        Workers are named by the order in which they first claimed, so that worlds that differ in names only are one.
        """
        names: dict[int, int] = {}
        made = tuple(self._of_item(number, item, names) for number, item in enumerate(self.model.items))
        hands = tuple(sorted((names.get(worker, -1), worker in self.fallen) for worker in self.workers))
        budgets = (self.deaths, self.wrong_verdicts, self.consents, self.cancels)
        job = (self.model.state, self.model.was_cancelled)
        return made, hands, tuple(sorted(self.held)), self.shown, budgets, job

    def _of_item(self, number: int, item: Item, names: dict[int, int]) -> Key:
        attempts = tuple(self._of_attempt((number, fence), one, names) for fence, one in item.attempts.items())
        owner = None if item.worker is None else names.setdefault(item.worker, len(names))
        account = (item.tries, item.throttled_s, item.reasks, item.consents, item.permits)
        account += (item.answer, item.by_useless_answer)
        return item.state, item.fence, owner, account, attempts

    def _of_attempt(self, of: tuple[int, int], one: Attempt, names: dict[int, int]) -> Key:
        """Leave out what cannot matter any more once an outcome is known and nobody has it in hand."""
        if of in self.held:
            name = names.setdefault(one.worker, len(names))
            return of[1], one.state, one.charge, one.is_marked, one.fate, name, one.tries_before
        if one.state is AttemptState.INTENT:
            return of[1], one.state, one.is_marked, one.fate, names.setdefault(one.worker, len(names))
        return of[1], one.state, one.charge, one.is_billed, self._can_teach(one) and one.fate


def _copy(one: Any) -> Any:
    """Return a shallow copy; a quarter of what copy.copy costs, and this is done most of all."""
    new = object.__new__(type(one))
    new.__dict__.update(one.__dict__)
    return new


def _copy_item(item: Item) -> Item:
    new: Item = _copy(item)
    new.attempts = {fence: _copy(attempt) for fence, attempt in item.attempts.items()}
    return new
