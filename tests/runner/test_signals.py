"""A signal goes to the loop while that runs, to nobody while its process leaves, and then to whom it went before."""

import asyncio
import os
import signal

import pytest

from batchrun.runner.signals import ENDING, borrowed_signals, listen
from tests.runner.bench import until


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_heard_once_and_does_nothing_to_a_process_whose_loop_has_ended(number: signal.Signals) -> None:
    before, heard = signal.getsignal(number), list[int]()

    async def whole() -> None:
        listen(heard.append)
        os.kill(os.getpid(), number)
        await until(lambda: heard == [number])

    with borrowed_signals():
        signal.signal(number, signal.SIG_DFL)  # whatever it is under nohup
        asyncio.run(whole())
        os.kill(os.getpid(), number)  # would be the end of these tests
        assert heard == [number]
    assert signal.getsignal(number) is before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    heard: list[int] = []

    async def whole() -> None:
        listen(heard.append)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: bool(heard))

    with borrowed_signals():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        asyncio.run(whole())
    assert heard == [signal.SIGTERM]
