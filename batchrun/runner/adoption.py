"""Evidence of an attempt that turns up after its owner has gone: judged, priced and settled like any other."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from batchrun.core.outcome import Evidence
from batchrun.core.retry import decide
from batchrun.ledger.jobs import Job, read_job, write_anew
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.settle import Settled, settle
from batchrun.ledger.sweeps import open_attempt
from batchrun.runner.means import Rules
from batchrun.runner.settlement import make_settlement

NEWS = (Settled.MOVED, Settled.ADOPTED, Settled.CORRECTED)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What became of evidence that turned up."""

    job: Job
    evidence: Evidence
    settled: Settled

    @property
    def is_news(self) -> bool:
        """True where an item moved by it."""
        return self.settled in NEWS


def adopt(
    ledger: Ledger, key: int, evidence_of: Callable[[Rules], Evidence], *, rules_of: Callable[[Job], Rules]
) -> Adoption | None:
    """Settle what turned up about an attempt; None where the ledger knows its outcome, or nothing of it.

    The item moves only where it has no answer yet. A job that had ended writes its outputs anew.
    """
    with ledger.read() as connection:
        attempt = open_attempt(connection, key)
        if attempt is None:
            return None
        job = read_job(connection, attempt.job_id)
    rules = rules_of(job)
    evidence = evidence_of(rules)
    settlement = make_settlement(
        evidence,
        decide(evidence, attempt.tries, rules.policy),
        key=key,
        job_id=attempt.job_id,
        worker_id=attempt.worker_id,
        price=rules.price_at(attempt.endpoint),
        reserved_pusd=attempt.reserved_pusd,
        now=time.time(),
    )
    with ledger.write() as connection:
        settled = settle(connection, settlement)
        if settled in (Settled.ADOPTED, Settled.CORRECTED):
            write_anew(connection, job.id, now=time.time())
    return Adoption(job, evidence, settled)
