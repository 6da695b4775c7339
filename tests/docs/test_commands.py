"""Every command that a reader is told to type is typed here, in the order of the document, and does what it says."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.blocks import Block, Shell, blocks_of, fits

ROOT = Path(__file__).parents[2]
RUN = ("README.md", "docs/quickstart.md", "docs/inputs.md", "docs/outputs.md")
PORT = "8000"  # in the documents; here a free one takes its place


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder as a fresh clone with its environment made: examples, `.venv`, and a `make` that installs nothing."""
    for name in ("jobs", "inputs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "outputs").mkdir()
    (tmp_path / ".venv").symlink_to(sys.prefix)
    real = shutil.which("make")
    stamps = " ".join(f"-o {sys.prefix}/{stamp}" for stamp in (".installed", ".installed-dev"))
    wrapper = tmp_path / "bin" / "make"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {real} --no-print-directory -C "{ROOT}" VENV={sys.prefix} {stamps} "$@"\n')
    wrapper.chmod(0o755)
    return tmp_path


@pytest.fixture
def shell(clone: Path) -> Iterator[Shell]:
    path = [str(clone / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    opened = Shell(clone, {**os.environ, "PATH": os.pathsep.join(path), "TERM": "dumb", "COLUMNS": "80"})
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", RUN)
def test_every_command_of_the_document_does_what_it_says(name: str, shell: Shell) -> None:
    port = str(free_port())
    text = (ROOT / name).read_text(encoding="utf-8").replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{port}")
    for block in blocks_of(text.replace(f"--port {PORT}", f"--port {port}")):
        for command in [] if block.reason else block.commands():
            code, printed = shell.run(command, timeout_s=120)
            said = "\n".join(printed)
            assert code == command.exit_code, f"{name}:{command.line_no}: exit {code}\n$ {command.text}\n{said}"
            if command.output is not None:
                shown = "\n".join(command.output)
                where = f"{name}:{command.line_no}: {command.text}"
                assert fits(command.output, printed), f"{where}\n--- shown:\n{shown}\n--- printed:\n{said}"


def test_a_block_that_is_not_run_says_why() -> None:
    left_out = [
        (path.name, block.reason)
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for block in blocks_of(path.read_text(encoding="utf-8"))
        if block.reason is not None or str(path.relative_to(ROOT)) not in RUN
    ]
    assert all(reason for _, reason in left_out), left_out
    assert len(left_out) <= 3, left_out


# -- the runner itself ------------------------------------------------------------------------------------------------


def only_block(*lines: str) -> Block:
    (block,) = blocks_of("\n".join(lines))
    return block


def test_a_console_block_is_commands_with_their_output() -> None:
    block = only_block("<!-- exits: 0 3 -->", "```console", "$ echo a \\", "> b", "a b", "$ false", "```")
    assert [(one.text, one.output, one.exit_code) for one in block.commands()] == [
        ("echo a \\\nb", ["a b"], 0),
        ("false", None, 3),
    ]


def test_a_comment_belongs_to_the_next_block_only() -> None:
    first, second = blocks_of("<!-- not run: it is long -->\n```sh\na\n```\n\n```sh\nb\n```\n")
    assert (first.reason, second.reason) == ("it is long", None)


@pytest.mark.parametrize(
    ("expected", "printed", "answer"),
    [
        (["a"], ["a"], True),
        (["a"], ["a", "b"], False),
        (["a", "..."], ["a", "b"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["a", "...", "c", "...", "e"], ["a", "b", "c", "d", "e"], True),
        (["a", "...", "x", "...", "e"], ["a", "b", "c", "d", "e"], False),
        (["a", "...", "a"], ["a"], False),
        (["done in 2 s, 3 items"], ["done in 41 ms, 3 items"], True),
        (["done in 2 s, 3 items"], ["done in 2 s, 4 items"], False),
        (["a"], ["2026-01-02T03:04:05Z job phase=running 1/2", "a"], True),
    ],
)
def test_output_is_compared_but_for_what_varies(expected: list[str], printed: list[str], answer: bool) -> None:
    assert fits(expected, printed) is answer


def test_a_wrong_exit_and_a_failing_line_are_seen(shell: Shell) -> None:
    (wrong,) = only_block("```console", "$ exit 3", "```").commands()
    (stopped,) = only_block("```sh", "echo one", "false", "echo two", "```").commands()
    code, printed = shell.run(stopped, timeout_s=60)
    assert code != 0
    assert printed == ["one", "(the shell ended here)"]
    assert wrong.exit_code == 0


def test_what_a_document_exports_lasts_until_its_end(shell: Shell) -> None:
    block = only_block("```console", "$ export WORD=kept", "$ echo $WORD", "kept", "```")
    for command in block.commands():
        code, printed = shell.run(command, timeout_s=60)
        assert code == 0
        assert fits(command.output or [], printed)
