"""The labs of the process tests, for the command line's own."""

from tests.process.conftest import lab, make_lab, make_scripted

__all__ = ["lab", "make_lab", "make_scripted"]
