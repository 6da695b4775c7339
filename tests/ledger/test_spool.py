"""A frame is adopted whole or not at all, and no answer that the ledger lacks is ever written over."""

import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.errors import LedgerFault
from batchrun.ledger.liveness import remove_files
from batchrun.ledger.spool import Spool, read_frames
from tests.ledger.desk import forks

ROOM = 4_096
ABOUT = {"path": "/chat/completions", "status": 200, "headers": {"x": "ü\udc80"}, "timing": [1.5, None, 2.0, 0.5]}


def body_of(key: int, size: int = 100) -> bytes:
    return (f"answer of {key} ".encode() * (size // 10 + 1))[:size]


def new_spool(folder: Path, name: str = "w", room: int = ROOM) -> Spool:
    return Spool.create(folder, name, room_bytes=room)


def read(folder: Path, name: str = "w") -> dict[int, bytes]:
    return {frame.key: frame.body for frame in read_frames(folder, name)}


def frame_bytes(folder: Path, key: int, size: int = 100) -> bytes:
    """Return the bytes of one frame as a spool writes them."""
    spool = new_spool(folder, f"one-{key}")
    assert spool.append(key, ABOUT, body_of(key, size))
    whole = spool.segments[0].path.read_bytes()[: spool.segments[0].end]
    spool.remove()
    return whole


def test_what_was_appended_is_read_back_as_it_was(tmp_path: Path) -> None:
    spool = new_spool(tmp_path, room=1 << 20)
    bodies = {1: b"", 2: b"\0" * 10, (1 << 63) + 5: bytes(range(256)) * 100}
    for key, body in bodies.items():
        assert spool.append(key, ABOUT, body)
    frames = list(read_frames(tmp_path, "w"))
    assert {frame.key: frame.body for frame in frames} == bodies
    assert [frame.about for frame in frames] == [ABOUT] * 3


@pytest.mark.parametrize("beneath", ["zeros", "nothing", "older frames", "an older frame of the same shape"])
def test_a_torn_frame_is_never_adopted_and_the_frames_before_it_always(tmp_path: Path, beneath: str) -> None:
    """Cut at every byte. What lies beneath a torn frame must not lend it a body or a key."""
    first, second, torn = (frame_bytes(tmp_path, key) for key in (1, 2, 3))
    before = first + second
    old = {
        "zeros": bytes(ROOM),
        "nothing": b"",
        "older frames": b"".join(frame_bytes(tmp_path, key, 37) for key in range(70, 90)),
        "an older frame of the same shape": b"".join(frame_bytes(tmp_path, key) for key in range(70, 76)),
    }[beneath]
    path = tmp_path / "w.spool.a"
    for cut in range(len(torn) + 1):
        written = before + torn[:cut]
        path.write_bytes(written + old[len(written) :])
        found = read(tmp_path)
        assert found.pop(1) == body_of(1)
        assert found.pop(2) == body_of(2)
        assert (found.pop(3, None) == body_of(3)) is (cut == len(torn)), f"cut at byte {cut} of {len(torn)}"
        # Frames of an earlier round are whole or absent; they are settled, and adopting them again changes nothing.
        assert all(body in (body_of(key), body_of(key, 37)) for key, body in found.items())


def test_no_byte_of_a_frame_can_change_unnoticed(tmp_path: Path) -> None:
    whole = frame_bytes(tmp_path, 5)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x20
        (tmp_path / "w.spool.a").write_bytes(damaged)
        assert read(tmp_path) == {}, f"byte {place}"


def test_a_segment_begins_anew_only_when_everything_in_it_is_settled(tmp_path: Path) -> None:
    spool = new_spool(tmp_path, room=500)
    for key in range(1, 5):
        assert spool.append(key, ABOUT, body_of(key))
    assert [segment.unsettled for segment in spool.segments] == [{1, 2}, {3, 4}]
    spool.settled(1)
    assert spool.append(5, ABOUT, body_of(5)), "both are in use: it grows beyond its room"
    assert [segment.unsettled for segment in spool.segments] == [{2}, {3, 4, 5}]
    spool.settled(2)
    assert spool.append(6, ABOUT, body_of(6))
    assert [segment.unsettled for segment in spool.segments] == [{6}, {3, 4, 5}]
    assert {3, 4, 5, 6} <= set(read(tmp_path))


def test_what_the_ledger_has_is_overwritten_as_soon_as_nothing_else_is_in_the_segment(tmp_path: Path) -> None:
    spool = new_spool(tmp_path, room=500)
    for key in range(1, 5):
        assert spool.append(key, ABOUT, body_of(key))
    first, second = (segment.path for segment in spool.segments)
    spool.settled(1)
    assert set(read(tmp_path)) == {1, 2, 3, 4}, "an answer that is not settled lies behind it"
    spool.settled(2)
    assert not any(first.read_bytes())
    assert set(read(tmp_path)) == {3, 4}
    assert spool.append(5, ABOUT, body_of(5, 350))
    spool.settled(3)
    spool.settled(4)
    assert not any(second.read_bytes())
    assert read(tmp_path) == {5: body_of(5, 350)}


def test_a_segment_that_grew_beyond_its_room_is_overwritten_to_its_end(tmp_path: Path) -> None:
    spool = new_spool(tmp_path, room=300)
    for key, size in ((1, 200_000), (2, 200_000), (3, 100_000)):
        assert spool.append(key, ABOUT, body_of(key, size))
    for key in (1, 2, 3):
        spool.settled(key)
    for segment in spool.segments:
        assert segment.end == 0
        assert not any(segment.path.read_bytes())


@pytest.mark.parametrize("room", [1_000, 10_000])
def test_a_torn_frame_is_overwritten_too(tmp_path: Path, room: int) -> None:
    """In a segment of its own, and behind an answer that is not settled."""
    spool = new_spool(tmp_path, room=room)
    assert spool.append(1, ABOUT, body_of(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        assert not spool.append(2, ABOUT, body_of(2, 2 * room))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read(tmp_path) == {1: body_of(1)}
    spool.settled(1)
    for segment in spool.segments:
        assert not any(segment.path.read_bytes()), segment.path.name


def test_a_spool_is_settled_when_the_ledger_has_everything(tmp_path: Path) -> None:
    spool = new_spool(tmp_path)
    assert spool.is_settled
    spool.append(1, ABOUT, b"x")
    spool.append(2, ABOUT, b"y")
    spool.settled(1)
    spool.settled(99)
    assert not spool.is_settled
    spool.settled(2)
    assert spool.is_settled


STEP = st.one_of(st.tuples(st.just("append"), st.integers(0, 400)), st.tuples(st.just("settle"), st.integers(0, 9)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(steps=st.lists(STEP, max_size=40))
def test_whatever_is_not_settled_can_be_read_back(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = new_spool(folder, room=1_000)
    waiting: dict[int, bytes] = {}
    for key, (step, number) in enumerate(steps, 1):
        if step == "append":
            waiting[key] = body_of(key, number)
            assert spool.append(key, ABOUT, waiting[key])
        elif waiting:
            done = sorted(waiting)[number % len(waiting)]
            spool.settled(done)
            del waiting[done]
        assert waiting.items() <= read(folder).items()
    assert spool.is_settled is not bool(waiting)
    spool.remove()
    assert not list(folder.iterdir())


def test_the_files_stay_when_they_are_closed_and_go_when_they_are_removed(tmp_path: Path) -> None:
    spool = new_spool(tmp_path)
    spool.append(1, ABOUT, b"x")
    spool.close()
    assert read(tmp_path) == {1: b"x"}
    (tmp_path / "w.lock").touch()
    (tmp_path / "other.lock").touch()
    remove_files(tmp_path, "w")
    remove_files(tmp_path, "w")
    assert [path.name for path in tmp_path.iterdir()] == ["other.lock"]
    assert read(tmp_path) == {}


def test_answers_that_are_there_and_cannot_be_read_stop_the_sweep(tmp_path: Path) -> None:
    """To go on would call a paid answer a doubt, and delete it."""
    new_spool(tmp_path).segments[1].path.unlink()
    (tmp_path / "w.spool.b").mkdir()
    with pytest.raises(LedgerFault, match=r"w\.spool\.b' cannot be read: Is a directory"):
        read(tmp_path)


def _append_without_space(folder: str, said: Any) -> None:
    """Fill a spool under a limit on the size of files, as on a disk that is full."""
    spool = new_spool(Path(folder), room=500)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    went = [spool.append(key, ABOUT, body_of(key)) for key in range(1, 7)]
    held = set(read(Path(folder)))
    spool.settled(1)
    spool.settled(2)
    went.append(spool.append(7, ABOUT, body_of(7)))
    said.send([went, held, set(read(Path(folder))), [sorted(segment.unsettled) for segment in spool.segments]])


def _create_without_space(folder: str, said: Any) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        new_spool(Path(folder), room=501)
    except OSError as error:
        said.send([type(error).__name__, [path.name for path in Path(folder).iterdir()]])


def _asked_of_a_process(target: Any, folder: Path) -> Any:
    said, says = forks.Pipe(duplex=False)
    child = forks.Process(target=target, args=(str(folder), says))
    child.start()
    says.close()
    try:
        assert said.poll(20)
        return said.recv()
    finally:
        child.join(60)


def test_an_answer_that_does_not_fit_on_the_disk_is_refused_and_tears_nothing(tmp_path: Path) -> None:
    went, held, later, unsettled = _asked_of_a_process(_append_without_space, tmp_path)
    assert went == [True, True, True, True, False, False, True]
    assert held == {1, 2, 3, 4}
    assert later >= {3, 4, 7}
    assert unsettled == [[7], [3, 4]]


def test_a_spool_without_space_is_not_made_and_leaves_nothing(tmp_path: Path) -> None:
    assert _asked_of_a_process(_create_without_space, tmp_path) == ["OSError", []]
