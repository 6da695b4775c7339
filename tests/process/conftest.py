"""Labs with an endpoint for tests of whole processes: the mock one, or one that follows a script."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests.acceptance.endpoint import ScriptedEndpoint
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


@pytest.fixture
def make_scripted(tmp_path: Path) -> Iterator[Callable[..., tuple[Lab, ScriptedEndpoint]]]:
    """Return a function that makes a lab whose endpoint follows a script."""
    with ExitStack() as stack:

        def make(name: str = "scripted", **script: Any) -> tuple[Lab, ScriptedEndpoint]:
            folder = tmp_path / name
            folder.mkdir()
            endpoint = ScriptedEndpoint(script, log=folder / "requests.jsonl")
            endpoint.start()
            stack.callback(endpoint.stop)
            lab = Lab(folder, base_url=endpoint.base_url, log=folder / "requests.jsonl")
            stack.callback(lab.stop)
            return lab, endpoint

        yield make
