"""A signal that ends a command ends it wherever it strikes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

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


AS_A_MODULE = """
from batchrun import __main__

def run(arguments):
    try:
        exec("raise KeyboardInterrupt")  # as where a library makes a function by such a call
    except KeyboardInterrupt:
        return 130

__main__.run = run
__main__.main()
"""


def test_a_stop_that_strikes_inside_an_exec_ends_with_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(AS_A_MODULE)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    assert subprocess.run([sys.executable, "-m", "stopped"], env=env, timeout=60, check=False).returncode == 130
