"""What a trial suggests follows from its figures alone, and nothing is suggested that they do not show."""

from typing import Any

import pytest

from batchrun.runner.advice import Change, what_to_change
from batchrun.runner.trial_answers import Answers
from tests.runner.jobs import a_job


def changes(
    answers: Answers, *, setbacks: dict[str, int] | None = None, spec: dict[str, Any] | None = None, priced: bool = True
) -> list[Change]:
    return what_to_change(a_job(spec=spec), answers, [], setbacks or {}, tried=10, is_priced=priced)


def ten(**figures: Any) -> Answers:
    return Answers(**{"of": 10, "prompt_tokens": [10] * 10, "durations_s": [1.0] * 10} | figures)


def marked(*texts: str, requests: tuple[bytes, ...] = ()) -> Answers:
    """Return ten answers, of which these are the texts, and which answer these requests."""
    answers = ten()
    for text in texts:
        answers._same[text.encode()] += 1
        answers._lengths[text.encode()] = len(text)
    for request in requests:
        answers._same_requests[request] += 1
    return answers


def test_good_answers_suggest_nothing() -> None:
    assert changes(ten(completion_tokens=[20] * 10, whole_tokens=[20] * 10)) == []
    assert changes(Answers()) == []


@pytest.mark.parametrize(
    ("figures", "about", "words"),
    [
        (
            {"cut": 3, "cut_limits": [256] * 3, "whole_tokens": [90, 201]},
            "cut",
            "at max_tokens 256: raise it, say to 512 (the longest whole answer has 201",
        ),
        ({"cut": 10, "cut_limits": [64] * 10}, "cut", "raise it, say to 128: not one answer came to its end"),
        (
            {"cut": 2, "cut_limits": [64, 128], "whole_tokens": [640] * 8},
            "cut",
            "at max_tokens 64 to 128: raise it to about 650 (p95 of the whole ones)",
        ),
        (
            {"cut": 2, "cut_thinking": 2, "reasoning_only": 2, "empty": 2, "cut_limits": [64] * 2},
            "reasoning_only",
            "2 of 10 answers hold only reasoning, and no text: raise max_tokens (64",
        ),
        ({"empty": 1}, "empty", "1 of 10 answers is empty"),
        ({"refused": 2}, "refused", "2 of 10 answers are refusals"),
        (
            {"json_asked": 8, "not_json": 4, "not_json_cut": 4},
            "not_json",
            "4 of 8 answers are not the JSON they were asked for: they were cut",
        ),
        ({"json_asked": 8, "not_json": 4, "fenced": 4}, "not_json", "they stand in a code fence"),
        ({"json_asked": 8, "not_json": 4, "fenced": 1}, "not_json", "does the endpoint honour response_format?"),
        (
            {"durations_s": [1.0] * 9 + [400.0]},
            "near_timeout",
            "took 400 s of timeout_s 600: raise timeout_s, say to 1,600, or lower concurrency (8",
        ),
        ({"prompt_tokens": [10] * 7}, "no_usage", "3 of 10 answers tell no token counts"),
    ],
)
def test_each_figure_has_its_advice_and_no_other(figures: dict[str, Any], about: str, words: str) -> None:
    (change,) = changes(ten(**figures))
    assert change.about == about
    assert words in str(change)


def test_answers_that_only_think_and_answers_that_were_cut_are_told_apart() -> None:
    both = changes(ten(cut=3, cut_thinking=1, reasoning_only=1, empty=1, cut_limits=[64] * 3, whole_tokens=[9]))
    assert [(change.about, change.count) for change in both] == [("reasoning_only", 1), ("cut", 2)]


def test_a_request_that_was_turned_away_asks_for_less_at_once() -> None:
    (change,) = changes(ten(), setbacks={"rate_limited": 2, "overloaded": 1, "server_error": 4})
    assert (change.about, change.count) == ("throttled", 3)
    assert "lower concurrency (8 now), say to 4" in change.edit
    (alone,) = changes(ten(), setbacks={"rate_limited": 1}, spec={"concurrency": 1})
    assert "lower" not in alone.edit
    (climbing,) = changes(ten(), setbacks={"rate_limited": 1}, spec={"concurrency": "auto"})
    assert "concurrency follows by itself (8 now, of auto)" in climbing.edit


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (marked(*["a long answer, equal to the others"] * 7), "7 of 10 answers are identical: their requests differ"),
        (marked(*["yes"] * 7), "right where an answer is a label"),
        (marked(*["yes"] * 7, requests=(b"same",) * 6), "6 of the requests are identical too: is the template"),
    ],
)
def test_identical_answers_are_laid_to_what_explains_them(answers: Answers, words: str) -> None:
    (change,) = changes(answers)
    assert words in str(change)


def test_a_few_equal_answers_are_nothing_to_speak_of() -> None:
    assert changes(marked(*["yes"] * 5)) == []
    assert changes(marked("yes", "no", "perhaps")) == []


def test_without_a_price_missing_counts_do_not_matter() -> None:
    assert changes(ten(prompt_tokens=[]), priced=False) == []


def test_vectors_of_two_lengths_come_from_two_models() -> None:
    answers = ten()
    answers.dimensions.update([768, 768, 1_024])
    (change,) = changes(answers)
    assert "vectors have 768 and 1,024 numbers" in str(change)
