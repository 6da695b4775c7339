"""Every error that a person can meet says what to do next, and what it says to type exists."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from batchrun.cli.context import Context
from batchrun.cli.main import COMMANDS, cli

HOUSE = Path(__file__).parents[1] / "batchrun"
ROOT = "BatchrunError"
# These need no hint where they are made.
WITHOUT = {
    "BadInput": "each of its faults has a hint of its own",
    "TourFault": "its class gives the one hint that there is",
}
TREES = {path.relative_to(HOUSE): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(HOUSE.rglob("*.py"))}


def error_classes() -> set[str]:
    """Find the classes of deliberate errors, in whichever file they stand."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {ROOT}
    while grown := {name for name, above in bases.items() if above & found} - found:
        found |= grown
    return found


def made(tree: ast.AST, classes: set[str]) -> Iterator[ast.Call]:
    """Yield every place where an error of these classes is made, raised at once or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
            yield node


def says_what_to_do(call: ast.Call) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "hint"]
    return bool(given) and not (isinstance(given[0], ast.Constant) and not given[0].value)


def test_every_error_says_what_to_do_next() -> None:
    classes = error_classes() - set(WITHOUT)
    assert {"UsageFault", "LedgerFault", "JobBusy", "KeyFault"} <= classes
    silent = [
        f"batchrun/{path}:{call.lineno} {ast.unparse(call)[:120]}"
        for path, tree in TREES.items()
        for call in made(tree, classes)
        if not says_what_to_do(call)
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ('raise UsageFault("x", hint="do y")', True),
        ('raise UsageFault("x", hint=words)', True),
        ('raise UsageFault("x")', False),
        ('raise UsageFault("x", hint=None)', False),
        ('return UsageFault("x", hint="")', False),
    ],
)
def test_an_error_without_a_hint_is_seen(source: str, answer: bool) -> None:
    (call,) = made(ast.parse(source), {"UsageFault"})
    assert says_what_to_do(call) is answer


# -- what is named exists -----------------------------------------------------------------------------------------

COMMAND = re.compile(r"\bbatchrun ((?:[a-z]+-)*[a-z]+)((?: (?:--?[a-z][a-z-]*|[A-Z_]+\b|JOB\b))*)")
# Words that follow the program's name in a sentence.
PROSE = frozenset({"a", "could", "died", "here", "job", "ledger", "never", "takes"})


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module: whole f-strings with JOB for what is filled in, and no docstrings."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "JOB" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inside | docs):
            yield node.value


def named_commands() -> Iterator[tuple[str, str, list[str]]]:
    """Yield where a command is named, which one, and the options that stand behind it."""
    for path, tree in TREES.items():
        for text in texts(tree):
            for found in COMMAND.finditer(text):
                options = [word for word in shlex.split(found[2]) if word.startswith("-")]
                yield str(path), found[1], options


def options_of(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli, obj=Context()), name)
    assert command is not None
    return {option for param in command.params for option in param.opts} | {"-h", "--help"}


def test_every_command_and_option_that_a_text_names_exists() -> None:
    named = list(named_commands())
    wrong = [f"{path}: batchrun {name}" for path, name, _ in named if name not in COMMANDS and name not in PROSE]
    wrong += [
        f"{path}: batchrun {name} {option}"
        for path, name, options in named
        if name in COMMANDS
        for option in options
        if option not in options_of(name)
    ]
    assert wrong == []
    assert len([name for _, name, _ in named if name in COMMANDS]) > 40
