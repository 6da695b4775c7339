"""The epoch file: read whole or named as unreadable, and never mistaken for another copy's when it is one's own."""

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from batchrun.errors import LedgerFault
from batchrun.files.epoch import Epoch, alone_at, epoch_file, read_epoch, write_epoch

KNOWN = Epoch("abc", "batch-001", 7, "me")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert read_epoch(output) is None
    for epoch in (KNOWN, replace(KNOWN, epoch=8, job="ünïcode \U0001f40d")):
        write_epoch(output, epoch)
        assert read_epoch(output) == epoch
    assert [path.name for path in tmp_path.iterdir()] == [".out.jsonl.epoch"]


def test_a_folder_that_is_not_there_has_no_file(tmp_path: Path) -> None:
    assert read_epoch(tmp_path / "none" / "out.jsonl") is None
    (tmp_path / "file").touch()
    assert read_epoch(tmp_path / "file" / "out.jsonl") is None


@pytest.mark.parametrize(
    ("there", "is_beyond"),
    [
        (KNOWN, False),
        (replace(KNOWN, epoch=6), False),
        (replace(KNOWN, epoch=6, token="an earlier process"), False),
        (replace(KNOWN, epoch=8), True),
        (replace(KNOWN, epoch=8, token="another"), True),
        (replace(KNOWN, token="another"), True),
        (replace(KNOWN, ledger="other", epoch=99), False),
        (replace(KNOWN, job="other", epoch=99), False),
    ],
)
def test_higher_or_a_foreign_token_at_the_same_epoch_is_another_copys(there: Epoch, is_beyond: bool) -> None:
    assert there.is_beyond(KNOWN) is is_beyond


@pytest.mark.parametrize(
    "text",
    [
        "",
        "my notes",
        "[]",
        "{}",
        '{"ledger": "abc", "job": "batch-001", "epoch": "7", "token": "me"}',
        '{"ledger": "abc", "job": null, "epoch": 7, "token": "me"}',
        '{"ledger": "abc", "job": "batch-001", "epoch": 7',
        "\ud800\udfff",
    ],
)
def test_what_says_nothing_is_named_with_its_mend(text: str, tmp_path: Path) -> None:
    path = epoch_file(tmp_path / "out.jsonl")
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(LedgerFault, match="it holds something else") as refused:
        read_epoch(tmp_path / "out.jsonl")
    assert f"rm {path}" in str(refused.value.hint)


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    epoch_file(tmp_path / "out.jsonl").mkdir()
    with pytest.raises(LedgerFault, match="Is a directory"):
        read_epoch(tmp_path / "out.jsonl")


def test_one_process_at_a_time_begins_in_a_folder(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with alone_at(output, patience_s=0.05) as is_alone:
        assert not is_alone
    os.close(fd)
    with alone_at(output, patience_s=0.0) as is_alone:
        assert is_alone
        with alone_at(output, patience_s=0.0) as is_alone_too:
            assert not is_alone_too
    with alone_at(tmp_path / "none" / "out.jsonl", patience_s=0.0) as is_alone:
        assert is_alone
