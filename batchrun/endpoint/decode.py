"""Content codings that servers send unasked: gzip and deflate, undone with a limit on size."""

import zlib

LARGEST_BYTES = 256 * 1024 * 1024  # of one answer, unpacked
GZIP, ZLIB, RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS  # the window bits of each form
FORMS = {"gzip": (GZIP,), "x-gzip": (GZIP,), "deflate": (ZLIB, RAW)}


def decode(body: bytes, coding: str) -> bytes | None:
    """Undo a Content-Encoding. A stream that breaks off gives what stood before the break.

    Returns:
        None where it cannot be undone: not of that form, another coding, or larger than `LARGEST_BYTES`.
    """
    for name in reversed([word.strip().lower() for word in coding.split(",")]):
        if name in ("", "identity") or not body:
            continue
        decoded = _undo(body, FORMS.get(name, ()))
        if decoded is None:
            return None
        body = decoded
    return body


def _undo(body: bytes, forms: tuple[int, ...]) -> bytes | None:
    for window_bits in forms:
        try:
            return _inflate(body, window_bits)
        except (zlib.error, OverflowError):
            continue
    return None


def _inflate(body: bytes, window_bits: int) -> bytes:
    pieces: list[bytes] = []
    room = LARGEST_BYTES
    while body:
        stream = zlib.decompressobj(window_bits)
        pieces.append(stream.decompress(body, room + 1))
        room -= len(pieces[-1])
        if room < 0:
            raise OverflowError("larger than an answer may be")
        # gzip files may be chained; zeros after the last one are padding.
        body = stream.unused_data.lstrip(b"\x00") if stream.eof and window_bits == GZIP else b""
    return b"".join(pieces)
