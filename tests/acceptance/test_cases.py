"""The faults that people really hit, one after another: cases.jsonl against a scripted endpoint.

CP-02 is tests/process/test_memory.py, CP-05G is test_measuring.py here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.case import KEY, Json, Played, Steps, prepare, read_cases
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.acceptance.expectations import check, secrets_found
from tests.acceptance.scaled import ScaledSteps
from tests.conftest import server_unavailable
from tests.lab import Lab
from tests.restartable import RestartableRedis
from tests.services import ServerUnavailableError

CASES = read_cases()


@pytest.fixture
def played(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Played]:
    case: Json = request.param
    log = tmp_path / "requests.jsonl"
    endpoint = ScriptedEndpoint(case.get("endpoint", {}), log=log)
    endpoint.start()
    db = request.getfixturevalue("postgres_url") if case.get("ledger") == "postgres" else None
    broker: RestartableRedis | None = request.getfixturevalue("broker") if case.get("broker") else None
    folder = tmp_path / "folder"
    folder.mkdir()
    lab = Lab(folder, base_url=endpoint.base_url, log=log, db=db)
    try:
        yield prepare(case, lab, endpoint, broker)
    finally:
        lab.stop()
        endpoint.stop()


@pytest.fixture
def broker() -> Iterator[RestartableRedis]:
    try:
        redis = RestartableRedis(appendonly=True)
    except ServerUnavailableError as reason:
        server_unavailable(str(reason))
    yield redis
    redis.close()


@pytest.mark.parametrize("played", CASES, ids=[case["id"] for case in CASES], indirect=True)
def test_a_fault_that_people_really_hit(played: Played) -> None:
    steps = Steps(played) if played.broker is None else ScaledSteps(played)
    input_before = (played.lab.folder / "inputs" / "in.jsonl").read_bytes()
    for step in played.case["steps"]:
        steps.take(step)
    check(played, input_before=input_before)
    assert secrets_found(played, KEY) == []


def test_every_case_has_a_number_of_its_own() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES)
