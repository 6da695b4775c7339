"""What a process is kept from, to see what it makes of it; and a disk of a few hundred kilobytes."""

import ctypes
import errno
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from batchrun.files.derived import DerivedFile
from batchrun.ledger import register

LINUX_CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def few_files(count: int) -> None:
    """`ulimit -n`."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def small_files(size_bytes: int) -> None:
    """`ulimit -f`: no file of this process grows above a size; writing on fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def obey_permissions() -> None:
    """Let permissions hold for this process, also where it is root's."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    for place in (0, 1):
        sets[place] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def slow_disk(wait_s: float) -> None:
    """Let every line of an output take a while, as on a disk that others keep busy."""
    write = DerivedFile.write

    def slowly(file: DerivedFile, data: bytes) -> None:
        time.sleep(wait_s)
        write(file, data)

    DerivedFile.write = slowly  # type: ignore[method-assign]


def stop_after_a_chunk() -> None:
    """Stop this process (SIGSTOP) when it has written the first items of a job, ten of them, and locks nothing."""
    chunks = register.chunks

    def stopping(lines: Iterable[register.Line]) -> Iterator[Sequence[register.Line]]:
        for number, chunk in enumerate(chunks(lines)):
            if number == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
                register.CHUNK = size
            yield chunk

    size, register.CHUNK = register.CHUNK, 10
    register.chunks = stopping


def failing_spool(good_frames: int) -> None:
    """Let the spool's disk answer EIO to every answer after so many; only the spool writes by `os.pwrite`."""
    pwrite, left = os.pwrite, [good_frames]

    def fail(descriptor: int, data: bytes, offset: int) -> int:
        if any(data):  # an answer, and no zeros that make room or overwrite
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pwrite(descriptor, data, offset)

    os.pwrite = fail


class Disk:
    """A file system of its own in memory, of a given size."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def resize(self, size: str) -> None:
        """Make it larger."""
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.place)], check=True)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Disk | None]:
    """Mount a small disk on a folder; None where mounting is not permitted."""
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
