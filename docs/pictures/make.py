"""Make the pictures of this folder anew: `python docs/pictures/make.py`. Each is what a real terminal showed.

A job is run on a terminal of 80 columns against the mock endpoint, with faults; nothing of it is drawn by hand. It
takes about a minute. The figures differ a little each time.
"""

import fcntl
import html
import io
import json
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess

HERE = Path(__file__).parent
COLUMNS, ROWS = 80, 40
ITEMS = 1_500
SPEC = {
    "task_id": "tickets-0417",
    "model": "turbo-opt",
    "input_file": "./inputs/tickets.jsonl",
    "output_file": "./outputs/tickets.jsonl",
    "max_tokens": 256,
    "concurrency": 32,
    "retry_times": 1,
    "timeout_s": 5,
    "price": {"input_per_1m_usd": 0.5, "output_per_1m_usd": 1.5},
    "max_cost_usd": 2,
}
FAULTS = MockConfig(
    models=("turbo-opt",),
    latency_ms=600,
    latency_sigma=0.5,
    answer_tokens=60,
    error_rate=0.05,
    hang_rate=0.002,
    reset_rate=0.002,
    seed=4,
)
COLOURS = TerminalTheme(
    (13, 17, 23),
    (201, 209, 217),
    [
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
    [
        (110, 118, 129),
        (255, 161, 152),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (240, 246, 252),
    ],
)
# Without the fonts that rich's own template fetches from elsewhere: a picture is whole by itself.
FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""
_STEP = re.compile(r"\x1b\[(\d+)A|\x1b\[J|\x1b\[K|\r|\n|[^\x1b\r\n]+|\x1b\[[\d;]*m")


class Screen:
    """What `batchrun` has put on a terminal: lines, with their colours."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0
        self._is_begun = False  # the line at hand is written anew

    def feed(self, text: str) -> None:
        """Take what was written, in whole steps."""
        for step in _STEP.finditer(text):
            match step[0]:
                case "\n":
                    self._row, self._is_begun = self._row + 1, False
                    if self._row == len(self.lines):
                        self.lines.append("")
                case "\r":
                    self._is_begun = False
                case "\x1b[K":
                    pass
                case "\x1b[J":
                    self.lines[self._row :] = [""]
                case _ if step[1]:
                    self._row, self._is_begun = max(0, self._row - int(step[1])), False
                case words:
                    self.lines[self._row] = (self.lines[self._row] if self._is_begun else "") + words
                    self._is_begun = True

    @property
    def text(self) -> str:
        return "\n".join(Text.from_ansi(line).plain for line in self.lines)


def watch(
    folder: Path, base_url: str, *arguments: str, meanwhile: Callable[[str], bool] = lambda text: False
) -> tuple[list[str] | None, list[str]]:
    """Run `batchrun ARGUMENTS...` on a terminal; return what it showed when `meanwhile` first held, and at the end."""
    hand, person = pty.openpty()
    fcntl.ioctl(person, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "batchrun", *arguments, "--yes"],
        cwd=folder,
        env=env | {"OPENAI_BASE_URL": base_url, "TERM": "xterm-256color", "PYTHONPATH": str(HERE.parents[1])},
        stdin=subprocess.DEVNULL,
        stdout=person,
        stderr=person,
    )
    screen, shown = Screen(), None
    screen.feed(f"$ batchrun {' '.join(arguments)}\n")
    while process.poll() is None or select.select([hand], [], [], 0.1)[0]:
        if select.select([hand], [], [], 0.1)[0]:
            screen.feed(os.read(hand, 1 << 16).decode())
        if shown is None and meanwhile(screen.text):
            shown = list(screen.lines)
    os.close(hand)
    os.close(person)
    return shown, screen.lines


def draw(name: str, lines: list[str]) -> None:
    """Write one picture."""
    while lines and not lines[-1]:
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in [*lines, ""]:
        console.print(Text.from_ansi(line), soft_wrap=True)
    svg = console.export_svg(title="", theme=COLOURS, code_format=FORMAT, unique_id=f"batchrun-{name}")
    title = f"<title>{html.escape(Text.from_ansi(lines[0]).plain.removeprefix('$ '))}</title>"
    (HERE / f"{name}.svg").write_text(svg.replace("\n<style>", f"\n{title}\n<style>", 1), encoding="utf-8")
    print(f"written: docs/pictures/{name}.svg")


def prepare(folder: Path) -> None:
    """Write a job of support tickets."""
    for name in ("jobs", "inputs", "outputs"):
        (folder / name).mkdir(parents=True)
    (folder / "jobs" / "tickets.json").write_text(json.dumps(SPEC))
    with (folder / "inputs" / "tickets.jsonl").open("w") as file:
        for number in range(ITEMS):
            messages = [
                {"role": "user", "content": f"Summarise ticket {number}: the printer on floor {number % 7} is out."}
            ]
            body = {"messages": messages}
            line = {"custom_id": f"ticket-{number:05d}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")


def is_half_done(text: str) -> bool:
    """Say whether the run is well under way, with everything on the display that can be there."""
    done = re.search(r" (\d+) %  ", text)
    return bool(done and int(done[1]) >= 45 and " to " in text and "last failure" in text and "in doubt, " in text)


def main() -> int:
    """Make all three."""
    with tempfile.TemporaryDirectory() as made, MockProcess(replace(FAULTS, port=free_port())) as mock:
        for name in ("trial", "run"):
            prepare(Path(made) / name)
        _, trial = watch(Path(made) / "trial", mock.base_url, "trial", "jobs/tickets.json")
        run, ended = watch(
            Path(made) / "run", mock.base_url, "submit", "jobs/tickets.json", "--no-trial", meanwhile=is_half_done
        )
        if run is None:
            print("the run was never seen half done", file=sys.stderr)
            return 1
        for name, lines in (("trial", trial), ("run", run), ("ended", ended)):
            draw(name, lines)
    return 0


def free_port() -> int:
    """Return the port that people expect, or 0 where it is taken: then any."""
    with socket.socket() as probe:
        return 8000 if probe.connect_ex(("127.0.0.1", 8000)) else 0


if __name__ == "__main__":
    sys.exit(main())
