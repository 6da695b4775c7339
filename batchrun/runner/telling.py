"""The job's items as outputs tell of them: in which order, and with what of the input beside each."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from batchrun.core.outcome import Charge
from batchrun.core.prices import usd
from batchrun.core.states import ItemState
from batchrun.errors import UsageFault
from batchrun.files.input_rows import Alongside, InputRows
from batchrun.files.outputs import Asked, OutputItem
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import Result, in_order_of_finish, results_in_order, stream_results

Order = Literal["input", "finish"]


@dataclass(frozen=True, slots=True)
class Telling:
    """How a job's items are told."""

    order: Order = "input"
    with_requests: bool = False  # each with what was asked
    rows: InputRows | None = None  # each with its row of the input, too

    def __post_init__(self) -> None:
        if self.rows is not None and self.order == "finish":
            what = "rows of the input are joined in its order, and not in the order of finish"
            raise UsageFault(what, hint="--order input, or --join-prompt: what was asked stands in the ledger")


IN_INPUT_ORDER = Telling()


def tell(ledger: Ledger, job: Job, telling: Telling, *, states: Collection[ItemState]) -> Iterator[OutputItem]:
    """Yield the job's items in these states.

    Raises:
        UsageFault: at the end, when the input is not the one that was registered; what was yielded is then void.
    """
    alongside = Alongside(telling.rows) if telling.rows is not None else None
    for row in _results(ledger, job, telling, states):
        asked = None
        if telling.with_requests:
            beside = alongside.row(row.line_no) if alongside is not None else None
            if row.body is not None or beside is not None:
                asked = Asked(row.path, None if row.body is None else bytes(row.body), beside)
        yield output_item(ledger, row, asked=asked)
    if alongside is not None:
        alongside.end()


def _results(ledger: Ledger, job: Job, telling: Telling, states: Collection[ItemState]) -> Iterator[Result]:
    if telling.order == "input":
        yield from stream_results(ledger, job.id, states=states, with_requests=telling.with_requests)
        return
    ids = in_order_of_finish(ledger, job.id, states=states)
    for row in results_in_order(ledger, job.id, ids, with_requests=telling.with_requests):
        if row.state in states:  # a job that runs may have put it back
            yield row


def output_item(ledger: Ledger, row: Result, *, asked: Asked | None = None) -> OutputItem:
    """Make a ledger row into what a line of output says."""
    state = ItemState(row.state)
    key, cost = row.key, row.cost_pusd
    is_told = state is not ItemState.REJECTED
    open_pusd = row.reserved_pusd if row.charge is not None and row.charge != Charge.NONE else None
    if row.is_copied:
        return _copied(ledger, row, asked)
    return OutputItem(
        custom_id=row.custom_id,
        state=state,
        attempts=row.attempts_count,
        attempt_id=None if key is None else ledger.attempt_id(key),
        status=row.http_status,
        request_id=row.request_id,
        response_id=row.response_id,
        raw=None if row.raw is None else bytes(row.raw),
        finish_reason=row.finish_reason,
        warning=row.warning,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_usd=None if cost is None else usd(cost),
        endpoint=row.endpoint if is_told else None,
        model=row.model,
        sent_at=row.sent_at,
        duration_s=row.duration_s,
        cause=row.item_cause,
        message=row.item_message,
        possible_cost_usd=usd(open_pusd) if open_pusd else None,
        asked=asked,
    )


def _copied(ledger: Ledger, row: Result, asked: Asked | None) -> OutputItem:
    """Make what an output line says of an item that has another's answer: no request was made for it, and no cost."""
    return OutputItem(
        custom_id=row.custom_id,
        state=ItemState(row.state),
        attempts=row.attempts_count,
        attempt_id=None,
        status=row.http_status,
        request_id=row.request_id,
        response_id=row.response_id,
        raw=None if row.raw is None else bytes(row.raw),
        finish_reason=row.finish_reason,
        warning=row.warning,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=usd(0),
        endpoint=row.endpoint,
        model=row.model,
        sent_at=None,
        duration_s=None,
        cause=row.item_cause,
        message=row.item_message,
        possible_cost_usd=None,
        cached_from=None if row.key is None else ledger.attempt_id(row.key),
        asked=asked,
    )
