"""Labs with an endpoint, as for tests of whole processes."""

from tests.process.conftest import make_lab, make_scripted

__all__ = ["make_lab", "make_scripted"]
