"""One input for two endpoints: the share that was drawn, written as an input file, and the two jobs that send it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from batchrun.core.measuring.shadowing import Shadow, drawn, how_many, shadow_name, side_specs, without_model
from batchrun.files.inputs import InputItem, read_items
from batchrun.runner.check import Checked, check_text
from batchrun.runner.specs import Found


class Sides(NamedTuple):
    """The two jobs of one input, checked."""

    name: str
    items: int
    a: Found
    b: Found


def cast(found: Found, shadow: Shadow, *, addresses: tuple[str, ...], folder: Path) -> Sides:
    """Draw the share of a spec's input, write it into a folder of its own, and make the two jobs of it.

    The same spec, input, endpoints and draw always make the same files and the same two jobs: who says it again goes on
    where they stand, and pays for nothing twice.

    Args:
        addresses: the spec's own endpoints, normalised.

    Raises:
        BadInput: what comes of it is no spec, such as a limit on the cost of an endpoint whose price is not known.
    """
    checked = found.checked
    marks = (checked.survey.sha256, checked.defaults.digest().hex(), *addresses, checked.spec.measure)
    name = shadow_name(checked.spec.task_id, *marks, shadow.base_url, shadow.model, shadow.share, shadow.seed)
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    source = own / "input.jsonl"
    count = how_many(checked.survey.items, shadow.share)
    wanted = None
    if count < checked.survey.items:
        wanted = drawn((item.custom_id for item in _items(checked)), count=count, seed=shadow.seed)
    _write(source, (item for item in _items(checked) if wanted is None or item.custom_id in wanted), checked, shadow)
    spec = checked.spec.model_dump(mode="json", exclude_unset=True)
    specs = side_specs(spec, shadow, name=name, input_file=str(source), folder=str(own))
    return Sides(name, count, *(_side(one, own / f"{side}.json") for one, side in zip(specs, "ab", strict=True)))


def _items(checked: Checked) -> Iterator[InputItem]:
    found = read_items(checked.input, checked.defaults, checked.survey)
    return (item for item in found if isinstance(item, InputItem))


def _side(spec: dict[str, object], path: Path) -> Found:
    """Write a side's spec beside its input, for whoever resumes it by hand, and check it like any other."""
    text = json.dumps(spec, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8", errors="surrogatepass")
    return Found(str(path), check_text(text, where=str(path)))


def _write(path: Path, items: Iterator[InputItem], checked: Checked, shadow: Shadow) -> None:
    own = checked.spec.model if shadow.model is not None else None
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for item in items:
            head = json.dumps({"custom_id": item.custom_id, "method": "POST", "url": item.request.path})
            body = without_model(item.request.body) if item.request.model == own else item.request.body
            file.write(head[:-1].encode() + b', "body": ' + body + b"}\n")
    os.replace(part, path)
