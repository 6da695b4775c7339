"""Chunks whose text is found without reading their JSON: the answer and the times are those that reading it gives."""

import json
import random
from typing import Any

import pytest

from batchrun.endpoint.alike import MOST_LEARNT, Alike
from batchrun.endpoint.assembly import Assembly, Grown
from batchrun.endpoint.stream import Stream

Json = dict[str, Any]
TOP: Json = {"id": "c-1", "object": "chat.completion.chunk", "created": 5, "model": "m"}
ODD = ['"', "\\", '\\"', "\n", "\t", "\x00", "ü", "\u2028", "🙂", "\u00a0", '","finish_reason":"stop', "content", ""]


def chat(text: str, *, index: int = 0, **more: Any) -> Json:
    choice = {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": None, **more}
    return {**TOP, "choices": [choice], "usage": None}


def completion(text: str) -> Json:
    return {**TOP, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": None}], "usage": None}


def written(chunk: Json, *, is_wide: bool) -> bytes:
    separators = (", ", ": ") if is_wide else (",", ":")
    return json.dumps(chunk, ensure_ascii=is_wide, separators=separators).encode()


def read_one_by_one(chunks: list[Json]) -> bytes:
    whole = Assembly()
    for chunk in chunks:
        whole.add(chunk)
    return whole.whole()


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_an_answer_of_any_texts_is_what_reading_each_chunk_gives(seed: int, is_wide: bool) -> None:
    dice = random.Random(seed)
    make = dice.choice([chat, completion])
    texts = [dice.choice([" word", "a", " 17", *ODD]) + dice.choice(["", " the", "b"]) for _ in range(60)]
    chunks = [make(text) for text in texts]
    for _ in range(dice.randrange(4)):
        odd = dice.choice(
            [chat("x", index=1), chat("x", finish_reason="stop"), chat("y", token_ids=[1]), {"usage": {}}]
        )
        chunks.insert(dice.randrange(len(chunks)), odd)
    stream = Stream(0.0)
    for chunk in chunks:
        stream.feed(b"data: " + written(chunk, is_wide=is_wide) + b"\n\n")
    stream.finish()
    assert json.loads(stream.body()) == json.loads(read_one_by_one(chunks))


@pytest.mark.parametrize("size", [1, 5, 170, 10_000])
def test_each_piece_is_a_token_wherever_reads_begin_and_end(size: int) -> None:
    chunks = [chat(""), *[chat(f" word{number}") for number in range(150)]]
    text = b"".join(b"data: " + written(chunk, is_wide=False) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    stream = Stream(0.0)
    for at in range(0, len(text), size):
        stream.feed(text[at : at + size])
    assert stream.is_whole
    trace = stream.trace()
    assert trace is not None
    assert len(trace.gaps_s) == 149
    assert json.loads(stream.body())["choices"][0]["message"]["content"].endswith(" word148 word149")


def test_a_pattern_takes_nothing_but_a_text() -> None:
    whole = {"content": "a"}
    alike = Alike()
    event = written(chat(" b"), is_wide=False)
    assert not alike.take(event), "there is no pattern yet"
    alike.learn(event, Grown(whole, "content", " b"))
    for text in (" c", "ü"):
        assert alike.take(written(chat(text), is_wide=False))
    assert whole["content"] == "a cü"
    for other in (
        chat(""),
        chat('"'),
        chat("\n"),
        chat("x", index=1),
        chat("x", finish_reason="stop"),
        completion("x"),
    ):
        assert not alike.take(written(other, is_wide=False)), other
    for bad in (event.replace(b" b", b"\x01"), event.replace(b" b", b"\xff"), event[:-3], b"", b"{}"):
        assert not alike.take(bad)
    assert whole["content"] == "a cü"


def test_a_text_that_stands_twice_in_an_event_gives_no_pattern() -> None:
    alike, whole = Alike(), {"content": ""}
    twice = b'{"note":{"content":"b"},"choices":[{"index":0,"delta":{"content":"b"}}]}'
    alike.learn(twice, Grown(whole, "content", "b"))
    assert not alike.take(twice)


def test_a_server_that_writes_each_chunk_otherwise_is_soon_let_be() -> None:
    alike, whole = Alike(), {"content": ""}
    for number in range(MOST_LEARNT + 1):
        event = b'{"n":%d,"content":"b"}' % number
        assert not alike.take(event)
        alike.learn(event, Grown(whole, "content", "b"))
    assert not alike.take(event), "the last one was not learnt"
