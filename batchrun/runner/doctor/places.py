"""Folders that something is to be written to: is there room, and will it stay?"""

import os
import shutil
from pathlib import Path

from batchrun.ledger.engines import file_system
from batchrun.runner.doctor.finding import Notes

LITTLE_BYTES, TOO_LITTLE_BYTES = 1_000_000_000, 100_000_000
IN_MEMORY = ("tmpfs", "ramfs")


def nearest(path: Path) -> Path:
    """Return the folder itself, or the nearest one above it that exists: where it would be made."""
    path = path.absolute()
    return path if path.is_dir() or path == path.parent else nearest(path.parent)


def note_room(notes: Notes, folder: Path, *, holds: str) -> None:
    """Note how much space is left where `folder` is or would be made, and whether it lies in memory only."""
    here = nearest(folder)
    free_bytes = shutil.disk_usage(here).free
    kind = file_system(here)
    said = f"{size(free_bytes)} free" + (f" ({kind})" if kind else "")
    if free_bytes < TOO_LITTLE_BYTES:
        notes.fail("disk", f"{said} at {str(here)!r}: a run stops when it is full", f"make room at {here}")
    elif free_bytes < LITTLE_BYTES:
        notes.warn("disk", f"{said} at {str(here)!r}, which {holds} may fill", f"make room at {here}")
    else:
        notes.ok("disk", said)
    if kind in IN_MEMORY:
        notes.warn("memory", f"{str(here)!r} lies in memory: {holds} would not outlive a restart", "use a real disk")


def is_writable(folder: Path) -> bool:
    """Say whether this process could make files where `folder` is or would be made."""
    return os.access(nearest(folder), os.W_OK | os.X_OK)


def size(size_bytes: int) -> str:
    """Write a size for people, such as "80 GB"."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return f"{size_bytes} bytes"
