"""How far the check of an input is, and the writing of its items, can be watched."""

import json
import time
from pathlib import Path

import pytest

from batchrun.errors import BadInput
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import enter
from batchrun.runner.specs import check_specs
from batchrun.runner.submit import register
from tests.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.write_input(3_000, text="many words " * 100)  # several blocks of a megabyte
    lab.write_spec(input_file=str(tmp_path / "inputs/in.jsonl"), output_file=str(tmp_path / "outputs/out.jsonl"))
    return lab


def test_a_check_tells_how_much_of_the_file_it_has_read(lab: Lab) -> None:
    told: list[tuple[str, int, int]] = []
    spec = lab.folder / "jobs/job.json"
    check_specs([spec], watch=lambda where, done, whole: told.append((where, done, whole)))
    size = (lab.folder / "inputs/in.jsonl").stat().st_size
    assert {(where, whole) for where, _, whole in told} == {(str(spec), size)}
    read = [done for _, done, _ in told]
    assert len(read) >= 3
    assert read == sorted(set(read))
    assert read[-1] == size


def test_a_file_that_is_read_twice_is_told_twice(lab: Lab) -> None:
    path = lab.folder / "inputs/in.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[0]]))
    read: list[int] = []
    with pytest.raises(BadInput):
        check_specs([lab.folder / "jobs/job.json"], watch=lambda where, done, whole: read.append(done))
    assert read.count(path.stat().st_size) == 2


def test_a_registration_tells_how_many_items_it_has_written(lab: Lab) -> None:
    (found,) = check_specs([lab.folder / "jobs/job.json"])
    ledger = Ledger(f"sqlite:///{lab.folder}/ledger.db", folder=lab.folder)
    told: list[tuple[int, int]] = []
    try:
        worker = enter(ledger, name="w", now=time.time())
        plan = found.checked.spec.model_dump(mode="json") | {"on_unknown": "hold"}
        plan = json.loads(json.dumps(plan)) | {"error_file": str(found.checked.errors)}
        job = register(
            ledger,
            found.checked,
            spec=plan,
            worker_id=worker.id,
            watch=lambda done, whole: told.append((done, whole)),
        )
        worker.leave(ledger, now=time.time())
    finally:
        ledger.close()
    assert job is not None
    assert told == [(done, 3_000) for done in range(500, 3_001, 500)]
