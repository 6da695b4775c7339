"""What to do about a failure in the job's own figures: in words, and as the next command."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from batchrun.core.breaker import ROUTE
from batchrun.core.line import TOKEN_LIMITS
from batchrun.core.outcome import CAUSES, Kind
from batchrun.core.states import ItemState
from batchrun.endpoint.address import is_local
from batchrun.endpoint.problem import context_limit
from batchrun.ledger.jobs import Job

# Failures that a change of the spec mends, and nothing else: the same request will not do.
_SPEC_FAULTS = frozenset({"model_not_found"})


@dataclass(frozen=True, slots=True)
class Hint:
    """An edit to make, and what to type then."""

    words: str
    command: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the failure beside its cause."""

    message: str | None = None  # the endpoint's words
    request: dict[str, Any] | None = None  # the body that was refused
    has_answers: bool = False  # other items of the job have answers: the address is right, as far as it goes


def hint_for(job: Job, cause: str | None, state: ItemState, seen: Seen | None = None) -> Hint:
    """Say what can be done about items of this job that stopped for `cause`."""
    if job.is_purged:
        return Hint("its contents are purged: nothing of it can be sent again", _command(job, cause, state))
    seen = seen or Seen()
    words = _words(job, cause, seen)
    if state is ItemState.IN_DOUBT:
        words += _free_way(job)
    if cause == ROUTE and seen.has_answers:
        return Hint(words, again_with_changes(job))
    return Hint(words, _command(job, cause, state))


def hint_for_stop(job: Job, *, has_answers: bool = True) -> Hint | None:
    """Say what can be done about a guard's stop of the whole job, by its reason; None where it is no guard's."""
    name, reason = job.task_id, job.reason or ""
    again = f"batchrun resume {name}"
    if reason in CAUSES:
        changed = again_with_changes(job, has_answers=has_answers)
        return Hint(_words(job, reason, Seen(has_answers=has_answers)), changed if reason in _SPEC_FAULTS else again)
    match reason:
        case "unreachable":
            return Hint(_address(job, Seen(has_answers=has_answers)), again)
        case "endpoint_down":
            return Hint(f"bring the endpoint back: {_at(job)}", again)
        case "failures_in_a_row":
            return Hint("look at what went wrong, and at the endpoint's own log", again)
        case "fail_on_error":
            return Hint("look at what failed; going on is possible all the same", again)
        case "trial_gate":
            return Hint("look at what failed; resume starts the full run all the same", again)
        case "budget":
            return Hint("raise max_cost_usd", f"{again} --max-cost USD")
        case "disk_full":
            return Hint("free disk space: what was paid for is kept", again)
        case _:
            return None


def kind_of(cause: str | None, state: ItemState) -> Kind:
    """Say what kind of failure stopped an item: an unknown outcome that was tried again in vain is a transient one."""
    known = CAUSES.get(cause or "")
    if state is ItemState.IN_DOUBT:
        return Kind.OURS if known and known.kind is Kind.OURS else Kind.DOUBTFUL
    if known is None or known.kind is Kind.DOUBTFUL:
        return Kind.TRANSIENT
    return known.kind


def again_with_changes(job: Job, *, has_answers: bool = True) -> str:
    """Name the command that looks at a changed spec or input, and that takes it over where nothing is paid twice.

    Where the job has answers a change may send items again that were paid for: without a flag, submit first says how
    many, and asks for one.
    """
    return f"batchrun submit {spec_name(job)}" + ("" if has_answers else " --accept-changes")


def spec_name(job: Job) -> str:
    """Return the spec file that was submitted, as it was typed; SPEC where that is not known."""
    named = job.spec.get("spec_file")
    return shlex.quote(named) if named else "SPEC"


def asked_tokens(request: dict[str, Any] | None) -> int | None:
    """Return the most tokens that a request asks for."""
    values = (request.get(name) for name in TOKEN_LIMITS) if request else ()
    return max((value for value in values if type(value) is int), default=None)


# -- the words --------------------------------------------------------------------------------------------------------


def _words(job: Job, cause: str | None, seen: Seen) -> str:
    make = _WORDS.get(cause or "")
    if make is not None:
        return make(job, seen)
    known = CAUSES.get(cause or "")
    return known.hint if known else "look at the endpoint's words"


def _timeout(job: Job, seen: Seen) -> str:
    return (
        f"timeout_s is {job.spec['timeout_s']:g}: raise it in the spec and submit that again, or lower concurrency "
        f"({job.concurrency}) or max_tokens ({job.spec['max_tokens']:,})"
    )


def _too_fast(job: Job, seen: Seen) -> str:
    if job.climb is not None:
        return f"concurrency follows by itself ({job.concurrency} now, of {job.allowed}): send such items again"
    if job.concurrency == 1:
        return "concurrency is 1 already: wait until the endpoint takes requests again"
    return f"concurrency is {job.concurrency}: lower it, say to {slower(job.concurrency)}"


def slower(concurrency: int) -> int:
    """Return the concurrency to try where the present one is too much: half of it."""
    return max(1, concurrency // 2)


def _key(job: Job, seen: Seen) -> str:
    return f"set a valid key in {job.spec['api_key_env'] or 'OPENAI_API_KEY'}"


def _model(job: Job, seen: Seen) -> str:
    model = (seen.request or {}).get("model") or job.spec["model"]
    where = "the line" if model != job.spec["model"] else "the spec"
    return f'set "model" in {where} ({model!r} now) to one that the endpoint serves'


def _context(job: Job, seen: Seen) -> str:
    asked = asked_tokens(seen.request) or int(job.spec["max_tokens"])
    limit = context_limit(seen.message or "")
    if limit is not None and asked >= limit:
        return f"lower max_tokens ({asked:,} now): with the prompt it must stay within the model's {limit:,} tokens"
    # Another max_tokens of the spec would change every item, and send those again that have answers.
    edit = f"shorten such prompts, or give their lines a max_tokens of their own, below {asked:,}"
    return f"{edit}: the model takes {limit:,} tokens for both together" if limit else edit


def _invalid(job: Job, seen: Seen) -> str:
    return (
        f"look at one with `batchrun show {job.task_id} ITEM --response`; where it will do after all, `batchrun "
        f"revalidate {job.task_id} --schema FILE` judges all anew for nothing; a response_format in params makes many "
        "endpoints keep to a schema"
    )


def _address(job: Job, seen: Seen) -> str:
    if seen.has_answers:
        return f"{_at(job)} has answered before: start it again, or see whether it takes {job.concurrency} connections"
    return f"{_at(job)}: start the endpoint, or correct {_address_name(job)}"


def _route(job: Job, seen: Seen) -> str:
    if seen.has_answers:
        return f"{_at(job)} answers on other routes, and not on this: take such lines out, or mend their url"
    return f"{_at(job)} does not know {job.spec['endpoint']}: correct {_address_name(job)}, or the spec's endpoint"


def _redirect(job: Job, seen: Seen) -> str:
    if seen.has_answers:
        return f"{_at(job)} answers others itself, and redirects such requests: look at the proxy in front of it"
    return f"{_at(job)} redirects: set {_address_name(job)} to the address that it redirects to"


def _page(job: Job, seen: Seen) -> str:
    if seen.has_answers:
        return f"{_at(job)} answers others: a proxy or gateway in front of it sent this page; look at its log"
    return f"{_at(job)} answers with a web page: is it the API's address ({_address_name(job)})?"


def _at(job: Job) -> str:
    if job.spec.get("endpoints"):
        return "an endpoint of the job"
    return str(job.spec.get("resolved_base_url") or job.spec["base_url"] or "the endpoint")


def _address_name(job: Job) -> str:
    if job.spec.get("endpoints"):
        return "its base_url in the spec's endpoints"
    return "base_url in the spec" if job.spec["base_url"] else "OPENAI_BASE_URL"


_WORDS: dict[str, Callable[[Job, Seen], str]] = {
    "timeout": _timeout,
    "rate_limited": _too_fast,
    "overloaded": _too_fast,
    "auth": _key,
    "model_not_found": _model,
    "invalid_answer": _invalid,
    "context_length": _context,
    "connect": _address,
    "connect_timeout": _address,
    "dns": _address,
    "route_not_found": _route,
    "redirect": _redirect,
    "html": _page,
}


def _free_way(job: Job) -> str:
    """Name the way out of doubts that holds by itself, where requests seem to cost nothing."""
    several = [one["base_url"] for one in job.spec.get("endpoints") or ()]
    urls = several or [job.spec.get("resolved_base_url") or job.spec["base_url"] or ""]
    if job.on_unknown != "hold" or job.spec["price"] or not all(url and is_local(url) for url in urls):
        return ""
    return f"; where requests cost nothing, this settles doubts: batchrun resume {job.task_id} --on-unknown retry"


# -- the command ------------------------------------------------------------------------------------------------------


def _command(job: Job, cause: str | None, state: ItemState) -> str:
    name = job.task_id
    if job.is_purged:  # nothing of it can be sent again
        return f"batchrun reconcile {name} --fail" if state is ItemState.IN_DOUBT else f"batchrun status {name}"
    if state is ItemState.IN_DOUBT:
        return f"batchrun reconcile {name}"
    if cause in _SPEC_FAULTS or kind_of(cause, state) is Kind.PERMANENT:
        return again_with_changes(job)
    again = f"batchrun retry-failed {name} --cause {cause}" if cause else f"batchrun retry-failed {name}"
    if cause in ("rate_limited", "overloaded") and job.concurrency > 1 and job.climb is None:
        return f"{again} --no-run && batchrun resume {name} -c {slower(job.concurrency)}"
    return again
