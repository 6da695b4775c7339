"""The request log and its judge: everything an outsider needs, and nothing that is nobody's business."""

import asyncio
import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from batchrun.mock.log import read_log
from tests.mock.wire import CHAT, Client, run, running, write_body


def read_lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_request_leaves_an_arrive_and_an_end_line(tmp_path: Path) -> None:
    log, body = tmp_path / "log", write_body("[[q-7]] hi", max_tokens=5)
    before = datetime.now(UTC)

    async def test() -> None:
        async with running(log_path=str(log)) as (_, client):
            await client.ask("GET", "/v1/models")
            await client.ask("POST", f"{CHAT}?api-version=1", body, X_Client_Request_Id="attempt-1")

    run(test)
    arrive, end = read_lines(log)[2:]
    at = datetime.fromisoformat(arrive.pop("at"))
    assert -0.01 < (at - before).total_seconds() < 60
    assert 0.0 <= arrive.pop("t") <= end.pop("t")
    assert arrive == {
        "ev": "arrive",
        "req": 2,
        "conn": 1,
        "conn_seq": 2,
        "method": "POST",
        "path": CHAT,
        "item": "q-7",
        "client_request_id": "attempt-1",
        "body_sha": sha256(body).hexdigest()[:16],
        "body_len": len(body),
        "in_flight": 1,
        "status": 200,
        "billed": True,
        "prompt_tokens": len(body) // 4,
        "completion_tokens": 5,
        "fault": None,
    }
    assert end == {"ev": "end", "req": 2, "outcome": "answered"}


def test_a_request_is_in_the_log_before_its_answer_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(log_path=str(tmp_path / "log"), ttft_ms=60_000.0, drain_s=0.0) as (server, client):
            other = await Client.connect(server.port)
            await other.send("POST", CHAT, write_body())
            await client.wait_for_stats(in_flight=1)
            assert [line["ev"] for line in read_lines(tmp_path / "log")] == ["arrive"]

    run(test)
    assert read_lines(tmp_path / "log")[-1]["outcome"] == "stopped"


def test_neither_key_nor_prompt_nor_answer_is_logged(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(log_path=str(tmp_path / "log"), api_key="sk-topsecret") as (_, client):
            body = write_body("[[q-1]] the butler did it")
            await client.ask("POST", CHAT, body, Authorization="Bearer sk-topsecret")
            await client.ask("POST", CHAT, body, Authorization="Bearer sk-othersecret")

    run(test)
    text = (tmp_path / "log").read_text()
    assert "secret" not in text
    assert "butler" not in text
    assert [line["status"] for line in read_lines(tmp_path / "log") if line["ev"] == "arrive"] == [200, 401]


def test_odd_characters_do_not_break_a_line(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(log_path=str(tmp_path / "log")) as (_, client):
            body = b'{"model":"mock","messages":[],"x":"[[a\\"b\\\\ \xff]]"}'
            assert (await client.ask("POST", '/v1/"x"', body, X_Client_Request_Id='i"d')).status == 404

    run(test)
    line = read_lines(tmp_path / "log")[0]
    assert (line["path"], line["client_request_id"]) == ('/v1/"x"', 'i"d')
    assert line["item"] == 'a\\"b\\\\ \ufffd'


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        async with running() as (_, client):
            await client.post()

    run(test)
    assert list(tmp_path.iterdir()) == []


def test_the_judge_knows_every_item(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        async with running(log_path=str(log), unavailable_rate=1.0, faults_per_item=1) as (_, client):
            for attempt in ("a-1", "a-2", "a-3"):
                await client.ask("POST", CHAT, write_body("[[q-1]]", max_tokens=4), X_Client_Request_Id=attempt)
            await client.ask("GET", "/v1/models")
            await client.ask("POST", CHAT, write_body("no mark"))

    run(test)
    judgement = read_log(log)
    assert (judgement.posts, judgement.billed, judgement.max_in_flight) == (4, 2, 1)
    assert judgement.by_status == {503: 2, 200: 2}
    item = judgement.items["q-1"]
    assert (item.arrival_count, item.billed_count, item.completion_tokens) == (3, 2, 8)
    assert item.client_request_ids == ["a-1", "a-2", "a-3"]
    assert item.arrived_at == sorted(item.arrived_at)
    assert [arrival.outcome for arrival in item.arrivals] == ["answered"] * 3
    assert list(judgement.repeated) == ["q-1"]
    unmarked = sha256(write_body("no mark")).hexdigest()[:16]
    assert judgement.items[unmarked].client_request_ids == []
    assert judgement.completion_tokens == 8
    assert judgement.prompt_tokens == item.prompt_tokens == 2 * (len(write_body("[[q-1]]", max_tokens=4)) // 4)


def test_the_judge_sees_how_many_were_in_flight(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        async with running(log_path=str(log), latency_ms=60_000.0, drain_s=0.0) as (server, client):
            others = await asyncio.gather(*[Client.connect(server.port) for _ in range(3)])
            for no, other in enumerate(others):
                await other.send("POST", CHAT, write_body(f"[[{no}]]"))
            await client.wait_for_stats(in_flight=3)
            await client.ask("GET", "/v1/models")  # is none of those in flight

    run(test)
    assert read_log(log).max_in_flight == 3


def test_connections_and_requests_keep_their_numbers_over_a_reset(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(log_path=str(tmp_path / "log")) as (server, client):
            await client.post()
            await client.ask("POST", "/__reset")
            other = await Client.connect(server.port)
            await other.post()
            other.close()

    run(test)
    arrivals = [line for line in read_lines(tmp_path / "log") if line["ev"] == "arrive"]
    assert [(line["req"], line["conn"]) for line in arrivals] == [(1, 1), (2, 2)]


def test_a_log_that_two_mocks_wrote_one_after_the_other_is_judged_as_one(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        async with running(log_path=str(log)) as (_, client):
            await client.post()

    run(test)
    run(test)
    judgement = read_log(log)
    assert (judgement.posts, judgement.items["q-1"].billed_count) == (2, 2)
    assert judgement.by_outcome == {"answered": 2}


def test_half_a_line_that_a_killed_mock_left_is_cut_off_by_the_next(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def serve_one() -> None:
        async with running(log_path=str(log)) as (_, client):
            await client.ask("POST", CHAT, write_body("[[a]]"))

    run(serve_one)
    log.write_bytes(log.read_bytes() + b'{"ev":"arrive","t":1')
    run(serve_one)
    assert read_log(log).posts == 2


def test_a_line_still_being_written_is_not_read_and_a_broken_one_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def test() -> None:
        async with running(log_path=str(log)) as (_, client):
            await client.post()

    run(test)
    whole = log.read_text()
    log.write_text(whole + '{"ev":"arr')
    assert read_log(log).posts == 1
    log.write_text(whole + "oops\n")
    with pytest.raises(ValueError, match="line 3: no JSON"):
        read_log(log)
