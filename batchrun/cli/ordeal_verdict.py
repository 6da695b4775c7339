"""The verdict on a round of `batchrun chaos`: the job's end, held against the endpoint's own log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchrun.cli.ordeal import Ordeal
from batchrun.cli.proof import Bills, Check, count_bills, prove, prove_each
from batchrun.cli.stage import LOG, Stage

if TYPE_CHECKING:
    from batchrun.ledger.ledger import Ledger

TASK = "chaos"
UNKNOWN_FAULTS = ("hang", "reset", "cut", "bad_json")
Attempts = Mapping[str, Sequence[tuple[str, str]]]  # of each item: id and state


@dataclass
class Report:
    """What came of a round. `violations` is empty where every promise was kept."""

    round: int
    job: str
    deaths: int = 0
    requests: int = 0
    billed: int = 0
    answers: int = 0
    doubts: int = 0
    consents: int = 0
    silent_second_bills: int = 0
    lost_items: int = 0
    violations: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0


def judge(stage: Stage, ledger: "Ledger", ordeal: Ordeal, report: Report, *, consented: Counter[str]) -> None:
    """Complete the report of a round whose job has ended.

    Args:
        consented: how often each item was sent again by the user's word.
    """
    from batchrun.cli.standing import standing_json
    from batchrun.runner.standing import read_standing

    bills = count_bills((stage.folder / LOG).read_text().splitlines())
    status, attempts = standing_json(read_standing(ledger, TASK)), _read_attempts(ledger, ordeal.ids)
    allowed = consented if ordeal.policy == "hold" else _named(attempts)
    output, errors = (
        [line["custom_id"] for line in stage.lines(name)]
        for name in ("batch_output.jsonl", "batch_output.errors.jsonl")
    )
    report.requests, report.billed = bills.requests, bills.total
    report.answers, report.doubts = status["attempts"]["answered"], status["counts"]["in_doubt"]
    report.consents = consented.total()
    report.silent_second_bills = _silent(bills, ordeal.ids, allowed)
    report.lost_items = len(set(ordeal.ids) - {*output, *errors})
    checks = [
        *prove(bills, status=status, ids=ordeal.ids, output=output, errors=errors, consented=allowed.elements()),
        prove_each(bills, {name: state for of in attempts.values() for name, state in of}),
        _prove_doubts(stage, ordeal, report),
    ]
    report.violations += [f"not so: {check.claim} ({check.seen})" for check in checks if not check.holds]


def _read_attempts(ledger: "Ledger", ids: Sequence[str]) -> Attempts:
    from batchrun.runner.show import show_item

    shown = {item: show_item(ledger, TASK, item)["attempts"] for item in ids}
    return {item: [(one["attempt_id"], str(one["state"])) for one in attempts] for item, attempts in shown.items()}


def _named(attempts: Attempts) -> Counter[str]:
    """Count what the ledger names under `retry`: attempts that may have been billed, and left nothing of use."""
    return Counter({item: sum(state in ("unknown", "unusable") for _, state in of) for item, of in attempts.items()})


def _silent(bills: Bills, ids: Sequence[str], allowed: Mapping[str, int]) -> int:
    """Count bills beyond what each item may have cost."""
    known = set(ids)
    may_cost = {item: 1 + allowed.get(item, 0) if item in known else 0 for item in bills.by_item}
    return sum(max(0, count - may_cost[item]) for item, count in bills.by_item.items())


def _prove_doubts(stage: Stage, ordeal: Ordeal, report: Report) -> Check:
    """Each death leaves a bounded number of doubts, and each fault of the endpoint at most one."""
    from batchrun.mock.judgement import read_log

    by_fault = read_log(stage.folder / LOG).by_fault
    most = report.deaths * ordeal.concurrency + sum(by_fault[name] for name in UNKNOWN_FAULTS)
    claim = "a death leaves at most one doubt for each request slot"
    return Check("doubts_bounded", claim, f"{report.doubts} of at most {most}", report.doubts <= most)
