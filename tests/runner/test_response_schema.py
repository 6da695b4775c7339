"""The schema of a job's answers in its spec: written out, in a file, or wrong, and then told before any request."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchrun.errors import BadInput
from batchrun.runner.check import check_text
from batchrun.runner.submit import Overrides, effective_spec
from tests.core.specs import spec_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("inputs", "outputs"):
        (tmp_path / name).mkdir()
    (tmp_path / "inputs" / "one.jsonl").write_text('{"messages": [{"role": "user", "content": "hello"}]}\n')
    (tmp_path / "good.json").write_text('{"type": "object"}')
    (tmp_path / "broken.json").write_text('{"type": ')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    (tmp_path / "wrong.json").write_text('{"type": "objekt"}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    return tmp_path


def checked(**changes: Any) -> Any:
    return check_text(json.dumps(spec_of("one", **changes), indent=1), where="job.json")


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (None, None),
        (True, True),
        ({"type": "array"}, {"type": "array"}),
        ("good.json", {"type": "object"}),
        ("./good.json", {"type": "object"}),
    ],
)
def test_the_ledger_keeps_the_schema_itself_wherever_it_came_from(given: Any, schema: Any) -> None:
    found = checked(response_schema=given)
    spec = effective_spec(found, Overrides())
    assert spec["response_schema"] == schema
    again = check_text(json.dumps(spec_of("one", response_schema=spec["response_schema"])), where="the ledger's")
    assert again.schema == schema
    assert again.defaults.digest() == checked().defaults.digest()  # it is no part of what is sent


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("none.json", "'none.json': does not exist"),
        (".", "'.': does not exist, or is no file"),
        ("broken.json", "'broken.json': is not JSON: Expecting value (line 1)"),
        ("bytes.json", "'bytes.json': is not JSON: not UTF-8 text"),
        ("deep.json", "'deep.json': is nested too deep"),
        ("wrong.json", "'wrong.json': is no JSON Schema at $.type"),
        ({"type": "objekt"}, "job.json line 9: 'response_schema' is no JSON Schema at $.type"),
        ({"$ref": "http://127.0.0.1:1/x"}, "job.json line 9: 'response_schema' refers to something outside of it"),
        (False, "job.json line 9: 'response_schema' must be a JSON Schema"),
        ("", "job.json line 9: 'response_schema' must be a JSON Schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_fault_of_the_spec(given: Any, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        checked(response_schema=given)
    (fault,) = caught.value.faults
    assert told in str(fault)
    assert fault.hint


def test_vectors_cannot_be_of_a_schema() -> None:
    with pytest.raises(BadInput) as caught:
        checked(response_schema=True, endpoint="/v1/embeddings")
    assert any("'response_schema' is of answers in words" in str(fault) for fault in caught.value.faults)
