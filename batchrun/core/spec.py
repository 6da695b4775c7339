"""The job spec: what a user writes in job.json, key by key."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from batchrun.core.concurrency import MOST, WRITTEN, Concurrency
from batchrun.core.order import Order
from batchrun.core.prices import Price, dearest, exact_amount

COMPLETIONS_PATH = "/v1/chat/completions"
ENDPOINT_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
SYSTEM_PATHS = ("/v1/chat/completions", "/v1/responses")
# Keys of the contract that a coming release honours. Accepting one now and doing nothing would be a lie.
NOT_YET = ("stream",)
NEVER_IN_PARAMS = ("messages", "prompt", "input", "stream")  # a line's own
MOST_ENDPOINTS = 100
OF_ONE_ENDPOINT = ("base_url", "rpm", "tpm")  # not beside `endpoints`: there each has its own
TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
KEY_HEADER = re.compile(r"([A-Za-z0-9]+-)*[Ii]dempoten(cy|t)-[A-Za-z0-9-]{1,32}\Z")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
PRICE_BOOK = re.compile(r"genai-prices(:[a-z0-9][a-z0-9._-]{0,99})?\Z")


def _allowed(value: object) -> int | str:
    return Concurrency.of(value).written


_ALLOWED_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MOST},
        {"type": "string", "pattern": f"^{WRITTEN.pattern.removesuffix(chr(92) + 'Z')}$"},
    ]
}


class TrialSpec(BaseModel):
    """How many items are tried first, and when the full run does not follow by itself."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    size: int = Field(default=10, ge=0, le=10_000, description="items tried before the full run; 0 means no trial")
    sample: Literal["stratified", "head", "random"] = Field(default="stratified", description="which items are tried")
    seed: int = Field(default=0, ge=0, description="seed of the draw")
    max_failed_share: float = Field(
        default=0.5, ge=0, le=1, description="the gate stops when more than this share did not complete"
    )
    max_invalid_share: float = Field(
        default=0.5, ge=0, le=1, description="the gate stops when more than this share of the answers is invalid"
    )


class EndpointSpec(BaseModel):
    """One of several endpoints. Its limits are over all workers, as the job's are."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    base_url: str = Field(min_length=1, description="its address")
    api_key_env: str | None = Field(default=None, description="name of the variable that holds its key")
    model: str | None = Field(
        default=None, min_length=1, max_length=500, description="its own name for the job's model"
    )
    weight: float = Field(
        default=1.0, gt=0, le=1_000, description="its share of the requests, beside the others' weights"
    )
    concurrency: int | None = Field(default=None, ge=1, le=MOST, description="requests in flight there, at the most")
    rpm: int | None = Field(default=None, ge=1, le=10_000_000, description="requests sent there in any minute")
    tpm: int | None = Field(default=None, ge=1, le=100_000_000_000, description="tokens used there in any minute")
    price: Price | None = Field(default=None, description="what it charges; else the job's price")

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        return _name_of_variable(value)


def _name_of_variable(value: str | None) -> str | None:
    if value is not None and not ENV_NAME.match(value):
        # The value itself is not repeated: people paste the key here.
        raise ValueError("must be the NAME of an environment variable, such as OPENAI_API_KEY, not a key")
    return value


def names_of(places: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return the name of each of a job's endpoints: its address, and where that stands twice its key's variable too.

    Attempts name their endpoint so: a doubt must lead back to one account.

    Args:
        places: (address, the variable that holds the key; None: OPENAI_API_KEY).
    """
    addresses = Counter(address for address, _ in places)
    return [
        address if addresses[address] == 1 else f"{address} ({variable or 'OPENAI_API_KEY'})"
        for address, variable in places
    ]


def prices_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the price of each of a job's several endpoints, by its name, of a spec as the ledger keeps it."""
    endpoints = spec.get("endpoints") or ()
    places = [(one["base_url"], one["api_key_env"] or spec.get("api_key_env")) for one in endpoints]
    return dict(zip(names_of(places), (one["price"] for one in endpoints), strict=True))


class JobSpec(BaseModel):
    """One job. The seven keys without a default work alone; paths are as written, relative to the current folder."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    task_id: str = Field(description="the job's name: letters, digits, '.', '_' and '-'")
    model: str = Field(min_length=1, max_length=500, description="sent where a line names no model of its own")
    input_file: str = Field(min_length=1, description="JSONL, one request a line; rows: JSONL, CSV, Parquet")
    output_file: str = Field(min_length=1, description="answers in input order; failures go to error_file")
    max_tokens: int = Field(ge=1, le=10_000_000, description="sent where a line sets no limit of its own")
    concurrency: Annotated[int | str, BeforeValidator(_allowed), WithJsonSchema(_ALLOWED_SCHEMA)] = Field(
        description='requests in flight at once, at the most; "auto" or a range finds how many are worth it'
    )
    retry_times: int = Field(ge=0, le=1_000, description="retries after the first try; 0 means none")

    base_url: str | None = Field(default=None, min_length=1, description="the endpoint; else OPENAI_BASE_URL")
    api_key_env: str | None = Field(default=None, description="name of the variable that holds the key")
    endpoints: tuple[EndpointSpec, ...] = Field(
        default=(), max_length=MOST_ENDPOINTS, description="several endpoints that share the work, instead of base_url"
    )
    endpoint: str = Field(default=COMPLETIONS_PATH, description="path used where a line names none")
    params: dict[str, Any] = Field(
        default_factory=dict, description="further body fields, sent unless a line sets them"
    )
    prompt_template: str | None = Field(
        default=None, min_length=1, description="Jinja2 text that makes a prompt of each row of data"
    )
    system: str | None = Field(
        default=None, min_length=1, description="system message of chat and responses lines that bring none"
    )
    timeout_s: float = Field(default=600.0, gt=0, le=86_400, description="total time of one attempt")
    on_unknown: Literal["hold", "retry"] | None = Field(
        default=None, description="what to do when a request's fate is unknown"
    )
    response_schema: Any = Field(
        default=None,
        json_schema_extra={
            "anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}, {"const": True}, {"type": "null"}]
        },
        description="what answers must be: a JSON Schema, a file that holds one, or true for any JSON",
    )
    accept_fenced: bool = Field(default=False, description="JSON in a code fence is an answer of response_schema too")
    reask: int = Field(
        default=0, ge=0, le=10, description="times that an item is asked, and paid, again for an invalid answer"
    )
    unknown_statuses: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field(
        default=(), description="HTTP statuses of this endpoint that do not prove that nothing was billed"
    )
    refused_statuses: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field(
        default=(), description="HTTP statuses of this endpoint that prove that nothing was billed"
    )
    lookup: Literal["openai", "litellm"] | None = Field(
        default=None, description="how this endpoint can be asked what became of a request"
    )
    idempotency_header: str | None = Field(
        default=None, description="header under which this endpoint gives a known answer again, unbilled"
    )
    idempotency_retention_s: float = Field(
        default=86_400.0, gt=0, le=31_536_000, description="how long it remembers such a key"
    )
    order: Order = Field(
        default="input",
        description="what is sent first: as the lines stand, alike beginnings together, or the longest",
    )
    cache: bool = Field(default=False, description="the same request to the same endpoint is sent, and paid, once")
    measure: bool = Field(
        default=False, description="answers come in pieces, and the time of each is kept; stored and written whole"
    )
    trial: TrialSpec = Field(default_factory=TrialSpec, description="the trial: size, sample, seed, max_failed_share")
    rpm: int | None = Field(default=None, ge=1, le=10_000_000, description="requests sent in any minute, at the most")
    tpm: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000_000,
        description="tokens used in any minute, prompts and answers, at the most",
    )
    price: Price | None = Field(default=None, description="USD per million tokens")
    price_from: str | None = Field(
        default=None, description='"genai-prices", or "genai-prices:PROVIDER": whose prices hold where none is written'
    )
    max_cost_usd: Decimal | None = Field(
        default=None, gt=0, le=1_000_000, description="no send that could take the job above this"
    )
    max_prompt_tokens: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="the most tokens of a prompt that is more than text (pictures, sound, files): its cost at most",
    )
    error_file: str | None = Field(default=None, min_length=1, description="default: <output>.errors.jsonl")
    fail_on_error: float | None = Field(
        default=None, gt=0, description="stop at this share (below 1) or count of failed items"
    )
    endpoint_down_limit_s: float = Field(
        default=1800.0, gt=0, description="how long to wait for an endpoint that went away"
    )
    metadata: dict[str, str] = Field(default_factory=dict, description="yours; kept with the job")

    @property
    def is_priced(self) -> bool:
        """True where what a request costs is written here, or will be looked up before anything is sent."""
        return self.price_from is not None or self.dearest is not None

    @property
    def dearest(self) -> Price | None:
        """The most that a request can cost, at whichever endpoint; None where that is not known."""
        return dearest([one.price or self.price for one in self.endpoints] or [self.price])

    @field_validator("params", "metadata", mode="before")
    @classmethod
    def _object(cls, value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError("must be an object")
        return value

    @field_validator("response_schema", mode="before")
    @classmethod
    def _schema(cls, value: object) -> object:
        if value is not None and value is not True and not (isinstance(value, dict | str) and value != ""):
            raise ValueError("must be a JSON Schema, the name of a file that holds one, or true for any JSON")
        return value

    @field_validator("endpoints", "unknown_statuses", "refused_statuses", mode="before")
    @classmethod
    def _list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("max_cost_usd", mode="before")
    @classmethod
    def _money(cls, value: object) -> object:
        return exact_amount(value)

    @field_validator("task_id")
    @classmethod
    def _name(cls, value: str) -> str:
        if not TASK_ID.match(value):
            raise ValueError("must be 1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit")
        return value

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        return _name_of_variable(value)

    @field_validator("price_from")
    @classmethod
    def _price_book(cls, value: str | None) -> str | None:
        if value is not None and not PRICE_BOOK.match(value):
            raise ValueError("must be genai-prices, or genai-prices:PROVIDER such as genai-prices:openai")
        return value

    @field_validator("idempotency_header")
    @classmethod
    def _header(cls, value: str | None) -> str | None:
        if value is not None and not KEY_HEADER.match(value):
            raise ValueError("must be the name of a header such as Idempotency-Key")
        return value

    @field_validator("endpoint")
    @classmethod
    def _path(cls, value: str) -> str:
        if value not in ENDPOINT_PATHS:
            raise ValueError(f"must be one of {', '.join(ENDPOINT_PATHS)}")
        return value
