"""The state machine: every state of a job, an item and an attempt, and every legal move between them.

The ledger builds its statements' guards from these tables, and the drawing in docs/lifecycle.md is made from them.
"""

from dataclasses import dataclass
from enum import StrEnum


class ItemState(StrEnum):
    """Where an item stands. An item is in exactly one state at every instant."""

    PENDING = "pending"  # may be claimed once its wait has passed
    RUNNING = "running"  # claimed by a worker; its attempt row is durable before any byte leaves
    COMPLETED = "completed"  # answered; the raw answer is in the ledger
    FAILED = "failed"  # refused for good, useless or invalid answer, retries spent, given up; the reason is recorded
    IN_DOUBT = "in_doubt"  # a request left, or may have, and no answer is known
    REJECTED = "rejected"  # the input line is faulty and was skipped on request; never sent
    CANCELLED = "cancelled"  # cancelled before it was sent


class AttemptState(StrEnum):
    """What is known of one HTTP request. INTENT is an open question, every other state an outcome."""

    INTENT = "intent"  # durable, and from here on the request may have been sent
    NOT_SENT = "not_sent"  # certainly no byte left
    REFUSED = "refused"  # the server's own "no"
    ANSWERED = "answered"  # a complete, usable answer
    UNUSABLE = "unusable"  # complete but useless
    UNKNOWN = "unknown"  # sent, or perhaps sent, and no complete answer came

    @property
    def is_outcome(self) -> bool:
        """True where the question is answered, be it by "nobody knows"."""
        return self is not AttemptState.INTENT

    @property
    def was_sent(self) -> bool:
        """True where the request left, or may have left."""
        return self.is_outcome and self is not AttemptState.NOT_SENT

    @property
    def is_setback(self) -> bool:
        """True where it ended without an answer that is of use."""
        return self.is_outcome and self is not AttemptState.ANSWERED

    @property
    def needs_consent(self) -> bool:
        """True where it may be paid for and brought nothing: to send its item again may be to pay twice."""
        return self in (AttemptState.UNKNOWN, AttemptState.UNUSABLE)


class JobState(StrEnum):
    """Where a job stands: OpenAI Batch's words, and `paused`."""

    VALIDATING = "validating"  # its items are being written; nothing may be sent yet
    IN_PROGRESS = "in_progress"  # items may be claimed
    PAUSED = "paused"  # stopped for a recorded reason; `resume` goes on
    FINALIZING = "finalizing"  # no item is pending or running; the outputs are being written
    COMPLETED = "completed"  # the outputs are written; items may have failed or be in doubt
    FAILED = "failed"  # the registration could not be finished
    CANCELLING = "cancelling"  # nothing new is claimed; what runs finishes
    CANCELLED = "cancelled"  # cancelled, and the outputs are written


@dataclass(frozen=True, slots=True)
class ItemMove:
    """One legal move of an item: the guarded statement of the same name is the only way to make it."""

    name: str
    sources: frozenset[ItemState]
    targets: frozenset[ItemState]
    who: str
    guard: str


@dataclass(frozen=True, slots=True)
class JobMove:
    """One legal move of a job."""

    name: str
    sources: frozenset[JobState]
    target: JobState
    who: str
    guard: str


_I, _J = ItemState, JobState
_UNANSWERED = frozenset({_I.PENDING, _I.RUNNING, _I.FAILED, _I.IN_DOUBT, _I.CANCELLED})


def _item(
    name: str, sources: set[ItemState] | frozenset[ItemState], targets: set[ItemState], who: str, guard: str
) -> ItemMove:
    return ItemMove(name, frozenset(sources), frozenset(targets), who, guard)


def _job(name: str, sources: set[JobState], target: JobState, who: str, guard: str) -> JobMove:
    return JobMove(name, frozenset(sources), target, who, guard)


ITEM_MOVES: dict[str, ItemMove] = {
    move.name: move
    for move in (
        _item(
            "claim",
            {_I.PENDING},
            {_I.RUNNING},
            "worker",
            "job in progress, wait passed, money reserved; intent in the same commit",
        ),
        _item(
            "copy",
            {_I.PENDING},
            {_I.COMPLETED},
            "worker",
            "the job has a cache, and the same request its answer; as for a claim, but nothing is sent; fence + 1",
        ),
        _item(
            "settle",
            {_I.RUNNING},
            {_I.COMPLETED, _I.FAILED, _I.IN_DOUBT, _I.PENDING, _I.CANCELLED},
            "owner",
            "fence; outcome, answer, usage and cost in the same commit",
        ),
        _item(
            "replay",
            {_I.IN_DOUBT},
            {_I.RUNNING},
            "user, holding the job",
            "the endpoint honours the doubt's key; same address and account, within retention; fence + 1, new intent",
        ),
        _item("release", {_I.RUNNING}, {_I.PENDING, _I.CANCELLED}, "owner", "fence; claimed ahead and not sent"),
        _item(
            "rescue",
            {_I.RUNNING},
            {_I.IN_DOUBT, _I.PENDING, _I.CANCELLED},
            "sweeper",
            "owner dead; in doubt, fence + 1, unless its marks prove that the request never began",
        ),
        _item(
            "adopt",
            _UNANSWERED,
            {_I.COMPLETED},
            "late owner, spool, look-up, import",
            "evidence of that attempt; no answer yet; fence + 1",
        ),
        _item(
            "correct",
            {_I.IN_DOUBT},
            {_I.FAILED, _I.PENDING, _I.CANCELLED},
            "late owner, spool, look-up",
            "a late refusal, useless or invalid answer of the attempt in doubt; fence + 1",
        ),
        _item(
            "consent",
            {_I.IN_DOUBT, _I.FAILED},
            {_I.PENDING},
            "user",
            "exactly the (item, fence) pairs that were shown; fence + 1",
        ),
        _item(
            "policy_retry",
            {_I.IN_DOUBT, _I.FAILED},
            {_I.PENDING},
            "sweeper, resume",
            "on_unknown is retry, the job not cancelled; tries left since the last consent; fence + 1",
        ),
        _item(
            "give_up", {_I.IN_DOUBT}, {_I.FAILED}, "user, sweeper", "fence + 1; skipped by retry-failed unless --all"
        ),
        _item(
            "revalidate",
            {_I.COMPLETED, _I.FAILED},
            {_I.FAILED, _I.COMPLETED},
            "user",
            "the same stored answer, judged anew; failed: for an invalid answer alone; fence + 1",
        ),
        _item("cancel", {_I.PENDING}, {_I.CANCELLED}, "user", "running items finish first"),
        _item("reopen", {_I.CANCELLED}, {_I.PENDING}, "user", "resume --cancelled"),
    )
}

JOB_MOVES: dict[str, JobMove] = {
    move.name: move
    for move in (
        _job(
            "restart",
            {_J.VALIDATING, _J.FAILED},
            _J.VALIDATING,
            "submit",
            "a registration that died or failed is made anew; none of its items was ever claimable",
        ),
        _job("open", {_J.VALIDATING}, _J.IN_PROGRESS, "submit", "every item is written"),
        _job("fail", {_J.VALIDATING}, _J.FAILED, "submit", "the registration could not be finished"),
        _job("pause", {_J.IN_PROGRESS}, _J.PAUSED, "user, breaker, gate", "carries its reason"),
        _job("resume", {_J.PAUSED}, _J.IN_PROGRESS, "user, probe", "a probe lifts only its own pause"),
        _job("finalize", {_J.IN_PROGRESS, _J.CANCELLING}, _J.FINALIZING, "holder", "no item pending or running"),
        _job("complete", {_J.FINALIZING}, _J.COMPLETED, "holder", "outputs renamed into place; never cancelled"),
        _job("cancel", {_J.IN_PROGRESS, _J.PAUSED}, _J.CANCELLING, "user", "pending items become cancelled"),
        _job("close", {_J.FINALIZING}, _J.CANCELLED, "holder", "outputs renamed into place; was cancelled"),
        _job(
            "rewrite",
            {_J.COMPLETED, _J.CANCELLED},
            _J.FINALIZING,
            "user, sweeper",
            "a doubt was settled, or answers were judged anew, after the end: the outputs are written anew; what was "
            "cancelled stays so; not purged",
        ),
        _job(
            "reopen",
            {_J.COMPLETED, _J.CANCELLED, _J.FINALIZING},
            _J.IN_PROGRESS,
            "user",
            "items became pending again: retry-failed, reconcile, resume --cancelled, --accept-changes; not purged",
        ),
    )
}

FINAL_JOB_STATES = frozenset({_J.COMPLETED, _J.CANCELLED, _J.FAILED})


def is_final(state: ItemState) -> bool:
    """Say whether an item in `state` needs nothing more in this run (a doubt waits for `reconcile`)."""
    return state not in (ItemState.PENDING, ItemState.RUNNING)
