"""The key reaches no file and no terminal, however the endpoint repeats it and whenever the process dies."""

import base64
import html
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from batchrun.ledger.spool import read_frames
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab
from tests.process.steps import TASK, kill_with_answers_in_hand

KEY = "sk-Wq83nVzL0pTr5KyB"
PARTS = [KEY[at : at + 6].encode() for at in range(len(KEY) - 5)]
ESCAPED = "".join(f"\\u{ord(character):04x}" for character in KEY)
QUOTED = "".join(f"%{ord(character):02X}" for character in KEY)
CODED = base64.b64encode(f"Authorization: Bearer {KEY}\r\n".encode()).decode()
ECHOES: list[dict[str, Any]] = [
    {"status": 400, "text": f'{{"error": {{"message": "you sent {KEY}"}}}}'},
    {"status": 400, "text": f'{{"error": {{"message": "you sent {ESCAPED}", "code": "{ESCAPED}"}}}}'},
    {"status": 422, "json": {"detail": [{"loc": ["header", KEY], "msg": f"{KEY[:9]}... is no key"}]}},
    {"status": 500, "text": f"<html><title>{QUOTED}</title> {CODED}", "headers": {"Content-Type": "text/html"}},
    {"status": 409, "json": {"error": {"message": CODED}}, "headers": {"X-Request-Id": KEY, "WWW-Authenticate": CODED}},
    {"text": f"<html>you sent {KEY[3:10]}", "headers": {"Content-Type": "text/html"}},
    {"json": {"error": {"message": f"{KEY[:6]}*****{KEY[-6:]} is wrong", "code": 400}}},
    {"answer": {"content": f"your key is {KEY}"}},
    {"text": f'{{"id": "{ESCAPED}", "choices": [{{"message": {{"content": "{ESCAPED}"}}}}]}}'},
    {"events": [{"choices": [{"delta": {"content": KEY}}]}]},
    {"answer": {"content": KEY}, "break_at": 150},
    {"answer": {"content": KEY}, "gzip": True},
    {"text": f"{KEY} \x00 {KEY}"},
]
EVERYWHERE = {"X-Request-Id": f"for {KEY}", f"X-{KEY}": "1", "X-Echo": QUOTED, "Server": KEY}
DEFAULT = {"answer": {"content": f"it is {KEY[:14]}, or {CODED}"}, "headers": EVERYWHERE, "delay_s": 0.05}
LOOKS = (
    ("status", TASK),
    ("failures", TASK, "--items"),
    ("show", TASK, "a00002", "--response"),
    ("show", TASK, "a00008", "--response"),
    ("export", TASK, "-o", "outputs/again.jsonl"),
)
Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]


def _readings(data: bytes) -> Iterator[bytes]:
    """Yield what somebody who looks for the key would make of some bytes."""
    yield data
    yield urllib.parse.unquote_to_bytes(data)
    yield html.unescape(data.decode("utf-8", "replace")).encode()
    yield re.sub(rb"\\u00([0-7][0-9a-fA-F])", lambda found: bytes([int(found[1], 16)]), data)
    for run in re.findall(rb"[A-Za-z0-9+/_-]{12,}", data):
        for start in range(4):
            piece = run[start:].replace(b"-", b"+").replace(b"_", b"/")
            yield base64.b64decode(piece[: len(piece) // 4 * 4])


def _assert_nowhere(lab: Lab) -> None:
    told = {" ".join(run.arguments): (run.out + run.err).encode() for run in lab.runs}
    files = {path: path.read_bytes() for path in lab.folder.rglob("*") if path.is_file() and path != lab.log}
    for place, data in {**told, **files}.items():
        found = {part for reading in _readings(data) for part in PARTS if part in reading}
        assert not found, (place, found)


def test_an_echoed_key_is_in_no_file_of_a_job_that_was_killed_and_resumed(make_scripted: Scripted) -> None:
    rules = [
        {"when": {"item": f"a{number:05d}"}, "replies": [{**echo, "delay_s": 1.0}]}
        for number, echo in enumerate(ECHOES, start=1)
    ]
    lab, endpoint = make_scripted(rules=rules, default=DEFAULT)
    lab.env["OPENAI_API_KEY"] = KEY
    lab.write_input(40)
    lab.write_spec(concurrency=8, retry_times=0)
    run = lab.start("submit", "jobs/job.json", "--no-trial", "-vv")
    lab.await_arrivals(8, run=run)
    kill_with_answers_in_hand(lab, run, 6)
    folder = lab.folder / ".batchrun" / "workers"
    assert sum(1 for lock in folder.glob("*.lock") for _ in read_frames(folder, lock.stem)) >= 6
    _assert_nowhere(lab)

    lab.run("resume", TASK, "-vv", "--json")
    assert len(endpoint.requests) >= len(ECHOES)
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in endpoint.requests)
    for look in LOOKS:
        lab.run(*look)
    _assert_nowhere(lab)


def test_a_key_in_what_stops_a_job_is_not_told(make_scripted: Scripted) -> None:
    redirect = {"status": 307, "text": "", "headers": {"Location": f"http://127.0.0.1:9/v1?key={QUOTED}&again={KEY}"}}
    refusal = {"status": 401, "json": {"error": {"message": f"Incorrect API key provided: {KEY[:7]}***{KEY[-6:]}"}}}
    lab, endpoint = make_scripted(default=redirect)
    lab.env["OPENAI_API_KEY"] = KEY
    lab.write_input(20)
    lab.write_spec()
    stopped = lab.run("submit", "jobs/job.json", "-vv")
    assert stopped.wait() == 5, stopped.err
    assert "redirects to 'http://127.0.0.1:9/v1?key=***" in stopped.err
    endpoint.follow({"default": {**refusal, "headers": EVERYWHERE}})
    assert lab.run("resume", TASK, "-vv").wait() == 4
    lab.run("doctor", "jobs/job.json", "--send", "-y")
    _assert_nowhere(lab)
