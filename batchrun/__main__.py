"""The command `batchrun`."""

import os
import sys

from batchrun.cli.main import run


def main() -> None:
    """Run the command line and exit with its code."""
    _keep_standard_streams()
    exit_code = run(sys.argv[1:])
    # CPython keeps in mind a Ctrl-C that passed through an exec of text (libraries make functions so), and `python -m`
    # would die by it in the end, whoever had caught it. The next exec forgets it.
    exec("")
    sys.exit(exit_code)


def _keep_standard_streams() -> None:
    """Open what the caller closed of 0, 1 and 2: else the ledger's file would get such a number, and talk end in it."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode))


if __name__ == "__main__":
    main()
