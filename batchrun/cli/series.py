"""Several jobs of one `submit`: all are registered before the first request, and then each has its turn."""

import gc
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from batchrun.cli.context import Context
from batchrun.cli.performing import perform, show_arrival, warn_of_models
from batchrun.cli.say import emit, next_lines, put, say, say_error
from batchrun.cli.standing import arrival_text
from batchrun.errors import BadInput, BatchrunError, Fault, LedgerFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from batchrun.cli.registering import Ready, Wish
    from batchrun.wiring import House

# How a series ends whose jobs end differently: like the first of these that came, which needs a person first. An error,
# nothing run, key refused, guard, another process at it, unfinished; and of what is finished: in doubt, failed, done.
WORST_FIRST = (1, 2, 4, 5, 9, 8, 6, 3, 0)
SIGNALLED = 128  # and above: stopped by a signal, which stops the whole series


def worst(codes: "Iterable[int]") -> int:
    """Return the exit code of a series whose jobs had these."""
    came = set(codes)
    return max(came) if max(came) > SIGNALLED else next(code for code in WORST_FIRST if code in came)


def run_in_turn(context: Context, series: "Sequence[Ready]", wish: "Wish") -> int:
    """Register every job, then drive one after the other; each ends with its summary.

    How a job ends keeps no other from its turn, but for a signal and for a ledger that cannot be used any more.
    """
    with context.house(makes_ledger=True) as house:
        try:
            register_all(context, house, series, wish)
        except KeyboardInterrupt:
            again = next_lines([typed_again()])[0]
            say(context, f"stopped before all jobs were registered; nothing was sent\n{again}")
            raise
    ended: list[_Turn] = []
    try:
        for number, ready in enumerate(series, start=1):
            say(context, f"\njob {number} of {len(series)}: {ready.task_id}")
            ended.append(_take_turn(context, ready, wish))
            if ended[-1].is_last:
                break
            forget_session()
    finally:
        _overview(context, series, ended)
    return worst(turn.exit_code for turn in ended)


def register_all(context: Context, house: "House", series: "Sequence[Ready]", wish: "Wish") -> None:
    """Register the jobs, so that what the ledger has against one of them is said while nothing was sent yet.

    Those that stand in the ledger come first: they may be refused, and then nothing new was written.
    """
    from batchrun.cli.registering import registered
    from batchrun.ledger.jobs import drop
    from batchrun.runner import submit as verbs
    from batchrun.runner.hold import working

    ledger = house.ledger
    faults: list[Fault] = []
    for ready in series:
        with _naming(ready, faults), ledger.read() as connection:
            verbs.refuse_shared_output(connection, ready.checked)
    if faults:
        raise BadInput(faults)
    with working(ledger, house.gear(), concurrency=1) as worker:
        for ready in sorted(series, key=lambda ready: verbs.find(ledger, ready.task_id) is None):
            with _naming(ready, faults):
                job = registered(context, house, ready, wish, worker)
                with ledger.write() as connection:
                    drop(connection, job.id, worker_id=worker.id, active_s=0.0)
            if faults:
                raise BadInput(faults)


@contextmanager
def _naming(ready: "Ready", faults: "list[Fault]") -> "Iterator[None]":
    """Collect the faults of one of several specs, each with the spec's name."""
    from batchrun.runner.specs import named

    try:
        yield
    except BadInput as error:
        faults += named(error.faults, ready.where)


class _Turn(NamedTuple):
    """How one job of a series ended."""

    exit_code: int
    words: str
    is_last: bool = False  # a signal came, or the ledger cannot be used: by the jobs that follow no more than by this


def _take_turn(context: Context, ready: "Ready", wish: "Wish") -> _Turn:
    """Drive one job, and print its summary."""
    from batchrun.cli.registering import going_on
    from batchrun.runner import submit as verbs
    from batchrun.runner.hold import working

    try:
        with (
            context.house() as house,
            working(house.ledger, house.gear(), concurrency=ready.concurrency.high) as worker,
        ):
            if (job := verbs.find(house.ledger, ready.task_id)) is not None:
                warn_of_models(context, house, job)
            arrival = perform(
                context,
                house,
                ready.task_id,
                worker=worker,
                scope=wish.scope,
                wait=not wish.no_wait,
                prepare=going_on(house, ready),
                is_followed=not wish.detach,
            )
    except BatchrunError as error:
        _say_failed(context, ready, error)
        words = f"{ready.task_id} not run: {error.message}"
        return _Turn(error.exit_code, words, is_last=isinstance(error, LedgerFault))
    code = show_arrival(context, arrival)
    reason = arrival.standing.job.reason
    words = arrival_text(arrival)[0] + (f" ({reason.replace('_', ' ')})" if code and reason else "")
    return _Turn(code, words, is_last=code > SIGNALLED)


def _say_failed(context: Context, ready: "Ready", error: BatchrunError) -> None:
    if not context.json:
        say_error(context, error.message, kind=error.kind, exit_code=error.exit_code, hint=error.hint)
        return
    about = {"kind": error.kind, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    emit("job_error", {"job_id": ready.task_id, "error": about})


def forget_session() -> None:
    """Let the memory of an ended session go: it was frozen for the collector, and there may be many jobs to come."""
    gc.unfreeze()
    gc.collect()


def _overview(context: Context, series: "Sequence[Ready]", ended: "Sequence[_Turn]") -> None:
    """Say on a line each how the jobs ended, and where some had no turn, what to type."""
    if context.json:
        return
    put("")
    for turn in ended:
        put(turn.words)
    for ready in series[len(ended) :]:
        put(f"{ready.task_id} has had no turn")
    if len(ended) < len(series) or ended[-1].is_last:
        put(next_lines([typed_again()])[0])


def typed_again() -> str:
    """Return this call's command line as it can be typed again."""
    here = click.get_current_context()
    words = ["batchrun", *_typed(here.find_root()), str(here.info_name), *_typed(here)]
    return shlex.join(words)


def _typed(context: click.Context) -> "Iterator[str]":
    """Yield what was typed of a command's options and arguments."""
    for param in sorted(context.command.params, key=lambda param: isinstance(param, click.Argument)):
        name = str(param.name)
        value: Any = context.params.get(name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(param, click.Option) and param.count:
            yield from [param.opts[-1]] * value
        elif isinstance(param, click.Option) and param.is_flag:
            yield param.opts[-1]
        elif isinstance(param, click.Option):
            yield from (param.opts[-1], str(value))
        else:
            yield from (str(one) for one in (value if isinstance(value, tuple) else [value]))
