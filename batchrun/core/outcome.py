"""What one HTTP request came to: the transport's report, and the evidence made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from batchrun.core.states import AttemptState


class BreakKind(StrEnum):
    """Why a request has no complete reply. The kinds before TIMEOUT prove that no byte left."""

    CONNECT = "connect"  # connection refused or unreachable
    DNS = "dns"  # the name does not resolve
    TLS = "tls"  # no TLS session could be made
    CONNECT_TIMEOUT = "connect_timeout"  # no connection within the connect limit
    TIMEOUT = "timeout"  # the attempt's total time passed after the request may have left
    LOST = "lost"  # reset, closed or cut short after the request may have left
    ABORTED = "aborted"  # given up by us (second Ctrl-C) after the request may have left


PROVES_NOT_SENT = frozenset({BreakKind.CONNECT, BreakKind.DNS, BreakKind.TLS, BreakKind.CONNECT_TIMEOUT})


@dataclass(frozen=True, slots=True)
class Timing:
    """When things happened to one request; wall times are UTC unix seconds, durations are monotonic."""

    sent_at: float
    first_byte_at: float | None
    ended_at: float
    duration_s: float  # from the hand-over to the transport until the end


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete HTTP reply, as it came. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    timing: Timing


@dataclass(frozen=True, slots=True)
class Break:
    """A request that has no complete reply."""

    kind: BreakKind
    detail: str  # the transport's own words, free of secrets
    timing: Timing
    status: int | None = None  # when the head of a reply had come
    partial: bytes = b""  # what had come of the body


class Charge(StrEnum):
    """Whether an attempt is paid for."""

    CERTAIN = "certain"
    POSSIBLE = "possible"
    NONE = "none"


class Scope(StrEnum):
    """Whom a failure concerns; the breaker reads it."""

    ITEM = "item"  # this request alone
    THROTTLE = "throttle"  # everyone, for a while
    EVERYONE = "everyone"  # everyone, until somebody mends something: key, quota, model, route
    UNREACHABLE = "unreachable"  # everyone, until the endpoint is back


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint reported them. None is "not told", never 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def is_known(self) -> bool:
        return self.prompt_tokens is not None and self.completion_tokens is not None


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one attempt came to, in the ledger's terms. Made by `endpoint/classify`, and by nothing else."""

    outcome: AttemptState  # never INTENT
    cause: str | None  # a word of `CAUSES`; None for a plain answer
    message: str | None  # in words a user can act on; None for a plain answer
    charge: Charge
    timing: Timing | None  # None where no request was made
    scope: Scope = Scope.ITEM
    status: int | None = None
    retry_after_s: float | None = None
    usage: Usage = NO_USAGE
    finish_reason: str | None = None
    warning: str | None = None  # an answer worth a look: "length", "content_filter", "empty", "no_usage"
    request_id: str | None = None  # the endpoint's x-request-id
    response_id: str | None = None  # `id` of the answer
    raw: bytes | None = field(default=None, repr=False)  # the body as it came (decompressed)


@dataclass(frozen=True, slots=True)
class Cause:
    """A failure's name for scripts, and what a user can do about it."""

    name: str
    is_permanent: bool  # the same request will fail the same way again
    hint: str


CAUSES: dict[str, Cause] = {
    cause.name: cause
    for cause in (
        Cause("connect", False, "start the endpoint or correct OPENAI_BASE_URL"),
        Cause("dns", False, "correct the host name in OPENAI_BASE_URL"),
        Cause("tls", False, "use http:// for a plain endpoint, or trust its certificate (SSL_CERT_FILE)"),
        Cause("connect_timeout", False, "check the address and the network"),
        Cause("timeout", False, "raise timeout_s, lower max_tokens or concurrency; settle with `batchrun reconcile`"),
        Cause("connection_lost", False, "look at the endpoint's own log; settle with `batchrun reconcile`"),
        Cause("cut_body", False, "look at proxies between here and the endpoint; settle with `batchrun reconcile`"),
        Cause("aborted", False, "settle with `batchrun reconcile`"),
        Cause(
            "worker_lost", False, "a worker died while this request may have been out; settle with `batchrun reconcile`"
        ),
        Cause("gateway_error", False, "the upstream may have done the work; settle with `batchrun reconcile`"),
        Cause("server_error", False, "look at the endpoint's own log, then `batchrun retry-failed`"),
        Cause("overloaded", False, "lower concurrency, then `batchrun retry-failed`"),
        Cause("rate_limited", False, "lower concurrency, then `batchrun retry-failed`"),
        Cause("quota", False, "settle billing with the provider, then `batchrun resume`"),
        Cause("auth", False, "set a valid key in OPENAI_API_KEY, then `batchrun resume`"),
        Cause("forbidden", False, "ask for access to this model or use another key"),
        Cause("model_not_found", False, "name a model that the endpoint serves"),
        Cause("route_not_found", False, "correct OPENAI_BASE_URL or the spec's `endpoint`"),
        Cause("redirect", False, "set OPENAI_BASE_URL to the address the endpoint redirects to"),
        Cause("context_length", True, "shorten the prompt or lower max_tokens"),
        Cause("content_filter", True, "the provider's filter refused this prompt"),
        Cause("too_large", True, "make the request smaller"),
        Cause("bad_request", True, "correct the request's fields"),
        Cause("conflict", False, "look at the message, then `batchrun retry-failed`"),
        Cause("html", False, "OPENAI_BASE_URL answers with a web page: is it the API's address?"),
        Cause("error_in_answer", False, "look at the message, then `batchrun retry-failed`"),
        Cause("bad_json", False, "look at the raw answer with `batchrun show`, then `batchrun retry-failed`"),
        Cause("no_choices", False, "look at the raw answer with `batchrun show`, then `batchrun retry-failed`"),
        Cause("given_up", True, "you gave this item up; `batchrun retry-failed --all` sends it again"),
        Cause(
            "no_space", False, "an answer came and could not be kept: free disk space; settle with `batchrun reconcile`"
        ),
        Cause("over_budget", False, "raise max_cost_usd, then `batchrun resume`"),
    )
}
