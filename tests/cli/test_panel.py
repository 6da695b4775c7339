"""The live display: every line fits, figures keep their places, and nothing is claimed that was not measured."""

from typing import Any

import pytest

from batchrun.cli.live import plain_line
from batchrun.cli.panel import panel, span
from batchrun.core.states import ItemState
from batchrun.runner.progress import Progress
from batchrun.runner.tally import Failure

COUNTS = {**dict.fromkeys(ItemState, 0), ItemState.COMPLETED: 1_234_000, ItemState.PENDING: 754_000}
PUSD = 10**12


def failure(to: ItemState = ItemState.FAILED, cause: str | None = "server_error", message: str = "") -> Failure:
    return Failure("ticket-000123", cause, message or "500 Internal Server Error: out of memory, sorry", to, 0.0)


def progress(**changes: Any) -> Progress:
    values: dict[str, Any] = {
        "task_id": "a-job-with-a-rather-long-name-2026-11-29",
        "phase": "running",
        "counts": {**COUNTS, ItemState.FAILED: 12_000},
        "scope_total": 2_000_000,
        "scope_done": 1_246_000,
        "in_flight": 256,
        "concurrency": 256,
        "items_per_s": 1_204.5,
        "tokens_per_s": 123_456.0,
        "e2el_p50_s": 0.21,
        "e2el_p95_s": 1.9,
        "spent_pusd": 12 * PUSD,
        "budget_pusd": 50 * PUSD,
        "left_s": (502.0, 813.0),
        "last_failure": failure(),
        "failed_ago_s": 3.0,
    }
    return Progress(**values | changes)


def drawn(moment: Progress, columns: int = 79, **options: Any) -> list[str]:
    return [line.plain for line in panel(moment, columns=columns, **options)]


HARD = [
    progress(),
    progress(scope_total=12, scope_done=3, counts={**dict.fromkeys(ItemState, 1)}, concurrency=1, in_flight=0),
    progress(task_id="x", e2el_p50_s=1_234.0, e2el_p95_s=12_345.0, spent_pusd=123_456 * PUSD, budget_pusd=None),
    progress(task_id="仕事" * 30, last_failure=failure(message="答えがありません" * 40)),
    progress(task_id="\x1b[2Jx\n\ty", last_failure=failure(message="\x1b]0;owned\x07 a\r\nb " + "word " * 80)),
    progress(phase="waiting", note="endpoint down: " + "connection refused by somewhere-very-far-away " * 4),
    progress(phase="draining", note="3 in flight will finish, 6 s at most", left_s=None),
    progress(phase="finalizing", unit="lines", scope_total=2_000_000, note="writing the outputs"),
    progress(phase="finalizing", scope_total=0, scope_done=0, note="writing the outputs"),
    Progress("jobs/a-spec.json", "validating", 5_700_000_000, 1_234_567, unit="bytes", note="checking every line"),
    progress(items_per_s=None, e2el_p50_s=None, e2el_p95_s=None, spent_pusd=None, left_s=None, last_failure=None),
]


@pytest.mark.parametrize("columns", [*range(20, 60), 69, 79, 99, 119, 145, 199])
@pytest.mark.parametrize("moment", HARD, ids=range(len(HARD)))
def test_no_line_is_wider_than_the_display_or_holds_what_a_terminal_obeys(moment: Progress, columns: int) -> None:
    lines = panel(moment, columns=columns)
    assert lines
    assert [line.plain for line in lines if line.cell_len > columns] == []
    assert [line.plain for line in lines if not line.plain.isprintable()] == []


@pytest.mark.parametrize("columns", [79, 119, 199])
def test_figures_keep_their_places_while_they_grow(columns: int) -> None:
    small = progress(
        scope_done=7,
        counts={**dict.fromkeys(ItemState, 0), ItemState.COMPLETED: 7, ItemState.PENDING: 1_999_993},
        items_per_s=0.7,
        tokens_per_s=9.0,
        e2el_p95_s=0.3,
        spent_pusd=PUSD // 1_000,
        left_s=None,
    )
    for one, other in zip(drawn(small, columns), drawn(progress(), columns), strict=True):
        for label in (
            "running",
            "%",
            "completed",
            "failed ",
            "in doubt",
            "in flight",
            "speed",
            "latency",
            "cost",
            "left",
        ):
            assert one.find(label) == other.find(label), (one, other)


def test_eighty_columns_hold_everything_without_a_word_cut() -> None:
    text = "\n".join(drawn(progress(task_id="batch-001")))
    for words in (
        "batch-001 running",
        "62 %  1,246,000/2,000,000",
        "completed 1,234,000",
        "failed 12,000",
        "in doubt 0",
        "in flight 256/256",
        "1,204 items/s, 123,456 tokens/s",
        "p50 210 ms, p95 1.9 s",
        "$12.00 of $50.00",
        "left     8 m 20 s to 14 m",
        "ticket-000123: 500 Internal Server Error: out of memory",
        "failed for good",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scope_total": 100_000, "scope_done": 99_999}, "99 %"),
        ({"scope_total": 5, "scope_done": 5}, "99 %"),
        ({"scope_total": 5, "scope_done": 5, "phase": "finalizing", "unit": "lines"}, "99 %  5/5 lines"),
    ],
)
def test_what_can_be_seen_is_never_done(changes: dict[str, Any], told: str) -> None:
    lines = drawn(progress(**changes))
    assert told in lines[0]
    assert lines[0].count("─") >= 1
    assert "100 %" not in "".join(lines)


def test_what_was_not_measured_is_a_dash_and_not_a_nought() -> None:
    none = {"items_per_s": None, "tokens_per_s": None, "e2el_p50_s": None, "e2el_p95_s": None, "left_s": None}
    text = "\n".join(drawn(progress(**none)))
    assert "speed    -" in text
    assert "latency  -" in text
    assert "left     not known yet" in text
    assert "items/s" not in text


def test_an_endpoint_that_answers_nothing_is_named_as_silent() -> None:
    text = "\n".join(drawn(progress(items_per_s=None, silent_s=14.2)))
    assert "no answer for 14 s" in text
    assert "no answer" not in "\n".join(drawn(progress(items_per_s=None, silent_s=14.2, in_flight=0)))


def test_the_last_requests_are_told_as_such_and_not_estimated() -> None:
    text = "\n".join(drawn(progress(scope_total=100, scope_done=98, in_flight=2, left_s=(0.1, 0.2))))
    assert "left     the last 2 are in flight" in text


def test_a_job_without_a_price_says_nothing_of_cost() -> None:
    assert "cost" not in "\n".join(drawn(progress(spent_pusd=None)))


@pytest.mark.parametrize(
    ("to", "means"),
    [
        (ItemState.PENDING, "sent again by itself"),
        (ItemState.FAILED, "failed for good: look at the endpoint's own log"),
        (ItemState.IN_DOUBT, "in doubt, perhaps billed, and not sent again by itself: look"),
        (ItemState.COMPLETED, "answered since"),
    ],
)
def test_the_last_failure_comes_with_what_it_means(to: ItemState, means: str) -> None:
    lines = drawn(progress(last_failure=failure(to)), 119)
    assert "last failure  ticket-000123: 500 Internal Server Error" in lines[-2]
    assert lines[-1].strip().startswith(means)


def test_an_old_failure_says_how_old_it_is() -> None:
    assert drawn(progress(failed_ago_s=130.0), 119)[-1].endswith("(about 2 m 10 s ago)")
    assert "ago" not in drawn(progress(failed_ago_s=30.0), 119)[-1]


def test_what_is_waited_for_is_not_said_twice() -> None:
    refused = failure(ItemState.PENDING, "connect", "connection refused by 127.0.0.1:9")
    moment = progress(phase="waiting", note="endpoint down: connection refused by 127.0.0.1:9", last_failure=refused)
    assert "\n".join(drawn(moment)).count("connection refused") == 1


def test_a_terminal_without_unicode_gets_a_bar_of_letters() -> None:
    text = "\n".join(drawn(progress(), has_unicode=False))
    assert text.isascii()
    assert "###" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((0.2, 0.4), "about 1 s"),
        ((3.2, 6.1), "3 to 6 s"),
        ((34.0, 55.0), "35 to 55 s"),
        ((48.0, 83.0), "50 s to 1 m 20 s"),
        ((118.0, 121.0), "about 2 m"),
        ((1_000.0, 2_400.0), "17 to 40 m"),
        ((3_000.0, 9_000.0), "50 m to 2 h 30 m"),
        ((90_000.0, 100_000.0), "25 to 28 h"),
    ],
)
def test_a_range_is_as_rough_as_it_is_sure(seconds: tuple[float, float], words: str) -> None:
    assert span(*seconds) == words


def test_the_plain_line_is_words_of_key_and_value() -> None:
    line = plain_line(progress(note="writing\nthings", task_id="batch-001"))
    assert " batch-001 phase=running done=1246000/2000000 completed=1234000 failed=12000 in_doubt=0 " in line
    assert " in_flight=256 rate=1204.5/s tokens=123456/s p50=0.21s p95=1.90s cost=12.0000 budget=50.00 " in line
    assert " left=502-813s note='writing things' last_failure='ticket-000123: 500 " in line
    assert line.isprintable()
