"""Files that are none, are of another kind, or would be destroyed: named as such, and nothing happens to them."""

import gzip
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.files.lines import MAX_LINE_BYTES
from tests.corpus.bad_lines import batch, line
from tests.corpus.gate import GOOD, SPEC, Gate, Told, good_line
from tests.examples import drawn
from tests.lab import Lab

LINES = b"".join(good_line(number) + b"\n" for number in range(40))
GZ = gzip.compress(LINES, mtime=0)
TEXT = LINES.decode()


@pytest.fixture
def empty(gate: Gate, tmp_path: Path) -> Gate:
    """A gate whose folder nothing has been written to yet."""
    return Gate(tmp_path, gate.variables)


def pretty(count: int) -> bytes:
    return b"\n".join(json.dumps(batch(custom_id=f"i{number}"), indent=2).encode() for number in range(count))


def parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    from pyarrow import parquet as writer

    file = io.BytesIO()
    writer.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("in.jsonl", TEXT)
    return file.getvalue()


# -- an input that is none --------------------------------------------------------------------------------------------

PQ = parquet([{"question": "why?"}, {"question": "how?"}])
WHOLE: list[tuple[str, str, bytes, str]] = [
    ("empty", "in.jsonl", b"", "is empty"),
    ("blank lines", "in.jsonl", b"\n \r\n\t\n", "only blank lines"),
    ("a byte order mark alone", "in.jsonl", b"\xef\xbb\xbf", "only blank lines"),
    ("UTF-16 with a mark", "in.jsonl", TEXT.encode("utf-16"), "UTF-16"),
    ("UTF-16 little-endian", "in.jsonl", TEXT.encode("utf-16-le"), "UTF-16"),
    ("UTF-16 big-endian", "in.jsonl", TEXT.encode("utf-16-be"), "UTF-16"),
    ("UTF-32 with a mark", "in.jsonl", TEXT.encode("utf-32"), "UTF-32"),
    ("UTF-32 big-endian", "in.jsonl", b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"), "UTF-32"),
    ("written over several lines", "in.jsonl", pretty(1), "written over several lines"),
    ("many written over several lines", "in.jsonl", pretty(50), "written over several lines"),
    ("an array around it", "in.jsonl", b"[\n" + LINES.replace(b"}\n", b"},\n") + b"]", "one array around everything"),
    ("a zip archive", "in.jsonl", zipped(), "zip archive"),
    ("zstd", "in.jsonl", b"\x28\xb5\x2f\xfd" + LINES, "zstd"),
    ("xz", "in.jsonl", b"\xfd7zXZ\0" + LINES, "xz"),
    ("bzip2", "in.jsonl", b"BZh91AY&SY" + LINES, "bzip2"),
    ("not gzip in spite of its name", "in.jsonl.gz", LINES, "is no gzip file"),
    ("not Parquet in spite of its name", "in.parquet", LINES, "is no Parquet file"),
    ("gzip twice", "in.jsonl.gz", gzip.compress(GZ, mtime=0), "twice"),
    ("gzip of nothing", "in.jsonl.gz", gzip.compress(b"", mtime=0), ""),
    ("gzip with words behind", "in.jsonl.gz", GZ + b"and so on", "gzip"),
    ("gzip with a wrong checksum", "in.jsonl.gz", GZ[:-8] + struct.pack("<I", 1) + GZ[-4:], "damaged gzip"),
    ("gzip with a wrong length", "in.jsonl.gz", GZ[:-1] + b"\x7f", "damaged gzip"),
    ("a Parquet file without a template", "in.parquet", PQ, "no prompt_template"),
    ("a Parquet file that was cut", "in.parquet", PQ[:-20], "damaged Parquet"),
    ("Parquet's first bytes alone", "in.parquet", b"PAR1", "damaged Parquet"),
    ("a CSV file without a template", "in.csv", b"id,question\n1,why?\n", "no prompt_template"),
    ("a CSV file without a header", "in.csv", b",,\n1,2,3\n", "header"),
    ("a CSV file with a column twice", "in.csv", b"a,a\n1,2\n", "twice"),
]


@pytest.mark.parametrize(("name", "content", "words"), [case[1:] for case in WHOLE], ids=[case[0] for case in WHOLE])
def test_a_file_that_is_none_is_named_as_what_it_is(name: str, content: bytes, words: str, empty: Gate) -> None:
    empty.write(spec=GOOD | {"input_file": f"inputs/{name}"})
    (empty.folder / "inputs" / name).write_bytes(content)
    empty.refuses([Told(f"input_file 'inputs/{name}'", words)])


def test_a_gzip_file_that_was_cut_anywhere_is_named(empty: Gate) -> None:
    empty.write(spec=GOOD | {"input_file": "inputs/in.jsonl.gz"})
    for length in range(3, len(GZ)):
        (empty.folder / "inputs" / "in.jsonl.gz").write_bytes(GZ[:length])
        ended = empty.refuses([Told("input_file 'inputs/in.jsonl.gz'")])
        assert "cut short" in ended.out or "damaged gzip" in ended.out, length


@settings(max_examples=drawn(100), deadline=None)
@given(at=st.integers(0, len(GZ) - 1), bit=st.integers(0, 7))
def test_a_gzip_file_with_one_bit_turned_is_never_run_as_if_nothing_had_happened(gate: Gate, at: int, bit: int) -> None:
    spoilt = bytearray(GZ)
    spoilt[at] ^= 1 << bit
    gate.write(spec=GOOD | {"input_file": "inputs/in.jsonl.gz"})
    (gate.folder / "inputs" / "in.jsonl.gz").write_bytes(spoilt)
    ended = gate.call("validate", SPEC, "--json")
    assert ended.code == 2 or unpacked(bytes(spoilt)) == LINES, ended.out


def unpacked(data: bytes) -> bytes | None:
    """Return what another reader makes of gzip data; the time in its header and a few filling bits mean nothing."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None


ROWS: list[tuple[str, bytes, str, str]] = [
    ("a field too many", b"id,question\n1,why?\n2,how?,now\n", "input line 3", "3 fields, the header names 2"),
    ("a field too few", b"id,question\n1,why?\n2\n3,who?\n", "input line 3", "1 fields, the header names 2"),
    ("an empty field", b"id,question\n1,why?\n2,\n", "input line 3", "empty prompt"),
    ("text behind a quote", b'id,question\n1,why?\n2,"how"so\n', "input line 3", "not CSV"),
    ("an open quote", b'id,question\n1,why?\n2,"how\n', "input line 3", "not CSV"),
    ("not UTF-8", b"id,question\n1,why?\n2,caf\xe9\n", "input line 3", "not UTF-8"),
    ("an id twice", b"id,question\n1,why?\n\n1,how?\n", "input line 4", "already used on line 2"),
]


@pytest.mark.parametrize(("content", "where", "words"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_faulty_row_of_a_table_is_named_with_its_line(content: bytes, where: str, words: str, empty: Gate) -> None:
    empty.write(spec=GOOD | {"input_file": "inputs/in.csv", "prompt_template": "{{ question }}"})
    (empty.folder / "inputs" / "in.csv").write_bytes(content)
    empty.refuses([Told(where, words)])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": 1}, "no field 'question'"),
        ({"question": None}, "is null"),
        ({"question": ""}, "empty prompt"),
        ({"question": " \n"}, "empty prompt"),
        ({"Question": "why?"}, "no field 'question'"),
        ({"question": "why?", "id": []}, "'id' must be a string"),
        ([1], "not an object"),
    ],
)
def test_a_row_that_the_template_cannot_use_is_named_with_its_line(row: Any, words: str, empty: Gate) -> None:
    rows = [{"question": "who?", "id": "a"}, row, {"question": "when?", "id": "b"}]
    empty.write(spec=GOOD | {"prompt_template": "{{ question }}"}, content=b"\n".join(map(line, rows)))
    empty.refuses([Told("input line 2", words)])


def test_a_line_beyond_the_greatest_length_is_named_and_one_of_that_length_is_not(empty: Gate) -> None:
    head, tail = line(batch(custom_id="long"))[:-2].split(b"Name")
    fill = MAX_LINE_BYTES - len(head) - len(tail) - 2
    longest = head + b"a" * fill + tail + b"}}"
    assert len(longest) == MAX_LINE_BYTES
    empty.write(content=good_line(1) + b"\n" + longest + b"\n" + good_line(2))
    assert empty.call("validate", SPEC).code == 0
    empty.write(content=good_line(1) + b"\n" + head + b"a" + longest[len(head) :] + b"\n" + good_line(2))
    empty.refuses([Told("input line 2", "longer than 64 MiB")])


# -- a spec that is none ----------------------------------------------------------------------------------------------

SPECS: list[tuple[str, bytes, str]] = [
    ("empty", b"", "is empty"),
    ("blank", b" \n\t\n", "is empty"),
    ("an array", b"[]", "one JSON object, found an array"),
    ("a string", b'"job"', "one JSON object, found a string"),
    ("null", b"null", "one JSON object, found null"),
    ("a number", b"8", "one JSON object, found a number"),
    ("NUL bytes", b"\0\0\0\0", "is not JSON"),
    ("UTF-16", json.dumps(GOOD).encode("utf-16"), "UTF-8"),
    ("UTF-32", json.dumps(GOOD).encode("utf-32"), "UTF-8"),
    ("Latin-1", json.dumps(GOOD, ensure_ascii=False).replace("mock", "caf\u00e9").encode("latin-1"), "UTF-8"),
    ("too deep", b"[" * 100_000, ""),
    ("too deep inside", json.dumps(GOOD)[:-1].encode() + b', "params": ' + b'{"a":' * 100_000, ""),
    ("gzip", gzip.compress(json.dumps(GOOD).encode(), mtime=0), "UTF-8"),
    ("the input in its place", LINES, ""),
]


@pytest.mark.parametrize(("content", "words"), [case[1:] for case in SPECS], ids=[case[0] for case in SPECS])
def test_a_spec_that_is_none_is_named(content: bytes, words: str, empty: Gate) -> None:
    empty.write(spec=content)
    ended = empty.refuses([])
    assert words in ended.out
    assert SPEC in ended.out


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("none.json", path)])
def test_a_spec_that_is_no_file_is_named(make: Callable[[str], None], empty: Gate) -> None:
    empty.write()
    (empty.folder / SPEC).unlink()
    make(str(empty.folder / SPEC))
    assert SPEC in empty.refuses([]).error["message"]


# -- paths ------------------------------------------------------------------------------------------------------------

SAME = [
    *("inputs/in.jsonl", "./inputs/in.jsonl", "inputs/./in.jsonl", "inputs//in.jsonl", "inputs/../inputs/in.jsonl"),
    *("outputs/../inputs/in.jsonl", ".//inputs/in.jsonl", "/proc/self/cwd/inputs/in.jsonl", "{here}/inputs/in.jsonl"),
    *("{here}/outputs/../inputs/in.jsonl", "symlink.jsonl", "outputs/symlink.jsonl", "hardlink.jsonl", "chain.jsonl"),
    *("folder/in.jsonl", "folder/../inputs/in.jsonl", "{here}/folder/in.jsonl", "./x/../inputs/in.jsonl"),
]


@pytest.fixture
def linked(empty: Gate) -> Gate:
    """A gate whose input has many names."""
    empty.write()
    here = empty.folder
    (here / "symlink.jsonl").symlink_to("inputs/in.jsonl")
    (here / "outputs" / "symlink.jsonl").symlink_to(here / "inputs" / "in.jsonl")
    (here / "chain.jsonl").symlink_to("symlink.jsonl")
    (here / "hardlink.jsonl").hardlink_to(here / "inputs" / "in.jsonl")
    (here / "folder").symlink_to("inputs")
    (here / "x").mkdir()
    return empty


@pytest.mark.parametrize("key", ["output_file", "error_file"])
@pytest.mark.parametrize("path", SAME)
def test_an_output_that_is_the_input_by_any_name_is_refused(path: str, key: str, linked: Gate) -> None:
    path = path.format(here=linked.folder)
    linked.write(spec=GOOD | {key: path})
    linked.refuses([Told(f"{key} '{Path(path)}'", "is the same file as input_file")])


OUTPUTS = ["outputs/out.jsonl", "./outputs/out.jsonl", "outputs/../outputs/out.jsonl", "{here}/outputs/out.jsonl"]


@pytest.mark.parametrize("error_file", [*OUTPUTS, "outputs/out.jsonl.partial", "others/out.jsonl", "to-be.jsonl"])
def test_an_error_file_that_is_the_output_by_any_name_is_refused(error_file: str, linked: Gate) -> None:
    (linked.folder / "others").symlink_to("outputs")
    (linked.folder / "to-be.jsonl").symlink_to("outputs/out.jsonl")  # which is not there yet
    linked.write(spec=GOOD | {"error_file": error_file.format(here=linked.folder)})
    ended = linked.refuses([], command="validate")
    assert "is the same file as" in ended.out


@pytest.mark.parametrize("name", ["out.errors.jsonl", "out.jsonl.partial", "out.jsonl"])
def test_an_input_that_would_be_replaced_by_what_a_job_writes_is_refused(name: str, empty: Gate) -> None:
    empty.write(spec=GOOD | {"input_file": f"outputs/{name}"})
    (empty.folder / "outputs" / name).write_bytes(LINES)
    assert "is the same file as" in empty.refuses([]).out


WAYS: list[tuple[str, str, str]] = [
    ("input_file", "inputs/none.jsonl", "does not exist"),
    ("input_file", "none/in.jsonl", "does not exist"),
    ("input_file", "~/in.jsonl", "does not exist"),
    ("input_file", "$HOME/in.jsonl", "does not exist"),
    ("input_file", "inputs", "is a folder"),
    ("input_file", ".", "is a folder"),
    ("input_file", "/", "is a folder"),
    ("input_file", "dangling.jsonl", "symlink to nothing"),
    ("input_file", "loop.jsonl", "cannot be read"),
    ("input_file", "fifo", "is a pipe"),
    ("input_file", "/dev/null", "is a device"),
    ("input_file", "inputs/in.jsonl/more", "cannot be read"),
    ("input_file", "a\0b", "cannot be read"),
    ("input_file", "a" * 300, "cannot be read"),
    ("input_file", "https://example.org/in.jsonl", "does not exist"),
    ("output_file", "none/out.jsonl", "does not exist"),
    ("output_file", "none/deeper/out.jsonl", "does not exist"),
    ("output_file", "outputs", "is a folder"),
    ("output_file", "/dev/null", "is a device"),
    ("output_file", "fifo", "is a pipe"),
    ("output_file", "inputs/in.jsonl/out.jsonl", "is no folder"),
    ("output_file", "a\0b", "cannot be written"),
    ("output_file", "a" * 300, "cannot be written"),
    ("error_file", "none/errors.jsonl", "does not exist"),
    ("error_file", "inputs", "is a folder"),
    ("error_file", "/dev/null", "is a device"),
]


@pytest.mark.parametrize(("key", "path", "words"), WAYS)
def test_a_path_that_cannot_be_is_named_with_its_key(key: str, path: str, words: str, empty: Gate) -> None:
    (empty.folder / "dangling.jsonl").symlink_to("nowhere")
    (empty.folder / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(empty.folder / "fifo")
    empty.write(spec=GOOD | {key: path})
    ended = empty.refuses([], command="validate")
    assert empty.refuses([]).out == ended.out
    told = [fault for fault in ended.error["faults"] if fault["where"].startswith(f"{key} ")]
    assert any(words in fault["what"] for fault in told), ended.out


@pytest.mark.process
@pytest.mark.timeout(120)
def test_the_output_of_another_job_is_refused_by_any_name(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(3)
    lab.write_spec("first.json", task_id="first")
    assert lab.run("submit", "jobs/first.json").wait() == 0
    (lab.folder / "others").symlink_to("outputs")
    (lab.folder / "link.jsonl").symlink_to("outputs/out.jsonl")
    (lab.folder / "hard.jsonl").hardlink_to(lab.folder / "outputs" / "out.jsonl")
    kept = (lab.folder / "outputs" / "out.jsonl").read_bytes()
    taken = []
    for number, path in enumerate(
        [
            *(
                "outputs/out.jsonl",
                "./outputs/out.jsonl",
                "outputs/../outputs/out.jsonl",
                "inputs/../outputs/out.jsonl",
            ),
            *(
                f"{lab.folder}/outputs/out.jsonl",
                "others/out.jsonl",
                "link.jsonl",
                "hard.jsonl",
                "outputs/out.errors.jsonl",
            ),
        ]
    ):
        lab.write_spec(task_id=f"second-{number}", output_file=path)
        run = lab.run("submit", "jobs/job.json", "--json")
        if run.wait() != 2 or "job 'first'" not in run.out:
            taken.append(f"{path}: exit {run.wait()}")
    assert taken == []
    assert (lab.folder / "outputs" / "out.jsonl").read_bytes() == kept
    assert [job["job_id"] for job in lab.run("ls", "--json").json["jobs"]] == ["first"]
    assert lab.arrivals() == 3
