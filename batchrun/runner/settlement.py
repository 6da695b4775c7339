"""One attempt's evidence and decision in the ledger's form: priced, and failures' bodies cut short."""

from dataclasses import replace

from batchrun.core.outcome import Charge, Evidence
from batchrun.core.prices import Cost, Price, cost_of
from batchrun.core.retry import Decision
from batchrun.core.states import AttemptState
from batchrun.ledger.settle import Settlement

KEPT_OF_A_FAILURE_BYTES = 2_000


def make_settlement(
    evidence: Evidence,
    decision: Decision,
    *,
    key: int,
    job_id: int,
    worker_id: int,
    price: Price | None,
    reserved_pusd: int,
    now: float,
) -> Settlement:
    """Make what the ledger settles; an answer and a useless answer are kept whole, as they came."""
    if evidence.raw is not None and evidence.outcome not in (AttemptState.ANSWERED, AttemptState.UNUSABLE):
        evidence = replace(evidence, raw=evidence.raw[:KEPT_OF_A_FAILURE_BYTES] or None)
    cost = cost_of(price, evidence.usage) if evidence.charge is not Charge.NONE else Cost(0)
    certain, on_top = (None, 0) if cost is None else (cost.certain_pusd, cost.open_pusd)
    return Settlement(key, job_id, worker_id, evidence, decision, certain, reserved_pusd, now, on_top)
