"""Streams: server-sent events, one token each, in the shape and at the pace of a real server."""

import asyncio
from typing import Any

import pytest

from tests.mock.wire import CHAT, Client, parse_events, run, running, write_body


def stream(path: str = CHAT, /, settings: dict[str, Any] | None = None, **fields: Any) -> tuple[list[Any], Any]:
    """Return the events of a streamed answer, and the same request's answer from a server that ran undisturbed."""

    async def test() -> tuple[list[Any], Any]:
        async with running(**(settings or {})) as (_, client):
            answer = await client.post(path, stream=True, **fields)
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert (await client.ask("GET", "/health")).status == 200  # the connection is still in step
            return parse_events(answer.body), (await client.post(path, stream=True, **fields)).body

    return run(test)


def test_a_chat_stream_has_role_tokens_finish_and_done() -> None:
    events, _ = stream(max_tokens=4)
    assert events.pop() == "[DONE]"
    choices = [event["choices"][0] for event in events]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["delta"]["content"].split() for choice in choices[1:-1]] == [
        [word] for word in "".join(choice["delta"]["content"] for choice in choices[1:-1]).split()
    ]
    assert len(choices[1:-1]) == 4
    assert (choices[-1]["delta"], choices[-1]["finish_reason"]) == ({}, "length")
    assert {choice["finish_reason"] for choice in choices[:-1]} == {None}
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    assert all("usage" not in event for event in events)


def test_usage_comes_last_when_asked_for() -> None:
    events, _ = stream(max_tokens=4, stream_options={"include_usage": True})
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 4
    assert {str(event["usage"]) for event in events[:-2]} == {"None"}


def test_n_choices_advance_side_by_side() -> None:
    events, _ = stream(n=2, max_tokens=3)
    order = [event["choices"][0]["index"] for event in events[:-1]]
    assert order == [0, 1, 0, 1, 0, 1, 0, 0, 1, 1]  # roles, two steps, then each last token with its finish


def test_a_stream_is_as_repeatable_as_an_answer() -> None:
    events, again = stream()
    assert [event["choices"] for event in events[:-1]] == [event["choices"] for event in parse_events(again)[:-1]]


def test_a_legacy_stream_has_text_chunks() -> None:
    events, _ = stream("/v1/completions", max_tokens=3)
    assert {event["object"] for event in events[:-1]} == {"text_completion"}
    assert len([event for event in events[:-1] if event["choices"][0]["text"]]) == 3
    assert events[-2]["choices"][0]["finish_reason"] == "length"


def test_a_responses_stream_counts_its_events_and_ends_complete() -> None:
    events, _ = stream("/v1/responses")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == deltas


@pytest.mark.parametrize("settings", [{}, {"ttft_ms": 1.0, "itl_ms": 1.0}, {"latency_ms": 5.0}])
def test_the_pace_does_not_change_the_events(settings: dict[str, Any]) -> None:
    events, _ = stream(CHAT, settings)
    fast, _ = stream(CHAT)
    assert [event["choices"] for event in events[:-1]] == [event["choices"] for event in fast[:-1]]


def test_tokens_come_one_by_one_and_not_too_early() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with running(ttft_ms=40.0, itl_ms=15.0) as (_, client):
            sent_at = loop.time()
            await client.send("POST", CHAT, write_body(stream=True, max_tokens=5, ignore_eos=True))
            await client.read_head()
            seen_after_s = [loop.time() - sent_at async for _ in client.read_chunks()]
            assert len(seen_after_s) == 5
            for no, seen in enumerate(seen_after_s):
                assert seen >= 0.039 + no * 0.015

    run(test)


def test_a_stream_whose_client_goes_is_stopped() -> None:
    async def test() -> None:
        async with running(itl_ms=50.0, slots=1) as (server, client):
            leaver = await Client.connect(server.port)
            await leaver.send("POST", CHAT, write_body(stream=True, max_tokens=50, ignore_eos=True))
            await leaver.read_head()
            leaver.close()
            await client.wait_for_stats(in_flight=0, running=0, open_connections=1)
            # A stream of the same pace, begun later, is over: so would the first one be, had it gone on.
            assert (await client.post(stream=True, max_tokens=51, ignore_eos=True)).status == 200
            stats = await client.read_stats()
            assert (stats["in_flight"], stats["completion_tokens"]) == (0, 51)

    run(test)
