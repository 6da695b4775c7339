"""Complete answers on the worker's disk, before anybody interprets them: a worker's death loses none of them.

A frame is a head (magic, attempt key, lengths, checksum), a small JSON description and the raw body. Frames are
written without fsync: the page cache outlives kill -9, and after a power failure the item stands in doubt.
There are two segments, written in turn: one is started anew only when every answer in it is in the ledger.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("<8sQIII")  # magic, attempt key, length of the description, length of the body, crc32 of both
_MAGIC = b"BRSPOOL1"


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
    unsettled: set[int] = field(default_factory=set)


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
            OSError: no space.
        """
        made = []
        for name in ("a", "b"):
            path = folder / f"{incarnation}.spool.{name}"
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.posix_fallocate(fd, 0, room_bytes)
            made.append(_Segment(path, fd))
        return cls((made[0], made[1]), room_bytes)

    @property
    def is_settled(self) -> bool:
        """True when every answer is in the ledger."""
        return not any(segment.unsettled for segment in self.segments)

    def append(self, key: int, about: dict[str, Any], body: bytes) -> bool:
        """Write one frame; False where the disk has no room: the answer then lives in memory only."""
        description = json.dumps(about, separators=(",", ":")).encode()
        checksum = zlib.crc32(body, zlib.crc32(description))
        frame = b"".join((_HEAD.pack(_MAGIC, key, len(description), len(body), checksum), description, body))
        segment = self._segment_for(len(frame))
        try:
            written = 0
            while written < len(frame):
                written += os.pwrite(segment.fd, frame[written:] if written else frame, segment.end + written)
        except OSError:
            return False  # a torn frame fails its checksum, and the next one is written over it
        segment.end += len(frame)
        segment.unsettled.add(key)
        return True

    def settled(self, key: int) -> None:
        """Note that the ledger has this answer."""
        for segment in self.segments:
            segment.unsettled.discard(key)

    def _segment_for(self, size: int) -> _Segment:
        segment = self.segments[self.active]
        if segment.end + size <= self.room_bytes:
            return segment
        if not segment.unsettled:
            segment.end = 0
            return segment
        other = self.segments[1 - self.active]
        if not other.unsettled:
            other.end = 0
            self.active = 1 - self.active
            return other
        return segment

    def close(self) -> None:
        """Close the files and leave them for whoever adopts them."""
        for segment in self.segments:
            os.close(segment.fd)

    def remove(self) -> None:
        """Close and delete the files."""
        self.close()
        for segment in self.segments:
            segment.path.unlink(missing_ok=True)


def read_frames(folder: Path, incarnation: str) -> Iterator[Frame]:
    """Yield the complete frames that a dead worker left. Old frames may come again: adopting is idempotent."""
    for name in ("a", "b"):
        path = folder / f"{incarnation}.spool.{name}"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        position = 0
        while (frame := _frame_at(data, position)) is not None:
            yield frame[0]
            position = frame[1]


def _frame_at(data: bytes, position: int) -> tuple[Frame, int] | None:
    if position + _HEAD.size > len(data):
        return None
    magic, key, about_length, body_length, checksum = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    middle, end = start + about_length, start + about_length + body_length
    if magic != _MAGIC or end > len(data):
        return None
    if zlib.crc32(data[middle:end], zlib.crc32(data[start:middle])) != checksum:
        return None
    return Frame(key, json.loads(data[start:middle]), data[middle:end]), end


def remove_files(folder: Path, incarnation: str) -> None:
    """Delete a dead worker's spool and lock, once all its attempts have outcomes."""
    for name in ("spool.a", "spool.b", "lock"):
        (folder / f"{incarnation}.{name}").unlink(missing_ok=True)
