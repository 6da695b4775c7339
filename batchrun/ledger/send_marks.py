"""Which requests of a worker have begun: a mark on its disk before the first byte, so that a death leaves less doubt.

A mark is the attempt's key and its complement, written into a preallocated place without fsync: the page cache outlives
kill -9, and after a power failure another boot id says that marks prove nothing. A place is used again only when the
outcome of its attempt is in the ledger, so an open attempt that was begun has its mark. Whoever reads trusts a whole
file alone: what is missing, short or damaged says of every attempt that it may have begun.
"""

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from batchrun.errors import LedgerFull

_HEAD = struct.Struct("<8sII")  # magic, number of places, its complement
_MARK = struct.Struct("<QQ")  # attempt key, its complement; both 0: never used
_MAGIC = b"BRSENT01"
_ALL_32, _ALL_64 = (1 << 32) - 1, (1 << 64) - 1
PLACES = 1024
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class SendMarks:
    """The writing side, one per worker process; used from the event loop's thread only."""

    path: Path
    fd: int
    size: int = 0  # places in the file
    _free: list[int] = field(default_factory=list)
    _taken: dict[int, int] = field(default_factory=dict)  # attempt key to its place

    @classmethod
    def create(cls, folder: Path, incarnation: str) -> "SendMarks":
        """Create the file with its places preallocated.

        Raises:
            OSError: no space. Nothing is left behind.
        """
        path = _path(folder, incarnation)
        made = cls(path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        try:
            made._grow(PLACES)
        except OSError:
            made.remove()
            raise
        return made

    def begin(self, key: int) -> None:
        """Mark that this attempt's request begins: to be called before its first byte, and only once.

        Raises:
            LedgerFull: the mark could not be written, or the file is closed. The request must not be sent.
        """
        try:
            if not self._free:
                self._grow(2 * self.size)
            self._write(_MARK.pack(key, key ^ _ALL_64), _HEAD.size + self._free[-1] * _MARK.size)
        except OSError as error:
            message = f"{str(self.path)!r} takes no mark of a request that is to begin: {error.strerror or error}"
            raise LedgerFull(message, hint="make room on its disk, then `batchrun resume`") from None
        self._taken[key] = self._free.pop()
        # crash point: send-marked

    def settled(self, key: int) -> None:
        """Note that the ledger has this attempt's outcome: its place may be used again."""
        if (place := self._taken.pop(key, None)) is not None:
            self._free.append(place)

    def _grow(self, size: int) -> None:
        os.posix_fallocate(self.fd, 0, _HEAD.size + size * _MARK.size)
        self._write(_HEAD.pack(_MAGIC, size, size ^ _ALL_32), 0)
        self._free += reversed(range(self.size, size))
        self.size = size

    def _write(self, data: bytes, position: int) -> None:
        if os.pwrite(self.fd, data, position) != len(data):
            raise OSError("only a part of it was written")

    def close(self) -> None:
        """Close the file and leave it for whoever buries this worker: from here on nothing can begin."""
        os.close(self.fd)
        self.fd = -1  # another file may get the number

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)


def _path(folder: Path, incarnation: str) -> Path:
    return folder / f"{incarnation}.marks"


def read_marks(folder: Path, incarnation: str) -> frozenset[int] | None:
    """Return the attempts of a dead worker that have begun, and older ones; None where any may have.

    Of an attempt that is open in the ledger and not among them no byte has left.
    """
    try:
        data = _path(folder, incarnation).read_bytes()
    except OSError:
        return None
    if len(data) < _HEAD.size:
        return None
    magic, size, complement = _HEAD.unpack_from(data)
    end = _HEAD.size + size * _MARK.size
    if magic != _MAGIC or size ^ complement != _ALL_32 or len(data) < end:
        return None
    found = set()
    for key, opposite in _MARK.iter_unpack(data[_HEAD.size : end]):
        if key ^ opposite == _ALL_64:
            found.add(key)
        elif key or opposite:
            return None
    return frozenset(found)


def boot_id() -> str | None:
    """Return what names this run of the machine; None where it cannot be told, and marks then prove nothing."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None
