"""Comparing two measurements, or two jobs with their answers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from batchrun.bench.job import JobFacts
from batchrun.bench.subject import Subject
from batchrun.core.measuring.answers import AnswerPair, AnswerTally, pair_of
from batchrun.core.measuring.comparison import (
    Break,
    FigurePair,
    Limit,
    Side,
    broken_limits,
    differences_of,
    pair_up,
)
from batchrun.core.measuring.ladder import Range
from batchrun.core.states import ItemState
from batchrun.errors import UsageFault
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import answered_by_name, stream_results

CHUNK = 500
JOB_FIGURES = ("cost_usd", "failed_share")  # that only jobs have


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, and how they differ."""

    a: Side
    b: Side
    differences: Sequence[str]  # in what they were not asked the same
    pairs: Sequence[FigurePair]
    answers: AnswerTally | None  # of two jobs
    broken: Sequence[Break]

    @property
    def rounds(self) -> int:
        """The least rounds of any load that is compared."""
        return min((found.rounds for pair in self.pairs for found in (pair.a, pair.b) if found), default=0)


def compare(
    first: Subject,
    second: Subject | None,
    *,
    limits: Sequence[Limit] = (),
    is_forced: bool = False,
    ledger: Ledger | None = None,
    each: Callable[[AnswerPair], None] = lambda pair: None,
) -> Comparison:
    """Put two subjects side by side, or the two groups of one.

    Args:
        is_forced: compare them though they were not asked the same.
        ledger: of the jobs, for their answers.
        each: called with each pair of answers.

    Raises:
        UsageFault: there are no two sides, or they were not asked the same.
    """
    a, b = _sides(first, second)
    differences = [*differences_of(a, b), *_inputs(first.facts, second.facts if second else None)]
    if differences and not is_forced:
        raise UsageFault(
            f"{a.name!r} and {b.name!r} were not asked the same: {'; '.join(differences)}",
            hint="measure both alike, or compare them all the same with --force",
        )
    told = [*pair_up(a, b), *pair_up(a, b, figures=[one.figure for one in limits])]
    pairs = list(dict.fromkeys(told))
    if not pairs:
        raise UsageFault(f"{a.name!r} and {b.name!r} have no load in common", hint="measure both at the same levels")
    pairs += _job_pairs(first.facts, second.facts if second else None, pairs[0])
    answers = None
    if ledger is not None and first.facts and second and second.facts:
        answers = AnswerTally()
        for pair in answers.count(answer_pairs(ledger, first.facts.job.id, second.facts.job.id)):
            each(pair)
    return Comparison(a, b, differences, pairs, answers, broken_limits(limits, pairs))


def answer_pairs(ledger: Ledger, a: int, b: int) -> Iterator[AnswerPair]:
    """Yield the answers of two jobs side by side: A's in input order, then those that B alone has."""
    yield from _one_side(ledger, a, b)
    for pair in _one_side(ledger, b, a):
        if pair.verdict == "only_a":
            yield AnswerPair(pair.custom_id, "only_b", None, pair.a)


def _one_side(ledger: Ledger, a: int, b: int) -> Iterator[AnswerPair]:
    rows = stream_results(ledger, a, states=[ItemState.COMPLETED])
    while chunk := list(islice(rows, CHUNK)):
        with ledger.read() as connection:
            theirs = answered_by_name(connection, b, [row.custom_id for row in chunk])
        for row in chunk:
            if row.raw is not None:
                yield pair_of(row.custom_id, bytes(row.raw), _bytes(theirs.get(row.custom_id)))


def _bytes(raw: bytes | memoryview | None) -> bytes | None:
    return None if raw is None else bytes(raw)


def _sides(first: Subject, second: Subject | None) -> tuple[Side, Side]:
    ours = _groups(first)
    if second is None:
        if len(ours) != 2:
            raise UsageFault(
                f"{first.name!r} measured {len(ours)} group{'' if len(ours) == 1 else 's'}, and two are compared",
                hint="name a second result or job",
            )
        return ours[0], ours[1]
    theirs = _groups(second)
    if len(ours) != 1 or len(theirs) != 1:
        raise UsageFault(
            f"{first.name!r} and {second.name!r} hold {len(ours)} and {len(theirs)} groups: one of each is compared",
            hint=f"compare the groups of one result: batchrun compare {first.name if len(ours) > 1 else second.name}",
        )
    return ours[0], theirs[0]


def _groups(subject: Subject) -> list[Side]:
    measurement = subject.measurement
    several = len(measurement.setup.groups) > 1
    return [
        Side(
            group.name if several else subject.name,
            group,
            measurement.setup,
            tuple(load for load in measurement.loads if load.group == group.name),
        )
        for group in measurement.setup.groups
    ]


def _inputs(a: JobFacts | None, b: JobFacts | None) -> list[str]:
    """Say whether two jobs had another input, though of one name."""
    if a is None or b is None or a.job.input_digest == b.job.input_digest:
        return []
    return ["the inputs' contents"]


def _job_pairs(a: JobFacts | None, b: JobFacts | None, beside: FigurePair) -> list[FigurePair]:
    """Return what only jobs have, cost and failed items, of the load that another figure is of."""
    if a is None or b is None:
        return []

    def cost(facts: JobFacts) -> Range | None:
        return None if facts.receipt.price is None else _one(facts.receipt.total.certain_pusd / 1e12)

    def failed(facts: JobFacts) -> Range | None:
        bad = facts.counts[ItemState.FAILED] + facts.counts[ItemState.IN_DOUBT]
        return _one(bad / facts.job.total) if facts.job.total else None

    return [
        FigurePair(beside.level, beside.max_tokens, name, figure(a), figure(b))
        for name, figure in zip(JOB_FIGURES, (cost, failed), strict=True)
    ]


def _one(value: float) -> Range:
    return Range(1, value, value, value)
