"""What the mock remembers: stored completions, a gateway's spend log, and answers given again to their key."""

from hashlib import sha256
from typing import Any

import pytest

from batchrun.mock.plan import Arrival, Plan, Work
from batchrun.mock.replays import Replays
from batchrun.mock.request import Request
from batchrun.mock.timing import Pace
from tests.mock.wire import CHAT, Client, parse_events, run, running, write_body

ID_7 = {"metadata": {"attempt": "br-7"}}


def test_a_completion_is_kept_when_asked_for_and_found_by_its_metadata() -> None:
    async def test() -> None:
        async with running(stores=True) as (_, client):
            kept = (await client.post(store=True, **ID_7)).json
            await client.post(store=True, metadata={"attempt": "br-8"})
            await client.post(**ID_7)
            await client.post("/v1/completions", store=True, **ID_7)
            found = (await client.ask("GET", f"{CHAT}?metadata%5Battempt%5D=br-7")).json
            assert [(one["id"], one["metadata"]) for one in found["data"]] == [(kept["id"], ID_7["metadata"])]
            assert found["data"][0]["choices"] == kept["choices"]
            assert (await client.ask("GET", f"{CHAT}?metadata[attempt]=br-9")).json["data"] == []
            assert (await client.ask("GET", f"{CHAT}/{kept['id']}")).json["usage"] == kept["usage"]
            asked = (await client.ask("GET", f"{CHAT}/{kept['id']}/messages")).json["data"]
            assert [message["content"] for message in asked] == ["[[q-1]] hello"]
            assert (await client.read_stats())["billed"] == 4

    run(test)


def test_stored_completions_come_in_pages() -> None:
    async def test() -> None:
        async with running(stores=True) as (_, client):
            names = [(await client.post(store=True)).json["id"] for _ in range(3)]
            first = (await client.ask("GET", f"{CHAT}?limit=2")).json
            assert ([one["id"] for one in first["data"]], first["has_more"]) == (names[:2], True)
            rest = (await client.ask("GET", f"{CHAT}?limit=2&after={first['last_id']}")).json
            assert ([one["id"] for one in rest["data"]], rest["has_more"]) == (names[2:], False)
            last = (await client.ask("GET", f"{CHAT}?limit=1&order=desc")).json
            assert last["first_id"] == names[2]
            assert (await client.ask("GET", f"{CHAT}?limit=0")).status == 400

    run(test)


@pytest.mark.parametrize("fault", ["reset_rate", "cut_rate", "bad_json_rate", "hang_rate"])
def test_what_was_done_and_billed_is_kept_though_its_answer_is_lost(fault: str) -> None:
    async def test() -> None:
        async with running(stores=True, replay_s=60, **{fault: 1.0}) as (server, client):
            loser = await Client.connect(server.port)
            body = write_body(store=True, **ID_7)
            await loser.send("POST", CHAT, body, Idempotency_Key="k")
            await client.wait_for_stats(billed=1)
            if fault == "hang_rate":
                loser.close()
            found = (await client.ask("GET", f"{CHAT}?metadata[attempt]=br-7")).json["data"]
            again = await client.ask("POST", CHAT, body, Idempotency_Key="k")
            assert [(one["id"], one["choices"]) for one in found] == [(again.json["id"], again.json["choices"])]
            assert (again.headers["idempotent-replayed"], (await client.read_stats())["billed"]) == ("true", 1)
            loser.close()

    run(test)


def test_nothing_is_kept_of_a_refused_request_or_where_nothing_is_stored() -> None:
    async def test() -> None:
        async with running(stores=True, error_rate=1.0) as (_, client):
            await client.post(store=True)
            assert (await client.ask("GET", CHAT)).json["data"] == []
            assert (await client.ask("GET", f"{CHAT}/chatcmpl-1")).status == 404
        async with running() as (_, client):
            name = (await client.post(store=True)).json["id"]
            assert (await client.ask("GET", f"{CHAT}/{name}")).status == 404
            assert (await client.ask("GET", CHAT)).status == 405
            assert (await client.ask("GET", "/spend/logs")).status == 404

    run(test)


@pytest.mark.parametrize("holds", ["costs", "answers"])
def test_a_spend_log_tells_what_a_call_cost_by_the_id_the_client_gave_it(holds: str) -> None:
    async def test() -> None:
        async with running(spend_log=holds, api_key="k") as (_, client):
            key = {"Authorization": "Bearer k"}
            answer = await client.ask("POST", CHAT, write_body(), x_litellm_call_id="br-7", **key)
            assert answer.headers["x-litellm-call-id"] == "br-7"
            nameless = await client.ask("POST", CHAT, write_body(stream=True), **key)
            assert nameless.headers["x-litellm-call-id"].startswith("call-")
            for wanted in ("br-7", answer.json["id"]):
                (row,) = (await client.ask("GET", f"/spend/logs?request_id={wanted}", **key)).json
                assert row["completion_tokens"] == answer.json["usage"]["completion_tokens"]
                assert row["response"] == (answer.json if holds == "answers" else {})
            assert (await client.ask("GET", "/spend/logs?request_id=br-8", **key)).json == []
            assert len((await client.ask("GET", "/spend/logs", **key)).json) == 2
            assert (await client.ask("GET", "/spend/logs")).status == 401

    run(test)


def test_a_key_used_again_gets_the_same_answer_and_one_bill() -> None:
    async def test() -> None:
        async with running(replay_s=60, ttft_ms=1.0) as (server, client):
            other = await Client.connect(server.port)
            await other.send("POST", CHAT, write_body(), Idempotency_Key="k")
            await client.wait_for_stats(in_flight=1)
            first = await other.read()
            again = await client.ask("POST", CHAT, write_body(), Idempotency_Key="k")
            assert (again.body, "idempotent-replayed" in first.headers) == (first.body, False)
            with_another_body = await client.ask("POST", CHAT, write_body(seed=1), Idempotency_Key="k")
            assert with_another_body.status == 422
            assert (await client.ask("POST", CHAT, write_body())).json["id"] != first.json["id"]
            assert (await client.read_stats())["billed"] == 2
            streamed = await client.ask("POST", CHAT, write_body(stream=True), Idempotency_Key="s")
            assert parse_events(streamed.body)[-1] == "[DONE]"
            other.close()

    run(test)


def test_a_key_in_use_is_refused_until_its_work_is_done() -> None:
    async def test() -> None:
        async with running(replay_s=60, slots=1, hang_rate=1.0, faults_per_item=1, ttft_ms=1e7) as (server, client):
            other = await Client.connect(server.port)
            await other.send("POST", CHAT, write_body(), Idempotency_Key="k")
            await client.wait_for_stats(in_flight=1)
            refused = await client.ask("POST", CHAT, write_body(), Idempotency_Key="k")
            assert (refused.status, refused.headers["retry-after"]) == (409, "1")
            other.close()
            await client.wait_for_stats(in_flight=0)
            assert (await client.ask("POST", CHAT, write_body(), Idempotency_Key="k")).status == 200
            assert (await client.read_stats())["billed"] == 1

    run(test)


def test_a_key_is_forgotten_when_its_time_is_over_and_after_a_refusal() -> None:
    now = 0.0
    replays = Replays(60.0, clock=lambda: now)
    arrival = _arrival(b"body")
    replays.begin(arrival, Plan(500))
    assert replays.recall(arrival) is None
    work = Plan(200, b"answer", work=Work(Pace(0.0, 0.0), 1, 1, 1, "stop"), kept=b"answer")
    replays.begin(arrival, work)
    assert _status(replays, arrival) == 409
    replays.end(arrival, work)
    assert (_status(replays, arrival), _status(replays, _arrival(b"other"))) == (200, 422)
    now = 60.1
    assert replays.recall(arrival) is None


def _arrival(body: bytes) -> Arrival:
    request = Request("POST", CHAT, {b"idempotency-key": b"k"}, True, body)
    return Arrival(1, request, sha256(body).digest(), None)


def _status(replays: Replays, arrival: Arrival) -> Any:
    plan = replays.recall(arrival)
    return plan and plan.status
