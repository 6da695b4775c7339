"""Streamed answers: server-sent events, one step per token, rendered only when their time has come."""

from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring_ascii as quote

from batchrun.mock.answers import Answer
from batchrun.mock.asks import Ask, Route
from batchrun.mock.bodies import Stamp, Usage, render_finish_reason, render_message, render_response, render_usage

DONE = b"data: [DONE]\n\n"


def count_steps(answers: Sequence[Answer]) -> int:
    """Count the steps of a stream: the choices advance side by side, so as many as the longest has tokens."""
    return max(answer.token_count for answer in answers)


def render_steps(ask: Ask, answers: Sequence[Answer], usage: Usage, stamp: Stamp) -> Iterator[bytes]:
    """Yield `count_steps` pieces of events: one token of each choice, with all that comes before and after it."""
    if ask.route is Route.RESPONSES:
        yield from _render_response_steps(ask, answers[0], usage, stamp)
    else:
        yield from _render_completion_steps(_ChunkForm(ask, stamp), ask, answers, usage)


class _ChunkForm:
    """The chunk of one stream with gaps for what differs between chunks."""

    def __init__(self, ask: Ask, stamp: Stamp) -> None:
        is_chat = ask.route is Route.CHAT
        self._head = b'data: {"id":"%b-%b","object":"%b","created":%d,"model":%b,"choices":[' % (
            b"chatcmpl" if is_chat else b"cmpl",
            stamp.id,
            b"chat.completion.chunk" if is_chat else b"text_completion",
            stamp.created,
            quote(ask.model).encode(),
        )
        self._tail = b'],"usage":null}\n\n' if ask.include_usage else b"]}\n\n"
        self._delta = b'"delta":{"content":"%b"}' if is_chat else b'"text":"%b"'
        self._last = b'"delta":{}' if is_chat else b'"text":""'

    def render_role(self, index: int) -> bytes:
        """Render the first chunk of a chat choice."""
        return self._render(index, b'"delta":{"role":"assistant","content":""}', b"null")

    def render_token(self, index: int, token: bytes) -> bytes:
        """Render a chunk with one token."""
        return self._render(index, self._delta % token, b"null")

    def render_finish(self, index: int, answer: Answer) -> bytes:
        """Render the last chunk of a choice."""
        return self._render(index, self._last, render_finish_reason(answer))

    def render_usage(self, usage: Usage) -> bytes:
        """Render the chunk without choices that ends a stream with `include_usage`."""
        return b'%b],"usage":%b}\n\n' % (self._head, render_usage(usage))

    def _render(self, index: int, content: bytes, finish_reason: bytes) -> bytes:
        template = b'%b{"index":%d,%b,"logprobs":null,"finish_reason":%b}%b'
        return template % (self._head, index, content, finish_reason, self._tail)


def _render_completion_steps(form: _ChunkForm, ask: Ask, answers: Sequence[Answer], usage: Usage) -> Iterator[bytes]:
    last_no = count_steps(answers) - 1
    for no in range(last_no + 1):
        events: list[bytes] = []
        if no == 0 and ask.route is Route.CHAT:
            events += [form.render_role(index) for index in range(len(answers))]
        for index, answer in enumerate(answers):
            if no < answer.token_count:
                events.append(form.render_token(index, answer.get_token(no)))
            if no == answer.token_count - 1:
                events.append(form.render_finish(index, answer))
        if no == last_no:
            events += [form.render_usage(usage), DONE] if ask.include_usage else [DONE]
        yield b"".join(events)


def _render_response_steps(ask: Ask, answer: Answer, usage: Usage, stamp: Stamp) -> Iterator[bytes]:
    place = b'"item_id":"msg_%b","output_index":0,"content_index":0' % stamp.id
    last_no = answer.token_count - 1
    for no in range(answer.token_count):
        fields = [(b"response.output_text.delta", b'%b,"delta":"%b","logprobs":[]' % (place, answer.get_token(no)))]
        if no == 0:
            fields = _open_response(ask, usage, stamp, place) + fields
        if no == last_no:
            fields += _close_response(ask, answer, usage, stamp, place)
        first_no = 0 if no == 0 else no + 3  # three events come before the first token
        yield b"".join([_render_event(name, first_no + at, rest) for at, (name, rest) in enumerate(fields)])


def _open_response(ask: Ask, usage: Usage, stamp: Stamp, place: bytes) -> list[tuple[bytes, bytes]]:
    item = b'{"id":"msg_%b","type":"message","status":"in_progress","role":"assistant","content":[]}' % stamp.id
    return [
        (b"response.created", b'"response":%b' % render_response(ask, None, usage, stamp)),
        (b"response.output_item.added", b'"output_index":0,"item":%b' % item),
        (b"response.content_part.added", b'%b,"part":{"type":"output_text","text":"","annotations":[]}' % place),
    ]


def _close_response(ask: Ask, answer: Answer, usage: Usage, stamp: Stamp, place: bytes) -> list[tuple[bytes, bytes]]:
    text = answer.get_text()
    end = b"response.incomplete" if answer.is_cut else b"response.completed"
    return [
        (b"response.output_text.done", b'%b,"text":"%b","logprobs":[]' % (place, text)),
        (
            b"response.content_part.done",
            b'%b,"part":{"type":"output_text","text":"%b","annotations":[]}' % (place, text),
        ),
        (b"response.output_item.done", b'"output_index":0,"item":%b' % render_message(answer, stamp)),
        (end, b'"response":%b' % render_response(ask, answer, usage, stamp)),
    ]


def _render_event(name: bytes, sequence_no: int, fields: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (name, name, sequence_no, fields)
