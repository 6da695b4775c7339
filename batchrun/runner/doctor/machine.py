"""The machine and the Python that batchrun runs in: versions, clock, open files."""

import platform
import re
import resource
import time
from collections.abc import Iterator
from importlib import metadata

from batchrun import __version__
from batchrun.runner.doctor.finding import Check, Notes

DISTRIBUTION = "batchrun-llm"
NAMED = ("celery", "redis", "openai", "httptools", "sqlalchemy")
OWN_FILES = 64  # what a process has open beside its requests
LEAST_FILES = 1024  # what any process should have
BUILT_AT = 1_767_225_600  # 2026-01-01: no clock that is right shows less
STEP_S = 0.2

_Version = tuple[int, ...]


def machine_check(*, concurrency: int | None) -> Check:
    """Return the look at this machine.

    Args:
        concurrency: of the job, where one is named.
    """

    def look(notes: Notes) -> None:
        notes.ok("batchrun", f"{__version__} on Python {platform.python_version()}, {platform.system()}")
        _note_packages(notes)
        _note_open_files(notes, concurrency)
        _note_clock(notes)

    return Check("machine", None, look)


def _note_packages(notes: Notes) -> None:
    for package, installed, wanted in _misfits():
        mend = f"pip install '{package}{wanted}'"
        if installed is None:
            notes.fail("packages", f"{package} is not installed", mend)
        else:
            notes.warn("packages", f"{package} {installed} is installed, {wanted} is what the tests ran with", mend)
    notes.ok("packages", ", ".join(f"{package} {metadata.version(package)}" for package in NAMED))


def _misfits() -> Iterator[tuple[str, str | None, str]]:
    """Yield each package (name, installed version, wanted range) that is not what our own metadata asks for."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return  # run from a folder, not installed: nobody said what is wanted
    for line in lines:
        requirement, _, condition = line.partition(";")
        found = re.match(r"\s*([A-Za-z0-9._-]+)(?:\[.*?\])?\s*(.*)", requirement)
        if found is None or condition:
            continue
        package, wanted = found[1], found[2].strip()
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield package, None, wanted
            continue
        if not _fits(_version(installed), wanted):
            yield package, installed, wanted


def _fits(version: _Version, wanted: str) -> bool:
    """Say whether a version lies in a range such as ">=5.7,<5.8"; a clause of another kind is passed over."""
    for clause in wanted.split(","):
        if bound := re.match(r"\s*(>=|<)\s*([0-9.]+)\s*$", clause):
            limit = _version(bound[2])
            if not (version >= limit if bound[1] == ">=" else version < limit):
                return False
    return True


def _version(text: str) -> _Version:
    leading = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _note_open_files(notes: Notes, concurrency: int | None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        notes.ok("open files", "no limit")
        return
    needed = LEAST_FILES if concurrency is None else concurrency + OWN_FILES
    told = f"at most {soft:,}" + (f"; {concurrency:,} requests at once need about {needed:,}" if concurrency else "")
    if soft >= needed:
        notes.ok("open files", told)
        return
    may_raise = hard == resource.RLIM_INFINITY or hard >= needed
    mend = f"ulimit -n {needed}" if may_raise else f"raise the hard limit of {hard:,} (LimitNOFILE, limits.conf)"
    if concurrency is None:
        notes.warn("open files", f"{told}, which is little", mend)
    else:
        notes.fail("open files", told, f"{mend}; or a lower concurrency")


def _note_clock(notes: Notes) -> None:
    """Note a wall clock that is wrong or jumps. Waits and deaths are judged by the monotonic one, records by this."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(STEP_S)
    drift_s = (time.time() - wall) - (time.monotonic() - steady)
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall))
    mend = "keep time with NTP (timedatectl set-ntp true)"
    if wall < BUILT_AT:
        notes.fail("clock", f"it shows {shown}: no certificate can be checked with it", mend)
    elif abs(drift_s) > STEP_S / 2:
        notes.warn("clock", f"the wall clock jumped by {drift_s:+.1f} s while it was watched", mend)
    else:
        notes.ok("clock", f"{shown}, steady")
