"""The bytes of an input file in blocks of bounded size: counted and digested as they lie on disk, then unpacked."""

import zlib
from collections.abc import Generator, Iterable, Iterator
from hashlib import sha256
from io import FileIO

from batchrun.core.line import LineFault

BLOCK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_ANEW = "write or copy it anew; gzip -t FILE tests it"


class Blocks:
    """One pass over the bytes of a file, which a second loop goes on with. The figures are of what was read so far."""

    def __init__(self, file: FileIO) -> None:
        file.seek(0)
        self._file = file
        self._digest = sha256()
        self._is_at_end = False
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        while not self._is_at_end:
            block = self._file.read(BLOCK_BYTES)
            self._is_at_end = not block
            self._digest.update(block)
            self.size_bytes += len(block)
            if block:
                yield block

    def sha256(self) -> str:
        """Return the digest of the bytes read so far, in hex."""
        return self._digest.hexdigest()


def gunzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack gzip data of one or more members, in blocks of at most 1 MiB however well it is packed.

    Raises:
        LineFault: it is damaged, cut short, or followed by something else.
    """
    member = zlib.decompressobj(_GZIP_WINDOW)
    is_begun = False  # the member has bytes
    for block in blocks:
        rest = block
        while rest:
            if member.eof:
                member, is_begun = zlib.decompressobj(_GZIP_WINDOW), False
            if not is_begun and not (rest := rest.lstrip(b"\0")):
                break  # padding behind a member
            is_begun = True
            rest = yield from _unpacked(member, rest)
    if is_begun and not member.eof:
        raise LineFault("is a gzip file that was cut short", _ANEW)


def _unpacked(member: "zlib._Decompress", packed: bytes) -> Generator[bytes, None, bytes]:
    """Yield what these bytes of a member unpack to; return those that lie behind its end."""
    while True:
        try:
            unpacked = member.decompress(packed, BLOCK_BYTES)
        except zlib.error:
            raise LineFault("is a damaged gzip file", _ANEW) from None
        if unpacked:
            yield unpacked
        if member.eof:
            return member.unused_data
        packed = member.unconsumed_tail
        if not packed and len(unpacked) < BLOCK_BYTES:  # a full block may have more behind it
            return b""


def with_head(blocks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first block, empty where there is none, and all blocks."""
    rest = iter(blocks)
    first = next(rest, b"")

    def whole() -> Iterator[bytes]:
        yield first
        yield from rest

    return first, whole() if first else rest
