"""Answers: the same request always gets the same text, and it shows which item it belongs to."""

from typing import Any

import pytest

from batchrun.mock.answers import RING_TOKENS, Answer, Author
from batchrun.mock.config import MockConfig
from batchrun.mock.dice import Dice
from tests.mock.wire import run, running, write_body


def ask_chat(settings: dict[str, Any] | None = None, /, **fields: Any) -> Any:
    async def test() -> Any:
        async with running(**(settings or {})) as (_, client):
            return (await client.post(**fields)).json

    return run(test)


def read_text(answer: Any, no: int = 0) -> str:
    text: str = answer["choices"][no]["message"]["content"]
    return text


def test_an_answer_is_a_function_of_seed_and_body() -> None:
    first, again = ask_chat(), ask_chat()
    assert first["choices"] == again["choices"]
    assert first["usage"] == again["usage"]
    assert first["id"] != again["id"]
    assert read_text(ask_chat({"seed": 1})) != read_text(first)
    assert read_text(ask_chat(prompt="[[q-1]] other")) != read_text(first)


def test_delays_and_an_earlier_fault_do_not_change_the_text() -> None:
    async def test() -> None:
        async with running(error_rate=1.0, faults_per_item=1, ttft_ms=2.0, latency_sigma=1.0) as (_, client):
            refused, answered = await client.post(), await client.post()
            assert (refused.status, answered.status) == (500, 200)
            assert answered.json["choices"] == undisturbed["choices"]

    undisturbed = ask_chat()
    run(test)


@pytest.mark.parametrize("key", ["q-17", "ä ö", "a'b<c>", "with space"])
def test_the_text_names_the_item(key: str) -> None:
    async def test() -> str:
        body = f'{{"model":"mock","messages":[{{"role":"user","content":"say [[{key}]] and [[other]]"}}]}}'
        async with running() as (_, client):
            answer = await client.ask("POST", "/v1/chat/completions", body.encode())
            return read_text(answer.json)

    assert run(test).startswith(f"[[{key}]] ")


def test_a_body_without_a_mark_is_answered_too() -> None:
    assert len(read_text(ask_chat(prompt="hello"))) > 8


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("bound", "reason"), [(1, "length"), (5, "length"), (10, "stop"), (500, "stop")])
def test_max_tokens_cuts_the_answer_and_says_so(name: str, bound: int, reason: str) -> None:
    answer = ask_chat({"answer_tokens": 10, "answer_spread": 0.0}, **{name: bound})
    assert answer["choices"][0]["finish_reason"] == reason
    assert answer["usage"]["completion_tokens"] == min(bound, 10) == len(read_text(answer).split())


def test_ignore_eos_goes_on_until_max_tokens() -> None:
    answer = ask_chat(max_tokens=2_000, ignore_eos=True)
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (2_000, "length")


def test_usage_is_right_shaped() -> None:
    usage = ask_chat(prompt="x" * 400)["usage"]
    assert usage["prompt_tokens"] == len(write_body("x" * 400)) // 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_n_choices_differ_and_are_counted_together() -> None:
    answer = ask_chat(n=3)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    texts = [read_text(answer, no) for no in range(3)]
    assert len(set(texts)) == 3
    assert answer["usage"]["completion_tokens"] == sum(len(text.split()) for text in texts)


def test_lengths_keep_to_their_spread() -> None:
    author = Author(MockConfig(answer_tokens=20, answer_spread=0.5), Dice(0))
    lengths = [author.write(b"%032d" % no, b"m", choice_no=0, max_tokens=None).token_count for no in range(2_000)]
    assert (min(lengths), max(lengths)) == (10, 30)
    assert 19.5 < sum(lengths) / len(lengths) < 20.5


@pytest.mark.parametrize("start", [0, 17, RING_TOKENS - 1])
@pytest.mark.parametrize("token_count", [1, 2, 500, RING_TOKENS + 1, 3 * RING_TOKENS])
def test_the_text_is_its_tokens_joined(start: int, token_count: int) -> None:
    answer = Answer(b"[[k]]", start, token_count, False)
    assert answer.get_text() == b"".join(answer.get_token(no) for no in range(token_count))
    assert len(answer.get_text().split()) == token_count
