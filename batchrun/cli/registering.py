"""From a checked spec to a job in the ledger: new, the same again, or with changes that somebody accepts."""

import shlex
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from batchrun.cli.context import Context
from batchrun.cli.live import Live, show_registering
from batchrun.cli.say import ask, say
from batchrun.core.wording import several
from batchrun.errors import BadInput, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from batchrun.core.concurrency import Concurrency
    from batchrun.ledger.jobs import Job
    from batchrun.ledger.liveness import Worker
    from batchrun.runner.check import Checked
    from batchrun.runner.gear import Scope
    from batchrun.runner.specs import Found
    from batchrun.runner.submit import Overrides
    from batchrun.settings import Settings
    from batchrun.wiring import House


@dataclass(frozen=True, slots=True)
class Wish:
    """What the flags of one call ask for, of each of its jobs."""

    scope: "Scope"
    trial_size: int | None = None
    no_trial: bool = False
    on_unknown: str | None = None
    max_cost: Decimal | None = None
    skip_invalid: bool = False
    accept_changes: bool = False
    dry_run: bool = False
    no_wait: bool = False
    detach: bool = False
    concurrency: "Concurrency | None" = None
    trial_changes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_trial(self) -> bool:
        from batchrun.runner.gear import Scope

        return self.scope is Scope.TRIAL


@dataclass(frozen=True, slots=True)
class Ready:
    """A spec that can start: checked, its endpoint and key at hand, and as the ledger will keep it."""

    where: str
    checked: "Checked"
    overrides: "Overrides"
    plan: dict[str, Any]

    @property
    def task_id(self) -> str:
        return self.checked.spec.task_id

    @property
    def concurrency(self) -> "Concurrency":
        from batchrun.core.concurrency import Concurrency

        return Concurrency.of(self.plan["concurrency"])


def refuse_limit(found: "Sequence[Found]") -> None:
    """Refuse `--max-cost` for specs that say no price, or whose requests nothing bounds.

    Raises:
        BadInput: naming each.
    """
    from batchrun.runner.check import unbounded_faults

    faults: list[Fault] = []
    for one in found:
        spec, seen = one.checked.spec, one.checked.survey
        if not spec.is_priced:
            faults.append(Fault(one.where, "--max-cost needs a 'price' in the spec", "add price"))
        faults += unbounded_faults(spec, seen, where=one.where, what="--max-cost")
    if faults:
        raise BadInput(faults)


def priced(settings: "Settings", found: "Found") -> "Found":
    """Look up the prices that the spec asks for, if it does: they are then as if written in it.

    Raises:
        BadInput: a price is not known.
        EndpointFault: no address.
        UsageFault: the package that has the prices is not installed.
    """
    from batchrun.runner.price_lookup import with_prices
    from batchrun.wiring import name_endpoints

    spec = found.checked.spec
    if spec.price_from is None:
        return found
    named = name_endpoints(settings, base_url=spec.base_url, api_key_env=spec.api_key_env, endpoints=spec.endpoints)
    addresses = [one.base_url for one in named]
    return replace(found, checked=with_prices(found.checked, addresses, where=found.where, on=datetime.now(UTC)))


def say_prices(context: Context, found: "Sequence[Found]") -> None:
    """Say what was looked up, before anything is sent."""
    for one in found:
        for price in looked_up(one):
            say(context, f"{one.checked.spec.task_id}: price {price}")


def looked_up(found: "Found") -> "Iterator[str]":
    """Say each price that was looked up, and where: nobody has written it."""
    from batchrun.cli.cost import rates_text

    spec = found.checked.spec
    prices = [(f"{one.base_url}: ", one.price) for one in spec.endpoints] or [("", spec.price)]
    for whose, price in prices:
        if spec.price_from is not None and price is not None and price.source is not None:
            yield f"{whose}{rates_text(price)} ({price.source})"


def override(settings: "Settings", found: "Found", wish: Wish, addresses: tuple[str, ...] = ()) -> "Overrides":
    """Put flags and settings over a spec."""
    from batchrun.runner.submit import Overrides

    spec = found.checked.spec
    return Overrides(
        on_unknown=wish.on_unknown or spec.on_unknown or settings.on_unknown,
        on_unknown_is_said=(wish.on_unknown or spec.on_unknown) is not None,
        concurrency=wish.concurrency,
        max_cost_usd=wish.max_cost,
        trial_size=0 if wish.no_trial else wish.trial_size,
        addresses=addresses,
    )


def make_ready(settings: "Settings", found: "Found", wish: Wish) -> Ready:
    """Find the spec's endpoint and key, and make its plan: what is missing is said before anything is written.

    Raises:
        EndpointFault: no address, or no key for it.
    """
    from batchrun.runner.submit import effective_spec
    from batchrun.wiring import name_endpoints

    spec = found.checked.spec
    named = name_endpoints(settings, base_url=spec.base_url, api_key_env=spec.api_key_env, endpoints=spec.endpoints)
    for one in named:
        one.access(settings)
    overrides = override(settings, found, wish, tuple(one.base_url for one in named))
    plan = effective_spec(found.checked, overrides)
    plan["spec_file"] = found.where.partition(" line ")[0]  # as it was typed, for the commands that hints name
    plan["trial"] |= wish.trial_changes
    return Ready(found.where, found.checked, overrides, plan)


def registered(context: Context, house: "House", ready: Ready, wish: Wish, worker: "Worker") -> "Job":
    """Register the job, or find it, or take a changed input for it.

    Raises:
        SpecChanged: it stands in the ledger with another input, and that is not accepted.
        JobBusy: another process registers it, or performs it and would have to take its changes.
    """
    from batchrun.core.states import FINAL_JOB_STATES
    from batchrun.ledger.liveness import Observer
    from batchrun.runner import submit as verbs

    ledger, checked, plan = house.ledger, ready.checked, ready.plan
    job = verbs.find(ledger, checked.spec.task_id)
    if job is None:
        where = ", ".join(ready.overrides.addresses)
        say(context, f"{checked.spec.task_id}: {several(checked.survey.items, 'item')} -> {where}")
        with Live(context) as live:
            watch = partial(show_registering, live, ready.task_id)
            job = verbs.register(ledger, checked, spec=plan, worker_id=worker.id, is_trial=wish.is_trial, watch=watch)
        if job is not None:
            return job
        job = verbs.find(ledger, checked.spec.task_id)
        assert job is not None
    if verbs.is_unfinished(job):
        observer = Observer(ledger, dead_after_s=house.settings.dead_after_s)
        with Live(context) as live:
            taken = verbs.take_over_registration(
                ledger,
                checked,
                job,
                worker_id=worker.id,
                observer=observer,
                wait=not wish.no_wait,
                say=lambda text: say(context, text),
                watch=partial(show_registering, live, ready.task_id),
            )
        if taken is not None:
            return taken
        job = verbs.find(ledger, checked.spec.task_id)
        assert job is not None
    if verbs.is_same(job, checked):
        does = "nothing is left to do" if job.state in FINAL_JOB_STATES else "going on with it"
        say(context, f"{job.task_id} stands in the ledger already ({job.state.value.replace('_', ' ')}); {does}")
        return job
    return take_changes(
        context,
        house,
        checked,
        job,
        worker=worker,
        spec=plan,
        is_accepted=wish.accept_changes,
        command=f"batchrun submit {shlex.quote(ready.plan['spec_file'])}",
        otherwise="use another task_id",
    )


def take_changes(
    context: Context,
    house: "House",
    checked: "Checked",
    job: "Job",
    *,
    worker: "Worker",
    spec: dict[str, Any],
    is_accepted: bool,
    command: str,
    otherwise: str,
) -> "Job":
    """Explain what is different in a changed input or in changed parameters, and take it over where that is accepted.

    Lines that were only written differently, or stand in another order, need no consent. The job is held meanwhile:
    the lines that are compared must be the ones that are taken.
    """
    from batchrun.runner import submit as verbs
    from batchrun.runner.hold import holding, sweep_all

    gear = house.gear()
    with holding(house.ledger, job, worker, gear):
        sweep_all(house.ledger, gear, worker)
        changes = verbs.explain_changes(house.ledger, checked, job)
        question = f"{changes.answered:,} changed items have answers that were paid for: send, and pay, them again?"
        is_wanted = changes.is_none or (is_accepted and (not changes.answered or ask(context, question)))
        if not is_wanted:
            raise verbs.refuse_changes(house.ledger, changes, job, command=command, otherwise=otherwise)
        job, changes = verbs.accept_changes(house.ledger, checked, job, spec=spec)
    restored = f", {changes.restored:,} back from before" if changes.restored else ""
    say(
        context,
        f"{job.task_id}: {several(changes.unchanged, 'item')} unchanged and kept, {changes.changed:,} changed, "
        f"{changes.new:,} new{restored}, {changes.removed:,} removed",
    )
    return job


def going_on(house: "House", ready: Ready) -> "Callable[[Job], None]":
    """Make the step that takes over what the spec says now of everything that is no part of the job's identity."""
    from batchrun.core.prices import to_pusd
    from batchrun.runner import submit as verbs
    from batchrun.runner.resume import change_of_mind

    plan = ready.plan
    return change_of_mind(
        house.ledger,
        on_unknown=ready.overrides.on_unknown,
        concurrency=ready.concurrency,
        retry_times=plan["retry_times"],
        rpm=plan["rpm"] or 0,
        tpm=plan["tpm"] or 0,
        max_cost_pusd=to_pusd(plan["max_cost_usd"]),
        spec_of=lambda job: verbs.without_identity(job, plan),
        gate="stop",
    )
