"""Every state that one item can reach between two workers, two crashes, a sweeper that errs and a person who consents.

PROOF_WHOLE=1 looks at more attempts and more fates (minutes).
"""

from collections.abc import Callable
from typing import Any

import pytest

from batchrun.core.states import AttemptState, ItemState
from tests.ledger.desk import NOW
from tests.ledger.model import Item, Model
from tests.proof.every_state import explore
from tests.proof.scale import IS_WHOLE
from tests.proof.world import Bounds, World

# What an endpoint does comes down to these, as far as the books go: paid and told, paid and useless, the server's own
# "no", paid and never told, never begun.
FATES = ("answered", "useless", "failed", "lost and billed", "not connected")
SMALL = Bounds(attempts=2, deaths=1, wrong_verdicts=1, consents=1, cancels=0, fates=FATES)
DEEP = Bounds(attempts=3, deaths=2, wrong_verdicts=1, consents=1, cancels=0, fates=("answered", "lost and billed"))
CANCELLED = Bounds(attempts=2, deaths=1, wrong_verdicts=0, consents=1, cancels=1, fates=("answered", "lost and billed"))
WHOLE_ONLY = pytest.mark.skipif(not IS_WHOLE, reason="takes minutes: make proof")
WHOLE = Bounds(attempts=3, deaths=2, wrong_verdicts=1, consents=2, cancels=1, fates=FATES)


def world_of(bounds: Bounds, on_unknown: str = "hold", model: Callable[..., Model] = Model) -> World:
    return World(model([Item(ready_at=NOW)], on_unknown, 1, NOW), bounds)


@pytest.mark.parametrize(
    ("bounds", "on_unknown"),
    [
        pytest.param(SMALL, "hold", id="every fate"),
        pytest.param(DEEP, "hold", id="two crashes"),
        pytest.param(CANCELLED, "hold", id="a cancelled job"),
        pytest.param(CANCELLED, "retry", id="a standing consent"),
        pytest.param(SMALL, "retry", id="a standing consent and every fate", marks=WHOLE_ONLY),
        pytest.param(WHOLE, "hold", id="all of it", marks=WHOLE_ONLY),
    ],
)
def test_no_state_bills_in_silence_and_from_each_there_is_a_way_to_an_end(bounds: Bounds, on_unknown: str) -> None:
    explored = explore(world_of(bounds, on_unknown))
    assert explored.fault is None, "\n".join([explored.fault, *map(str, explored.way)])
    assert explored.settled > 100  # it has gone somewhere
    print(f"{explored.states:,} states, {explored.moves:,} moves")


# -- a rule that is taken away is missed ------------------------------------------------------------------------------


class RescueGivesPending(Model):
    """Rescue sends the item again: its owner may have sent it."""

    def rescue(self, worker: int, **how: Any) -> None:
        mine = [item for item in self.items if item.state is ItemState.RUNNING and item.worker == worker]
        super().rescue(worker, **how)
        for item in mine:
            item.state = ItemState.PENDING


class ClaimTakesWhatRuns(Model):
    """Claim does not look at the state that it moves from."""

    def claim(self, numbers: list[int], worker: int) -> list[int]:
        for number in numbers:
            if self.items[number].state is ItemState.RUNNING:
                self.items[number].state = ItemState.PENDING
        return super().claim(numbers, worker)


class ConsentIgnoresTheFence(Model):
    """A consent that was given for one doubt is good for the next as well."""

    def consent(self, shown: list[tuple[int, int]]) -> int:
        consents = [item.consents for item in self.items]
        moved = super().consent([(number, self.items[number].fence) for number, _ in shown])
        for item, before in zip(self.items, consents, strict=True):
            item.consents = min(item.consents, max(before, 1))  # one was given
        return moved


class LateOwnersMoveTheItem(Model):
    """Settling does not look at the fence: a late owner's failure moves an item that another has in hand."""

    def record(self, number: int, fence: int, what: Any, **how: Any) -> str:
        item = self.items[number]
        if item.state is ItemState.RUNNING and item.fence != fence:
            fenced, item.fence, item.worker = item.fence, fence, how["by"]
            said = super().record(number, fence, what, **how)
            item.fence = fenced
            return said
        return super().record(number, fence, what, **how)


class PaidAnswersAreDropped(Model):
    """Whoever comes late is not heard: a paid answer is lost."""

    def record(self, number: int, fence: int, what: Any, **how: Any) -> str:
        item = self.items[number]
        if item.state is not ItemState.RUNNING and what.outcome is AttemptState.ANSWERED:
            item.attempts[fence].state = AttemptState.ANSWERED
            return "recorded"
        return super().record(number, fence, what, **how)


class DoubtsCountAsUnsent(Model):
    """A dead worker's attempts are called unsent."""

    def rescue(self, worker: int, **how: Any) -> None:
        super().rescue(worker, **how)
        for item in self.items:
            for attempt in item.attempts.values():
                if attempt.worker == worker and attempt.state is AttemptState.UNKNOWN:
                    attempt.state = AttemptState.NOT_SENT


class MarksOfTheLivingAreTrusted(Model):
    """Whoever is declared dead is not looked for on its host: it may send what it has not marked yet."""

    def rescue(self, worker: int, **how: Any) -> None:
        super().rescue(worker, sees_marks=True)


class MarksComeLate(Model):
    """A request is marked when its answer comes: what was sent before looks as if it never began."""

    def rescue(self, worker: int, **how: Any) -> None:
        for item in self.items:
            for attempt in item.attempts.values():
                attempt.is_marked = attempt.is_marked and attempt.state is not AttemptState.INTENT
        super().rescue(worker, **how)


class NobodyRescues(Model):
    """A dead worker's items stay with it."""

    def rescue(self, worker: int, **how: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (RescueGivesPending, "a silent second bill"),
        (ClaimTakesWhatRuns, "a silent second bill"),
        (ConsentIgnoresTheFence, "a silent second bill"),
        (LateOwnersMoveTheItem, ""),
        (PaidAnswersAreDropped, "a lost answer"),
        (DoubtsCountAsUnsent, "in doubt without a doubtful attempt"),
        (MarksOfTheLivingAreTrusted, ""),
        (MarksComeLate, ""),
        (NobodyRescues, "it never ends"),
    ],
)
def test_without_one_of_its_rules_the_promise_is_seen_to_break(broken: type[Model], fault: str) -> None:
    bounds = Bounds(
        attempts=3, deaths=1, wrong_verdicts=1, consents=2, cancels=0, fates=("answered", "lost and billed")
    )
    explored = explore(world_of(bounds, model=broken))
    assert explored.fault is not None, "nobody noticed"
    assert fault in explored.fault, explored.way
    assert explored.way
