"""Cut bytes into lines as `sed -n` counts them, in bounded memory, and know by the first ones what is no UTF-8 text."""

from collections.abc import Iterable, Iterator

MAX_LINE_BYTES = 64 << 20
_BOM = b"\xef\xbb\xbf"

_MAGIC = (
    (b"PK\x03\x04", "is a zip archive or a spreadsheet", "unpack it, or save it as JSONL"),
    (b"\x28\xb5\x2f\xfd", "is zstd-compressed", "unpack it: zstd -d FILE"),
    (b"\xfd7zXZ\x00", "is xz-compressed", "unpack it: unxz -k FILE"),
    (b"BZh", "is bzip2-compressed", "unpack it: bunzip2 -k FILE"),
)


def known_format(head: bytes) -> tuple[str, str] | None:
    """Say what a file is that begins with these bytes, and what to do; None when it may be JSONL."""
    for magic, what, hint in _MAGIC:
        if head.startswith(magic):
            return f"{what}, which is not read", hint
    if head.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return "is encoded in UTF-32, only UTF-8 is read", "convert it: iconv -f UTF-32 -t UTF-8 FILE > NEW"
    zeros = [byte == 0 for byte in head[:4]]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or zeros in ([True, False] * 2, [False, True] * 2):
        return "is encoded in UTF-16, only UTF-8 is read", "convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"
    return None


def split_lines(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its newline) for every line, blank ones too.

    Only `\\n` ends a line. The byte order mark of the file is taken off; a CR before the newline is left on, since JSON
    ignores it. A line of more than 64 MiB is yielded as None and never held.
    """
    line_no = 0
    begun: list[bytes] = []  # the pieces of the line that the last block left open
    begun_bytes = 0
    for block in blocks:
        pieces = block.split(b"\n")
        for piece in pieces[:-1]:
            line_no += 1
            if begun_bytes:
                begun.append(piece)
                begun_bytes += len(piece)
                piece, begun = b"".join(begun), []
            if begun_bytes > MAX_LINE_BYTES:
                yield line_no, None
            else:
                yield line_no, piece if line_no > 1 else piece.removeprefix(_BOM)
            begun_bytes = 0
        begun_bytes += len(pieces[-1])
        if begun_bytes > MAX_LINE_BYTES:
            begun = []
        else:
            begun.append(pieces[-1])
    if begun_bytes > MAX_LINE_BYTES:
        yield line_no + 1, None
    elif begun_bytes:
        yield line_no + 1, b"".join(begun) if line_no else b"".join(begun).removeprefix(_BOM)
