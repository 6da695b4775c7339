"""What a generation request asks for, read from its JSON body and checked the way OpenAI checks it."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from batchrun.mock.response import render_error

MAX_CHOICES = 128
MAX_EMBEDDING_SIZE = 16384
MAX_ANSWER_TOKENS = 1_000_000


class Route(StrEnum):
    """The paths that generate something."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    RESPONSES = "/v1/responses"


NEEDED = {Route.CHAT: "messages", Route.COMPLETIONS: "prompt", Route.EMBEDDINGS: "input", Route.RESPONSES: "input"}
LENGTH_NAMES = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class Refusal(Exception):
    """The request is not served; nothing was done and nothing is billed."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(slots=True)
class Ask:
    """A valid generation request."""

    route: Route
    model: str
    choice_count: int  # answers wanted: n, times the prompts of a legacy completion
    max_tokens: int | None
    ignore_eos: bool  # vLLM's: go on until max_tokens
    stream: bool
    include_usage: bool
    inputs: list[Any]  # what is to be embedded
    dimensions: int | None
    as_base64: bool


def read_ask(route: Route, body: bytes, default_model: str) -> Ask:
    """Read and check a body; `Refusal` says what is wrong with it."""
    fields = _parse(body)
    if fields.get(NEEDED[route]) is None:
        raise refuse(f"Missing required parameter: '{NEEDED[route]}'.", NEEDED[route], "missing_required_parameter")
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise refuse("'model' must be a string.", "model")
    options = fields.get("stream_options")
    return Ask(
        route=route,
        model=model or default_model,
        choice_count=_count_choices(route, fields),
        max_tokens=_read_max_tokens(fields),
        ignore_eos=fields.get("ignore_eos") is True,
        stream=_read_flag(fields, "stream") and route is not Route.EMBEDDINGS,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        inputs=_list_inputs(fields["input"]) if route is Route.EMBEDDINGS else [],
        dimensions=_read_optional_count(fields, "dimensions", MAX_EMBEDDING_SIZE),
        as_base64=fields.get("encoding_format") == "base64",
    )


def refuse(message: str, param: str | None, code: str | None = None, *, status: int = 400) -> Refusal:
    """Make the refusal of a faulty request, in OpenAI's shape."""
    return Refusal(status, render_error(message, "invalid_request_error", param=param, code=code))


def _parse(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):  # broken UTF-8 is a ValueError too
        raise refuse("We could not parse the JSON body of your request.", None) from None
    if not isinstance(fields, dict):
        raise refuse("The JSON body of your request is no object.", None)
    return fields


def _read_max_tokens(fields: dict[str, Any]) -> int | None:
    bounds = [_read_optional_count(fields, name, MAX_ANSWER_TOKENS) for name in LENGTH_NAMES]
    return next((bound for bound in bounds if bound is not None), None)


def _read_flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise refuse(f"'{name}' must be a boolean.", name)
    return value is True


def _read_optional_count(fields: dict[str, Any], name: str, most: int) -> int | None:
    return None if fields.get(name) is None else _read_count(fields, name, 1, most)


def _read_count(fields: dict[str, Any], name: str, default: int, most: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise refuse(f"'{name}' must be an integer in 1..{most}.", name)
    return value


def _count_choices(route: Route, fields: dict[str, Any]) -> int:
    if route not in (Route.CHAT, Route.COMPLETIONS):
        return 1
    wanted = _read_count(fields, "n", 1, MAX_CHOICES)
    prompt = fields.get("prompt")
    if route is Route.CHAT or not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return wanted
    return wanted * len(prompt)


def _list_inputs(value: Any) -> list[Any]:
    """List what to embed: a string or a list of token ids is one input, a list of these is many."""
    if not isinstance(value, list):
        return [value]
    if not value:
        raise refuse("'input' must not be empty.", "input")
    return [value] if isinstance(value[0], int) else value
