"""What a reply means in the ledger's terms: the one file that knows status codes. The table is BILLING.md's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from batchrun.core.outcome import PROVES_NOT_SENT, Break, BreakKind, Charge, Evidence, Reply, Scope, Usage
from batchrun.core.states import AttemptState
from batchrun.endpoint.answer import Answer, read_answer, shows_work
from batchrun.endpoint.body import BOM, Form, read_json
from batchrun.endpoint.gateway import gateway_behind, may_hide_work, proves_refusal
from batchrun.endpoint.mask import Mask
from batchrun.endpoint.problem import Problem, problem_inside, problem_of
from batchrun.endpoint.retry_after import retry_after_s
from batchrun.endpoint.usage import read_usage, reported_pusd
from batchrun.endpoint.wording import body_words, looks_like_page, status_words, tidy

KEPT_BYTES = 65_536  # of a body that is no answer
REFUSED, ANSWERED, UNUSABLE, UNKNOWN = (
    AttemptState.REFUSED,
    AttemptState.ANSWERED,
    AttemptState.UNUSABLE,
    AttemptState.UNKNOWN,
)
CAUSE_OF_BREAK = {
    BreakKind.CONNECT: "connect",
    BreakKind.DNS: "dns",
    BreakKind.TLS: "tls",
    BreakKind.CONNECT_TIMEOUT: "connect_timeout",
    BreakKind.TIMEOUT: "timeout",
    BreakKind.LOST: "connection_lost",
    BreakKind.ABORTED: "aborted",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """The statuses of one endpoint that mean something else than they usually do."""

    unknown_statuses: frozenset[int] = frozenset()  # these do not prove that nothing was billed
    refused_statuses: frozenset[int] = frozenset()  # these do


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row of the table."""

    outcome: AttemptState
    cause: str
    charge: Charge
    scope: Scope
    words: str = ""  # put before the server's own


def refused(cause: str, scope: Scope = Scope.ITEM, words: str = "", *, charge: Charge = Charge.NONE) -> Verdict:
    """The server's own "no"."""
    return Verdict(REFUSED, cause, charge, scope, words)


USELESS = Verdict(UNUSABLE, "bad_json", Charge.POSSIBLE, Scope.ITEM)
CUT = Verdict(UNKNOWN, "cut_body", Charge.POSSIBLE, Scope.ITEM)
GATEWAY_ERROR = Verdict(UNKNOWN, "gateway_error", Charge.POSSIBLE, Scope.ITEM)
SERVER_ERROR = refused("server_error")
OVERLOADED = refused("overloaded", Scope.THROTTLE)
LOADING = refused("overloaded", Scope.THROTTLE, "the endpoint is loading its model")
STOPPING = refused("overloaded", Scope.THROTTLE, "the endpoint is shutting down")
QUOTA = refused("quota", Scope.EVERYONE, "quota or billing")
MODEL_NOT_FOUND = refused("model_not_found", Scope.EVERYONE)
CONTENT_FILTER = refused("content_filter", charge=Charge.POSSIBLE)
CONTEXT_LENGTH = refused("context_length")
TOO_LARGE = refused("too_large")
REFUSALS = {
    401: refused("auth", Scope.EVERYONE, "the endpoint refused the key"),
    402: QUOTA,
    403: refused("forbidden", Scope.EVERYONE),
    404: refused("route_not_found", Scope.EVERYONE),
    405: refused("route_not_found", Scope.EVERYONE),
    409: refused("conflict"),
    413: TOO_LARGE,
    429: refused("rate_limited", Scope.THROTTLE),
}
NO_BODY = (204, 205)  # complete by definition, and without an answer


def classify(exchange: Reply | Break, *, path: str, profile: Profile, mask: Mask) -> Evidence:
    """Make the evidence of one attempt. Never raises, whatever the bytes are.

    Args:
        exchange: what the transport reports.
        path: the path of the request, such as "/v1/chat/completions"; it says what an answer looks like.
        profile: the endpoint's peculiarities.
        mask: takes the key out of everything that is kept.
    """
    if isinstance(exchange, Break):
        return _of_break(exchange, mask)
    try:
        return _of_reply(exchange, path, profile, mask)
    except Exception as error:
        return _unread(exchange, error, mask)


def _unread(reply: Reply, error: Exception, mask: Mask) -> Evidence:
    """A fault of ours must not lose what may be paid for: the bytes are kept, and nothing is claimed."""
    return Evidence(
        outcome=UNUSABLE,
        cause="bad_json",
        message=f"{status_words(reply.status)}: batchrun could not read this reply ({type(error).__name__})",
        charge=Charge.POSSIBLE,
        timing=reply.timing,
        status=reply.status,
        raw=mask.raw(reply.body),
    )


def _of_break(fault: Break, mask: Mask) -> Evidence:
    is_sent = fault.kind not in PROVES_NOT_SENT
    # Once the head had come, the body was cut.
    is_cut = fault.kind is BreakKind.LOST and fault.status is not None
    return Evidence(
        outcome=UNKNOWN if is_sent else AttemptState.NOT_SENT,
        cause="cut_body" if is_cut else CAUSE_OF_BREAK[fault.kind],
        message=tidy(fault.detail, mask),
        charge=Charge.POSSIBLE if is_sent else Charge.NONE,
        timing=fault.timing,
        scope=Scope.ITEM if is_sent else Scope.UNREACHABLE,
        status=fault.status,
        raw=mask.raw(fault.partial[:KEPT_BYTES]) or None,
    )


def _of_reply(reply: Reply, path: str, profile: Profile, mask: Mask) -> Evidence:
    if 200 <= reply.status < 300:
        return _of_success(reply, path, mask)
    body = read_json(reply.body) if reply.body.lstrip(BOM + b" \t\r\n")[:1] in (b"{", b"[") else None
    problem = problem_of(body.value) if body and body.form is Form.JSON else None
    verdict = _moved(_verdict(reply.status, problem, reply.headers, _wait_s(reply)), reply.status, problem, profile)
    if verdict.outcome is REFUSED and body and body.form is Form.JSON and shows_work(body.value):
        return _worked_all_the_same(reply, body.value, mask)
    if verdict.outcome is REFUSED and body and body.form is Form.CUT and not _has_length(reply.headers):
        verdict = GATEWAY_ERROR  # it ended with its connection: nobody knows what else it would have said
    raw = mask.raw(reply.body) if body and body.form is Form.JSON and len(reply.body) <= KEPT_BYTES else None
    said = problem.words if problem else body_words(reply.body, reply.headers)
    gateway = gateway_behind(reply.headers, said) if verdict is GATEWAY_ERROR else None
    return _evidence(reply, verdict, _message(reply, verdict, said, gateway, mask), raw=raw, mask=mask)


def _has_length(headers: Mapping[str, str]) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers


def _worked_all_the_same(reply: Reply, body: dict[str, Any], mask: Mask) -> Evidence:
    """A refusal whose body holds an answer, or counts the tokens of one, is no refusal: it may be billed."""
    usage = read_usage(body)
    verdict = Verdict(UNUSABLE, "error_in_answer", Charge.CERTAIN if usage.is_known else Charge.POSSIBLE, Scope.ITEM)
    evidence = _useless(reply, verdict, "a refusal that shows that the work was done", mask)
    reported = reported_pusd(reply.headers, body)
    return replace(evidence, usage=usage, response_id=_short(body.get("id"), mask), reported_pusd=reported)


# --- anything but a 2xx ---


def _verdict(status: int, problem: Problem | None, headers: Mapping[str, str], wait_s: float | None) -> Verdict:
    if 300 <= status < 400:
        return refused("redirect", Scope.EVERYONE)
    words = problem.words if problem else ""
    if 400 <= status < 500:
        is_doubtful = status in (408, 499) or may_hide_work(headers, words)
        return GATEWAY_ERROR if is_doubtful else _client_error(status, problem, wait_s)
    if status not in (500, 503, 529) or not (problem or wait_s is not None):
        return GATEWAY_ERROR
    return _server_error(status, problem) if proves_refusal(headers, words) else GATEWAY_ERROR


def _server_error(status: int, problem: Problem | None) -> Verdict:
    if problem and problem.is_stopping():
        return STOPPING
    if status == 503:
        return LOADING if problem and problem.is_loading() else OVERLOADED
    return replace(OVERLOADED, scope=Scope.ITEM) if status == 529 else SERVER_ERROR


def _client_error(status: int, problem: Problem | None, wait_s: float | None) -> Verdict:
    """Read the spelling where it tells more than the status: what must stop the job, and what can never pass."""
    if problem:
        if status in (400, 403, 429) and problem.is_quota(comes_back=wait_s is not None):
            return QUOTA
        if status in (400, 403, 422, 446) and problem.is_content_filter():
            return CONTENT_FILTER
        if status in (400, 413, 422) and problem.is_context_length():
            return CONTEXT_LENGTH
        if status in (400, 404, 422) and problem.is_model_not_found():
            return MODEL_NOT_FOUND
        if status == 429 and problem.is_too_large():
            return TOO_LARGE
    return REFUSALS.get(status, refused("bad_request"))


def _moved(verdict: Verdict, status: int, problem: Problem | None, profile: Profile) -> Verdict:
    """Let the user's word on a status win over the table."""
    if status in profile.unknown_statuses:
        return replace(GATEWAY_ERROR, words="unknown_statuses names it")
    if status in profile.refused_statuses and verdict.outcome is UNKNOWN:
        return _server_error(status, problem)
    return verdict


# --- 2xx ---


def _of_success(reply: Reply, path: str, mask: Mask) -> Evidence:
    body = reply.body
    if coding := reply.headers.get("content-encoding"):
        return _useless(reply, USELESS, f"its body is labelled {tidy(coding, mask, longest=40)} and is not", mask)
    if reply.status in NO_BODY:
        return _useless(reply, USELESS, "there is no answer in it", mask)
    read = read_json(body)
    if read.form is Form.JSON:
        return _of_json(reply, read.value, path, mask)
    if looks_like_page(body, reply.headers):
        words = f"a web page instead of an answer: {body_words(body, reply.headers)}"
        return _useless(reply, replace(USELESS, cause="html"), words, mask, kept=KEPT_BYTES)
    if body[:200].removeprefix(BOM).lstrip().startswith((b"data:", b"event:", b":")):
        return _useless(reply, USELESS, "a stream of events instead of one JSON answer", mask)
    if read.form is Form.CUT:
        return _useless(reply, CUT, f"the answer is cut: {read.fault}", mask)
    words = f"the answer is not JSON: {read.fault}: {body_words(body, reply.headers)[:100]}"
    return _useless(reply, USELESS, words, mask)


def _of_json(reply: Reply, value: object, path: str, mask: Mask) -> Evidence:
    body = value if isinstance(value, dict) else {}
    usage = read_usage(body)
    if problem := problem_inside(value):
        return _of_error_inside(reply, value, problem, usage, mask)
    answer = read_answer(body, path) if isinstance(value, dict) else Answer("it is no JSON object")
    response_id = _short(body.get("id"), mask)
    if answer.fault:
        verdict = Verdict(UNUSABLE, answer.cause, Charge.CERTAIN if usage.is_known else Charge.POSSIBLE, Scope.ITEM)
        evidence = _useless(reply, verdict, f"the answer is of no use: {answer.fault}", mask)
        reported = reported_pusd(reply.headers, body)
        return replace(evidence, usage=usage, response_id=response_id, reported_pusd=reported)
    # Most attempts come this way: nothing is built twice.
    return Evidence(
        outcome=ANSWERED,
        cause=None,
        message=None,
        charge=Charge.CERTAIN,
        timing=reply.timing,
        status=reply.status,
        usage=usage,
        finish_reason=_short(answer.finish_reason, mask),
        warning=answer.warning(usage),
        request_id=_request_id(reply, mask),
        response_id=response_id,
        reported_pusd=reported_pusd(reply.headers, body),
        raw=mask.answer(reply.body),
    )


def _of_error_inside(reply: Reply, value: object, problem: Problem, usage: Usage, mask: Mask) -> Evidence:
    """An error under status 200 goes by the code inside, as long as that proves that no work was done."""
    status = problem.status or 0
    wait_s = _wait_s(reply)
    verdict = Verdict(UNUSABLE, "error_in_answer", Charge.CERTAIN if usage.is_known else Charge.POSSIBLE, Scope.ITEM)
    has_worked = shows_work(value) or usage.prompt_tokens
    if (400 <= status < 500 or status in (503, 529)) and not has_worked:
        inside = _verdict(status, problem, reply.headers, wait_s)
        verdict = inside if inside.outcome is REFUSED else verdict
    inside_words = f", with an error {status_words(status)} inside" if status else ", with an error inside"
    message = _join(f"{status_words(reply.status)}{inside_words}", verdict.words, tidy(problem.words, mask))
    evidence = _evidence(reply, verdict, message, raw=mask.raw(reply.body), mask=mask)
    return replace(evidence, usage=usage, reported_pusd=reported_pusd(reply.headers, value))


def _useless(reply: Reply, verdict: Verdict, words: str, mask: Mask, *, kept: int | None = None) -> Evidence:
    message = f"{status_words(reply.status)}: {tidy(words, mask)}"
    return _evidence(reply, verdict, message, raw=mask.raw(reply.body)[:kept], mask=mask)


# --- the row ---


def _evidence(reply: Reply, verdict: Verdict, message: str, *, raw: bytes | None, mask: Mask) -> Evidence:
    return Evidence(
        outcome=verdict.outcome,
        cause=verdict.cause,
        message=message,
        charge=verdict.charge,
        timing=reply.timing,
        scope=verdict.scope,
        status=reply.status,
        retry_after_s=_wait_s(reply),
        request_id=_request_id(reply, mask),
        reported_pusd=reported_pusd(reply.headers),
        raw=raw,
    )


def _request_id(reply: Reply, mask: Mask) -> str | None:
    headers = reply.headers
    return _short(headers.get("x-request-id") or headers.get("x-litellm-call-id") or headers.get("request-id"), mask)


def _message(reply: Reply, verdict: Verdict, said: str, gateway: str | None, mask: Mask) -> str:
    said = tidy(said, mask)
    if verdict.cause == "redirect":
        target = tidy(reply.headers.get("location", ""), mask)
        said = f"it redirects to '{target}', where nothing was sent" if target else "it redirects to nowhere"
    if gateway:
        said = _join(said, f"from behind {gateway}, which does not show that nothing was done")
    return _join(verdict.words, status_words(reply.status), said)


def _join(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _wait_s(reply: Reply) -> float | None:
    return retry_after_s(reply.headers, now=reply.timing.ended_at)


def _short(value: object, mask: Mask) -> str | None:
    return tidy(value, mask, longest=200) or None if isinstance(value, str) else None
