"""Whole response bodies, rendered to bytes by template: only what differs is put in."""

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import shake_256
from json.encoder import encode_basestring_ascii as quote

from batchrun.mock.answers import Answer
from batchrun.mock.asks import Ask, Route


@dataclass(frozen=True, slots=True)
class Stamp:
    """What differs between two answers to the same body."""

    id: bytes  # without the prefix of its kind
    created: int  # Unix time, s


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None  # of the prompt's; None: there is no cache


def render_usage(usage: Usage) -> bytes:
    """Render the usage object of chat and legacy completions."""
    total = usage.prompt_tokens + usage.completion_tokens
    numbers = (usage.prompt_tokens, usage.completion_tokens, total)
    text = b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % numbers
    if usage.cached_tokens is None:
        return text
    return text[:-1] + b',"prompt_tokens_details":{"cached_tokens":%d}}' % usage.cached_tokens


def render_finish_reason(answer: Answer) -> bytes:
    """Render why the answer ended, as a JSON string."""
    return b'"length"' if answer.is_cut else b'"stop"'


def render_completion(ask: Ask, answers: Sequence[Answer], usage: Usage, stamp: Stamp) -> bytes:
    """Render the body of a chat or a legacy completion."""
    is_chat = ask.route is Route.CHAT
    render = _render_chat_choice if is_chat else _render_text_choice
    return b'{"id":"%b-%b","object":"%b","created":%d,"model":%b,"choices":[%b],"usage":%b}' % (
        b"chatcmpl" if is_chat else b"cmpl",
        stamp.id,
        b"chat.completion" if is_chat else b"text_completion",
        stamp.created,
        quote(ask.model).encode(),
        b",".join([render(no, answer) for no, answer in enumerate(answers)]),
        render_usage(usage),
    )


def _render_chat_choice(no: int, answer: Answer) -> bytes:
    template = b'{"index":%d,"message":{"role":"assistant","content":"%b"},"logprobs":null,"finish_reason":%b}'
    return template % (no, answer.get_text(), render_finish_reason(answer))


def _render_text_choice(no: int, answer: Answer) -> bytes:
    template = b'{"index":%d,"text":"%b","logprobs":null,"finish_reason":%b}'
    return template % (no, answer.get_text(), render_finish_reason(answer))


def render_response(ask: Ask, answer: Answer | None, usage: Usage, stamp: Stamp) -> bytes:
    """Render a `response` object: without an answer, as it stands when a stream begins."""
    status = b"in_progress" if answer is None else b"incomplete" if answer.is_cut else b"completed"
    template = (
        b'{"id":"resp_%b","object":"response","created_at":%d,"status":"%b","error":null,"incomplete_details":%b,'
        b'"model":%b,"output":[%b],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"usage":%b}'
    )
    return template % (
        stamp.id,
        stamp.created,
        status,
        b'{"reason":"max_output_tokens"}' if answer and answer.is_cut else b"null",
        quote(ask.model).encode(),
        b"" if answer is None else render_message(answer, stamp),
        b"null" if answer is None else _render_response_usage(usage),
    )


def render_message(answer: Answer, stamp: Stamp) -> bytes:
    """Render the one output item of a `response` object."""
    template = (
        b'{"id":"msg_%b","type":"message","status":"%b","role":"assistant",'
        b'"content":[{"type":"output_text","text":"%b","annotations":[]}]}'
    )
    return template % (stamp.id, b"incomplete" if answer.is_cut else b"completed", answer.get_text())


def _render_response_usage(usage: Usage) -> bytes:
    template = (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,'
        b'"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}'
    )
    total = usage.prompt_tokens + usage.completion_tokens
    return template % (usage.prompt_tokens, usage.cached_tokens or 0, usage.completion_tokens, total)


def render_embeddings(ask: Ask, size: int, seed: int, usage: Usage) -> bytes:
    """Render one embedding of `size` numbers per input; equal inputs have equal embeddings."""
    return b'{"object":"list","data":[%b],"model":%b,"usage":{"prompt_tokens":%d,"total_tokens":%d}}' % (
        b",".join([_render_embedding(no, given, size, seed, ask.as_base64) for no, given in enumerate(ask.inputs)]),
        quote(ask.model).encode(),
        usage.prompt_tokens,
        usage.prompt_tokens,
    )


def _render_embedding(no: int, given: object, size: int, seed: int, as_base64: bool) -> bytes:
    raw = shake_256(json.dumps([seed, given]).encode()).digest(2 * size)
    numbers = [number / 32768.0 for number in struct.unpack(f"<{size}h", raw)]  # exact as 32-bit floats
    if as_base64:
        vector = b'"%b"' % base64.b64encode(struct.pack(f"<{size}f", *numbers))
    else:
        vector = json.dumps(numbers).encode()
    return b'{"object":"embedding","index":%d,"embedding":%b}' % (no, vector)
