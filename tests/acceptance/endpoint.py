"""An endpoint that follows a script: which request gets which reply, and what a provider would have charged for it.

A script is `{"rules": [RULE...], "default": REPLY}`; the first rule that matches and has a reply left answers. A GET
gets the list of its `models`.

RULE   `when`: all of these must hold; `replies`: used up one after another for each item (`"shared": true`: for all
       items together); `then`: "again" repeats the last reply for ever, "default" lets the rule no longer apply.
when   item (a key or a list of them), item_starts, path, has (text in the body), key_is_not (the whole Authorization),
       before_s / from_s (seconds since the first POST), reused (the connection has carried a request before).
REPLY  one body: answer {content, message, finish_reason, usage, choices} | json | text | letters [text, times] |
       events [...]; and any of: status, headers, delay_s, hang, after_answers (it waits until so many others are
       answered), gather (it waits until so many are in flight together), gzip (true, or "claimed" for a lie), billed,
       break_at ("request", "head", "end" or a number of body bytes) with `how` ("reset" or "close"), echo_key.

An item is known by the [[key]] in its prompt, or else by its `custom_id`-free body's digest. Every request is kept in
`requests`, and logged as the mock endpoint logs: the same judge reads both.
"""

import asyncio
import contextlib
import gzip
import hashlib
import json
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KEY = re.compile(rb"\[\[([^\]]+)\]\]")
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
LIMIT_BYTES = 1 << 26
Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One POST as it came."""

    number: int
    at_s: float  # since the endpoint's start
    item: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    billed: bool

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.body)
        return value


class ScriptedEndpoint:
    """Serves on loopback from a thread of its own, between `start` and `stop`."""

    def __init__(self, script: Json, *, log: Path) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.answered = 0  # replies sent to the end
        self.looks = 0  # requests that were no POST: for the list of models
        self.port = 0
        self._log_path = log
        self._used: dict[tuple[int, str], int] = {}
        self._first_post_at: float | None = None
        self._in_flight = 0
        self._most_in_flight = 0  # since the script began
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="scripted-endpoint", daemon=True)
        self._is_up = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Listen."""
        self._log = self._log_path.open("ab", buffering=0)
        self._began = time.monotonic()
        self._thread.start()
        assert self._is_up.wait(10)

    def stop(self) -> None:
        """Close every connection and stop listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._log.close()

    def follow(self, script: Json) -> None:
        """Go on with another script."""
        self.script, self._used, self._first_post_at, self._most_in_flight = script, {}, None, 0

    # -- serving --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._converse, "127.0.0.1", self.port, limit=LIMIT_BYTES)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while (first := await reader.readexactly(1)).isalpha():  # anything else is no HTTP: it hangs up
                head = first + await reader.readuntil(b"\r\n\r\n")
                count += 1
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length") or 0))
                path = target.partition("?")[0]
                if method != "POST":
                    self.looks += 1
                    listed = [{"id": name, "object": "model"} for name in self.script.get("models", [])]
                    await _send_whole(writer, 200, {}, json.dumps({"object": "list", "data": listed}).encode())
                elif not await self._answer(reader, writer, path, headers, body, is_reused=count > 1):
                    break
        writer.close()

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        path: str,
        headers: dict[str, str],
        body: bytes,
        *,
        is_reused: bool,
    ) -> bool:
        """Answer one request as the script says; False where the connection is of no more use."""
        found = KEY.search(body)
        item = found[1].decode("utf-8", "replace") if found else hashlib.sha256(body).hexdigest()[:16]
        if self._first_post_at is None:
            self._first_post_at = time.monotonic()
        reply = self._choose(item, path, headers, body, is_reused=is_reused)
        number = self._note_arrival(item, path, headers, body, reply)
        outcome = "client_gone"
        try:
            while self.answered < reply.get("after_answers", 0) or self._most_in_flight < reply.get("gather", 0):
                if not await _is_left_alone(reader, 0.01):
                    return False
            if not await _is_left_alone(reader, float("inf") if reply.get("hang") else reply.get("delay_s", 0.0)):
                return False
            outcome = await self._reply(writer, reply, item, number, headers)
            return outcome == "answered"
        except ConnectionError:
            return False
        finally:
            self._in_flight -= 1
            self.answered += outcome == "answered"
            self._write({"ev": "end", "req": number, "t": self._now_s(), "outcome": outcome})

    def _choose(self, item: str, path: str, headers: dict[str, str], body: bytes, *, is_reused: bool) -> Json:
        for place, rule in enumerate(self.script.get("rules", [])):
            if not self._matches(rule["when"], item, path, headers, body, is_reused=is_reused):
                continue
            whose = (place, "" if rule.get("shared") else item)
            used, replies = self._used.get(whose, 0), rule["replies"]
            if used >= len(replies) and rule.get("then", "again") == "default":
                continue
            self._used[whose] = used + 1
            reply: Json = replies[min(used, len(replies) - 1)]
            return reply
        default: Json = self.script.get("default", {"answer": {}})
        return default

    def _matches(
        self, when: Json, item: str, path: str, headers: dict[str, str], body: bytes, *, is_reused: bool
    ) -> bool:
        since_s = time.monotonic() - (self._first_post_at or 0.0)
        holds = {
            "item": lambda want: item in (want if isinstance(want, list) else [want]),
            "item_starts": item.startswith,
            "path": lambda want: path == want,
            "has": lambda want: want.encode() in body,
            "key_is_not": lambda want: headers.get("authorization") != want,
            "before_s": lambda want: since_s < want,
            "from_s": lambda want: since_s >= want,
            "reused": lambda want: is_reused is want,
        }
        return all(holds[name](want) for name, want in when.items())

    async def _reply(
        self, writer: asyncio.StreamWriter, reply: Json, item: str, number: int, headers: dict[str, str]
    ) -> str:
        how, break_at = reply.get("how", "reset"), reply.get("break_at")
        if break_at == "request":
            return _break_off(writer, how)
        data = _body_of(reply, item, number)
        if reply.get("echo_key"):
            data = data.replace(b"<<key>>", headers.get("authorization", "").encode())
        extra = dict(reply.get("headers", {}))
        if reply.get("gzip"):
            extra["Content-Encoding"] = "gzip"
            data = gzip.compress(data) if reply["gzip"] is True else data
        if "events" in reply:
            extra["Content-Type"] = "text/event-stream"
        if break_at is None:
            await _send_whole(writer, reply.get("status", 200), extra, data)
            return "answered"
        shown = {"head": 0, "end": len(data)}.get(break_at, break_at)
        await _send_whole(writer, reply.get("status", 200), extra, data[:shown], length=len(data) + 1)
        return _break_off(writer, how)

    # -- the log --------------------------------------------------------------------------------------------------

    def _note_arrival(self, item: str, path: str, headers: dict[str, str], body: bytes, reply: Json) -> int:
        self._in_flight += 1
        self._most_in_flight = max(self._most_in_flight, self._in_flight)
        usage = _usage_of(reply)
        billed = bool(reply.get("billed", reply.get("status", 200) == 200 and not _is_plain(reply)))
        number = len(self.requests) + 1
        self._write(
            {
                "ev": "arrive",
                "t": self._now_s(),
                "at": datetime.now(UTC).isoformat(),
                "req": number,
                "method": "POST",
                "path": path,
                "item": item,
                "client_request_id": headers.get("x-client-request-id"),
                "body_sha": hashlib.sha256(body).hexdigest()[:16],
                "body_len": len(body),
                "in_flight": self._in_flight,
                "status": reply.get("status", 200),
                "billed": billed,
                "prompt_tokens": usage.get("prompt_tokens", 0) if billed else 0,
                "completion_tokens": usage.get("completion_tokens", 0) if billed else 0,
                "fault": None,
            }
        )
        self.requests.append(Request(number, self._now_s(), item, path, headers, body, billed))
        return number

    def _write(self, line: Json) -> None:
        with contextlib.suppress(ValueError):  # closed: nobody judges any more
            self._log.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _now_s(self) -> float:
        return round(time.monotonic() - self._began, 6)


def _is_plain(reply: Json) -> bool:
    return "json" in reply or "text" in reply


def _usage_of(reply: Json) -> Json:
    usage = reply.get("answer", {}).get("usage", USAGE)
    return usage if isinstance(usage, dict) else USAGE


def _body_of(reply: Json, item: str, number: int) -> bytes:
    if "json" in reply:
        return json.dumps(reply["json"]).encode()
    if "text" in reply:
        return str(reply["text"]).encode()
    if "events" in reply:
        return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in reply["events"])
    wanted = dict(reply.get("answer", {}))
    if "letters" in reply:
        text, times = reply["letters"]
        wanted["content"] = text * times
    message = {"role": "assistant", "content": wanted.get("content", f"answer for {item}"), **wanted.get("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": wanted.get("finish_reason", "stop")}
    body = {
        "id": f"answer-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "scripted",
        "choices": wanted.get("choices", [choice]),
        "usage": wanted.get("usage", USAGE),
    }
    if body["usage"] == "absent":
        del body["usage"]
    return json.dumps(body).encode()


async def _send_whole(
    writer: asyncio.StreamWriter, status: int, headers: dict[str, str], data: bytes, *, length: int | None = None
) -> None:
    fields = {"Content-Type": "application/json", "Content-Length": str(len(data) if length is None else length)}
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in {**fields, **headers}.items())]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data)
    await writer.drain()


async def _is_left_alone(reader: asyncio.StreamReader, delay_s: float) -> bool:
    """Wait; False when the client has gone before."""
    if delay_s <= 0:
        return True
    gone = asyncio.ensure_future(reader.read(1))
    timeout = None if delay_s == float("inf") else delay_s
    done, _ = await asyncio.wait({gone}, timeout=timeout)
    if not done:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        return True
    return False


def _break_off(writer: asyncio.StreamWriter, how: str) -> str:
    if how == "reset":
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
    return "reset" if how == "reset" else "cut"
