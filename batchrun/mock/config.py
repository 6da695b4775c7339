"""The settings of one mock endpoint."""

import json
from dataclasses import asdict, dataclass, fields

RATES = (
    "error_rate",
    "unavailable_rate",
    "rate_limit_rate",
    "hang_rate",
    "reset_rate",
    "cut_rate",
    "bad_json_rate",
    "drip_rate",
)
AMOUNTS = (
    "drain_s",
    "ttft_ms",
    "itl_ms",
    "prompt_token_ms",
    "latency_ms",
    "latency_sigma",
    "drip_s",
    "retry_after_s",
    "replay_s",
)
COUNTS = ("answer_tokens", "embedding_size", "slots", "knee", "refuse_above", "faults_per_item", "prefix_cache_blocks")
SPEND_LOGS = ("costs", "answers")


@dataclass(frozen=True, slots=True, kw_only=True)
class MockConfig:
    """Describe one mock endpoint; `ValueError` names the first setting that makes no sense."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    drain_s: float = 2.0
    """How long a stop waits for requests in flight before it cuts them off."""

    models: tuple[str, ...] = ("mock",)
    """Model names that `GET /v1/models` lists; the first is the default of a request without one."""
    strict_models: bool = False
    """Whether any other model name is refused with 404 `model_not_found`; else every name is served."""
    api_key: str | None = None
    """The key that `/v1/...` demands as a bearer token; None accepts everybody."""

    seed: int = 0
    """What all answers, delays and faults are drawn from, together with the request's bytes."""
    answer_tokens: int = 24
    """Mean length of an answer that `max_tokens` does not cut, in tokens."""
    answer_spread: float = 0.5
    """Lengths are even in `answer_tokens` x (1 - spread .. 1 + spread); 0 makes all alike."""
    embedding_size: int = 8
    """Numbers in an embedding when the request names no `dimensions`."""

    ttft_ms: float = 0.0
    """Median time to the first token, counted from the moment a slot is free."""
    itl_ms: float = 0.0
    """Median time between two tokens."""
    latency_ms: float | None = None
    """Median time of a whole answer of any length; if given, `ttft_ms` and `itl_ms` are not used."""
    latency_sigma: float = 0.0
    """Sigma of the lognormal factor on each of these times, drawn per request; 0 is no spread."""
    prompt_token_ms: float = 0.0
    """Time for each token of the prompt that the prefix cache does not have, before the first token; no spread."""
    prefix_cache_blocks: int | None = None
    """Blocks of 16 tokens that the prefix cache holds, the least recently used go first; None: there is no cache."""
    slots: int | None = None
    """Requests served at once, others wait first in, first out; None serves all at once."""
    knee: int | None = None
    """Above so many at once all take longer, so that no more is done in a second."""
    refuse_above: int | None = None
    """Above so many at once a request is refused with 429; not billed."""

    error_rate: float = 0.0
    """Share of requests refused at once with 500 and a JSON error; not billed."""
    unavailable_rate: float = 0.0
    """Share refused at once with 503 and a JSON error; not billed."""
    rate_limit_rate: float = 0.0
    """Share refused at once with 429 and `Retry-After`; not billed."""
    hang_rate: float = 0.0
    """Share whose work is done and billed, but whose answer never comes."""
    reset_rate: float = 0.0
    """Share whose work is done and billed, then the connection is reset before a byte is sent."""
    cut_rate: float = 0.0
    """Share answered 200 and billed, the body cut short and the connection closed."""
    bad_json_rate: float = 0.0
    """Share done and billed, but answered 200 with a complete body that is HTML."""
    drip_rate: float = 0.0
    """Share answered in full, but in small pieces spread over `drip_s`; billed."""
    drip_s: float = 1.0
    """How long the body of a dripping answer takes."""
    retry_after_s: float = 1.0
    """The `Retry-After` of a 429, in seconds."""
    faults_per_item: int | None = None
    """Only so many first arrivals of one body may be faulty; None sets no bound."""

    tokenizes: bool = False
    """Whether `POST /tokenize` tells how many tokens a prompt has, as vLLM's does; `usage` then says the same."""
    stores: bool = False
    """Whether chat completions with `"store": true` are kept, listed by metadata and found by id."""
    spend_log: str | None = None
    """Play a LiteLLM proxy: marks in the headers, and a spend log that holds "costs", or "answers" too."""
    replay_s: float | None = None
    """How long a whole answer is given again to its `Idempotency-Key`, unbilled; None honours no key."""

    log_path: str | None = None
    """JSONL file that the request log is appended to; None logs nothing."""

    def __post_init__(self) -> None:
        if isinstance(self.models, str) or not self.models:
            raise ValueError(f"'models' must be a non-empty sequence of names, not {self.models!r}")
        object.__setattr__(self, "models", tuple(self.models))
        self._check_rates()
        self._check_amounts()

    def _check_rates(self) -> None:
        for name in RATES:
            rate = getattr(self, name)
            if not 0.0 <= rate <= 1.0:
                raise ValueError(f"'{name}' is {rate}, but a share must lie in 0..1")
        if (total := sum(getattr(self, name) for name in RATES)) > 1.0 + 1e-9:
            raise ValueError(f"the fault rates add up to {total:g}, but at most 1 is possible")
        if not 0.0 <= self.answer_spread <= 1.0:
            raise ValueError(f"'answer_spread' is {self.answer_spread}, but a share must lie in 0..1")

    def _check_amounts(self) -> None:
        if self.spend_log not in (None, *SPEND_LOGS):
            raise ValueError(f"'spend_log' is {self.spend_log!r}, but it must be one of {', '.join(SPEND_LOGS)}")
        for name in AMOUNTS:
            amount = getattr(self, name)
            if amount is not None and not 0.0 <= amount < float("inf"):
                raise ValueError(f"'{name}' is {amount}, but it must be 0 or more")
        for name in COUNTS:
            count, least = getattr(self, name), 0 if name == "faults_per_item" else 1
            if count is not None and count < least:
                raise ValueError(f"'{name}' is {count}, but it must be at least {least}")

    def to_json(self) -> str:
        """Write all settings, the API key too, as one line of JSON: for a child process, not for a log."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "MockConfig":
        """Read what `to_json` wrote; missing settings take their default, unknown ones are a `ValueError`."""
        settings = json.loads(text)
        if not isinstance(settings, dict):
            raise ValueError("a mock configuration must be a JSON object")
        if unknown := sorted(settings.keys() - {field.name for field in fields(cls)}):
            raise ValueError(f"unknown mock settings: {', '.join(unknown)}")
        return cls(**settings)
