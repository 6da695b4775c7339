"""The rank of a request: alike beginnings lie together, long ones lie first, and nothing else is looked at."""

import json
import random
from functools import cache
from itertools import groupby

import pytest

from batchrun.core.order import LATEST, LEVEL_BITS, LEVELS_BYTES, affinities, prefix_key, rank_of

CHAT = "/v1/chat/completions"


def chat(system: str, user: str, **fields: object) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return json.dumps({**fields, "messages": messages, "model": "m"}).encode()


@cache
def words(seed: int, size: int) -> str:
    """Return a text of so many bytes that no other seed begins like."""
    return "".join(random.Random(seed).choices("abcdefgh ", k=size))


def runs(keys: list[tuple[int, int]]) -> int:
    """Return into how many runs the groups fall when their items are sorted by key."""
    return len(list(groupby(sorted(keys), key=lambda pair: pair[1])))


@pytest.mark.parametrize("size", [600, 3_000, 20_000])
def test_what_begins_alike_lies_together(size: int) -> None:
    keys = [(prefix_key(chat(words(no % 50, size), words(1_000 + no, 300))), no % 50) for no in range(1_000)]
    assert runs(keys) == 50


def test_groups_that_begin_alike_themselves_lie_together_inside() -> None:
    """Two system prompts, each with three sets of examples behind it, each with twenty questions."""
    keys = []
    for no in range(120):
        start = words(no % 2, 2_000) + words(10 + no % 6, 6_000)
        keys.append((prefix_key(chat(start, words(1_000 + no, 100))), no % 6))
    assert runs(keys) == 6
    assert runs([(key, group % 2) for key, group in keys]) == 2


def test_a_shared_beginning_shows_up_to_half_of_it_at_least() -> None:
    one, other = (prefix_key(chat(words(0, 3_000), words(no, 9_000))) for no in (1, 2))
    shared = [level for level in LEVELS_BYTES if level <= 3_000]
    assert 2 * shared[-1] > 3_000
    top = LEVEL_BITS * (len(LEVELS_BYTES) - len(shared))
    assert one >> top == other >> top
    assert one != other


def test_only_what_the_server_reads_first_counts() -> None:
    """Where the fields stand, and what they ask of the answer, is no part of the prompt."""
    system = words(0, 2_000)
    same = [
        chat(system, "a"),
        chat(system, "a", max_tokens=7, temperature=0.5),
        json.dumps({"temperature": 1, **json.loads(chat(system, "a"))}).encode(),
    ]
    assert len({prefix_key(body) for body in same}) == 1
    tools = [{"type": "function", "function": {"name": words(3, 300)}}]
    assert prefix_key(chat(system, "a", tools=tools)) != prefix_key(same[0])


@pytest.mark.parametrize("field", ["prompt", "input", "messages", "instructions"])
def test_each_kind_of_prompt_is_seen(field: str) -> None:
    one, other = (json.dumps({"model": "m", field: words(no, 400)}).encode() for no in (1, 2))
    assert prefix_key(one) != prefix_key(other)


def test_the_longest_lies_first_and_its_answer_counts_more_than_its_prompt() -> None:
    asked = {"short": (400, 10), "long prompt": (8_000, 10), "long answer": (400, 500), "both": (8_000, 500)}
    ranks = {name: rank_of("longest", body=b"x" * size, max_output_tokens=most) for name, (size, most) in asked.items()}
    assert sorted(ranks, key=ranks.__getitem__) == ["both", "long answer", "long prompt", "short"]


@pytest.mark.parametrize("order", ["input", "prefix", "longest"])
def test_a_rank_fits_into_the_ledger_whatever_is_asked(order: str) -> None:
    for size in (0, 100, 1_000_000):
        for most in (0, 1, 10**15, 10**30):
            body = json.dumps({"prompt": "é" * size}).encode()
            assert 0 <= rank_of(order, body=body, max_output_tokens=most) < 1 << 63  # type: ignore[arg-type]
    assert LATEST < 1 << 63


def test_the_order_of_the_input_ranks_all_alike() -> None:
    assert {rank_of("input", body=chat(words(no, 10), ""), max_output_tokens=no) for no in range(9)} == {0}


def test_requests_that_begin_alike_have_one_affinity_and_others_none() -> None:
    keys = [prefix_key(chat(words(no % 3, 3_000), words(100 + no, 300))) for no in range(12)]
    alone = prefix_key(chat(words(50, 3_000), "a"))
    found = affinities([*keys, alone])
    assert found[-1] is None
    assert None not in found[:-1]
    assert len(set(found)) == 4
    assert [found[no] == found[no % 3] for no in range(12)] == [True] * 12


def test_the_last_of_its_kind_is_known_by_those_that_went_before() -> None:
    one, two, three = (prefix_key(chat(words(0, 3_000), words(no, 300))) for no in (1, 2, 3))
    (alone,) = affinities([three])
    assert alone is None
    assert affinities([three], seen=[one, two]) == affinities([one, two])[:1]


def test_equal_requests_have_one_affinity() -> None:
    key = prefix_key(chat(words(0, 3_000), "a"))
    assert affinities([key, key])[0] == affinities([key], seen=[key])[0] is not None
