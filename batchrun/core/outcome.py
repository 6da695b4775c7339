"""What one HTTP request came to: the transport's report, and the evidence made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from batchrun.core.measuring.trace import Trace
from batchrun.core.quick import quick
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


@quick
@dataclass(frozen=True, slots=True)
class Timing:
    """When things happened to one request; wall times are UTC unix seconds, durations are monotonic."""

    sent_at: float
    first_byte_at: float | None
    ended_at: float
    duration_s: float  # from the hand-over to the transport until the end
    trace: Trace | None = None  # of a streamed answer's pieces


@quick
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


@quick
@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint reported them. None is "not told", never 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt's, read from the provider's cache
    cache_write_tokens: int | None = None  # of the prompt's, written into it
    reasoning_tokens: int | None = None
    unnamed_tokens: int = 0  # counted, and neither the prompt's nor the answer's: reasoning that the answer leaves out

    @property
    def is_known(self) -> bool:
        return self.prompt_tokens is not None and self.completion_tokens is not None


NO_USAGE = Usage()


@quick
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
    reported_pusd: int | None = None  # what the endpoint says that it cost
    raw: bytes | None = field(default=None, repr=False)  # the body as it came (decompressed)


class Kind(StrEnum):
    """What kind of failure a cause is: whether the same request may do better, and who can mend it."""

    PERMANENT = "permanent"  # the same request will fail the same way again
    TRANSIENT = "transient"  # it may pass by itself, or after something outside the request was mended
    DOUBTFUL = "doubtful"  # nobody here can know whether the work was done and billed
    OURS = "ours"  # this side ended it: a process that died or was stopped, a full disk, a person's decision


# The one cause that an answered attempt can have: the answer is paid for, and not what the job's schema wants.
INVALID_ANSWER = "invalid_answer"


@dataclass(frozen=True, slots=True)
class Cause:
    """A failure's name for scripts, and what a user can do about it in any job (`runner/hints` knows the job's own)."""

    name: str
    kind: Kind
    hint: str

    @property
    def is_permanent(self) -> bool:
        """True where `retry-failed` leaves the item alone: it would fail again, or somebody gave it up."""
        return self.kind is Kind.PERMANENT or self.name == "given_up"


# In a cause's place: a request that was claimed ahead and given back unsent. Nothing went wrong.
RELEASED = "released"

CAUSES: dict[str, Cause] = {
    cause.name: cause
    for cause in (
        Cause("connect", Kind.TRANSIENT, "start the endpoint or correct OPENAI_BASE_URL"),
        Cause("dns", Kind.TRANSIENT, "correct the host name in OPENAI_BASE_URL"),
        Cause("tls", Kind.TRANSIENT, "use http:// for a plain endpoint, or trust its certificate (SSL_CERT_FILE)"),
        Cause("connect_timeout", Kind.TRANSIENT, "check the address and the network"),
        Cause("timeout", Kind.DOUBTFUL, "raise timeout_s, or lower concurrency or max_tokens"),
        Cause("connection_lost", Kind.DOUBTFUL, "look at the endpoint's own log: it may have restarted"),
        Cause("cut_body", Kind.DOUBTFUL, "look at proxies between here and the endpoint: one of them cuts answers"),
        Cause("gateway_error", Kind.DOUBTFUL, "look at the gateway's log: the upstream may have done the work"),
        Cause("aborted", Kind.OURS, "you stopped it while its request was out"),
        Cause("worker_lost", Kind.OURS, "a process of batchrun died while this request may have been out"),
        Cause("no_space", Kind.OURS, "an answer came and could not be kept: free disk space"),
        Cause("given_up", Kind.OURS, "it was given up while in doubt; only --all sends it again"),
        Cause("over_budget", Kind.OURS, "raise max_cost_usd"),
        Cause("server_error", Kind.TRANSIENT, "look at the endpoint's own log"),
        Cause("overloaded", Kind.TRANSIENT, "lower concurrency"),
        Cause("rate_limited", Kind.TRANSIENT, "lower concurrency"),
        Cause("quota", Kind.TRANSIENT, "settle billing with the provider"),
        Cause("auth", Kind.TRANSIENT, "set a valid key in OPENAI_API_KEY"),
        Cause("forbidden", Kind.TRANSIENT, "ask for access to this model, or use another key"),
        Cause("model_not_found", Kind.TRANSIENT, "name a model that the endpoint serves"),
        Cause("route_not_found", Kind.TRANSIENT, "correct OPENAI_BASE_URL or the spec's `endpoint`"),
        Cause("redirect", Kind.TRANSIENT, "set OPENAI_BASE_URL to the address the endpoint redirects to"),
        Cause("context_length", Kind.PERMANENT, "shorten the prompt, or lower its max_tokens"),
        Cause("content_filter", Kind.PERMANENT, "change the prompt: the provider's filter refused it"),
        Cause("too_large", Kind.PERMANENT, "make the request smaller"),
        Cause("too_large_for_tpm", Kind.PERMANENT, "raise tpm, or lower this item's max_tokens"),
        Cause("bad_request", Kind.PERMANENT, "correct the request's fields"),
        Cause("rejected", Kind.PERMANENT, "mend the line"),
        Cause("conflict", Kind.TRANSIENT, "look at the endpoint's words: another request is in its way"),
        Cause("html", Kind.TRANSIENT, "OPENAI_BASE_URL answers with a web page: is it the API's address?"),
        Cause("error_in_answer", Kind.TRANSIENT, "look at the endpoint's words"),
        Cause("bad_json", Kind.TRANSIENT, "look at the raw answer with `batchrun show JOB ITEM --response`"),
        Cause(INVALID_ANSWER, Kind.TRANSIENT, "look at the answer, or judge all of them by a mended schema"),
        Cause("no_choices", Kind.TRANSIENT, "look at the raw answer with `batchrun show JOB ITEM --response`"),
    )
}
