"""Comparisons: what is clear, what is refused, and when a limit is broken."""

from dataclasses import replace

import pytest

from batchrun.core.measuring.answers import AnswerTally, pair_of
from batchrun.core.measuring.comparison import FigurePair, Limit, Side, broken_limits, differences_of, pair_up
from batchrun.core.measuring.ladder import Range
from tests.bench.measurements import group_of, measurement_of, run_of


def pair(a: Range | None, b: Range | None, figure: str = "p95_e2el") -> FigurePair:
    return FigurePair(8, None, figure, a, b)


def three(low: float, median: float, high: float) -> Range:
    return Range(3, low, median, high)


@pytest.mark.parametrize(
    ("figure", "a", "b", "is_better"),
    [
        ("p95_e2el", three(90, 100, 110), three(60, 70, 80), True),
        ("p95_e2el", three(60, 70, 80), three(90, 100, 110), False),
        ("output_throughput", three(60, 70, 80), three(90, 100, 110), True),
        ("output_throughput", three(60, 70, 95), three(90, 100, 110), None),  # they overlap
        ("output_throughput", Range(2, 60, 70, 80), three(90, 100, 110), None),  # too few rounds
        ("output_throughput", three(60, 70, 80), None, None),
    ],
)
def test_a_side_is_better_only_where_that_is_clear(
    figure: str, a: Range, b: Range | None, is_better: bool | None
) -> None:
    assert pair(a, b, figure).is_better is is_better


def side(*levels: int, **changes: object) -> Side:
    made = measurement_of([run_of(level=level, requests=12) for level in levels])
    return replace(Side("s", made.setup.groups[0], made.setup, made.loads), **changes)  # type: ignore[arg-type]


def test_loads_face_each_other_by_level_and_a_single_one_faces_another() -> None:
    assert {one.level for one in pair_up(side(1, 4), side(4, 8))} == {4}
    assert {one.level for one in pair_up(side(4), side(8))} == {4}
    assert pair_up(side(1, 4), side(8, 16)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "other"}, "model: 'turbo-opt' and 'other'"),
        ({"endpoint": "/v1/completions"}, "endpoint"),
        ({"params": {"temperature": 1}}, "parameter temperature: 0 and 1"),
        ({"params": {"temperature": 0, "seed": 3}}, "parameter seed: None and 3"),
    ],
)
def test_what_was_asked_otherwise_is_named(change: dict[str, object], words: str) -> None:
    (found,) = differences_of(side(4), side(4, group=group_of(**change)))
    assert words in found


def test_another_address_is_no_difference_and_another_seed_is() -> None:
    assert differences_of(side(4), side(4, group=group_of(base_url="http://other/v1"))) == []
    other = measurement_of([run_of()], seed=8)
    assert differences_of(side(4), side(4, setup=other.setup)) == ["seed: 7 and 8"]


@pytest.mark.parametrize(
    ("text", "a", "b", "is_broken"),
    [
        ("p95_e2el>+10%", 100, 111, True),
        ("p95_e2el>+10%", 100, 110, False),
        ("p95_e2el > 0.5%", 100, 101, True),
        ("output_throughput<-5%", 100, 94, True),
        ("output_throughput<-5%", 100, 96, False),
        ("cost_usd>+0%", 0, 1, True),
        ("cost_usd>+0%", 0, 0, False),
    ],
)
def test_a_limit_is_broken_by_the_share_it_names(text: str, a: float, b: float, is_broken: bool) -> None:
    assert Limit.parse(text, also=["cost_usd"]).is_broken(a, b) is is_broken


@pytest.mark.parametrize("text", ["p95_e2el", "p95_e2el>10", "speed>+10%", "p95_e2el=>10%", "p95_e2el>+ten%"])
def test_what_is_no_limit_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"no limit|names no figure"):
        Limit.parse(text)


def test_a_percentile_among_failures_counts_as_broken() -> None:
    limit = Limit.parse("p95_e2el>+10%")
    (found,) = broken_limits([limit], [pair(three(90, 100, 110), None)])
    assert "not judged" in found.words
    assert broken_limits([limit], [])[0].words == found.words
    assert broken_limits([limit], [pair(three(90, 100, 110), three(95, 105, 120))]) == []
    (unclear,) = broken_limits([limit], [pair(three(90, 100, 130), three(95, 120, 125))])
    assert "100 -> 120 at 8 (the ranges over the rounds do not make it clear)" in unclear.words


def answer(text: str, number: int = 1) -> bytes:
    return b'{"id":"%d","choices":[{"message":{"content":"%b"}}],"usage":{}}' % (number, text.encode())


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (answer("yes"), answer("yes", 2), "equal"),  # another id, the same words
        (answer("yes"), answer("no"), "different"),
        (answer("yes"), None, "only_a"),
        (None, answer("yes"), "only_b"),
        (b"<html>", b"<html>", "equal"),
        (b"<html>", b"<head>", "different"),
    ],
)
def test_answers_are_compared_by_what_they_say(a: bytes | None, b: bytes | None, verdict: str) -> None:
    tally = AnswerTally()
    (found,) = tally.count([pair_of("q", a, b)])
    assert (found.verdict, getattr(tally, verdict), len(tally.samples)) == (verdict, 1, int(verdict == "different"))
