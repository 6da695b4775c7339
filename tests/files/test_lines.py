"""Lines are cut as `sed -n` counts them, whatever their length, in bounded memory."""

import tracemalloc
from hashlib import sha256
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchrun.files import blocks
from batchrun.files.blocks import Blocks
from batchrun.files.inputs import read_items, survey
from batchrun.files.lines import split_lines
from tests.files.input_files import DEFAULTS, bare, line, told, written


def cut(path: Path) -> list[tuple[int, bytes | None]]:
    with FileIO(str(path)) as file:
        return list(split_lines(Blocks(file)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\xe2\x80\xa8", b"long" * 9])).map(b"".join))
@example(content=b"")
@example(content=b"\n")
@example(content=b"a" * 24)
def test_lines_are_those_between_newlines_however_the_blocks_fall(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "in"
    path.write_bytes(content)
    expected = content.split(b"\n") if content else []
    if expected and not expected[-1]:
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", 8)
        assert cut(path) == list(enumerate(expected, start=1))


def test_every_byte_is_seen_once_and_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, [b"one", b"two" * 1_000_000, b"three"])
    with FileIO(str(path)) as file:
        seen = Blocks(file)
        assert b"".join(seen) == path.read_bytes()
    assert (seen.size_bytes, seen.sha256()) == (path.stat().st_size, sha256(path.read_bytes()).hexdigest())


def test_a_byte_order_mark_is_taken_off_the_file_and_no_other_line(tmp_path: Path) -> None:
    path = written(tmp_path, [b"\xef\xbb\xbfone", b"\xef\xbb\xbftwo"])
    assert cut(path) == [(1, b"one"), (2, b"\xef\xbb\xbftwo")]


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n" + line("b") + b"\n"])
def test_a_line_beyond_the_bound_is_a_fault_and_is_never_held(tmp_path: Path, ending: bytes) -> None:
    path = tmp_path / "in.jsonl"
    with path.open("wb") as file:
        file.write(line("a") + b"\n")
        file.truncate(200 << 20)  # a hole of NUL bytes: 200 MB without a newline
        file.seek(0, 2)
        file.write(ending)
    tracemalloc.start()
    found = survey(path, DEFAULTS)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told(found) == ["input line 2: is longer than 64 MiB, the most that is read"]
    assert found.items == (2 if b"b" in ending else 1)
    assert peak_bytes < 80 << 20


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path: Path) -> None:
    rows = [row for number in range(10_000) for row in (line(f"id-{number}"), bare(f"prompt {number % 5_000}"))]
    path = written(tmp_path, rows)
    del rows
    tracemalloc.start()
    found = survey(path, DEFAULTS)
    for _ in read_items(path, DEFAULTS, found):
        pass
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.items == 20_000
    assert peak_bytes < 6 << 20  # two blocks, and 8 bytes a line
