"""A signal that ends a command ends it wherever it strikes."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
from batchrun.cli import main

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), {number})
        len("a signal's handler runs between two steps: in here, where what it raises is dropped")

def command(*arguments, **settings):
    Dropped()
    threading.Event().wait(30)

main.cli.main = command
sys.exit(main.run(["ls"]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_that_strikes_inside_a_destructor_is_not_lost(number: signal.Signals, code: int) -> None:
    program = PROGRAM.format(number=int(number))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == code, run.stderr
    assert "Traceback" not in run.stderr
