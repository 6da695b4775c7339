"""When to stop a job: what hits every item must not burn through the whole input."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from batchrun.core.outcome import Evidence, Scope
from batchrun.core.states import AttemptState, ItemState

HANDFUL = 3  # refusals of different items that make a refusal everyone's
FIRST_IN_A_ROW = 12
# A refusal that may be about this item's own model, not about the key or the address.
_MAYBE_OWN = frozenset({"forbidden", "model_not_found"})
ROUTE = "route_not_found"
# Refusals that are certainly about this very prompt, however many come in a row.
_CERTAINLY_OWN = frozenset({"context_length", "content_filter", "too_large", "too_large_for_tpm"})


@dataclass(frozen=True, slots=True)
class Trip:
    """A reason to stop the job. Its items stay pending; `resume` goes on."""

    reason: str
    message: str
    exit_code: int


def all_out(out: Sequence[tuple[str, Trip]]) -> Trip:
    """Return why a job must stop of which every endpoint is out: one reason that names each."""
    trips = [trip for _, trip in out]
    if len(out) == 1:
        return trips[0]
    # The reason of them all, or of the last one: with it nothing was left.
    exit_code = trips[0].exit_code if len({trip.exit_code for trip in trips}) == 1 else 5
    words = "; ".join(f"{address}: {trip.message}" for address, trip in out)
    return Trip(trips[-1].reason, f"no endpoint is left: {words}", exit_code)


@dataclass
class FailureLimit:
    """Counts a job's failed items against `fail_on_error`."""

    total: int
    fail_on_error: float | None = None  # a share (below 1) or a count
    failed: int = 0  # those of earlier runs among them

    def saw(self, evidence: Evidence, to: ItemState) -> Trip | None:
        """Take note of one attempt; return why the job must stop, if it must."""
        if to is not ItemState.FAILED or evidence.scope in (Scope.THROTTLE, Scope.UNREACHABLE):
            return None
        self.failed += 1
        limit = self.fail_on_error
        if limit is None or self.failed < (limit * self.total if limit < 1 else limit):
            return None
        unit = f"{limit:.1%} of the items" if limit < 1 else f"{int(limit)} items"
        return Trip("fail_on_error", f"{self.failed} items failed; fail_on_error stops at {unit}", 5)


@dataclass
class Breaker:
    """Watches what the requests to one endpoint come to, in one run of one job."""

    concurrency: int
    model: str | None = None  # the job's; a line may name another one
    answers: int = 0
    has_looked_back: bool = False
    _routes: set[str] = field(default_factory=set)  # that gave answers
    _refused: dict[int, int] = field(default_factory=dict)  # item -> refusals of everyone's kind since the last answer
    _refused_before: set[int] = field(default_factory=set)
    _row: set[int] = field(default_factory=set)  # items that went wrong since the last answer

    @property
    def in_a_row(self) -> int:
        return max(FIRST_IN_A_ROW, self.concurrency)

    @property
    def refused(self) -> set[int]:
        """Items whose refusal may be everyone's: asking for them again shows less than asking for others."""
        return set(self._refused)

    def look_back(self, routes: Collection[str]) -> None:
        """Take note of the routes on which the same endpoint has answered items of this job in earlier runs."""
        self.has_looked_back = True
        self._routes.update(routes)
        self.answers = self.answers or len(routes)

    def is_own_fault(self, item_id: int, evidence: Evidence, *, path: str, model: str | None = None) -> bool:
        """Say whether a refusal is this item's own fault: others are answered, and it is refused again.

        A route that the endpoint does not know, while it answers on others, is the fault of the lines that name it; and
        so is a model that is unknown or forbidden, where it is not the job's.
        """
        if evidence.cause == ROUTE:
            return bool(self._routes) and path not in self._routes
        if evidence.cause not in _MAYBE_OWN or not self.answers:
            return False
        return item_id in self._refused_before or model not in (None, self.model)

    def saw(self, item_id: int, evidence: Evidence, to: ItemState, *, path: str) -> Trip | None:
        """Take note of one attempt; return why the job must stop, if it must."""
        if evidence.outcome is AttemptState.ANSWERED:
            self.answers += 1
            self._routes.add(path)
            self._refused.clear()
            if evidence.cause is None:
                self._row.clear()
                return None
        if evidence.scope is Scope.EVERYONE and to is not ItemState.FAILED:
            return self._refusal(item_id, evidence)
        if evidence.scope in (Scope.THROTTLE, Scope.UNREACHABLE):
            return None
        if evidence.cause == ROUTE or evidence.cause in _CERTAINLY_OWN:
            return None
        self._row.add(item_id)
        if len(self._row) >= self.in_a_row:
            message = f"{len(self._row)} items in a row went wrong, the last one: {evidence.message}"
            return Trip("failures_in_a_row", message, 5)
        return None

    def _refusal(self, item_id: int, evidence: Evidence) -> Trip | None:
        self._refused_before.add(item_id)
        self._refused[item_id] = self._refused.get(item_id, 0) + 1
        is_everyones = len(self._refused) >= HANDFUL or (
            sum(self._refused.values()) >= HANDFUL and not (self.answers and evidence.cause in _MAYBE_OWN)
        )
        if not is_everyones:
            return None
        exit_code = 4 if evidence.cause in ("auth", "forbidden") else 5
        return Trip(str(evidence.cause), str(evidence.message), exit_code)
