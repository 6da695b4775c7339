"""Write the parts of the documentation that the code knows better: `python docs/generate.py`, with --check to compare.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. A test fails when it is stale.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
from pydantic import AliasChoices

from batchrun.cli.context import Context
from batchrun.cli.main import COMMANDS, cli
from batchrun.core.spec import NOT_YET, JobSpec
from batchrun.core.states import (
    FINAL_JOB_STATES,
    ITEM_MOVES,
    JOB_MOVES,
    ItemState,
    JobState,
    is_final,
)
from batchrun.settings import Settings

Edges = dict[str, list[tuple[StrEnum, StrEnum]]]  # move -> (from, to)

DOCS = Path(__file__).parent
PART = re.compile(r"<!-- generated: (?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- end: (?P=name) -->", re.DOTALL)
HELP_COLUMNS = 80

# What the code says in fewer words than a reader needs.
MEANINGS = {
    "on_unknown": "what to do when a request's fate is unknown; `hold` unless a flag or the environment says otherwise",
    "error_file": "default: beside the output, `batch_output.jsonl` -> `batch_output.errors.jsonl`",
    "trial.sample": "which items are tried; `stratified`: short and long ones in their right shares",
    "trial": "the trial before the full run: see the five keys below",
    "price.input_per_1m_usd": "price of a million input tokens",
    "price.output_per_1m_usd": "price of a million output tokens",
    "price.cached_input_per_1m_usd": "price of a million input tokens read from the provider's cache",
    "price.cache_write_per_1m_usd": "price of a million input tokens written into the provider's cache",
    "max_prompt_tokens": "the most tokens of a prompt that is more than text (pictures, sound, files)",
    "price.source": "where these amounts are from: your words, or whose prices were looked up",
    "price_from": "`genai-prices`, or `genai-prices:PROVIDER`: whose prices hold where none is written",
    "price.per_request_usd": "price of a request, on top of its tokens",
    "BATCHRUN_BASE_URL": "the endpoint, where the spec names none",
    "BATCHRUN_API_KEY": "the key, where the spec's `api_key_env` names no variable",
    "BATCHRUN_ON_UNKNOWN": "`hold` or `retry`, where the spec does not say",
    "BATCHRUN_HEARTBEAT_S": "between two signs of life of a process",
    "BATCHRUN_DEAD_AFTER_S": "without a sign of life, a process on another host counts as dead",
}
# What the schema says of a key in more than one breath.
KINDS = {
    "concurrency": 'integer, 1 to 10,000, or `"auto"`, or a range such as `"4-64"`',
    "response_schema": "object, name of a file, or `true`",
}
UNITS = {"_usd": "USD", "_s": "seconds", "_tokens": "tokens", "concurrency": "requests", "retry_times": "retries"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


# -- the job spec ---------------------------------------------------------------------------------------------------


def job_spec() -> str:
    """Every key of a spec: kind, range, default, unit, meaning."""
    schema = JobSpec.model_json_schema()
    rows = [[f"`{name}`", *row] for name, row in _keys(schema, schema, "")]
    return table(["key", "value", "default", "unit", "meaning"], rows)


def not_yet() -> str:
    """The keys that are refused in this release."""
    return ", ".join(f"`{key}`" for key in NOT_YET) + "\n"


def _keys(schema: dict[str, Any], model: dict[str, Any], prefix: str) -> Iterator[tuple[str, list[str]]]:
    needed = model.get("required", [])
    for key, about in model["properties"].items():
        name = prefix + key
        nested = None if prefix == "endpoints." else _nested(schema, about)  # a price there is as the job's
        meaning = MEANINGS.get(name) or about.get("description", "")
        unit = next((unit for end, unit in UNITS.items() if key.endswith(end)), "")
        default = "needed" if key in needed else _default(about, nested)
        yield name, [KINDS.get(name) or _kind(about, nested), default, unit, meaning]
        if nested:
            yield from _keys(schema, nested, f"{name}.")


def _nested(schema: dict[str, Any], about: dict[str, Any]) -> dict[str, Any] | None:
    for option in [about, about.get("items", {}), *about.get("anyOf", [])]:
        if reference := option.get("$ref"):
            found: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
            return found
    return None


def _default(about: dict[str, Any], nested: dict[str, Any] | None) -> str:
    value = about.get("default")
    if value is None:
        return "see below" if nested and "default" not in about else "-"
    return {"[]": "none", "{}": "none"}.get(str(value)) or f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _kind(about: dict[str, Any], nested: dict[str, Any] | None) -> str:
    if nested:
        return "list of objects" if about.get("type") == "array" else "object"
    if any("$ref" in option for option in about.get("anyOf", [])):
        return "object"
    options = [option for option in about.get("anyOf", [about]) if option.get("type") != "null"]
    one = options[0]
    if "enum" in one:
        return " or ".join(f"`{value}`" for value in one["enum"])
    kind: str = {"array": "list of integers"}.get(one["type"], one["type"])
    return kind + _range(one.get("items", one)) if one["type"] in ("integer", "number", "array") else kind


def _range(about: dict[str, Any]) -> str:
    low, high = about.get("minimum"), about.get("maximum")
    if low is not None and high is not None:
        return f", {low:,g} to {high:,.0f}"
    if (above := about.get("exclusiveMinimum")) is not None:
        return f" above {above:g}" + (f", at most {high:,.0f}" if high is not None else "")
    return f", {low:g} or more" if low is not None else ""


# -- the states -----------------------------------------------------------------------------------------------------


def item_drawing() -> str:
    """The states of an item and the moves between them, as a Mermaid drawing."""
    finals = [state for state in ItemState if is_final(state)]
    return _drawing([ItemState.PENDING, ItemState.REJECTED], _item_edges(), finals)


def job_drawing() -> str:
    """The states of a job and the moves between them, as a Mermaid drawing."""
    edges: Edges = {name: [(source, move.target) for source in move.sources] for name, move in JOB_MOVES.items()}
    return _drawing([JobState.VALIDATING], edges, [state for state in JobState if state in FINAL_JOB_STATES])


def _item_edges() -> Edges:
    return {
        name: [(source, target) for source in move.sources for target in move.targets if source is not target]
        for name, move in ITEM_MOVES.items()
    }


def _drawing(first: Sequence[StrEnum], edges: Edges, finals: Sequence[StrEnum]) -> str:
    names: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for name, pairs in edges.items():
        for pair in sorted(pairs):
            names.setdefault(pair, []).append(name)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state} : submit" for state in first]
    lines += [f"    {source} --> {target} : {', '.join(called)}" for (source, target), called in sorted(names.items())]
    lines += [f"    {state} --> [*]" for state in finals]
    return "\n".join([*lines, "```"]) + "\n"


def item_moves() -> str:
    """The table of an item's moves."""
    return _moves(ITEM_MOVES.values(), lambda move: _states(move.targets))


def job_moves() -> str:
    """The table of a job's moves."""
    return _moves(JOB_MOVES.values(), lambda move: move.target.value)


def _moves(moves: Iterable[Any], target: Callable[[Any], str]) -> str:
    rows = [[move.name.replace("_", " "), _states(move.sources), target(move), move.who, move.guard] for move in moves]
    return table(["move", "from", "to", "who", "what must hold beside the from-state"], rows)


def _states(states: Iterable[StrEnum]) -> str:
    return ", ".join(sorted(state.value for state in states))


# -- the settings ---------------------------------------------------------------------------------------------------


def settings() -> str:
    """Every environment variable that is a setting."""
    rows = []
    for name, about in Settings.model_fields.items():
        variables = _variables(name, about.validation_alias)
        meaning = MEANINGS.get(variables[0]) or about.description or ""
        unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
        default = "-" if about.default is None else f"`{about.default}`"
        rows.append([" or ".join(f"`{variable}`" for variable in variables), default, unit, meaning])
    return table(["variable", "default", "unit", "meaning"], rows)


def _variables(name: str, alias: object) -> list[str]:
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [f"{Settings.model_config['env_prefix']}{name}".upper()]


# -- the command line -----------------------------------------------------------------------------------------------


def commands() -> str:
    """The help of every command, as it is printed."""
    return "\n".join(f"## {title}\n\n```text\n{text}\n```\n" for title, text in helps())


def helps() -> Iterator[tuple[str, str]]:
    """Yield (command, help) of the program and all its commands."""
    top = _open(cli, None, "batchrun")
    yield "batchrun", cli.get_help(top)
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = _open(command, top, name)
        yield f"batchrun {name}", command.get_help(context)
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                inner = command.get_command(context, below)
                assert inner is not None
                yield f"batchrun {name} {below}", inner.get_help(_open(inner, context, below))


def _open(command: click.Command, parent: click.Context | None, name: str) -> click.Context:
    return click.Context(command, parent=parent, info_name=name, obj=Context(), terminal_width=HELP_COLUMNS)


# -- writing --------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], str]] = {
    "job-spec": job_spec,
    "not-yet": not_yet,
    "item-drawing": item_drawing,
    "item-moves": item_moves,
    "job-drawing": job_drawing,
    "job-moves": job_moves,
    "settings": settings,
    "commands": commands,
}


def regenerated(text: str) -> str:
    """Return a document with its generated parts written anew."""

    def write(part: re.Match[str]) -> str:
        name = part["name"]
        return f"<!-- generated: {name} -->\n{PARTS[name]()}<!-- end: {name} -->"

    return PART.sub(write, text)


def main() -> int:
    """Rewrite every document; with --check only say which are stale."""
    stale = []
    for path in sorted(DOCS.rglob("*.md")):
        before = path.read_text(encoding="utf-8")
        if (after := regenerated(before)) != before:
            stale.append(path)
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    for path in stale:
        print(f"{'stale' if '--check' in sys.argv else 'written'}: {path.relative_to(DOCS.parent)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
