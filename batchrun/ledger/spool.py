"""Complete answers on the worker's disk, before anybody interprets them: a worker's death loses none of them.

A frame is a head (magic, attempt key, lengths, checksum), a small JSON description and the raw body. Frames are
written without fsync: the page cache outlives kill -9, and after a power failure the item stands in doubt.
There are two segments, written in turn: one is started anew only when every answer in it is in the ledger. It is then
overwritten at once: a process may live long after a job whose answers are to be forgotten.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchrun.core.loose_json import write_json
from batchrun.errors import LedgerFault

# The checksum covers all of the rest: a new head torn over an old frame must not lend it another attempt's key.
_HEAD = struct.Struct("<8sQII")  # magic, attempt key, length of the description, length of the body
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"BRSPOOL1"
_SEGMENTS = ("a", "b")
_ZEROS = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class Frame:
    """One complete answer: which attempt it belongs to, what came with it, and its bytes."""

    key: int
    about: dict[str, Any]
    body: bytes


@dataclass
class _Segment:
    path: Path
    fd: int
    end: int = 0
    touched: int = 0  # nothing behind it was ever written, or it is overwritten
    unsettled: set[int] = field(default_factory=set)

    @classmethod
    def create(cls, path: Path, room_bytes: int) -> "_Segment":
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, room_bytes)
        except OSError:
            os.close(fd)
            path.unlink()
            raise
        return cls(path, fd)

    def overwrite(self) -> None:
        """Write zeros over all frames. Where the disk does not let us they stay, until the segment is next settled."""
        try:
            written, size_bytes = 0, min(self.touched, os.fstat(self.fd).st_size)
            while written < size_bytes:
                written += os.pwrite(self.fd, _ZEROS[: size_bytes - written], written)
        except OSError:
            return
        self.end = self.touched = 0
        # crash point: spool-overwritten

    def remove(self) -> None:
        os.close(self.fd)
        self.path.unlink(missing_ok=True)


@dataclass
class Spool:
    """The writing side, one per worker process; used from the event loop's thread only."""

    segments: tuple[_Segment, _Segment]
    room_bytes: int
    active: int = 0

    @classmethod
    def create(cls, folder: Path, incarnation: str, *, room_bytes: int) -> "Spool":
        """Create both segments with their room preallocated.

        Raises:
            OSError: no space. Nothing is left behind.
        """
        first, second = (_segment_path(folder, incarnation, name) for name in _SEGMENTS)
        made = _Segment.create(first, room_bytes)
        try:
            return cls((made, _Segment.create(second, room_bytes)), room_bytes)
        except OSError:
            made.remove()
            raise

    @property
    def is_settled(self) -> bool:
        """True when every answer is in the ledger."""
        return not any(segment.unsettled for segment in self.segments)

    def append(self, key: int, about: dict[str, Any], body: bytes) -> bool:
        """Write one frame; False where the disk has no room: the answer then lives in memory only."""
        frame = _frame(key, about, body)
        # crash point: spool-empty
        segment = self._segment_for(len(frame))
        segment.touched = max(segment.touched, segment.end + len(frame))
        try:
            written = 0
            while written < len(frame):
                written += os.pwrite(segment.fd, frame[written:] if written else frame, segment.end + written)
        except OSError:
            if not segment.unsettled:
                segment.overwrite()
            return False  # a torn frame fails its checksum, and the next one is written over it
        segment.end += len(frame)
        segment.unsettled.add(key)
        # crash point: spool-written
        return True

    def settled(self, key: int) -> None:
        """Note that the ledger has this answer."""
        for segment in self.segments:
            if key in segment.unsettled:
                segment.unsettled.discard(key)
                if not segment.unsettled:
                    segment.overwrite()

    def _segment_for(self, size: int) -> _Segment:
        active, other = self.segments[self.active], self.segments[1 - self.active]
        if active.end + size <= self.room_bytes:
            return active
        if not active.unsettled:
            active.end = 0
            return active
        if not other.unsettled:
            other.end = 0
            self.active = 1 - self.active
            return other
        return active  # beyond its room, where the disk lets it

    def close(self) -> None:
        """Close the files and leave them for whoever adopts them."""
        for segment in self.segments:
            os.close(segment.fd)

    def remove(self) -> None:
        """Close and delete the files."""
        for segment in self.segments:
            segment.remove()


def _segment_path(folder: Path, incarnation: str, name: str) -> Path:
    return folder / f"{incarnation}.spool.{name}"


def _frame(key: int, about: dict[str, Any], body: bytes) -> bytes:
    description = write_json(about)
    head = _HEAD.pack(_MAGIC, key, len(description), len(body))
    return b"".join((head, _CHECKSUM.pack(_sum(head, description, body)), description, body))


def _sum(*parts: bytes | memoryview) -> int:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def read_frames(folder: Path, incarnation: str) -> Iterator[Frame]:
    """Yield the complete frames that a dead worker left. Old frames may come again: adopting is idempotent.

    Raises:
        LedgerFault: a segment is there and cannot be read. What it holds may have been paid for.
    """
    for name in _SEGMENTS:
        path = _segment_path(folder, incarnation, name)
        try:
            data = memoryview(path.read_bytes())
        except FileNotFoundError:
            continue
        except OSError as error:
            message = f"the answers in {str(path)!r} cannot be read: {error.strerror}"
            raise LedgerFault(message, hint="make the file readable, then `batchrun resume`") from None
        position = 0
        while (found := _frame_at(data, position)) is not None:
            frame, position = found
            yield frame


def _frame_at(data: memoryview, position: int) -> tuple[Frame, int] | None:
    """Return the frame that begins here and where it ends; None where no complete frame begins."""
    start = position + _HEAD.size + _CHECKSUM.size
    if start > len(data):
        return None
    magic, key, about_length, body_length = _HEAD.unpack_from(data, position)
    (checksum,) = _CHECKSUM.unpack_from(data, position + _HEAD.size)
    middle, end = start + about_length, start + about_length + body_length
    if magic != _MAGIC or end > len(data):
        return None
    head, about, body = data[position : position + _HEAD.size], data[start:middle], data[middle:end]
    if _sum(head, about, body) != checksum:
        return None
    return Frame(key, json.loads(bytes(about)), bytes(body)), end
