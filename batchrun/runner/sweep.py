"""What dead workers left behind: answers in their spools are adopted, and what they had in hand becomes doubt."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from batchrun.errors import EndpointFault
from batchrun.ledger.consents import retry_by_policy
from batchrun.ledger.intact import WORKERS
from batchrun.ledger.jobs import Job, write_anew
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, holds_lock, remove_files
from batchrun.ledger.rescue import rescue
from batchrun.ledger.send_marks import boot_id, read_marks
from batchrun.ledger.spool import Frame, read_frames
from batchrun.ledger.sweeps import Incarnation, buried_with_files, bury, incarnations, jobs_of
from batchrun.runner.adoption import adopt
from batchrun.runner.evidence import restore
from batchrun.runner.means import Rules


@dataclass
class Swept:
    """What a sweep found."""

    adopted: Counter[int] = field(default_factory=Counter)  # by job: paid answers that a dead worker had received
    in_doubt: Counter[int] = field(default_factory=Counter)  # by job: items that it had in hand and may have sent


def sweep(ledger: Ledger, observer: Observer, *, except_worker: int, rules_of: Callable[[Job], Rules]) -> Swept:
    """Adopt and rescue whatever the dead have left, of any job. Safe at any time and as often as one likes."""
    swept = Swept()
    with ledger.read() as connection:
        known = incarnations(connection, except_worker=except_worker)
        buried = buried_with_files(connection, ledger.folder / WORKERS)
    for one in known:
        if not observer.is_dead(one.worker_id):
            continue
        with suppress(EndpointFault):  # another job's key is not known here: its dead wait for whoever has it
            _bury(ledger, one, swept, rules_of)
    for one in buried:
        if holds_lock(one.folder, one.incarnation) is False:
            _bury(ledger, one, swept, rules_of)
    return swept


def _bury(ledger: Ledger, one: Incarnation, swept: Swept, rules_of: Callable[[Job], Rules]) -> None:
    # Spool before rescue: an answer that is there must not become a doubt. Then the marks: they come before answers.
    for frame in read_frames(one.folder, one.incarnation):
        if (job_id := _adopt(ledger, frame, rules_of)) is not None:
            swept.adopted[job_id] += 1
        # crash point: sweep-adopted
    is_own = ledger.file is None or one.folder.resolve() == (ledger.folder / WORKERS).resolve()
    begun = _begun(one) if is_own else None  # elsewhere its files are those of the ledger that this is a copy of
    now = time.time()
    with ledger.write() as connection:
        for job_id in jobs_of(connection, one.worker_id):
            rescued = rescue(connection, job_id=job_id, worker_id=one.worker_id, now=now, begun=begun)
            swept.in_doubt[job_id] += len(rescued.in_doubt)
        bury(connection, one.worker_id, now=now)
    # crash point: sweep-buried
    if is_own:
        remove_files(one.folder, one.incarnation)


def _begun(one: Incarnation) -> frozenset[int] | None:
    """Return which requests of a dead worker have begun; None where that is not proven, and any may have.

    Marks prove something only where its lock is seen to be free, so that none can be added, and within one run of the
    machine: they are not synced.
    """
    if one.boot_id is None or one.boot_id != boot_id() or holds_lock(one.folder, one.incarnation) is not False:
        return None
    return read_marks(one.folder, one.incarnation)


def _adopt(ledger: Ledger, frame: Frame, rules_of: Callable[[Job], Rules]) -> int | None:
    """Settle what a spool's frame tells; return the job that it told something new."""
    reply, path = restore(frame.about, frame.body)
    adoption = adopt(ledger, frame.key, lambda rules: rules.judge(reply, path), rules_of=rules_of)
    return adoption.job.id if adoption is not None and adoption.is_news else None


def follow_policy(ledger: Ledger, job: Job) -> int:
    """Under `on_unknown: retry`, send doubts and useless answers back to pending; return how many."""
    if job.on_unknown != "retry":
        return 0
    now = time.time()
    with ledger.write() as connection:
        retried, given_up = retry_by_policy(connection, job.id, retry_times=job.retry_times, now=now)
        if retried or given_up:
            write_anew(connection, job.id, now=now)
    # crash point: policy-followed
    return retried
