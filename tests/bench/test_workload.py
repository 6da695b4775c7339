"""What is sent: lengths by a line through what was counted, texts by a seed, beginnings that no cache knows."""

import pytest

from batchrun.bench.lengths import Lengths
from batchrun.bench.workload import LONG, MEDIUM, SHORT, VERY_LONG, Prompts, RequestSet, Shape, heads
from batchrun.errors import UsageFault

WORDS = Lengths(12.0, 1.25)


def written(run: str, *, seed: int = 0, nonce: str = "n", shared: int = 0, count: int = 30) -> list[str]:
    prompts = Prompts(seed, nonce, shared).write(RequestSet.named("short", count), WORDS, run=run)
    return [prompt.text for prompt in prompts]


def test_the_sets_have_the_lengths_that_they_promise() -> None:
    assert [RequestSet.named(name, 2).shapes for name in ("short", "medium", "long")] == [
        (SHORT, SHORT), (MEDIUM, MEDIUM), (LONG, LONG)
    ]  # fmt: skip
    assert (SHORT, MEDIUM, LONG) == ((100, 50), (500, 256), (1200, 512))
    assert set(RequestSet.named("mixed", 6).shapes) == {SHORT, MEDIUM, LONG}
    assert RequestSet.named("outliers", 40).shapes.count(VERY_LONG) == 2
    assert RequestSet.named("300x64", 1).shapes == (Shape(300, 64),)


@pytest.mark.parametrize("name", ["", "tall", "0x5", "5x0", "300", "300x", "300x64x2", "-1x5"])
def test_a_set_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(UsageFault, match="no workload"):
        RequestSet.named(name, 1)


def test_a_limit_of_the_ladder_takes_the_place_of_the_sets_own() -> None:
    assert {shape.max_tokens for shape in RequestSet.named("mixed", 9).limited(128).shapes} == {128}
    assert RequestSet.named("long", 1).limited(None).shapes == (LONG,)


def test_no_two_prompts_of_any_runs_begin_alike() -> None:
    runs = [
        Prompts(0, "n").write(RequestSet.named("mixed", 50), WORDS, run=f"A-l{n}-r{r}") for n in (1, 4) for r in (1, 2)
    ]
    assert len(heads([prompt for run in runs for prompt in run])) == 4 * 50
    assert len({text[:16] for run in runs for _, text, _ in run}) == 4 * 50
    again = Prompts(0, "of another day").write(RequestSet.named("mixed", 50), WORDS, run="A-l1-r1")
    assert heads(again).isdisjoint(heads(runs[0]))


def test_the_same_seed_writes_the_same_texts_in_another_order_for_each_run() -> None:
    one, two = written("A-l1-r1"), written("A-l1-r2")
    bodies = [text.partition(": ")[2] for text in one]
    assert one == written("A-l1-r1")
    assert sorted(bodies) == sorted(text.partition(": ")[2] for text in two)
    assert bodies != [text.partition(": ")[2] for text in two]
    assert len(set(bodies)) == len(bodies)
    assert written("A-l1-r1", seed=1) != one


def test_a_prefix_that_is_shared_on_purpose_comes_before_everything() -> None:
    texts = written("A-l1-r1", shared=40)
    prefix = texts[0][: texts[0].index(":") - 16]
    assert len(prefix.split()) == WORDS.words_of(40)
    assert all(text.startswith(prefix) for text in [*texts, *written("A-l1-r2", shared=40)])
    assert len({text[len(prefix) :][:16] for text in texts}) == len(texts)
    assert abs(len(texts[0].split()) - len(written("A-l1-r1")[0].split())) <= 20  # as long as without it


def test_lengths_follow_the_line_that_was_counted() -> None:
    line = Lengths.through([(20, 37), (200, 262), (20, 37), (200, 262)])
    assert (line.fixed_tokens, line.tokens_per_word) == (pytest.approx(12), pytest.approx(1.25))
    assert line.words_for(512) == 400
    assert line.words_of(125) == 100
    assert line.words_for(3) == 1


@pytest.mark.parametrize("seen", [[], [(20, 30)], [(20, 30), (20, 31)], [(20, 30), (200, 30)], [(20, 30), (200, 20)]])
def test_counts_that_say_nothing_of_lengths_are_refused(seen: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"length|longer"):
        Lengths.through(seen)
