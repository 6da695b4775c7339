"""Specs as files and as lines: each fault with its place, and what two jobs must not share."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from batchrun.errors import BadInput
from batchrun.runner.specs import MOST_TOLD, check_specs, read_specs
from tests.core.specs import spec_of
from tests.lab import batch_line

# -- specs as they are written ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("jobs", "inputs", "outputs"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / "inputs" / f"{name}.jsonl").write_text(batch_line("x"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put_lines(*lines: str | dict[str, Any]) -> Path:
    path = Path("jobs/all.jsonl")
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def faults_of(*paths: Path) -> list[tuple[str, str]]:
    with pytest.raises(BadInput) as caught:
        check_specs(paths)
    return [(fault.where, fault.what) for fault in caught.value.faults]


@pytest.mark.usefixtures("folder")
def test_lines_are_counted_as_they_stand_in_the_file() -> None:
    text = "\ufeff\n" + json.dumps(spec_of("a")) + "\r\n  \n" + json.dumps(spec_of("b", metadata={"x": "1\u20282"}))
    Path("jobs/all.jsonl").write_text(text, newline="")
    found = check_specs([Path("jobs/all.jsonl")])
    assert [(spec.where, spec.checked.spec.task_id) for spec in found] == [
        ("jobs/all.jsonl line 2", "a"),
        ("jobs/all.jsonl line 4", "b"),
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{'task_id': 1}", "is not JSON"),
        ('{"a": 1,}', "is not JSON"),
        ("[]", "must hold one JSON object"),
        ('{"task_id": "c", "task_id": "d"}', "'task_id' stands twice"),
        (json.dumps(spec_of("c", input_file="inputs/none.jsonl")), "does not exist"),
        (json.dumps(spec_of("c", modle="m")), "unknown key 'modle'"),
        (json.dumps(spec_of("c", model=None)), "'model' is missing"),
    ],
)
def test_a_fault_names_the_line_of_its_spec(line: str, what: str) -> None:
    faults = faults_of(put_lines(spec_of("a"), "", line))
    assert any(what in said for _, said in faults), faults
    assert all(where.startswith("jobs/all.jsonl line 3") and "line 1" not in where for where, _ in faults)


@pytest.mark.usefixtures("folder")
def test_a_fault_of_one_of_several_files_names_the_file_and_its_line() -> None:
    Path("jobs/a.json").write_text(json.dumps(spec_of("a")))
    Path("jobs/b.json").write_text(json.dumps(spec_of("b", concurrency=0), indent=1))
    Path("inputs/b.jsonl").write_text("{oops\n" + batch_line("y"))
    assert [where for where, _ in faults_of(Path("jobs/a.json"), Path("jobs/b.json"))] == [
        "jobs/b.json line 7",
        "jobs/b.json: input line 1",
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_specs_is_named(text: str) -> None:
    Path("jobs/all.jsonl").write_text(text)
    assert faults_of(Path("jobs/all.jsonl")) == [("jobs/all.jsonl", "holds no spec")]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "line", [batch_line("x"), '{"model": "m", "messages": []}', '\n\n{"prompt": "x", "max_tokens": 5}']
)
def test_an_input_that_stands_where_specs_should_is_known_by_its_first_line(line: str) -> None:
    Path("jobs/all.jsonl").write_text(line.rstrip() + "\n" + "broken\n" * 1000)
    with pytest.raises(BadInput) as caught:
        read_specs([Path("jobs/all.jsonl")])
    assert [fault.what for fault in caught.value.faults] == ["holds requests, not specs"]
    assert caught.value.faults[0].hint == "name it in a spec: batchrun init --from jobs/all.jsonl"


@pytest.mark.usefixtures("folder")
def test_thousands_of_faults_are_counted_and_a_hundred_told() -> None:
    put_lines(*[{"task_id": f"t{number}"} for number in range(300)])
    with pytest.raises(BadInput) as caught:
        check_specs([Path("jobs/all.jsonl")])
    assert len(caught.value.faults) == MOST_TOLD
    assert caught.value.total == 300 * 6


# -- what two jobs must not share -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"task_id": "a"}, ("jobs/all.jsonl line 2", "task_id 'a' was already used by jobs/all.jsonl line 1")),
        ({"output_file": "outputs/a.jsonl"}, ("'output_file'", "'output_file' of")),
        ({"output_file": "outputs/../outputs/./a.jsonl"}, ("'output_file'", "'output_file' of")),
        ({"output_file": "outputs/a.errors.jsonl"}, ("'output_file'", "'error_file' of")),
        ({"error_file": "outputs/a.jsonl"}, ("'error_file'", "'output_file' of")),
        ({"output_file": "outputs/a.jsonl.partial"}, ("'output_file'", "'the partial output' of")),
        ({"output_file": "inputs/a.jsonl"}, ("'output_file'", "'input_file' of")),
        ({"output_file": "outputs/link.jsonl"}, ("'output_file'", "'input_file' of")),
        ({"output_file": "outputs/hard.jsonl"}, ("'output_file'", "'input_file' of")),
        ({"input_file": "outputs/old.jsonl"}, ("'input_file'", "'error_file' of")),
    ],
)
def test_what_two_jobs_share_is_named_under_any_spelling(
    change: dict[str, Any], fault: tuple[str, str], folder: Path
) -> None:
    (folder / "outputs" / "link.jsonl").symlink_to(folder / "inputs" / "a.jsonl")
    os.link(folder / "inputs" / "a.jsonl", folder / "outputs" / "hard.jsonl")
    (folder / "outputs" / "old.jsonl").write_text(batch_line("x"))
    path = put_lines(
        spec_of("a", error_file="outputs/old.jsonl" if "input_file" in change else None), spec_of("b", **change)
    )
    ((where, what),) = faults_of(path)
    assert where.startswith("jobs/all.jsonl line 2")
    assert where.endswith(fault[0])
    assert fault[1] in what


@pytest.mark.usefixtures("folder")
def test_two_jobs_may_read_one_input() -> None:
    assert len(check_specs([put_lines(spec_of("a"), spec_of("b", input_file="inputs/a.jsonl"))])) == 2


@pytest.mark.usefixtures("folder")
def test_the_same_spec_twice_is_one_fault() -> None:
    Path("jobs/a.json").write_text(json.dumps(spec_of("a")))
    assert faults_of(Path("jobs/a.json"), Path("jobs/a.json")) == [
        ("jobs/a.json", "task_id 'a' was already used by jobs/a.json")
    ]
