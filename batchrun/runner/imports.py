"""Doubts settled by answers from a file: a provider's log, a batch output, or the outputs of another ledger."""

import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchrun.core.line import CHAT, LineFault
from batchrun.core.outcome import Charge, Evidence, Reply, Timing
from batchrun.core.states import AttemptState
from batchrun.errors import BadInput, Fault
from batchrun.files.answer_lines import AnswerLine, read_answers
from batchrun.ledger.doubts import Unknown, unknown_of_job
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import paths_of
from batchrun.ledger.schema import split_key
from batchrun.runner.adoption import adopt
from batchrun.runner.gear import Gear
from batchrun.runner.means import Rules

ATTEMPT_ID = re.compile(r"br-([0-9a-f]+)-[0-9]+-[0-9]+\Z")
MOST_FAULTS = 100


@dataclass(frozen=True, slots=True)
class Taken:
    """One answer that is, or would be, taken."""

    line_no: int
    key: int
    custom_id: str
    attempt_id: str
    is_certain: bool  # the line names the very request; else only its item
    evidence: Evidence = field(repr=False)


@dataclass(slots=True)
class Import:
    """What a file came to."""

    lines: int = 0
    taken: list[Taken] = field(default_factory=list)
    not_needed: int = 0  # lines of requests that are not in doubt, or not this job's
    without_answer: int = 0  # lines of requests in doubt that tell of an error: it proves nothing


def import_answers(
    ledger: Ledger,
    job: Job,
    path: Path,
    *,
    gear: Gear,
    custom_ids: Collection[str] = (),
    is_dry: bool = False,
) -> Import:
    """Take the answers to requests of unknown outcome out of a file; one faulty line, and nothing is taken.

    A line names its request by attempt id or by the endpoint's request id. By its item's custom_id alone it is taken
    where one request of that item is in doubt; what that one cost stays possible, since the answer may be another's.

    Args:
        custom_ids: only of these items.
        is_dry: look, and leave the ledger as it is.

    Raises:
        BadInput: the file, or some of its lines.
        EndpointFault: there is no key for the job's endpoint, and so nothing can be judged.
    """
    with ledger.read() as connection:
        unknown = unknown_of_job(connection, job.id)
        paths = paths_of(connection, [split_key(one.key)[0] for one in unknown])
    wanted = [one for one in unknown if not custom_ids or one.custom_id in custom_ids]
    rules = gear.rules_of(job)
    desk = _Desk(ledger, wanted, paths, rules)
    found = desk.read(path)
    if is_dry:
        return found
    kept = []
    for one in found.taken:
        without_price = replace(rules, price=None)  # what is not certain keeps its worst case reserved
        of_one = rules if one.is_certain else without_price
        if adopt(ledger, one.key, lambda _, one=one: one.evidence, rules_of=lambda _, of_one=of_one: of_one):  # type: ignore[misc]
            kept.append(one)
        else:
            found.not_needed += 1  # its outcome became known in the meantime
    found.taken = kept
    return found


class _Desk:
    """Finds the request that a line speaks of, and judges what it brings."""

    def __init__(self, ledger: Ledger, unknown: list[Unknown], paths: dict[int, str], rules: Rules) -> None:
        self._ledger = ledger
        self._paths = paths
        self._rules = rules
        self._by_attempt = {ledger.attempt_id(one.key): one for one in unknown}
        self._by_request: dict[str, list[Unknown]] = {}
        self._by_item: dict[str, list[Unknown]] = {}
        for one in unknown:
            if one.request_id is not None:
                self._by_request.setdefault(one.request_id, []).append(one)
            if not one.is_answered:
                self._by_item.setdefault(one.custom_id, []).append(one)

    def read(self, path: Path) -> Import:
        found, faults, total = Import(), [], 0
        lines: dict[int, Taken] = {}
        for line_no, line in read_answers(path):
            found.lines += 1
            try:
                if isinstance(line, LineFault):
                    raise line
                taken = self._take(line_no, line, found)
                if taken is not None:
                    _refuse_another(lines.setdefault(taken.key, taken), taken)
            except LineFault as fault:
                total += 1
                if total <= MOST_FAULTS:
                    faults.append(Fault(f"{path} line {line_no}", fault.what, fault.hint))
        if faults:
            raise BadInput(faults, total=total)
        found.taken = list(lines.values())
        return found

    def _take(self, line_no: int, line: AnswerLine, found: Import) -> Taken | None:
        attempt, is_certain = self._meant(line)
        if attempt is None:
            found.not_needed += 1
            return None
        if line.raw is None or not 200 <= line.status < 300:
            found.without_answer += 1
            return None
        evidence = self._judge(attempt, line)
        if evidence.outcome is not AttemptState.ANSWERED:
            raise LineFault(f"is no answer: {evidence.message}", "take the line out, or give the whole response")
        if not is_certain:
            evidence = replace(evidence, charge=Charge.POSSIBLE)
        name = self._ledger.attempt_id(attempt.key)
        return Taken(line_no, attempt.key, attempt.custom_id, name, is_certain, evidence)

    def _meant(self, line: AnswerLine) -> tuple[Unknown | None, bool]:
        """Return the request that a line speaks of, if that is in doubt, and whether the line names it itself.

        Raises:
            LineFault: it may be one of several.
        """
        ours = ATTEMPT_ID.match(line.attempt_id or "")
        if ours and ours[1] == self._ledger.ledger_id:
            return self._by_attempt.get(line.attempt_id or ""), True
        called = self._by_request.get(line.request_id or "", [])
        if len(called) == 1:
            return called[0], True
        of_item = self._by_item.get(line.custom_id or "", [])
        if len(of_item) > 1:
            names = ", ".join(self._ledger.attempt_id(one.key) for one in of_item)
            raise LineFault(
                f"{line.custom_id!r} has {len(of_item)} requests in doubt, and the line names none of them",
                f"add its attempt_id: one of {names}",
            )
        return (of_item[0] if of_item else None), False

    def _judge(self, attempt: Unknown, line: AnswerLine) -> Evidence:
        assert line.raw is not None
        now = time.time()
        headers = {"content-type": "application/json"}
        if line.request_id is not None:
            headers["x-request-id"] = line.request_id
        path = self._paths.get(split_key(attempt.key)[0], CHAT)
        reply = Reply(line.status, headers, line.raw, Timing(now, now, now, 0.0))
        return replace(self._rules.judge(reply, path), timing=None)  # the file does not know when it was


def _refuse_another(first: Taken, taken: Taken) -> None:
    """Refuse a second, different answer to one request; the same once more is no news."""
    if first.evidence.raw != taken.evidence.raw:
        raise LineFault(
            f"{taken.attempt_id} stands with another answer on line {first.line_no}", "keep the right one of the two"
        )
