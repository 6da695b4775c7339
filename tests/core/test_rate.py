"""The rate windows of one process, and the rule that they follow."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from copy import deepcopy
from typing import Any

import pytest

from batchrun.core.rate import MINUTE, Caller, Grant, Limits, Permit, Window
from batchrun.core.rate_book import Book, LocalWindows
from tests.core.rate_conformance import RateConformance
from tests.core.rate_scene import Scene


def run(work: Coroutine[Any, Any, Grant]) -> Grant:
    """Run what never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class SharedBook:
    """A process at a book that others use too, as Redis keeps it, here in memory."""

    def __init__(self, scene: Scene, book: Callable[[], Book], name: str) -> None:
        self._scene = scene
        self._book = book
        self._caller = Caller(MINUTE, clock=lambda: scene.now, name=name)

    async def take(self, limits: Limits, tokens: Sequence[int], *, is_fresh: bool = False) -> Grant:
        ask = self._caller.ask(limits, tokens, is_fresh=is_fresh)
        verdict = self._book().answer(ask, time_us=int(self._scene.store_clock() * 1e6))
        return self._caller.hear(ask, verdict, asked_at=self._scene.now)

    def give_back(self, permits: Iterable[Permit]) -> None:
        self._caller.give_back(permits)

    def correct(self, permit: Permit, used_tokens: int) -> None:
        self._caller.correct(permit, used_tokens)

    async def close(self) -> None: ...


def book_scene() -> Scene:
    """Set a scene at a book in memory."""
    books, names = [Book()], iter("abcdefgh")

    def save() -> Callable[[], None]:
        copy = deepcopy(books[-1])
        return lambda: books.append(copy)

    return Scene(
        lambda scene: SharedBook(scene, lambda: books[-1], next(names)), lambda: books.append(Book()), run, save
    )


class TestTheRule(RateConformance):
    def scene(self) -> Scene:
        return book_scene()


def test_the_windows_of_one_process_follow_the_rule() -> None:
    now = 1000.0
    windows = LocalWindows(clock=lambda: now)
    assert run(windows.take(Limits(60), [1])).wait_s == pytest.approx(MINUTE.span_us / 1e6)
    grant = run(windows.take(Limits(60), [1, 1], is_fresh=True))
    assert len(grant.permits) == 2
    assert grant.permits[0].use_before == now + MINUTE.use_within_s
    assert run(windows.take(Limits(60), [1] * 3)).message == "rpm 60 is used up"
    windows.give_back(grant.permits)
    assert len(run(windows.take(Limits(60), [1, 1])).permits) == 2


def test_a_grant_counts_until_nothing_of_it_can_lie_in_the_window_any_more() -> None:
    assert MINUTE.span_us == 61_500_000
    for window in (MINUTE, Window(bucket_s=0.4), Window(length_s=1.0, use_within_s=0.03, bucket_s=0.007)):
        kept_s = window.span_us / 1e6 - window.bucket_s  # of what is granted at the end of its bucket
        assert kept_s >= window.length_s + window.use_within_s + window.clock_slack_s


def test_a_question_that_got_no_answer_frees_nothing_twice_and_forgets_no_usage() -> None:
    book, now = Book(), 1000.0
    caller = Caller(MINUTE, clock=lambda: now, name="a")
    limits = Limits(6_000, 10_000)

    def ask(*tokens: int, is_heard: bool = True, is_fresh: bool = False, limits: Limits = limits) -> Grant:
        question = caller.ask(limits, tokens, is_fresh=is_fresh)
        verdict = book.answer(question, time_us=int(now * 1e6))
        if is_heard:
            return caller.hear(question, verdict, asked_at=now)
        caller.miss(question)
        return Grant(())

    [permit] = ask(100, is_fresh=True).permits
    caller.correct(permit, 4_000)
    ask(is_heard=False)  # it was heard, and the answer lost:
    ask()  # it is told again, and 7,900 are counted instead of 4,000
    now += MINUTE.span_us / 1e6 - 1
    assert not ask(2_101).permits
    assert ask(2_100).permits
    now += MINUTE.span_us / 1e6
    unused, _used = ask(100, 200).permits
    ask(9_000)
    caller.give_back([unused])
    ask(is_heard=False)
    ask()
    now += MINUTE.span_us / 1e6 - 1
    assert not ask(801).permits  # freed once
    assert ask(800).permits
    now += 2 * MINUTE.span_us / 1e6
    caller.give_back(ask(1, 1, 1, 1, 1, 1, 1, 1).permits[4:])
    ask(is_heard=False)
    now += 1
    ask()
    now += 20
    fewer = Limits(5)
    assert ask(1, limits=fewer).permits
    assert (ask(1, limits=fewer).wait_s or 0) > 30  # the four that were kept still count
