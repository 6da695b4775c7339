"""A lab with a mock endpoint for tests of whole processes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests.lab import Lab


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Return a function that makes a lab; its arguments are settings of its mock endpoint."""
    with ExitStack() as stack:

        def make(name: str = "lab", **settings: Any) -> Lab:
            folder = tmp_path / name
            folder.mkdir()
            log = folder / "requests.jsonl"
            mock = stack.enter_context(MockProcess(MockConfig(log_path=str(log), **settings)))
            lab = Lab(folder, base_url=mock.base_url, log=log, mock=mock)
            stack.callback(lab.stop)
            return lab

        yield make


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    """A lab with a quick endpoint without faults."""
    return make_lab()
