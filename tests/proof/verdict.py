"""The judge: what holds of a job at its end, by the endpoint's own log, however many processes died on the way."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import select

from batchrun.core.states import FINAL_JOB_STATES, AttemptState, ItemState
from batchrun.errors import BatchrunError
from batchrun.ledger.schema import attempts, items, split_key
from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import standing_or_none

UNKNOWN_FAULTS = ("hang", "reset", "cut", "bad_json")


@dataclass
class Verdict:
    """What was seen of one job. `faults` is empty where every promise was kept."""

    has_ended: bool = False
    requests: int = 0
    billed: int = 0
    doubts: int = 0
    unkept_answers: int = 0  # of the doubts: billed, and the answer is not in the ledger
    silent_second_bills: int = 0
    lost_items: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What came of one run."""

    run: str
    deaths: int = 0
    hits: dict[str, int] = field(default_factory=dict)  # of points, in the process that was to die
    verdict: Verdict = field(default_factory=Verdict)
    took_s: float = 0.0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Time a run; where it breaks off, that is a fault of its verdict."""
        began = time.monotonic()
        try:
            yield
        except (AssertionError, TimeoutError, BatchrunError) as error:
            self.verdict.faults.append(f"{type(error).__name__}: {error}")
        self.took_s = time.monotonic() - began


@dataclass(frozen=True)
class _Item:
    custom_id: str
    consents: int
    states: dict[int, AttemptState]  # of its attempts, by fence


@dataclass(frozen=True)
class Law:
    """What a job is judged by."""

    ids: list[str]  # of the input lines
    policy: str
    doubts_at_most: int | None = None  # that the deaths may have left, beside those of the endpoint's faults
    unkept_at_most: int | None = None  # answers that the endpoint gave and the ledger does not have
    may_overlap: bool = False  # the living were taken for dead: under `retry` an answer may come after a newer attempt


def judge(lab: Lab, law: Law) -> Verdict:
    """Judge a job that has ended."""
    verdict = Verdict(has_ended=has_ended(lab))
    if not verdict.has_ended:
        verdict.faults.append("the job has not ended")
        return verdict
    for check in (_check_accounts, _check_outputs, _check_bills):
        try:
            check(lab, verdict, law)
        except AssertionError as error:
            verdict.faults.append(f"{check.__name__.removeprefix('_check_')}: {error}")
    if law.unkept_at_most is not None and verdict.unkept_answers > law.unkept_at_most:
        verdict.faults.append(f"{verdict.unkept_answers} answers were paid for and not kept")
    by_fault = lab.judged().by_fault
    most = law.doubts_at_most
    if most is not None and verdict.doubts > most + sum(by_fault[name] for name in UNKNOWN_FAULTS):
        verdict.faults.append(f"{verdict.doubts} doubts, and {most} are the most, beside {dict(by_fault)}")
    return verdict


def has_ended(lab: Lab) -> bool:
    """Say whether the job is in a final state."""
    standing = standing_or_none(lab)
    return standing is not None and standing.job.state in FINAL_JOB_STATES


def _check_accounts(lab: Lab, verdict: Verdict, law: Law) -> None:
    standing, judged = lab.standing(), lab.judged()
    verdict.requests, verdict.billed = judged.posts, judged.billed
    verdict.doubts = standing.counts[ItemState.IN_DOUBT]
    assert_accounts_agree(lab)
    assert standing.job.total == len(law.ids), (standing.job.total, len(law.ids))


def _check_outputs(lab: Lab, verdict: Verdict, law: Law) -> None:
    written = [line["custom_id"] for name in ("out.jsonl", "out.errors.jsonl") for line in lab.lines(name)]
    verdict.lost_items = len(set(law.ids) - set(written))
    assert_outputs_whole(lab, law.ids)
    # What a dead writer of the epoch file has left goes with the next epoch; a job that has ended has none.
    files = [path for path in (lab.folder / "outputs").iterdir() if path.is_file()]
    left = [path.name for path in files if ".epoch" not in path.name]
    left = sorted(set(left) - {"out.jsonl", "out.errors.jsonl"})
    assert not left, f"left behind: {left}"


def _check_bills(lab: Lab, verdict: Verdict, law: Law) -> None:
    """Hold every request that the endpoint has seen against the ledger, one by one."""
    known = _read_items(lab)
    billed: Counter[int] = Counter()
    seen: set[str] = set()
    wrong = []
    for arrival in (one for record in lab.judged().items.values() for one in record.arrivals):
        name = arrival.client_request_id or ""
        _, _, item_id, fence = name.split("-")
        state = known[int(item_id)].states.get(int(fence)) if int(item_id) in known else None
        if state is None or state is AttemptState.NOT_SENT:
            wrong.append(f"{name} was sent, and the ledger says {state}")
        if name in seen:
            wrong.append(f"{name} was sent twice")
        seen.add(name)
        billed[int(item_id)] += arrival.billed
        verdict.unkept_answers += arrival.billed and state is AttemptState.UNKNOWN
    for item_id, item in known.items():
        answered = [fence for fence, state in item.states.items() if state is AttemptState.ANSWERED]
        allowed = 1 + (item.consents if law.policy == "hold" else _unproven(item))
        if law.may_overlap and law.policy == "retry":
            allowed += max(0, len(answered) - 1)
        if billed[item_id] > allowed:
            verdict.silent_second_bills += 1
            wrong.append(f"{item.custom_id} was billed {billed[item_id]} times: {item}")
        elif answered and max(item.states) > min(answered) and not (law.may_overlap and law.policy == "retry"):
            wrong.append(f"{item.custom_id} was tried again after its answer: {item}")
    assert not wrong, "; ".join(wrong)


def _unproven(item: _Item) -> int:
    return sum(state in (AttemptState.UNKNOWN, AttemptState.UNUSABLE) for state in item.states.values())


def _read_items(lab: Lab) -> dict[int, _Item]:
    ledger = lab.ledger()
    try:
        with ledger.read() as connection:
            states: defaultdict[int, dict[int, AttemptState]] = defaultdict(dict)
            for key, state in connection.execute(select(attempts.c.key, attempts.c.state)):
                item_id, fence = split_key(key)
                states[item_id][fence] = AttemptState(state)
            rows = connection.execute(select(items.c.id, items.c.custom_id, items.c.consents))
            return {row.id: _Item(row.custom_id, row.consents, states[row.id]) for row in rows}
    finally:
        ledger.close()
