"""A derived file is whole or untouched, and the partial one never hurts the job that writes it."""

import os
import resource
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from batchrun.files.derived import DerivedFile, PartialFile

LINES = [b'{"n":%d}\n' % number for number in range(3)]


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Let no file of this process grow beyond 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_derived_file_appears_whole_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with DerivedFile(path) as file:
        for line in LINES:
            file.write(line)
        assert not path.exists()
        assert names(tmp_path)[0].startswith(".out.jsonl.tmp-")
    assert path.read_bytes() == b"".join(LINES)
    assert (file.line_count, file.sha256()) == (3, sha256(b"".join(LINES)).hexdigest())
    assert names(tmp_path) == ["out.jsonl"]


def test_a_large_file_is_written_completely(tmp_path: Path) -> None:
    line = b"x" * 99_999 + b"\n"
    with DerivedFile(tmp_path / "out") as file:
        for _ in range(50):
            file.write(line)
    assert (tmp_path / "out").read_bytes() == line * 50


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_the_old_file_stands_and_nothing_is_left(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"old\n")

    def write_half() -> None:
        with DerivedFile(path) as file:
            file.write(b"new\n")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_bytes() == b"old\n"
    assert names(tmp_path) == ["out.jsonl"]


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("size_bytes", [70_000, 3_000_000])
def test_a_full_disk_leaves_the_old_file_and_names_the_path(tmp_path: Path, size_bytes: int) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"old\n")
    with pytest.raises(OSError, match=r"out\.jsonl"), DerivedFile(path) as file:
        file.write(b"x" * size_bytes)
    assert path.read_bytes() == b"old\n"
    assert names(tmp_path) == ["out.jsonl"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none/out"), DerivedFile(tmp_path / "none" / "out"):
        pass


def test_the_mode_of_the_old_file_is_kept_and_else_the_umask_decides(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.touch()
    old.chmod(0o640)
    umask = os.umask(0o027)
    try:
        for path in (old, tmp_path / "new"):
            with DerivedFile(path) as file:
                file.write(b"x\n")
    finally:
        os.umask(umask)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, tmp_path / "new")] == [0o640, 0o640]
    old.chmod(0o604)
    with DerivedFile(old):
        pass
    assert stat.S_IMODE(old.stat().st_mode) == 0o604


def test_a_symlink_stays_one_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "out.jsonl"
    link.symlink_to("real/out.jsonl")
    with DerivedFile(link) as file:
        file.write(b"x\n")
    assert link.is_symlink()
    assert (tmp_path / "real" / "out.jsonl").read_bytes() == b"x\n"
    assert names(tmp_path / "real") == ["out.jsonl"]


def test_a_partial_file_begins_anew_grows_by_whole_lines_and_goes(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path / "out.jsonl")
    partial.path.write_bytes(b'{"torn')
    assert partial.path.name == "out.jsonl.partial"
    assert partial.rebuild(LINES[:1])
    assert partial.append(LINES[1:])
    assert partial.append([])
    assert partial.path.read_bytes() == b"".join(LINES)
    assert partial.remove()
    assert partial.remove()
    assert names(tmp_path) == []


@pytest.mark.usefixtures("full_disk")
def test_a_partial_file_on_a_full_disk_ends_with_its_last_whole_line(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path / "out.jsonl")
    assert partial.rebuild(LINES)
    assert not partial.append([b"x" * 70_000 + b"\n"])
    assert not partial.rebuild([b"x" * 70_000 + b"\n"])
    assert partial.path.read_bytes() == b"".join(LINES)
    assert partial.append(LINES)


def test_a_partial_file_whose_folder_is_gone_reports_it_and_raises_nothing(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path / "gone" / "out.jsonl")
    assert not partial.rebuild(LINES)
    assert not partial.append(LINES)
    assert partial.remove()


def test_a_partial_file_that_was_taken_away_is_not_begun_in_the_middle(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path / "out.jsonl")
    assert partial.rebuild(LINES)
    partial.path.unlink()
    assert not partial.append(LINES)
    assert names(tmp_path) == []


def test_a_folder_in_the_place_of_a_partial_file_is_a_failure_and_no_more(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path / "out.jsonl")
    partial.path.mkdir()
    assert (partial.rebuild(LINES), partial.append(LINES), partial.remove()) == (False, False, False)


def test_what_a_killed_writer_left_is_removed_and_a_living_writers_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    dead = tmp_path / ".out.jsonl.tmp-0123456789ab"
    dead.write_text("half")
    other = tmp_path / ".other.jsonl.tmp-0123456789ab"
    other.write_text("not ours")
    with DerivedFile(path) as living:
        living.write(b"1\n")
        with DerivedFile(path) as second:
            second.write(b"2\n")
    assert path.read_bytes() == b"1\n"
    assert not dead.exists()
    assert other.exists()
    assert [one.name for one in tmp_path.glob(".out.jsonl.tmp-*")] == []
