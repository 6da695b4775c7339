"""A gate whose endpoint counts what reaches it."""

from collections.abc import Iterator

import pytest

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests.corpus.gate import Gate
from tests.process.conftest import lab, make_lab, make_scripted

__all__ = ["gate", "lab", "make_lab", "make_scripted"]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A folder with an endpoint that is really there; in the end nothing may have reached it."""
    log = tmp_path_factory.mktemp("endpoint") / "requests.jsonl"
    with MockProcess(MockConfig(log_path=str(log))) as mock:
        yield Gate(tmp_path_factory.mktemp("gate"), {"OPENAI_BASE_URL": mock.base_url})
    arrived = [line for line in log.read_bytes().splitlines() if b'"ev":"arrive"' in line] if log.exists() else []
    assert arrived == []
