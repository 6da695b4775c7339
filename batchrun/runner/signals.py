"""Listening to signals on an event loop; what the caller had set to be ignored stays ignored."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listen(handler: Callable[[int], None], *, numbers: Sequence[signal.Signals] = ENDING) -> None:
    """Let `handler` take the signals that end a process, on the running loop. Once that has ended they do nothing.

    The loop's own `add_signal_handler` would leave the default action behind: whoever is on the way out, and is told to
    go, would be killed. Under nohup, or as a shell's background job, a signal is ignored: whoever set that means it.
    """
    loop = asyncio.get_running_loop()

    def pass_on(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(handler, number)

    if threading.current_thread() is not threading.main_thread():
        return  # no signal comes here
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)


@contextmanager
def borrowed_signals() -> Iterator[None]:
    """Give the signals back when the block ends: what they did before it, they do again."""
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, was in before.items():
            if was is not None:  # else it is none of Python's
                signal.signal(number, was)
