"""What a person sees on a terminal, frame by frame: nothing is broken, nothing is left over, the cursor never goes."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from batchrun.cli.say import columns_of
from batchrun.core.states import AttemptState, ItemState, JobState
from tests.cli.contract import read_stream
from tests.cli.terminal import Terminal, terminal
from tests.lab import Lab, Run
from tests.process.limits import slow_disk
from tests.process.steps import TASK, gated, process_state, until, until_standing

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
SUBMIT = ("submit", "jobs/job.json", "--no-trial")
COUNT = 72


def _lab(make_lab: Callable[..., Lab], *, count: int = COUNT, **settings: object) -> Lab:
    lab = make_lab(**{"latency_ms": 100, "answer_tokens": 5, **settings})
    lab.write_input(count)
    lab.write_spec(price={"input_per_1m_usd": 1, "output_per_1m_usd": 2}, max_cost_usd=5)
    return lab


def _under_way(lab: Lab) -> Run:
    """Start a job whose endpoint has answered 20 requests, and answers no other one until the gate is gone."""
    lab.gate(20)
    run = lab.start(*SUBMIT)
    until_standing(lab, lambda standing: standing.counts[ItemState.COMPLETED] == 20, "it is under way")
    return run


def _assert_clean(shown: Terminal) -> None:
    """Assert that only talk and closing words are left, each line whole."""
    screen = shown.screen
    assert screen.unknown == []
    assert [line for line in screen.broken if " " in line.strip()] == []  # one long word cannot be folded
    assert screen.has_cursor
    assert b"\x1b[?25l" not in shown.written  # it was never hidden, so no death could have lost it
    for word in ("━", "─", "speed  ", "latency  ", "last failure"):
        assert word not in screen.text, screen.text


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_a_run_is_shown_in_place_and_leaves_its_closing_words(columns: int, make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, error_rate=0.1)
    with terminal(lab, *SUBMIT, columns=columns) as shown:
        text = shown.until(lambda text: "running" in text and "items/s" in text, "it runs")
        assert re.search(rf"\d+/{COUNT}\b", text)
        assert "in flight" in text
        assert "completed" in text
        code = shown.wait()
    assert code in (0, 3)
    _assert_clean(shown)
    flat = " ".join(shown.screen.text.split())
    assert f"{TASK} completed in" in flat
    assert "next: batchrun" in flat


def test_no_colour_means_no_colour(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, error_rate=0.2)
    with terminal(lab, *SUBMIT) as shown:
        shown.wait()
    assert shown.screen.colours
    with terminal(lab, "retry-failed", TASK, "--all", env={"NO_COLOR": "1", "FORCE_COLOR": "1"}) as shown:
        shown.wait()
    assert shown.screen.colours == set()
    _assert_clean(shown)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"CI": "true"}, {"TERM": "dumb", "FORCE_COLOR": "1"}], ids=str)
def test_a_terminal_that_is_none_gets_plain_lines(env: dict[str, str], make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    with terminal(lab, *SUBMIT, env=env) as shown:
        assert shown.wait() == 0
    assert b"\x1b" not in shown.written
    assert "━" not in shown.screen.text
    assert f"{TASK} completed in" in shown.screen.text


@pytest.mark.parametrize("flag", ["--no-progress", "--quiet", "--json"])
def test_a_flag_turns_the_display_off(flag: str, make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    with terminal(lab, *SUBMIT, flag) as shown:
        assert shown.wait() == 0
    assert b"\x1b" not in shown.written


def test_ctrl_c_drains_in_sight_and_leaves_no_garbage(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    with gated(lab, admits=0), terminal(lab, *SUBMIT) as shown:
        shown.until(lambda text: "in flight 8/8" in text, "requests are out")
        shown.press(b"\x03")
        text = shown.until(lambda text: f"{TASK} draining" in text, "it drains")
        assert re.search(r"draining: \d requests? in flight will finish; once more gives them up", text)
        assert re.search(r"waiting  \d in flight will finish, \d+ s at most", text)
        lab.gate(None)
        assert shown.wait() == 130
    _assert_clean(shown)
    assert "next:  batchrun resume batch-001" in shown.screen.text
    assert "^C" not in shown.screen.text
    assert lab.standing().counts[ItemState.IN_DOUBT] == 0


def test_a_second_ctrl_c_ends_at_once(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, latency_ms=20_000)
    with terminal(lab, *SUBMIT) as shown:
        shown.until(lambda text: "in flight 8/8" in text, "requests are out")
        shown.press(b"\x03")
        shown.until(lambda text: f"{TASK} draining" in text, "it drains")
        shown.press(b"\x03")
        assert shown.wait() == 130
    _assert_clean(shown)
    assert "8 in doubt" in shown.screen.text


def test_the_outputs_are_written_in_sight_and_can_be_left_to_resume(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, latency_ms=1)
    with terminal(lab, *SUBMIT, before=partial(slow_disk, 0.05)) as shown:
        shown.until(lambda text: f"{TASK} finalizing" in text and re.search(rf"\d+/{COUNT} lines", text), "it writes")
        shown.press(b"\x03")
        shown.until(lambda text: "once more leaves that to `batchrun resume batch-001`" in text, "it has heard")
        shown.press(b"\x03")
        assert shown.wait() == 130
    _assert_clean(shown)
    assert f"next:  batchrun resume {TASK}" in shown.screen.text
    assert lab.standing().job.state is JobState.FINALIZING
    written = [path.name for path in (lab.folder / "outputs").iterdir()]
    assert [name for name in written if "partial" not in name and not name.endswith(".epoch")] == []
    assert lab.run("resume", TASK).wait() == 0
    assert len(lab.lines()) == COUNT


def test_a_registration_that_takes_long_says_how_far_it_is_and_can_be_stopped(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, count=60_000)
    with terminal(lab, *SUBMIT) as shown:
        shown.until(lambda text: re.search(rf"{TASK} validating .* \d+ %  .*[\d,]+/60,000", text), "it is registered")
        assert "writing the items to the ledger" in shown.screen.text
        shown.press(b"\x03")
        assert shown.wait() == 130
    _assert_clean(shown)
    assert "stopped before the job was registered; nothing was sent" in shown.screen.text
    assert lab.arrivals() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_death_takes_the_cursor_along(number: int, code: int, make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    with gated(lab, admits=0), terminal(lab, *SUBMIT) as shown:
        shown.until(lambda text: "in flight 8/8" in text, "requests are out")
        shown.run.kill(number)
        lab.gate(None)
        assert shown.wait() == code
    screen = shown.screen
    assert screen.has_cursor
    assert screen.column == 0  # what the shell writes next begins a line
    assert screen.broken == screen.unknown == []


def test_a_window_made_narrower_keeps_no_piece_of_the_old_display(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, count=400)
    with terminal(lab, *SUBMIT, columns=120) as shown:
        shown.until(lambda text: "items/s" in text, "it runs")
        for columns in (60, 33, 100):
            shown.resize(columns)
            shown.written = b""
            shown.until(lambda text: len(shown.written) > 300, "it is drawn anew")
            assert shown.screen.text.count("completed") == 1, shown.screen.text
            assert shown.screen.text.count("in flight") == 1, shown.screen.text
        shown.press(b"\x03")
        shown.wait()
    assert shown.screen.unknown == []
    assert "━" not in shown.screen.text


def test_a_stop_and_a_go_on_overwrite_nothing_of_the_shell(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    with gated(lab, admits=0), terminal(lab, *SUBMIT) as shown:
        shown.until(lambda text: "in flight 8/8" in text, "requests are out")
        while True:
            shown.run.kill(signal.SIGSTOP)
            until(lambda: process_state(shown.run.process.pid) == "T", "it has stopped")
            shown.read()
            if shown.written.endswith(b"\x1b[J"):
                break  # and not in the middle of a frame
            shown.run.kill(signal.SIGCONT)
        shown.screen.feed(b"what the shell writes\r\n$ fg\r\n")
        lab.gate(None)
        shown.run.kill(signal.SIGCONT)
        assert shown.wait() == 0
    assert "what the shell writes\n$ fg\n" in shown.screen.text
    assert shown.screen.broken == []


def test_a_terminal_that_is_held_still_does_not_hold_up_the_run(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    with gated(lab, admits=0), terminal(lab, *SUBMIT) as shown:
        shown.until(lambda text: "in flight 8/8" in text, "requests are out")
        shown.press(b"\x13")  # Ctrl-S
        lab.gate(None)
        until_standing(lab, lambda standing: standing.counts[ItemState.COMPLETED] == COUNT, "all of it is done")
        shown.press(b"\x11")  # Ctrl-Q
        assert shown.wait() == 0
    _assert_clean(shown)


def test_lines_of_the_log_stand_above_the_display(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, error_rate=0.2)
    with terminal(lab, *SUBMIT, "-v", columns=400) as shown:
        shown.until(lambda text: "running" in text and "attempt" in text, "it runs and tells of attempts")
        shown.wait()
    _assert_clean(shown)
    told = [line for line in shown.screen.text.splitlines() if "outcome=refused" in line]
    assert len(told) == lab.standing().attempts.by_state[AttemptState.REFUSED]


def test_nothing_that_a_pipe_gets_is_for_a_terminal(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, error_rate=0.1)
    run = lab.run(*SUBMIT, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert run.wait() in (0, 3)
    assert "\x1b" not in run.out + run.err
    assert "━" not in run.out + run.err


def test_a_stream_is_as_wide_as_its_own_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    hand, person = pty.openpty()
    with os.fdopen(hand, "rb"), os.fdopen(person, "w") as stream:
        assert columns_of(stream) == 80  # one that does not say
        fcntl.ioctl(person, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 33, 0, 0))
        assert columns_of(stream) == 33
        monkeypatch.setenv("COLUMNS", "50")
        assert columns_of(stream) == 50
    with open(os.devnull, "w") as stream:
        assert columns_of(stream) is None


# -- the same from another terminal -----------------------------------------------------------------------------------


def test_another_terminal_shows_the_same_display_and_the_same_closing_words(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, error_rate=0.1, count=200)
    lab.env["BATCHRUN_HEARTBEAT_S"] = "0.2"
    run = _under_way(lab)
    with terminal(lab, "status", TASK, "-w", "--exit-status") as shown:
        shown.until(lambda text: f"{TASK} running" in text, "it is followed")
        lab.gate(None)
        text = shown.until(lambda text: "items/s" in text, "its speed is told")
        for words in (f"{TASK} running", "in flight", "tokens/s", "p50", "of $5.00", "last failure"):
            assert words in text
        code = shown.wait()
    assert code == run.wait()
    _assert_clean(shown)
    assert shown.screen.text.split() == run.out.split()  # word for word


def test_ctrl_c_stops_looking_and_not_the_job(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    run = _under_way(lab)
    with terminal(lab, "status", TASK, "-w") as shown:
        shown.until(lambda text: "running" in text, "it is followed")
        shown.press(b"\x03")
        assert shown.wait() == 130
    lab.gate(None)
    screen = shown.screen
    assert (screen.unknown, screen.broken, screen.has_cursor) == ([], [], True)
    for words in (f"{TASK} running", f"/{COUNT}", "speed  ", "in flight"):  # the last moment is left to be read
        assert screen.text.count(words) == 1, screen.text
    assert run.wait() == 0
    assert lab.standing().counts[ItemState.COMPLETED] == COUNT


def test_a_follower_in_a_pipe_writes_plain_lines_and_then_the_closing_words(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    run = _under_way(lab)
    follower = lab.start("status", TASK, "-w", "--exit-status")
    until(lambda: "\n" in follower.out, "it is followed")
    lab.gate(None)
    assert follower.wait() == run.wait() == 0
    first, *rest = follower.out.splitlines()
    assert re.match(rf"\S+Z {TASK} phase=\w+ done=\d+/{COUNT} completed=\d+ failed=0 in_doubt=0 in_flight=\d", first)
    assert "\n".join(rest[-len(run.out.splitlines()) :]) == run.out.rstrip("\n")


def test_a_follower_whose_reader_has_gone_ends_quietly(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    run = _under_way(lab)
    for options in ("", "--json"):
        ended = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m batchrun status {TASK} -w {options} | head -1"],
            cwd=lab.folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert ended.stderr == ""
        assert len(ended.stdout.splitlines()) == 1
    lab.gate(None)
    assert run.wait() == 0


def test_a_follower_for_scripts_prints_one_object_a_line(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    run = _under_way(lab)
    follower = lab.start("status", TASK, "-w", "--json", "--exit-status")
    until(lambda: "\n" in follower.out, "it is followed")
    lab.gate(None)
    assert follower.wait() == run.wait() == 0
    objects = read_stream(follower.out)
    assert [one["state"] for one in objects][-1] == JobState.COMPLETED
    assert objects[0]["state"] == JobState.IN_PROGRESS
    assert follower.err == ""


def test_a_job_that_nobody_performs_is_not_followed_for_ever(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    run = _under_way(lab)
    with terminal(lab, "status", TASK, "-w", "--exit-status") as shown:
        shown.until(lambda text: "running" in text, "it is followed")
        run.kill()
        assert shown.wait() == 8
    _assert_clean(shown)
    assert "has died" in shown.screen.text
    assert f"next:  batchrun resume {TASK}" in shown.screen.text
