"""Faults: seeded, independent of order, and each one as it would be seen from outside."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from batchrun.mock.asks import Route
from batchrun.mock.config import MockConfig
from batchrun.mock.faults import Fault
from batchrun.mock.log import Judgement, read_log
from batchrun.mock.plan import Arrival
from batchrun.mock.planner import Planner
from batchrun.mock.request import Request
from batchrun.mock.stats import Stats
from tests.mock.wire import CHAT, Client, run, running, write_body

ALL = {
    "error_rate": 0.1,
    "unavailable_rate": 0.1,
    "rate_limit_rate": 0.1,
    "hang_rate": 0.1,
    "reset_rate": 0.1,
    "cut_rate": 0.1,
    "bad_json_rate": 0.1,
    "drip_rate": 0.1,
}
BODIES = [write_body(f"[[q-{no}]]") for no in range(400)]


def plan_all(bodies: list[bytes], **settings: Any) -> list[Fault | None]:
    planner = Planner(MockConfig(**settings), Stats())
    found = []
    for body in bodies:
        request = Request("POST", CHAT, {}, True, body)
        found.append(planner.plan(Route.CHAT, Arrival(1, request, sha256(body).digest(), None)).fault)
    return found


def test_the_faults_of_a_body_do_not_depend_on_the_order() -> None:
    forward = dict(zip(BODIES, plan_all(BODIES, **ALL), strict=True))
    backward = dict(zip(reversed(BODIES), plan_all(list(reversed(BODIES)), **ALL), strict=True))
    assert forward == backward
    assert set(forward.values()) == {*Fault, None}


def test_the_second_arrival_of_a_body_has_its_own_chance() -> None:
    once, twice = plan_all(BODIES, **ALL), plan_all(BODIES * 2, **ALL)
    assert twice[:400] == once
    assert twice[400:] != once
    assert plan_all(BODIES * 2, **ALL) == twice
    assert plan_all(BODIES, seed=1, **ALL) != once


def test_the_shares_are_as_configured() -> None:
    found = plan_all([write_body(f"[[{no}]]") for no in range(4_000)], error_rate=0.05, cut_rate=0.2)
    assert 0.04 < found.count(Fault.ERROR) / 4_000 < 0.06
    assert 0.18 < found.count(Fault.CUT) / 4_000 < 0.22
    assert found.count(None) + found.count(Fault.ERROR) + found.count(Fault.CUT) == 4_000


def test_only_so_many_arrivals_of_a_body_are_faulty() -> None:
    found = plan_all(BODIES * 4, error_rate=1.0, faults_per_item=2)
    assert set(found[:800]) == {Fault.ERROR}
    assert set(found[800:]) == {None}
    assert set(plan_all(BODIES, error_rate=1.0, faults_per_item=0)) == {None}


@pytest.mark.parametrize(
    ("setting", "status", "kind"),
    [
        ("error_rate", 500, "server_error"),
        ("unavailable_rate", 503, "server_error"),
        ("rate_limit_rate", 429, "requests"),
    ],
)
def test_a_refusal_is_json_instant_and_not_billed(setting: str, status: int, kind: str, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"

    async def test() -> None:
        settings = {setting: 1.0, "latency_ms": 60_000.0, "retry_after_s": 7.0, "log_path": str(log)}
        async with running(**settings) as (_, client):
            answer = await client.post(stream=True)
            assert (answer.status, answer.json["error"]["type"]) == (status, kind)
            assert answer.headers.get("retry-after") == ("7" if status == 429 else None)
            stats = await client.read_stats()
            assert (stats["billed"], stats["by_status"]) == (0, {str(status): 1})

    run(test)
    judgement = read_log(log)
    assert (judgement.posts, judgement.billed, judgement.completion_tokens) == (1, 0, 0)
    assert judgement.by_fault == {setting.removesuffix("_rate"): 1}
    assert judgement.by_outcome == {"answered": 1}


def judge(log: Path, outcome: str) -> Judgement:
    judgement = read_log(log)
    assert (judgement.posts, judgement.billed) == (1, 1)
    assert judgement.by_outcome == {outcome: 1}
    assert judgement.items["q-1"].completion_tokens > 0
    return judgement


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_reset_is_seen_as_connection_reset_and_billed(is_stream: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(reset_rate=1.0, ttft_ms=2.0, log_path=str(tmp_path / "log")) as (_, client):
            await client.send("POST", CHAT, write_body(stream=is_stream))
            with pytest.raises(ConnectionResetError):
                await client.reader.read()

    run(test)
    assert judge(tmp_path / "log", "reset").by_fault == {"reset": 1}


def test_a_cut_answer_ends_before_its_length_and_is_billed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(cut_rate=1.0, log_path=str(tmp_path / "log")) as (_, client):
            await client.send("POST", CHAT, write_body())
            status, headers = await client.read_head()
            body = await client.reader.read()
            assert (status, 0 < len(body) < int(headers["content-length"])) == (200, True)

    run(test)
    assert judge(tmp_path / "log", "cut").by_status == {200: 1}


@pytest.mark.parametrize("itl_ms", [0.0, 1.0])
def test_a_cut_stream_ends_without_its_last_chunk(itl_ms: float, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(cut_rate=1.0, itl_ms=itl_ms, log_path=str(tmp_path / "log")) as (_, client):
            await client.send("POST", CHAT, write_body(stream=True, max_tokens=10, ignore_eos=True))
            await client.read_head()
            rest = await client.reader.read()
            assert rest.count(b"data: ") == 6  # the role and half of the tokens
            assert b"[DONE]" not in rest
            assert not rest.endswith(b"0\r\n\r\n")

    run(test)
    judge(tmp_path / "log", "cut")


@pytest.mark.parametrize("is_stream", [False, True])
def test_bad_json_is_a_complete_html_page_and_billed(is_stream: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(bad_json_rate=1.0, log_path=str(tmp_path / "log")) as (_, client):
            answer = await client.post(stream=is_stream)
            assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/html")
            assert answer.body.startswith(b"<!doctype html>")
            assert (await client.ask("GET", "/health")).status == 200

    run(test)
    judge(tmp_path / "log", "answered")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_hang_sends_nothing_gives_its_slot_back_and_is_billed(is_stream: bool, tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"hang_rate": 1.0, "faults_per_item": 1, "slots": 1, "log_path": str(tmp_path / "log")}
        async with running(ttft_ms=1.0, drain_s=20.0, **settings) as (server, client):
            await client.send("POST", CHAT, write_body(stream=is_stream))
            other = await Client.connect(server.port)
            stats = await other.wait_for_stats(billed=1, running=0, in_flight=1)
            assert stats["completion_tokens"] > 0
            other.close()
            await server.stop()  # at once: a hung request is not waited for
            assert await client.reader.read() == b""

    run(test)
    judge(tmp_path / "log", "hung")


def test_a_hung_request_whose_client_goes_is_called_hung(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(hang_rate=1.0, log_path=str(tmp_path / "log")) as (server, client):
            leaver = await Client.connect(server.port)
            await leaver.send("POST", CHAT, write_body())
            await client.wait_for_stats(billed=1)
            leaver.close()
            await client.wait_for_stats(in_flight=0)

    run(test)
    judge(tmp_path / "log", "hung")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_dripping_answer_is_whole_but_slow(is_stream: bool, tmp_path: Path) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with running(drip_rate=1.0, drip_s=0.1, log_path=str(tmp_path / "log")) as (_, client):
            sent_at = loop.time()
            answer = await client.post(stream=is_stream, max_tokens=8, ignore_eos=True)
            assert loop.time() - sent_at >= 0.08
            assert answer.body.endswith(b"data: [DONE]\n\n") if is_stream else answer.json["choices"]

    run(test)
    judge(tmp_path / "log", "answered")
