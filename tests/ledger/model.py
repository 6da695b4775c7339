"""A small model of the ledger, made from BILLING.md and not from the code, and the truth behind it.

The model says where each item must stand. The truth says what the endpoint did with each request: what it billed is
compared with what the ledger calls certain and possible.
"""

from dataclasses import dataclass, field

from batchrun.core.outcome import Charge
from batchrun.core.retry import Tries, decide
from batchrun.core.states import AttemptState, ItemState
from tests.ledger.desk import (
    ANSWERED,
    ANSWERED_BLIND,
    INVALID,
    NOT_SENT,
    REFUSED,
    SERVER_ERROR,
    THROTTLED,
    UNKNOWN,
    UNUSABLE,
    UNUSABLE_PAID,
    WORST_PUSD,
    Came,
    policy,
)

# What an endpoint may do with a request: what whoever learns of it learns, and whether it is billed.
FATES: dict[str, tuple[Came | None, bool]] = {
    "answered": (ANSWERED, True),
    "answered without usage": (ANSWERED_BLIND, True),
    "answered with something invalid": (INVALID, True),
    "useless": (UNUSABLE, True),
    "useless and free": (UNUSABLE, False),
    "useless and priced": (UNUSABLE_PAID, True),
    "refused": (REFUSED, False),
    "failed": (SERVER_ERROR, False),
    "throttled": (THROTTLED, False),
    "not connected": (NOT_SENT, False),
    "lost and billed": (None, True),
    "lost and free": (None, False),
}


@dataclass
class Attempt:
    """One request: what the ledger must say of it, and what truly became of it."""

    worker: int
    tries_before: Tries
    state: AttemptState = AttemptState.INTENT
    charge: Charge = Charge.POSSIBLE
    cost: int = 0
    reserved: int = WORST_PUSD
    fate: str | None = None  # None: it has not left
    is_marked: bool = False  # it has begun: it may leave at any moment

    @property
    def is_billed(self) -> bool:
        return self.fate is not None and FATES[self.fate][1]

    @property
    def evidence(self) -> Came:
        """What can be learnt of it at best."""
        return (FATES[self.fate][0] if self.fate else None) or UNKNOWN


@dataclass
class Item:
    """One item as the ledger must have it."""

    state: ItemState = ItemState.PENDING
    fence: int = 0
    worker: int | None = None
    tries: int = 0
    throttled_s: float = 0.0
    reasks: int = 0
    consents: int = 0
    permits: int = 1  # the bills that were agreed to: the first, each consent, each resend under the policy
    answer: int | None = None
    ready_at: float = 0.0
    by_useless_answer: bool = False  # failed for one, which the policy may send again
    attempts: dict[int, Attempt] = field(default_factory=dict)  # by fence


@dataclass
class Model:
    """A job of a few items."""

    items: list[Item]
    on_unknown: str
    retry_times: int
    now: float
    limit: int | None = None
    state: str = "in_progress"
    was_cancelled: bool = False
    is_purged: bool = False
    dead: set[int] = field(default_factory=set)

    @property
    def spent(self) -> int:
        return sum(attempt.cost for item in self.items for attempt in item.attempts.values())

    @property
    def reserved(self) -> int:
        return sum(attempt.reserved for item in self.items for attempt in item.attempts.values())

    # -- verbs ------------------------------------------------------------------------------------------------------

    def claim(self, numbers: list[int], worker: int) -> list[int]:
        """Claim what may be claimed; return the numbers."""
        left = None if self.limit is None else self.limit - self.spent - self.reserved
        claimed = []
        for number in sorted(numbers):
            item = self.items[number]
            if left is not None and item.state is ItemState.PENDING:
                left -= WORST_PUSD
            if left is not None and left < 0:
                break
            if self.state != "in_progress" or worker in self.dead:
                continue
            if item.state is ItemState.PENDING and item.ready_at <= self.now:
                item.state, item.worker, item.fence = ItemState.RUNNING, worker, item.fence + 1
                item.attempts[item.fence] = Attempt(worker, Tries(item.tries, item.throttled_s, item.reasks))
                claimed.append(number)
        return claimed

    def record(self, number: int, fence: int, what: Came, *, by: int, tries: Tries) -> str:
        """Write one attempt's outcome down and move its item; return what the ledger must call it."""
        item, attempt = self.items[number], self.items[number].attempts[fence]
        if attempt.state is what.outcome:
            return "repeated"
        ends_doubt = attempt.state is AttemptState.UNKNOWN and what.outcome is not AttemptState.NOT_SENT
        if attempt.state is not AttemptState.INTENT and not ends_doubt:
            return "recorded"
        was_doubt = attempt.state is AttemptState.UNKNOWN
        self._price(attempt, what)
        if item.state is ItemState.RUNNING and (item.fence, item.worker) == (fence, by):
            item.worker = None
            self._follow(item, fence, what, tries, undo=0)
            return "moved"
        if what.outcome is AttemptState.ANSWERED and what.evidence.cause is None:
            if item.answer is not None and item.state is not ItemState.FAILED:
                return "recorded"
            item.state, item.answer, item.worker = ItemState.COMPLETED, fence, None
            item.fence += 1
            return "adopted"
        is_its_doubt = item.state is ItemState.IN_DOUBT and max(item.attempts) == fence
        if was_doubt and is_its_doubt and what.outcome in _TOLD:
            self._follow(item, fence, what, tries, undo=1)
            item.fence += 1
            return "corrected"
        return "recorded"

    def _price(self, attempt: Attempt, what: Came) -> None:
        attempt.state, attempt.charge = what.outcome, what.evidence.charge
        attempt.cost = what.cost_pusd or 0
        is_settled = what.evidence.charge is Charge.NONE or what.cost_pusd is not None
        attempt.reserved = 0 if is_settled else WORST_PUSD

    def _follow(self, item: Item, fence: int, what: Came, tries: Tries, *, undo: int) -> None:
        """Move an item as the policy says; `undo` takes back what a doubt had counted."""
        may_be_paid = (AttemptState.UNKNOWN, AttemptState.UNUSABLE, AttemptState.ANSWERED)
        decision = decide(what.evidence, tries, policy(self.on_unknown, self.retry_times))
        item.tries += decision.counted - undo
        to, wait_s, throttled_s = decision.to, decision.wait_s, decision.throttled_s
        if to is ItemState.PENDING and (self.was_cancelled or self.is_purged):
            may_be_billed = dict.fromkeys((AttemptState.UNUSABLE, AttemptState.ANSWERED), ItemState.FAILED)
            may_be_billed[AttemptState.UNKNOWN] = ItemState.IN_DOUBT
            otherwise = ItemState.CANCELLED if self.was_cancelled else ItemState.FAILED
            to, wait_s, throttled_s = may_be_billed.get(what.outcome, otherwise), 0.0, 0.0
        if to is ItemState.PENDING and what.outcome in may_be_paid:
            item.permits += 1
            item.reasks += what.outcome is AttemptState.ANSWERED
        item.throttled_s += throttled_s
        item.state, item.ready_at = to, self.now + wait_s
        is_kept = what.outcome is AttemptState.ANSWERED and to is not ItemState.PENDING
        item.answer = fence if is_kept else None
        item.by_useless_answer = to is ItemState.FAILED and what.outcome is AttemptState.UNUSABLE and not undo

    def release(self, number: int, fence: int, worker: int) -> None:
        item, attempt = self.items[number], self.items[number].attempts[fence]
        if attempt.state is not AttemptState.INTENT:
            return
        attempt.state, attempt.charge, attempt.reserved = AttemptState.NOT_SENT, Charge.NONE, 0
        if item.state is ItemState.RUNNING and (item.fence, item.worker) == (fence, worker):
            item.state = ItemState.CANCELLED if self.was_cancelled else ItemState.PENDING
            item.worker, item.ready_at = None, self.now

    def mark(self, number: int, fence: int) -> None:
        self.items[number].attempts[fence].is_marked = True

    def rescue(self, worker: int, *, sees_marks: bool = False) -> None:
        for number, item in enumerate(self.items):
            for fence, attempt in item.attempts.items():
                if sees_marks and attempt.worker == worker and not attempt.is_marked:
                    self.release(number, fence, worker)
            if item.state is ItemState.RUNNING and item.worker == worker:
                item.state, item.worker = ItemState.IN_DOUBT, None
                item.fence, item.tries = item.fence + 1, item.tries + 1
            for attempt in item.attempts.values():
                if attempt.worker == worker and attempt.state is AttemptState.INTENT:
                    attempt.state = AttemptState.UNKNOWN

    def consent(self, shown: list[tuple[int, int]]) -> int:
        moved = 0
        for number, fence in shown:
            item = self.items[number]
            is_stopped = item.state in (ItemState.IN_DOUBT, ItemState.FAILED)
            if is_stopped and item.fence == fence and self.state != "cancelling" and not self.is_purged:
                item.state, item.ready_at, item.tries, item.throttled_s = ItemState.PENDING, self.now, 0, 0.0
                item.answer = None
                item.consents, item.permits, item.fence = item.consents + 1, item.permits + 1, fence + 1
                moved += 1
        return moved

    def give_up(self, shown: list[tuple[int, int]]) -> int:
        moved = 0
        for number, fence in shown:
            item = self.items[number]
            if item.state is ItemState.IN_DOUBT and item.fence == fence:
                item.state, item.fence, item.by_useless_answer = ItemState.FAILED, fence + 1, False
                moved += 1
        return moved

    def retry_by_policy(self) -> tuple[int, int]:
        if self.on_unknown != "retry" or self.was_cancelled or self.is_purged:
            return 0, 0
        retried = given_up = 0
        for item in self.items:
            is_doubt = item.state is ItemState.IN_DOUBT
            is_useless = item.state is ItemState.FAILED and item.by_useless_answer
            if (is_doubt or is_useless) and item.tries <= self.retry_times:
                item.state, item.ready_at, item.fence = ItemState.PENDING, self.now, item.fence + 1
                item.permits += 1
                retried += 1
            elif is_doubt:
                item.state, item.fence, item.by_useless_answer = ItemState.FAILED, item.fence + 1, False
                given_up += 1
        return retried, given_up

    def cancel_pending(self) -> int:
        pending = [item for item in self.items if item.state is ItemState.PENDING]
        for item in pending:
            item.state = ItemState.CANCELLED
        return len(pending)

    def reopen_cancelled(self) -> int:
        cancelled = [item for item in self.items if item.state is ItemState.CANCELLED and not self.is_purged]
        for item in cancelled:
            item.state, item.ready_at = ItemState.PENDING, self.now
        return len(cancelled)

    # -- truth ------------------------------------------------------------------------------------------------------

    def check_truth(self) -> None:
        """Fail unless the endpoint's bills lie between what is certain and what is certain or possible."""
        made = [attempt for item in self.items for attempt in item.attempts.values()]
        billed = sum(attempt.is_billed for attempt in made)
        certain = sum(attempt.charge is Charge.CERTAIN for attempt in made)
        possible = sum(attempt.charge is Charge.POSSIBLE for attempt in made)
        assert certain <= billed <= certain + possible
        arrived = [attempt for attempt in made if attempt.fate not in (None, "not connected")]
        told = [attempt for attempt in made if attempt.state in _TOLD]
        assert len(told) <= len(arrived) <= sum(attempt.state is not AttemptState.NOT_SENT for attempt in made)
        for item in self.items:
            bills = sum(attempt.is_billed for attempt in item.attempts.values())
            assert bills <= item.permits, "a silent second bill"


_TOLD = (AttemptState.ANSWERED, AttemptState.REFUSED, AttemptState.UNUSABLE)
