"""The judgement of a trial, whoever performs the job; and its report, for whoever follows one that others perform."""

from collections.abc import Callable
from dataclasses import dataclass, field

from batchrun.core.breaker import Trip
from batchrun.core.prices import Price
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.runner.ends import TRIAL_ONLY
from batchrun.runner.trial import TrialReport, gate, report_trial


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial came to, and what follows."""

    phase: str  # that the job is in from now on
    word: str  # "passed" or "failed"
    trip: Trip | None  # why the full run does not follow by itself


def judge_trial(job: Job, report: TrialReport, *, rests_after: bool) -> Verdict:
    """Say whether the full run may follow.

    Args:
        job: as it stands now: its limits may have been changed during the trial.
        rests_after: whoever submitted it wants to decide, or asked for the trial alone.
    """
    limits = job.spec["trial"]
    if why := gate(
        report,
        max_failed_share=float(limits["max_failed_share"]),
        max_invalid_share=float(limits.get("max_invalid_share", 1.0)),  # a job of an earlier release has none
        max_cost_pusd=job.max_cost_pusd,
    ):
        return Verdict("trial", "failed", Trip("trial_gate", why, 5))
    if rests_after and report.left:  # where everything is tried there is nothing to decide, and nothing to wait for
        message = "the trial passed; submit or resume starts the full run"
        return Verdict("full", "passed", Trip(TRIAL_ONLY, message, 0))
    return Verdict("full", "passed", None)


@dataclass
class TrialNews:
    """Shows what a trial came to, once, as soon as the ledger says that it has ended."""

    ledger: Ledger
    price_of: Callable[[Job], Price | None]
    show_trial: Callable[[TrialReport], None]
    report: TrialReport | None = None  # what was shown
    _was_open: bool = field(default=False, init=False)

    def look(self, job: Job) -> None:
        """Take note of the job as it stands now; show the report where its trial has ended since the look before."""
        if job.phase == "trial" and job.trial_verdict is None:
            self._was_open = True
        elif self._was_open:
            self.show(job)

    def show(self, job: Job) -> TrialReport:
        """Show the report, unless that was done."""
        if self.report is None:
            self.report = report_trial(self.ledger, job, price=self.price_of(job))
            self.show_trial(self.report)
        return self.report
