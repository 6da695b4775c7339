"""Starts a worker process, and starts it anew when it dies, or when it stands still and does not answer any more."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
STANDS_STILL_S = 30.0  # without a heartbeat: its event loop does not turn any more
LOOK_S = 0.5
DRAIN_S = 600.0
USAGE = 2  # an exit code that a new start would only repeat


class Supervisor:
    """One worker process at a time, until a signal."""

    def __init__(self, command: list[str], *, heartbeat_file: Path | None, drain_s: float | None) -> None:
        """Make a supervisor.

        Args:
            command: starts the worker; `--heartbeat-file` is added where none is named.
            drain_s: how long a worker that stands still may take to end before it is killed.
        """
        self._command = command
        self._heartbeat_file = heartbeat_file
        self._drain_s = DRAIN_S if drain_s is None else drain_s
        self._child: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []

    def run(self) -> int:
        """Supervise until a signal has ended the worker; return its exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                signal.signal(number, self._pass_on)
        wait_s = FIRST_WAIT_S
        with tempfile.TemporaryDirectory(prefix="batchrun-") as folder:
            beats = self._heartbeat_file or Path(folder) / "heartbeat"
            command = self._command if self._heartbeat_file else [*self._command, "--heartbeat-file", str(beats)]
            while True:
                began = time.monotonic()
                code = self._run_once(command, beats)
                if self._signals or code == USAGE:
                    return max(code, 0)
                print(f"the worker ended ({_words(code)}); it is started again", file=sys.stderr, flush=True)
                if time.monotonic() - began > 2 * LONGEST_WAIT_S:
                    wait_s = FIRST_WAIT_S
                if self._is_stopped_within(wait_s):
                    return 0
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _run_once(self, command: list[str], beats: Path) -> int:
        # A pipe that nobody writes to: the worker sees its end when this process is gone, however that came.
        leash, held = os.pipe()
        try:
            # A group of its own: a Ctrl-C on the terminal reaches the worker through the supervisor, and once.
            self._child = subprocess.Popen([*command, "--leash", str(leash)], start_new_session=True, pass_fds=[leash])
            os.close(leash)
            return self._watch(self._child, beats)
        finally:
            os.close(held)

    def _watch(self, child: "subprocess.Popen[bytes]", beats: Path) -> int:
        """Wait for the worker's end and return its exit code; end one that stands still."""
        seen, moved_at = _touched_at(beats), time.monotonic()
        killing_at: float | None = None
        while True:
            try:
                return child.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                pass
            now = time.monotonic()  # the file's own time is only ever compared with itself: clocks are set
            if (touched := _touched_at(beats)) != seen:
                seen, moved_at = touched, now
            if killing_at is None and not self._signals and now - moved_at > STANDS_STILL_S:
                print("the worker stands still; it is ended", file=sys.stderr, flush=True)
                child.send_signal(signal.SIGTERM)
                killing_at = now + self._drain_s
            if killing_at is not None and now > killing_at:
                child.kill()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _is_stopped_within(self, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        while not self._signals and time.monotonic() < deadline:
            time.sleep(min(0.1, wait_s))
        return bool(self._signals)


def _touched_at(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
