"""Small input files for the tests."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from batchrun.core.request import Defaults
from batchrun.files.inputs import InputItem, RejectedLine, Survey, read_items, survey

CHAT = "/v1/chat/completions"
DEFAULTS = Defaults(model="job-model", max_tokens=64, endpoint=CHAT, params={})


def line(custom_id: object, prompt: str = "Name a colour.", **fields: Any) -> bytes:
    """Write one Batch line, without its newline."""
    body = {"messages": [{"role": "user", "content": prompt}], **fields}
    row = {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}
    return json.dumps(row, ensure_ascii=False).encode()


def bare(prompt: str, **fields: Any) -> bytes:
    """Write one bare body, without its newline."""
    return json.dumps({"messages": [{"role": "user", "content": prompt}], **fields}).encode()


def written(folder: Path, lines: Iterable[bytes], name: str = "in.jsonl") -> Path:
    """Write a file of these lines, each ended by a newline."""
    path = folder / name
    path.write_bytes(b"".join(one + b"\n" for one in lines))
    return path


def told(found: Survey) -> list[str]:
    """Return the faults as they are printed."""
    return [str(fault) for fault in found.faults]


def items_of(path: Path, *, skip_invalid: bool = False) -> list[InputItem | RejectedLine]:
    """Survey a file and read it."""
    return list(read_items(path, DEFAULTS, survey(path, DEFAULTS, skip_invalid=skip_invalid)))


def ids_of(path: Path, *, skip_invalid: bool = False) -> list[str]:
    return [item.custom_id for item in items_of(path, skip_invalid=skip_invalid)]


def prompt_of(item: InputItem | RejectedLine) -> str:
    """Return the prompt that is sent for an item."""
    assert isinstance(item, InputItem)
    prompt: str = json.loads(item.request.body)["messages"][0]["content"]
    return prompt
