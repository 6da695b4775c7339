"""One input line becomes one request: its address, its bytes, its identity and the most it can cost."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, from_json, to_json

from batchrun.core.client_options import CLIENT_OPTIONS_HINT, client_options_among
from batchrun.core.line import (
    CHAT,
    COMPLETIONS,
    NEEDED_FIELD,
    RESPONSES,
    TOKEN_LIMITS,
    LineFault,
    read_call,
    read_row,
    row_body,
)
from batchrun.core.spec import JobSpec
from batchrun.core.surrogates import FLATTEN, TooDeep, mend
from batchrun.core.wording import shown
from batchrun.errors import BadInput, Fault

__all__ = ["Defaults", "Draft", "LineFault", "Request", "build_request", "draft_request", "draft_row"]

_LIMIT_FIELD = {CHAT: "max_tokens", COMPLETIONS: "max_tokens", RESPONSES: "max_output_tokens"}  # embeddings take none
_MOST_TOKENS = 100_000_000  # as in the job spec
_MOST_CHOICES = 100_000
_MOST_OUTPUT_TOKENS = 10**15  # any number of them fits into a ledger's 64 bits
_DIGEST_OF = {path: blake2b(path.encode(), digest_size=16) for path in NEEDED_FIELD}
_KEY_OF = {path: blake2b(path.encode(), digest_size=8) for path in NEEDED_FIELD}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a job sends where a line does not say. `params` holds JSON values only."""

    model: str
    max_tokens: int
    endpoint: str  # one of ENDPOINT_PATHS: the path of lines that name none
    params: Mapping[str, Any]
    system: str | None = None  # of chat and responses, where a line brings none of its own
    prompt_template: str | None = None  # every line that is no Batch line is then a row

    @classmethod
    def of(cls, spec: JobSpec) -> "Defaults":
        """Take the request parameters of a job spec.

        Raises:
            BadInput: when `params` holds credentials, addresses, client options or what JSON cannot carry.
        """
        if what := client_options_among(spec.params):
            raise BadInput([Fault("params", what, CLIENT_OPTIONS_HINT)])
        try:
            params, _, _ = _encoded(spec.params)
        except LineFault as fault:
            raise BadInput([Fault("params", fault.what, fault.hint)]) from None
        return cls(spec.model, spec.max_tokens, spec.endpoint, params, spec.system, spec.prompt_template)

    def digest(self) -> bytes:
        """Return 16 bytes that stand for these parameters, whatever the order of the keys of `params`."""
        values = [self.model, self.max_tokens, self.endpoint, dict(self.params)]
        if self.system is not None or self.prompt_template is not None:
            values += [self.system, self.prompt_template]
        text = json.dumps(values, sort_keys=True)
        return blake2b(text.encode(), digest_size=16).digest()


class Request(NamedTuple):
    """One request, ready to be sent as it is."""

    custom_id: str | None  # None: the line has none, and one is made up of its content
    path: str  # one of ENDPOINT_PATHS
    body: bytes  # compact UTF-8 JSON
    digest: bytes  # 16 bytes of path and body: equal requests have equal digests
    model: str
    max_output_tokens: int  # the most that can be billed as output; 0 for embeddings
    note: str | None  # what had to be changed in the line's own content


class Draft(NamedTuple):
    """A line that was found good: everything that can be wrong with it has been checked."""

    custom_id: str | None
    path: str
    body: dict[str, Any]  # the line's own body, or a row's fields
    own: bytes  # the same, as compact UTF-8 JSON
    added: dict[str, Any]  # what the job adds; for a row that is the whole request
    max_output_tokens: int
    note: str | None
    is_row: bool = False

    @property
    def content_key(self) -> bytes:
        """Return 8 bytes of path and the line's own body: a changed default renames nothing."""
        return _digest(_KEY_OF, self.path, self.own)

    def request(self) -> Request:
        """Write the request."""
        body, own, added = self.body, self.own, self.added
        sent = own
        if self.is_row:
            sent = to_json(added)
        elif added:
            # Only a null of the line's own, or its messages, are ever replaced; anything else is put behind its bytes.
            is_apart = added.keys().isdisjoint(body)
            sent = own[:-1] + b"," + to_json(added)[1:] if is_apart else to_json({**body, **added})
        model = added["model"] if "model" in added else body["model"]
        digest = _digest(_DIGEST_OF, self.path, sent)
        return Request(self.custom_id, self.path, sent, digest, model, self.max_output_tokens, self.note)


def build_request(line: object, defaults: Defaults) -> Request:
    """Turn one parsed line into the request that is sent for it. The line's own fields win over the defaults.

    Raises:
        LineFault: when the line cannot be sent. No JSON value raises anything else.
    """
    return draft_request(line, defaults).request()


def draft_request(line: object, defaults: Defaults) -> Draft:
    """Check one parsed line completely, and leave the writing of the request for later.

    Raises:
        LineFault: when the line cannot be sent. No JSON value raises anything else.
    """
    custom_id, path, body, taken_out = read_call(line, endpoint=defaults.endpoint)
    try:
        body, own, replaced = _encoded(body)
        added, max_output_tokens = _added(path, body, defaults)
    except LineFault as fault:
        fault.custom_id = custom_id
        raise
    note = f"{taken_out}; {replaced}" if taken_out and replaced else taken_out or replaced
    return Draft(custom_id, path, body, own, added, max_output_tokens, note)


def draft_row(line: dict[str, Any], render: Callable[[dict[str, Any]], str], defaults: Defaults) -> Draft:
    """Check one row completely and make the request of it that `render` writes the prompt for.

    A row's identity is its own content: a changed template renames nothing.

    Raises:
        LineFault: when nothing can be sent for the row, or `render` says so.
    """
    custom_id, fields = read_row(line)
    try:
        fields, own, note = _encoded(fields)  # mends them, so that the prompt needs no mending
        body = row_body(render({**line, **fields}), endpoint=defaults.endpoint)
        added, max_output_tokens = _added(defaults.endpoint, body, defaults)
    except LineFault as fault:
        fault.custom_id = custom_id
        raise
    return Draft(custom_id, defaults.endpoint, fields, own, {**body, **added}, max_output_tokens, note, is_row=True)


def _added(path: str, body: dict[str, Any], defaults: Defaults) -> tuple[dict[str, Any], int]:
    """Return the fields that the job adds to a body, and the most output tokens that can then be billed."""
    added, limit = _added_fields(path, body, defaults)
    if defaults.system is not None:
        added |= _system_fields(path, body, defaults.system)
    return added, min(limit * _answer_count(path, body, added), _MOST_OUTPUT_TOKENS) if limit else 0


def _system_fields(path: str, body: dict[str, Any], system: str) -> dict[str, Any]:
    if path == RESPONSES and body.get("instructions") is None:
        return {"instructions": system}
    if path == CHAT and not any(message["role"] in ("system", "developer") for message in body["messages"]):
        return {"messages": [{"role": "system", "content": system}, *body["messages"]]}
    return {}


def most_tokens(path: str, body: bytes) -> int:
    """Return about the most tokens that a request can use, prompt and answers together.

    A token of a prompt has two bytes or more in all but made-up texts; answers are bounded by the request's own limit.
    """
    return len(body) // 2 + most_output_tokens(path, body)


def most_output_tokens(path: str, body: bytes) -> int:
    """Return the most output tokens that a request can be billed for; 0 for embeddings."""
    fields = from_json(body)
    limit = _token_limit(fields) if path in _LIMIT_FIELD else None
    return min(limit * _answer_count(path, fields, {}), _MOST_OUTPUT_TOKENS) if limit else 0


def model_of(body: bytes) -> str | None:
    """Return the model that a request asks for; None where it names none."""
    model = from_json(body).get("model")
    return model if isinstance(model, str) else None


def _digest(seeds: dict[str, blake2b], path: str, content: bytes) -> bytes:
    digest = seeds[path].copy()
    digest.update(content)
    return digest.digest()


def _encoded(body: dict[str, Any]) -> tuple[dict[str, Any], bytes, str | None]:
    """Return the body as it can be sent, its bytes, and a note on what had to be changed for that."""
    note = None
    try:
        text = to_json(body)
    except PydanticSerializationError:
        body, text, count = _mended(body)
        note = f"{count} lone surrogate{'s' if count > 1 else ''} replaced by U+FFFD"
    if b"Infinity" in text and not _is_finite(body):
        raise LineFault("holds a number that is too large (such as 1e999)", "write it as a string")
    return body, text, note


def _mended(body: dict[str, Any]) -> tuple[dict[str, Any], bytes, int]:
    try:
        body, count = mend(body)
        return body, to_json(body), count
    except TooDeep as error:
        raise LineFault(str(error), FLATTEN) from None
    except PydanticSerializationError:
        raise LineFault("cannot be written as JSON", "write its values as texts, numbers, lists or objects") from None


def _is_finite(value: Any) -> bool:
    """Say whether all numbers are finite: 1e999 is read as infinity, and would be written as no JSON at all."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or isfinite(value)


def _added_fields(path: str, body: dict[str, Any], defaults: Defaults) -> tuple[dict[str, Any], int | None]:
    """Return the fields that the job adds, and the token limit that then holds; embeddings have none.

    It adds its model, its params, and its own limit where neither the line nor the params set one.
    """
    added: dict[str, Any] = {}
    model = body.get("model")
    if model is None:
        added["model"] = defaults.model
    elif type(model) is not str or not model or model.isspace():
        raise LineFault(f"'model' must be a name, found {shown(model)}", "write a name, or take it out")
    field = _LIMIT_FIELD.get(path)
    limit = _token_limit(body) if field else None
    for name, value in defaults.params.items():
        if (field and limit is None) if name in TOKEN_LIMITS else name not in body and name not in added:
            added[name] = value
    if field and limit is None:
        limit = _token_limit(added)
        if limit is None:
            limit = added[field] = defaults.max_tokens
    return added, limit


def _token_limit(fields: dict[str, Any]) -> int | None:
    """Return the greatest token limit among the fields; None when none is set (null sets none)."""
    limit: int | None = None
    for name in TOKEN_LIMITS:
        if name in fields and fields[name] is not None:
            limit = max(limit or 0, _whole(fields, name, least=0, most=_MOST_TOKENS))
    return limit


def _answer_count(path: str, body: dict[str, Any], added: dict[str, Any]) -> int:
    """Return how many answers can be billed: every choice of every prompt."""
    if path == RESPONSES:
        return 1
    count = 1
    for name in ("n", "best_of"):
        if name in body or name in added:
            count = max(count, _whole(body if name in body else added, name, least=1, most=_MOST_CHOICES))
    return count * _prompt_count(body["prompt"]) if path == COMPLETIONS else count


def _whole(fields: dict[str, Any], name: str, *, least: int, most: int) -> int:
    """Return a whole number, `least` when the field is null."""
    value = fields[name]
    if value is None:
        return least
    if type(value) is not int or not least <= value <= most:
        is_quoted = isinstance(value, str) and value.isascii() and value.isdecimal()
        hint = f"write {shown(value)[1:-1]} without quotes" if is_quoted else "write such a number, or take it out"
        what = f"'{name}' must be a whole number from {least} to {most:,}, found {shown(value)}"
        raise LineFault(what, hint)
    return value


def _prompt_count(prompt: str | list[Any]) -> int:
    """Count the prompts: a string or an array of token ids is one, any other array is as many as its entries."""
    return 1 if isinstance(prompt, str) or type(prompt[0]) is int else len(prompt)
