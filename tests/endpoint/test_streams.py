"""Streamed answers over real sockets: put together as they would come whole, each piece stamped when it was there."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from batchrun.core.measuring.timings import Measured
from batchrun.core.measuring.trace import Trace
from batchrun.core.outcome import Break, BreakKind, Reply
from batchrun.core.states import AttemptState
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.client import Endpoint
from batchrun.endpoint.mask import Mask
from batchrun.endpoint.stream import Stream
from tests.endpoint.scripted import LIMIT_S, PATH, Handler, Server, Wire, broken, replied, reply, run, serving

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
ROLE = {"role": "assistant", "content": ""}


def chunk(delta: dict[str, Any] | None = None, *, end: str | None = None, index: int = 0, **top: Any) -> bytes:
    """Write one chunk of a chat answer as an event; without a delta it has no choices."""
    choices = [] if delta is None else [{"index": index, "delta": delta, "logprobs": None, "finish_reason": end}]
    body = {"id": "c-1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": choices, **top}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def says(*words: str) -> list[bytes]:
    """Write the events of an ordinary answer."""
    first, *rest = [chunk({"content": word}) for word in words]
    return [chunk(ROLE), first, *rest, chunk({}, end="stop"), chunk(usage=USAGE), DONE]


class PieceClock:
    """The clock by which a client stamps: it goes on between two pieces only, when the one before has been stamped."""

    def __init__(self) -> None:
        self.now_s = monotonic()
        self._was_read = asyncio.Event()

    def __call__(self) -> float:
        self._was_read.set()
        return self.now_s

    async def go_on(self, gap_s: float) -> None:
        """Wait until the time has been read since the last piece, and let so much of it pass."""
        await self._was_read.wait()
        self._was_read.clear()
        self.now_s += gap_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PieceClock:
    made = PieceClock()
    monkeypatch.setattr("batchrun.endpoint.stream.monotonic", made)
    return made


def sent(
    pieces: Sequence[bytes], *, clock: PieceClock | None = None, gap_s: float = 0.0, is_ended: bool = True
) -> Handler:
    """Send each piece by itself, by a clock `gap_s` after the one before."""

    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for number, piece in enumerate(pieces):
            if number and clock is not None:
                await clock.go_on(gap_s)
            await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        if is_ended:
            await wire.send(b"0\r\n\r\n")

    return handler


def exchange(handler: Handler, *, path: str = PATH, is_measured: bool = True) -> tuple[Reply | Break, Server]:
    async def work() -> tuple[Reply | Break, Server]:
        async with (
            serving(handler) as server,
            Endpoint(server.base_url, "EMPTY", timeout_s=LIMIT_S, is_measured=is_measured) as endpoint,
        ):
            return await endpoint.exchange(path=path, body=b'{"model":"m"}', attempt_id="a-1"), server

    return run(work())


def traced(answer: Reply | Break) -> Trace:
    assert answer.timing.trace is not None
    return answer.timing.trace


def test_a_streamed_answer_is_put_together_and_judged_like_a_whole_one() -> None:
    answer, server = exchange(sent(says("he", "ll", "o")))
    assert json.loads(server.requests[0].body) == {
        "model": "m", "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert json.loads(replied(answer).body) == {
        "id": "c-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
    evidence = classify(answer, path=PATH, profile=Profile(), mask=Mask("EMPTY"))
    assert (evidence.outcome, evidence.usage.completion_tokens) == (AttemptState.ANSWERED, 3)
    assert evidence.timing is answer.timing


def test_the_times_are_those_of_the_pieces_and_a_role_is_no_token(clock: PieceClock) -> None:
    gap_s = 0.05
    answer, _ = exchange(sent(says("a", "b", "c"), clock=clock, gap_s=gap_s))
    trace = traced(answer)
    assert trace.first_token_s is not None
    assert trace.last_token_s is not None
    # role, a, b, c, end, usage, done: the first token a gap after the first chunk, then three chunks with choices.
    assert trace.first_token_s - trace.first_chunk_s == pytest.approx(gap_s)
    assert trace.gaps_s == pytest.approx([gap_s] * 3)
    assert clock.now_s - trace.sent_s - trace.last_token_s == pytest.approx(2 * gap_s)


def test_what_is_not_measured_is_asked_for_whole() -> None:
    answer, server = exchange(sent(says("a")), is_measured=False)
    assert server.requests[0].body == b'{"model":"m"}'
    assert answer.timing.trace is None
    assert classify(answer, path=PATH, profile=Profile(), mask=Mask("EMPTY")).cause == "bad_json"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_events_are_found_wherever_the_network_cuts_them(size: int, newline: bytes) -> None:
    text = b": ping\n\n" + b"".join(says("grü", "ß\n\ndata: x", "e"))
    text = text.replace(b"\n", newline)
    answer, _ = exchange(sent([text[at : at + size] for at in range(0, len(text), size)]))
    message = json.loads(replied(answer).body)["choices"][0]["message"]
    assert message["content"] == "grüß\n\ndata: xe"


def test_tools_reasoning_and_several_choices_grow_each_by_themselves() -> None:
    call = {"index": 0, "id": "t-1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}
    pieces = [
        chunk(ROLE), chunk(ROLE, index=1),
        chunk({"reasoning_content": "so "}), chunk({"reasoning_content": "then"}),
        chunk({"tool_calls": [call]}), chunk({"content": "x"}, index=1),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        chunk({}, end="tool_calls"), chunk({}, end="length", index=1), DONE,
    ]  # fmt: skip
    choices = json.loads(replied(exchange(sent(pieces))[0]).body)["choices"]
    assert choices[0]["message"]["tool_calls"] == [
        {"index": 0, "id": "t-1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    ]
    assert choices[0]["message"]["reasoning_content"] == "so then"
    assert (choices[1]["message"]["content"], choices[1]["finish_reason"]) == ("x", "length")


def test_reasoning_that_is_shown_is_the_first_token() -> None:
    pieces = [chunk(ROLE), chunk({"reasoning_content": "hm"}), chunk({"content": "a"}), chunk({}, end="stop"), DONE]
    assert len(traced(exchange(sent(pieces))[0]).gaps_s) == 2


def test_text_completions_and_their_logprobs_are_put_together() -> None:
    def piece(text: str, end: str | None = None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": {"tokens": [text]}, "finish_reason": end}
        return b"data: " + json.dumps({"object": "text_completion", "choices": [choice]}).encode() + b"\n\n"

    answer, _ = exchange(sent([piece("a"), piece("b", "length"), DONE]), path="/v1/completions")
    body = json.loads(replied(answer).body)
    assert body["choices"][0] | {} == {
        "index": 0, "text": "ab", "logprobs": {"tokens": ["a", "b"]}, "finish_reason": "length",
    }  # fmt: skip
    assert "usage" not in body


def test_an_error_inside_a_stream_is_what_it_comes_to() -> None:
    error = {"error": {"message": "out of memory", "type": "server_error", "code": 500}}
    answer, _ = exchange(sent([chunk({"content": "a"}), b"data: " + json.dumps(error).encode() + b"\n\n"]))
    evidence = classify(answer, path=PATH, profile=Profile(), mask=Mask("EMPTY"))
    assert (evidence.outcome, evidence.cause) == (AttemptState.UNUSABLE, "error_in_answer")


@pytest.mark.parametrize("kept", range(5))
def test_a_stream_that_ends_early_is_a_doubt_however_it_ends(kept: int) -> None:
    pieces = says("a", "b", "c")[:kept]
    for is_ended in (True, False):
        answer = broken(exchange(sent(pieces, is_ended=is_ended))[0], BreakKind.LOST)
        assert classify(answer, path=PATH, profile=Profile(), mask=Mask("EMPTY")).outcome is AttemptState.UNKNOWN


def test_a_stream_without_its_end_mark_is_whole_when_every_choice_has_ended() -> None:
    assert replied(exchange(sent([chunk({"content": "a"}), chunk({}, end="stop")]))[0])


def test_a_server_that_does_not_stream_is_taken_as_it_is() -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply())

    answer, _ = exchange(handler)
    assert json.loads(replied(answer).body)["choices"][0]["message"]["content"] == "hello"
    assert answer.timing.trace is None


def test_chunks_of_odd_shapes_break_nothing() -> None:
    values = ["{nonsense", "3", '{"choices": 5}', '{"choices": [1, {"delta": 2}]}',
              '{"choices": [{"index": "x", "delta": {"content": 7}}]}']  # fmt: skip
    odd = [f"data: {value}\n\n".encode() for value in values]
    answer, _ = exchange(sent([*odd, *says("a")]))
    assert json.loads(replied(answer).body)["choices"][0]["message"]["content"] in ("a", "7a")


def test_pieces_are_stamped_in_order() -> None:
    answer, _ = exchange(sent(says(*"abcdefgh")))
    trace = traced(answer)
    at_s = [trace.first_chunk_s, trace.first_token_s or 0.0, trace.last_token_s or 0.0, answer.timing.duration_s]
    assert all(before <= after for before, after in pairwise(at_s))


@pytest.mark.parametrize(("ttft_s", "itl_s", "tokens"), [(0.25, 0.02, 30), (1.5, 0.001, 2), (0.04, 0.5, 1)])
def test_by_an_exact_clock_every_latency_is_the_arithmetic_truth(
    ttft_s: float, itl_s: float, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role half-way to the first token, then a token each `itl_s`, the end in one read with the last of them."""
    sent_s, role_s = 1_000.0, ttft_s / 2
    reads = [(role_s, chunk(ROLE))]
    reads += [(ttft_s + number * itl_s, chunk({"content": "x"})) for number in range(tokens)]
    reads[-1] = (
        reads[-1][0],
        reads[-1][1] + chunk({}, end="length") + chunk(usage={"completion_tokens": tokens}) + DONE,
    )
    stream = Stream(sent_s)
    for at_s, data in reads:
        monkeypatch.setattr("batchrun.endpoint.stream.monotonic", lambda now_s=sent_s + at_s: now_s)
        stream.feed(data)
    kept = stream.trace()
    assert kept is not None
    trace = Trace.unpack(kept.pack())
    last_s = ttft_s + (tokens - 1) * itl_s
    one = Measured(name="r", outcome=AttemptState.ANSWERED, sent_s=0.0, first_token_s=trace.first_token_s,
                   last_token_s=trace.last_token_s, ended_s=last_s, output_tokens=tokens)  # fmt: skip
    resolution_s = 1.5e-6
    assert trace.first_chunk_s == pytest.approx(role_s, abs=resolution_s)
    assert (one.ttft_s, one.e2el_s) == (
        pytest.approx(ttft_s, abs=resolution_s),
        pytest.approx(last_s, abs=resolution_s),
    )
    assert one.tpot_s == (None if tokens == 1 else pytest.approx(itl_s, abs=resolution_s))
    assert trace.gaps_s == pytest.approx([*[itl_s] * (tokens - 1), 0.0], abs=resolution_s)


RESPONSES = "/v1/responses"
WHOLE = {
    "id": "resp_1", "object": "response", "status": "completed", "error": None,
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ab"}]}],
    "usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9},
}  # fmt: skip


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def responds(*ends: bytes) -> list[bytes]:
    return [
        event("response.created", response={**WHOLE, "status": "in_progress", "output": []}),
        event("response.reasoning_text.delta", delta="hm"),
        event("response.output_text.delta", delta="a"),
        event("response.output_text.delta", delta="b"),
        event("response.output_text.done", text="ab"),
        *ends,
    ]


def test_a_streamed_response_is_the_one_that_its_last_event_brings_and_its_deltas_are_the_tokens(
    clock: PieceClock,
) -> None:
    gap_s = 0.05
    pieces = responds(event("response.completed", response=WHOLE))
    answer, server = exchange(sent(pieces, clock=clock, gap_s=gap_s), path=RESPONSES)
    assert json.loads(server.requests[0].body) == {"model": "m", "stream": True}
    assert json.loads(replied(answer).body) == WHOLE
    evidence = classify(answer, path=RESPONSES, profile=Profile(), mask=Mask("EMPTY"))
    assert (evidence.outcome, evidence.usage.completion_tokens) == (AttemptState.ANSWERED, 2)
    trace = traced(answer)
    assert trace.first_token_s is not None
    assert trace.first_token_s - trace.first_chunk_s == pytest.approx(gap_s)
    assert trace.gaps_s == pytest.approx([gap_s] * 2)


def test_a_response_whose_last_event_never_came_is_in_doubt_and_an_error_is_an_error() -> None:
    cut, _ = exchange(sent(responds()), path=RESPONSES)
    assert isinstance(cut, Break)
    assert cut.kind is BreakKind.LOST
    for told in ({"code": "server_error", "message": "no"}, {"error": {"code": "server_error", "message": "no"}}):
        answer, _ = exchange(sent(responds(event("error", **told))), path=RESPONSES)
        assert json.loads(replied(answer).body) == {"error": {"code": "server_error", "message": "no"}}
    failed = {**WHOLE, "status": "failed", "error": {"code": "server_error", "message": "no"}, "output": []}
    answer, _ = exchange(sent(responds(event("response.failed", response=failed))), path=RESPONSES)
    assert json.loads(replied(answer).body) == failed
