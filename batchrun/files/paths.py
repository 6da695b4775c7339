"""Where a job reads and writes: checked before anything is written, so that no spelling of a path destroys a file."""

import os
import stat
from itertools import combinations
from pathlib import Path

from batchrun.errors import Fault

CHECK_IT = "check its name, and the rights of its folders (ls -ld FOLDER)"
_NO_JSONL = (".csv", ".parquet", ".gz")


def default_error_file(output: Path) -> Path:
    """Return where failures go by default: `batch_output.jsonl` -> `batch_output.errors.jsonl`."""
    return output.with_name(f"{output.stem}.errors{output.suffix or '.jsonl'}")


def partial_file(output: Path) -> Path:
    """Return the file that grows while a job runs: `batch_output.jsonl` -> `batch_output.jsonl.partial`."""
    return output.with_name(f"{output.name}.partial")


def check_paths(*, input_file: Path, output_file: Path, error_file: Path) -> list[Fault]:
    """Return everything that is wrong with a job's paths, each named as in the spec. Nothing is created.

    No two of them, nor the partial output, may be one file: by any spelling, symlink or hard link.
    """
    faults = input_faults(input_file)
    faults += _output_faults("output_file", output_file)
    if error_file.parent != output_file.parent or os.path.isdir(error_file):  # the folder's own fault is named once
        faults += _output_faults("error_file", error_file)
    files = {
        "input_file": input_file,
        "output_file": output_file,
        "error_file": error_file,
        "the partial output": partial_file(output_file),
    }
    for (one, path), (other, other_path) in combinations(files.items(), 2):
        if is_same_file(path, other_path):
            hint = "give every file a name of its own; an output would replace the other file"
            faults.append(Fault(_named(other, other_path), f"is the same file as {_named(one, path)}", hint))
    return faults


def is_same_file(one: Path, other: Path) -> bool:
    """Say whether two paths are one file, by any spelling, symlink or hard link; also where it does not exist yet."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one of them does not exist yet
        pass
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):
        return False


def input_faults(path: Path) -> list[Fault]:
    """Return what keeps the input from being read; at most one fault."""
    where = _named("input_file", path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        what = "is a symlink to nothing" if path.is_symlink() else "does not exist"
        return [Fault(where, what, f"relative paths are taken from {Path.cwd()}")]
    except (OSError, ValueError) as error:
        return [Fault(where, f"cannot be read: {_reason(error)}", CHECK_IT)]
    if stat.S_ISDIR(mode):
        return [Fault(where, "is a folder", "name the file in it")]
    if not stat.S_ISREG(mode):
        return [Fault(where, f"is {_kind(mode)}; the input is read twice and must be a file", "save it as a file")]
    if not os.access(path, os.R_OK):
        return [Fault(where, "cannot be read: permission denied", f"chmod u+r {path}")]
    return []


def _output_faults(name: str, path: Path) -> list[Fault]:
    where = _named(name, path)
    if (suffix := path.suffix.lower()) in _NO_JSONL:
        table = "" if suffix == ".gz" else f"; `batchrun export --format {suffix[1:]}` then makes a table of it"
        return [Fault(where, f"is written as JSONL, and its name says {suffix}", f"name it .jsonl{table}")]
    try:
        if path.exists() and not path.is_file():
            return [Fault(where, f"is {_kind(path.stat().st_mode)}", "name a file")]
        folder = Path(os.path.realpath(path)).parent  # a symlink is followed, its target is replaced
        if not folder.exists():
            return [Fault(where, f"its folder '{folder}' does not exist", f"mkdir -p {folder}")]
        if not folder.is_dir():
            return [Fault(where, f"'{folder}' is no folder", "name a file in a folder")]
    except (OSError, ValueError) as error:
        return [Fault(where, f"cannot be written: {_reason(error)}", CHECK_IT)]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Fault(where, f"its folder '{folder}' cannot be written to", f"chmod u+wx {folder}")]
    return []


def _named(name: str, path: Path) -> str:
    return f"{name} '{path}'"


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
