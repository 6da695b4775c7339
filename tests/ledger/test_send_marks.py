"""The marks of requests that have begun: all that were are read back, and what cannot be trusted proves nothing."""

import os
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest

from batchrun.errors import LedgerFull
from batchrun.ledger import send_marks
from batchrun.ledger.send_marks import PLACES, SendMarks, boot_id, read_marks

BIG = (1 << 62) + 12_345


def marks_of(folder: Path, *keys: int) -> SendMarks:
    made = SendMarks.create(folder, "w")
    for key in keys:
        made.begin(key)
    return made


def test_what_has_begun_is_read_back_whether_the_file_was_closed_or_not(tmp_path: Path) -> None:
    marks = marks_of(tmp_path)
    assert read_marks(tmp_path, "w") == frozenset()
    marks.begin(1)
    marks.begin(BIG)
    assert read_marks(tmp_path, "w") == {1, BIG}
    marks.close()
    assert read_marks(tmp_path, "w") == {1, BIG}


def test_an_open_attempt_keeps_its_mark_however_many_others_come_and_go(tmp_path: Path) -> None:
    marks = marks_of(tmp_path, 7)
    for key in range(100, 100 + 3 * PLACES):
        marks.begin(key)
        marks.settled(key)
    assert {7, 99 + 3 * PLACES} <= (read_marks(tmp_path, "w") or frozenset())
    assert marks.size == PLACES, "a place is used again once its attempt has an outcome"


def test_a_place_is_not_used_again_before_its_attempt_has_an_outcome(tmp_path: Path) -> None:
    marks = marks_of(tmp_path, *range(1, PLACES + 1))
    marks.begin(BIG)  # all places are taken: there must be more of them
    marks.settled(5)
    marks.settled(5)
    marks.settled(999_999)  # nobody marked that
    marks.begin(BIG + 1)
    marks.begin(BIG + 2)
    found = read_marks(tmp_path, "w")
    assert found is not None
    assert set(range(1, PLACES + 1)) - {5} | {BIG, BIG + 1, BIG + 2} <= found
    assert marks.size == 2 * PLACES


def _cut_by(count: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:-count]


def _with_a_changed_bit(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:10], id="half a head"),
        pytest.param(_cut_by(1), id="a byte short"),
        pytest.param(_cut_by(16 * 500), id="short"),
        pytest.param(_with_a_changed_bit(3), id="another magic"),
        pytest.param(_with_a_changed_bit(9), id="another size"),
        pytest.param(_with_a_changed_bit(17), id="a damaged key"),
        pytest.param(_with_a_changed_bit(31), id="a damaged complement"),
        pytest.param(lambda data: data[:32] + bytes(8) + data[40:48] + data[48:], id="a torn mark"),
        pytest.param(lambda data: bytes(len(data)), id="zeros"),
    ],
)
def test_of_a_file_that_is_not_whole_nothing_is_believed(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    marks_of(tmp_path, 1, 2).close()
    path = tmp_path / "w.marks"
    path.write_bytes(damage(path.read_bytes()))
    assert read_marks(tmp_path, "w") is None


def test_of_a_file_that_is_not_there_or_cannot_be_read_nothing_is_believed(tmp_path: Path) -> None:
    assert read_marks(tmp_path, "w") is None
    (tmp_path / "w.marks").mkdir()
    assert read_marks(tmp_path, "w") is None


def test_without_a_mark_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, position: int) -> int:
        raise OSError(ENOSPC, "No space left on device")

    marks = marks_of(tmp_path, 1)
    write = os.pwrite
    for faulty in (full, lambda fd, data, position: write(fd, data[:5], position)):
        monkeypatch.setattr(os, "pwrite", faulty)
        with pytest.raises(LedgerFull, match=r"w\.marks' takes no mark"):
            marks.begin(2)
    monkeypatch.setattr(os, "pwrite", write)
    marks.begin(3)
    assert read_marks(tmp_path, "w") == {1, 3}, "the place of the one that was not written is free again"


def test_a_disk_without_room_for_more_places_lets_nothing_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    marks = marks_of(tmp_path, *range(1, PLACES + 1))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LedgerFull, match="No space left on device"):
        marks.begin(BIG)
    assert read_marks(tmp_path, "w") == set(range(1, PLACES + 1))
    with pytest.raises(OSError, match="No space left"):
        SendMarks.create(tmp_path, "other")
    assert [path.name for path in tmp_path.iterdir()] == ["w.marks"]


def test_whoever_has_left_begins_nothing_even_if_its_descriptor_is_anothers(tmp_path: Path) -> None:
    marks = marks_of(tmp_path, 1)
    marks.close()
    others = [os.open(tmp_path / f"other-{number}", os.O_CREAT | os.O_RDWR) for number in range(4)]
    with pytest.raises(LedgerFull):
        marks.begin(2)
    assert read_marks(tmp_path, "w") == {1}
    for fd in others:
        assert os.fstat(fd).st_size == 0
        os.close(fd)


def test_where_the_machine_does_not_name_its_run_there_is_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert boot_id()
    assert boot_id() == boot_id()
    for path in (tmp_path / "none", tmp_path):
        monkeypatch.setattr(send_marks, "_BOOT_ID", path)
        assert boot_id() is None
    empty = tmp_path / "empty"
    empty.touch()
    monkeypatch.setattr(send_marks, "_BOOT_ID", empty)
    assert boot_id() is None
