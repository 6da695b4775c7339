"""No spelling of a path lets an output destroy the input, and what cannot work is said before anything starts."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.files.paths import check_paths, default_error_file


def faults(input_file: Path, output_file: Path, error_file: Path | None = None) -> list[str]:
    checked = check_paths(
        input_file=input_file, output_file=output_file, error_file=error_file or default_error_file(output_file)
    )
    return [str(fault) for fault in checked]


def check_hint(input_file: Path, output_file: Path) -> str:
    """Return the first fault's hint."""
    first, *_ = check_paths(input_file=input_file, output_file=output_file, error_file=default_error_file(output_file))
    return first.hint


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"{}\n")
    return path


def hard_link(source: Path) -> Path:
    path = source.with_name("hard.jsonl")
    path.hardlink_to(source)
    return path


def symlink(source: Path) -> Path:
    path = source.with_name("soft.jsonl")
    path.symlink_to(source.name)
    return path


def linked_folder(source: Path) -> Path:
    (source.parent / "linked").symlink_to(".")
    return source.parent / "linked" / source.name


def other_spelling(source: Path) -> Path:
    (source.parent / "sub").mkdir()
    return Path(f"{source.parent}/sub/..//./{source.name}")


def relative(source: Path) -> Path:
    return Path(os.path.relpath(source))


SPELLINGS = [lambda source: source, hard_link, symlink, linked_folder, other_spelling, relative]


@pytest.mark.parametrize("spell", SPELLINGS)
def test_the_input_is_no_output_by_any_spelling(source: Path, spell: Callable[[Path], Path]) -> None:
    other = spell(source)
    fine = source.with_name("out.jsonl")
    assert "output_file" in faults(source, other, source.with_name("err.jsonl"))[0]
    assert "is the same file as input_file" in faults(source, other, source.with_name("err.jsonl"))[0]
    assert f"error_file '{other}': is the same file as input_file '{source}'" in faults(source, fine, other)
    assert source.read_bytes() == b"{}\n"


@pytest.mark.parametrize("spell", [lambda source: source, linked_folder, other_spelling])
def test_two_outputs_that_do_not_exist_yet_are_told_to_be_one(source: Path, spell: Callable[[Path], Path]) -> None:
    output = source.with_name("out.jsonl")
    assert "is the same file as output_file" in faults(source, output, spell(output))[0]


def test_the_partial_output_is_no_other_file_either(source: Path) -> None:
    source = source.rename(source.with_name("out.jsonl.partial"))
    assert "the partial output" in faults(source, source.with_name("out.jsonl"))[0]


def test_good_paths_have_no_faults_and_nothing_is_created(source: Path) -> None:
    output = source.with_name("out.jsonl")
    assert faults(source, output) == []
    output.write_text("an earlier run's")
    assert faults(source, output) == []
    assert sorted(path.name for path in source.parent.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_an_input_that_cannot_be_read_is_named_as_what_it_is(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for name, words in {
        "none": "does not exist",
        ".": "is a folder",
        "pipe": "is a pipe",
        "dangling": "is a symlink to nothing",
        "loop": "cannot be read",
        "file/in": "cannot be read: not a directory",
        "nul\0": "cannot be read",
    }.items():
        assert words in faults(tmp_path / name, output)[0], name
        assert "rights" in str(check_hint(tmp_path / name, output)) or not words.startswith("cannot be read"), name
    assert "is a device" in faults(Path("/dev/null"), output)[0]


def test_an_output_that_cannot_be_written_says_what_to_do(source: Path) -> None:
    folder = source.parent
    os.mkfifo(folder / "pipe")
    errors = folder / "errors.jsonl"
    (fault,) = check_paths(input_file=source, output_file=folder / "new" / "out.jsonl", error_file=errors)
    assert (fault.what, fault.hint) == (f"its folder '{folder}/new' does not exist", f"mkdir -p {folder}/new")
    assert "is a folder" in faults(source, folder, errors)[0]
    assert "is a pipe" in faults(source, folder / "pipe", errors)[0]
    assert "is a device" in faults(source, Path("/dev/null"), errors)[0]
    assert "is no folder" in faults(source, source / "out.jsonl", errors)[0]
    for suffix in ("csv", "parquet", "gz"):
        assert (
            f"is written as JSONL, and its name says .{suffix}" in faults(source, folder / f"out.{suffix}", errors)[0]
        )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_permissions_are_looked_at_beforehand(source: Path) -> None:
    locked = source.parent / "locked"
    locked.mkdir(mode=0o500)
    assert "cannot be written to" in faults(source, locked / "out.jsonl")[0]
    source.chmod(0)
    assert "permission denied" in faults(source, source.with_name("out.jsonl"))[0]


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("out/batch_output.jsonl", "out/batch_output.errors.jsonl"),
        ("a.b.json", "a.b.errors.json"),
        ("plain", "plain.errors.jsonl"),
    ],
)
def test_failures_go_beside_the_output(output: str, errors: str) -> None:
    assert default_error_file(Path(output)) == Path(errors)
