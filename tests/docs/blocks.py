"""The fenced command blocks of a document, and a shell that runs them in order and compares what they print.

    <!-- not run: REASON -->     before a block: it is left out
    <!-- exits: 0 6 -->          before a block: the exit code of each of its commands; without it, all are 0

In a ```console block each `$ ` begins a command, `> ` goes on with it, and the other lines are its output; `...` stands
for any lines. A question and its answer (`go on? [Y/n]: y`) stand there as a terminal shows them; here nobody is asked.
A ```sh block is one command, which stops at its first failure.
"""

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"```(\w+)\s*")
DIRECTIVE = re.compile(r"<!-- (not run|exits): (.*?) -->")
ANY = "..."
# What may differ between two runs: addresses, ledgers, times and durations.
VARYING = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\bbr-[0-9a-f]{12}-"), "br-LEDGER-"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b\d+ m \d+ s\b|\b\d+(\.\d+)? m?s\b"), "DURATION"),
    (re.compile(r", DURATION with the runs before"), ""),
)
QUESTION = re.compile(r"\?.* \[(Y/n|y/N)\]: [yn]?$")
PROGRESS = re.compile(r"TIME \S+ phase=")


@dataclass
class Command:
    """One command of a block, and what the document says it does."""

    line_no: int
    text: str
    exit_code: int = 0
    output: list[str] | None = None  # None: the document shows none

    @property
    def is_background(self) -> bool:
        return self.text.rstrip().endswith("&")


@dataclass
class Block:
    """One fenced block."""

    line_no: int
    kind: str
    text: list[str]
    directives: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str | None:
        """Why it is not run; None where it is."""
        return self.directives.get("not run")

    def commands(self) -> list[Command]:
        """Return the block's commands with their exit codes."""
        if self.kind == "sh":
            found = [Command(self.line_no + 1, "set -e\n" + "\n".join(self.text) + "\nset +e")]
        else:
            found = list(self._console())
        exits = [int(code) for code in self.directives.get("exits", "").split()]
        assert len(exits) in (0, len(found)), f"line {self.line_no}: {len(exits)} exit codes for {len(found)} commands"
        for command, code in zip(found, exits, strict=False):
            command.exit_code = code
        return found

    def _console(self) -> Iterator[Command]:
        command: Command | None = None
        for line_no, line in enumerate(self.text, start=self.line_no + 1):
            if line.startswith("$ "):
                if command is not None:
                    yield command
                command = Command(line_no, line[2:])
            elif command is None:
                raise AssertionError(f"line {line_no}: a console block begins with '$ '")
            elif line.startswith("> ") and command.output is None:
                command.text += "\n" + line[2:]
            else:
                command.output = [*(command.output or []), line]
        if command is not None:
            yield command


def blocks_of(document: str, *, kinds: tuple[str, ...] = ("sh", "console")) -> list[Block]:
    """Return a document's fenced blocks of these kinds, in order."""
    found: list[Block] = []
    directives: dict[str, str] = {}
    open_block: Block | None = None
    for line_no, line in enumerate(document.split("\n"), start=1):
        if open_block is not None:
            if line.startswith("```"):
                found.append(open_block)
                open_block = None
            else:
                open_block.text.append(line)
        elif fence := FENCE.match(line):
            open_block, directives = Block(line_no, fence[1], [], directives), {}
        elif directive := DIRECTIVE.match(line):
            directives[directive[1]] = directive[2]
        elif line.strip():
            directives = {}
    assert open_block is None, f"line {open_block.line_no if open_block else 0}: the block is not closed"
    return [block for block in found if block.kind in kinds]


def normalised(line: str) -> str:
    """Return a line without what may differ between two runs."""
    for pattern, word in VARYING:
        line = pattern.sub(word, line)
    return line.rstrip()


def fits(expected: list[str], printed: list[str]) -> bool:
    """Say whether a command printed what the document shows; `...` stands for any lines."""
    wanted = [normalised(line) for line in expected if not QUESTION.search(line)]
    lines = [line for line in map(normalised, printed) if not PROGRESS.match(line)]
    parts: list[list[str]] = [[]]
    for line in wanted:
        if line == ANY:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) == 1:
        return lines == parts[0]
    first, *middle, last = parts
    if lines[: len(first)] != first or len(lines) < len(first) + len(last):
        return False
    at, end = len(first), len(lines) - len(last)
    if lines[end:] != last:
        return False
    for part in middle:
        at = next((here for here in range(at, end - len(part) + 1) if lines[here : here + len(part)] == part), -1)
        if at < 0:
            return False
        at += len(part)
    return True


class Shell:
    """One bash in one folder: variables and background processes last from command to command."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def run(self, command: Command, *, timeout_s: float) -> tuple[int, list[str]]:
        """Run one command and return (exit code, what was printed). Of one in the background, wait for its output."""
        assert self._process.stdin is not None
        mark = f"== end of line {command.line_no}"
        self._process.stdin.write(f"{{\n{command.text}\n}} </dev/null\nprintf '%s %d\\n' '{mark}' $?\n")
        self._process.stdin.flush()
        printed: list[str] = []
        code: int | None = None
        deadline = time.monotonic() + timeout_s
        while code is None or (command.is_background and not fits(command.output or [], printed)):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return (-1 if code is None else code), [*printed, f"(nothing more within {timeout_s:.0f} s)"]
            if line is None:
                return self._process.wait(), [*printed, "(the shell ended here)"]
            if line.startswith(mark):
                code = int(line.removeprefix(mark))
            else:
                printed.append(line)
        return code, printed

    def close(self) -> None:
        """End the shell and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
