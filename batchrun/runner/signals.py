"""Listening to signals on an event loop; what the caller had set to be ignored stays ignored."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listen(handler: Callable[[int], None], *, numbers: Sequence[signal.Signals] = ENDING) -> None:
    """Let `handler` take the signals that end a process, on the running loop.

    Under nohup, or as a shell's background job, one of them is ignored: whoever set that means it.
    """
    loop = asyncio.get_running_loop()
    for number in numbers:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, handler, int(number))
