"""What the documents say of the code is what the code says."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from batchrun import errors
from batchrun.cli.main import COMMANDS
from batchrun.core.request import Defaults, build_request
from batchrun.core.spec import JobSpec
from batchrun.core.states import ITEM_MOVES, JOB_MOVES, AttemptState, ItemState, JobState
from batchrun.settings import Settings
from tests.core.specs import parse_spec
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SEVEN = ["task_id", "model", "input_file", "output_file", "max_tokens", "concurrency", "retry_times"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


# -- generated parts --------------------------------------------------------------------------------------------------


def test_every_generated_part_is_current(generate: ModuleType) -> None:
    stale = [path.name for path in DOCS.rglob("*.md") if generate.regenerated(path.read_text()) != path.read_text()]
    assert stale == [], "run: python docs/generate.py"


def test_every_part_that_is_made_stands_in_a_document(generate: ModuleType) -> None:
    text = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    assert {name for name in generate.PARTS if f"<!-- generated: {name} -->" not in text} == set()


def test_a_stale_part_is_written_anew(generate: ModuleType) -> None:
    text = "before\n<!-- generated: not-yet -->\nold\n<!-- end: not-yet -->\nafter\n"
    assert generate.regenerated(text) == text.replace("old\n", generate.not_yet())


def test_the_tables_miss_nothing_and_leave_no_meaning_empty(generate: ModuleType) -> None:
    for part in (generate.job_spec(), generate.settings()):
        rows = [line.strip("|\n ").split(" | ") for line in part.splitlines()[2:]]
        assert all(row[-1].strip() for row in rows), [row for row in rows if not row[-1].strip()]
    assert {f"| `{key}` |" in generate.job_spec() for key in JobSpec.model_fields} == {True}
    assert all(f"BATCHRUN_{name.upper()}" in generate.settings() for name in Settings.model_fields)


def test_every_move_is_drawn(generate: ModuleType) -> None:
    drawn = generate.item_drawing()
    for move in ITEM_MOVES.values():
        for source in move.sources:
            for target in move.targets - {source}:  # to where it stands nothing moves
                assert re.search(rf"{source} --> {target} : .*\b{move.name}\b", drawn), (move.name, source, target)
    for job_move in JOB_MOVES.values():
        for job_source in job_move.sources:
            assert f"{job_source} --> {job_move.target} : " in generate.job_drawing()


def test_every_state_and_outcome_is_explained() -> None:
    text = read("docs/lifecycle.md")
    explained = [*ItemState, *JobState, *(state for state in AttemptState if state is not AttemptState.INTENT)]
    assert [state for state in explained if f"| `{state}` |" not in text] == []


# -- what is written by hand ------------------------------------------------------------------------------------------


def test_the_first_screen_holds_what_a_newcomer_needs() -> None:
    screen = "\n".join(read("README.md").splitlines()[:40])
    for needed in ("> batchrun never sends", "in_doubt", "make demo", "make test", "no silent second\nbill"):
        assert needed in screen


def test_the_promise_is_the_same_wherever_it_stands() -> None:
    promises = {
        " ".join(line.removeprefix("> ") for line in path.read_text().splitlines() if line.startswith("> "))
        for path in (ROOT / "README.md", DOCS / "guarantees.md")
    }
    assert promises == {
        "batchrun never sends a request that it has not first written down durably, never begins one for an item that "
        "already has an answer, and never re-sends one whose fate it cannot prove unless you told it to."
    }


@pytest.mark.parametrize("name", ["README.md", "docs/job-spec.md"])
def test_the_seven_keys_are_the_example_of_the_clone(name: str) -> None:
    spec, *others = ("\n".join(block.text) for block in blocks_of(read(name), kinds=("json",)))
    assert json.loads(spec) == json.loads(read("jobs/job.json"))
    assert list(json.loads(spec)) == SEVEN
    parsed = parse_spec(spec, where=name)
    for text in others:
        value = json.loads(text)
        if "messages" in value:
            assert build_request(value, Defaults.of(parsed)).model == parsed.model
        else:
            parse_spec(json.dumps(json.loads(spec) | value), where=name)


def test_every_key_of_the_seven_is_explained_in_the_readme() -> None:
    assert [key for key in SEVEN if f"| `{key}` |" not in read("README.md")] == []


def test_every_command_and_exit_code_stands_in_the_readme() -> None:
    text = read("README.md")
    assert [name for name in COMMANDS if f"`batchrun {name}" not in text] == []
    own = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BatchrunError)]
    assert [kind.exit_code for kind in own if f"\n| {kind.exit_code} |" not in text] == []


def test_every_variable_that_is_named_exists() -> None:
    known = {f"BATCHRUN_{name.upper()}" for name in Settings.model_fields}
    for path in documents():
        named = set(re.findall(r"BATCHRUN_[A-Z_]+[A-Z]", path.read_text()))
        assert named <= known, path.name


def test_nothing_sends_a_reader_to_the_wrong_package_or_machine() -> None:
    for path in documents():
        text = path.read_text()
        assert not re.search(r"pip install [^\n]*\bbatchrun\b(?!-llm)", text), path.name
        assert not re.search(r"/root/|/home/|/tmp/", text), path.name


def test_once_and_only_once_is_never_claimed() -> None:
    for path in documents():
        for found in re.finditer(r"exactly once", path.read_text(), re.IGNORECASE):
            before = path.read_text()[max(0, found.start() - 60) : found.start()]
            assert "not" in before or "never" in before or "id" in before, (path.name, before)
