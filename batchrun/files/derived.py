"""Files that can be written again at any time from the ledger: whole or not at all, and one that grows."""

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from batchrun.files.paths import partial_file

_BUFFER_BYTES = 1 << 20


class DerivedFile:
    """A file that is replaced as a whole when the block ends well; when it does not, what stood there stands.

    A symlink is followed: its target is replaced. `line_count` and `sha256()` are those of what was written.

    Raises:
        OSError: with `filename` set to the path, from entering, writing and leaving (ENOSPC on a full disk).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line_count = 0
        self._digest = sha256()
        self._buffer = bytearray()
        self._target = Path(os.path.realpath(path))
        self._temp = self._target.with_name(f".{self._target.name}.tmp-{secrets.token_hex(6)}")
        self._fd = -1

    def __enter__(self) -> Self:
        with _naming(self.path):
            if self._target.exists() and not self._target.is_file():
                raise OSError(errno.EINVAL, "is no regular file, and would be replaced by one")
            self._forget_dead_writers()
            self._fd = os.open(self._temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
                self._keep_mode()
                # crash point: file-temp
            except OSError:
                self._discard()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            return
        with _naming(self.path):
            try:
                self._flush()
                # crash point: file-written
                os.fsync(self._fd)
                # crash point: file-synced
                fd, self._fd = self._fd, -1
                os.close(fd)
                os.replace(self._temp, self._target)
                # crash point: file-renamed
            except BaseException:
                self._discard()
                raise
            _sync_folder(self._target.parent)
            # crash point: file-in-place

    def write(self, data: bytes) -> None:
        """Append bytes; they reach the disk at the latest when the block ends."""
        self._digest.update(data)
        self.line_count += data.count(b"\n")
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            with _naming(self.path):
                self._flush()

    def sha256(self) -> str:
        """Return the digest of what was written, in hex."""
        return self._digest.hexdigest()

    def _forget_dead_writers(self) -> None:
        """Remove the temporary files that killed writers of this file have left: nobody holds their lock."""
        for left in self._target.parent.glob(f".{glob.escape(self._target.name)}.tmp-*"):
            with contextlib.suppress(OSError):
                fd = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(left)
                finally:
                    os.close(fd)

    def _flush(self) -> None:
        _write_all(self._fd, self._buffer)
        self._buffer.clear()

    def _keep_mode(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(self._fd, stat.S_IMODE(os.stat(self._target).st_mode))

    def _discard(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(self._temp)


class PartialFile:
    """`<output>.partial`: the lines so far of a running job, for readers only; nothing depends on it.

    It has one writer. No failure hurts the job: each method says by its return value whether it worked.
    """

    def __init__(self, output: Path) -> None:
        self.path = partial_file(output)

    def rebuild(self, lines: Iterable[bytes]) -> bool:
        """Begin anew with these lines."""
        try:
            with DerivedFile(self.path) as file:
                for line in lines:
                    file.write(line)
        except OSError:
            return False
        return True

    def append(self, lines: Iterable[bytes]) -> bool:
        """Add whole lines in one write. When that fails the file ends with its last whole line, or is gone."""
        data = b"".join(lines)
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return _append_whole(fd, data)
        finally:
            os.close(fd)

    def remove(self) -> bool:
        """Take the file away; fine when there is none."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _append_whole(fd: int, data: bytes) -> bool:
    """Append everything or nothing."""
    try:
        size_bytes = os.fstat(fd).st_size
        try:
            _write_all(fd, data)
            # crash point: partial-grown
        except OSError:
            os.ftruncate(fd, size_bytes)
            return False
    except OSError:
        return False
    return True


def _write_all(fd: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        rest.release()


def _sync_folder(folder: Path) -> None:
    """Make a rename in this folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot sync folders
            raise
    finally:
        os.close(fd)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the path in an OSError that does not say where it happened."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
