"""The request log: what an outside judge needs to know about every request."""

import contextlib
import os
import time
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quote

from batchrun.mock.judgement import Judgement, read_log

__all__ = ["Entry", "Judgement", "RequestLog", "read_log"]

LONGEST_LINE_BYTES = 65_536


@dataclass(slots=True)
class Entry:
    """One request as it is logged on arrival. There is no place for a prompt, an answer or a key."""

    req: int  # the request's number, from 1
    conn: int  # the connection's number, from 1
    conn_seq: int  # the request's number on its connection, from 1
    method: str
    path: str
    item: str | None  # the first [[key]] of the body
    client_request_id: str | None  # X-Client-Request-Id
    body_sha: str  # first 16 hex digits of the body's SHA-256
    body_len: int
    in_flight: int  # POSTs in flight, with this one
    status: int
    billed: bool  # a provider would charge it, whether or not the answer gets through
    prompt_tokens: int
    completion_tokens: int
    fault: str | None


class RequestLog:
    """Append lines to the log, each in one write to an O_APPEND file: never torn, never buffered."""

    def __init__(self, path: str) -> None:
        self._started_at = time.monotonic()
        _cut_torn_line(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._second = 0
        self._second_text = ""

    def write_arrive(self, entry: Entry) -> None:
        """Write down a request before its answer is sent."""
        e = entry
        billed = "true" if e.billed else "false"
        line = (
            f'{{"ev":"arrive","t":{self._tell_time()},"at":"{self._tell_date()}","req":{e.req},"conn":{e.conn},'
            f'"conn_seq":{e.conn_seq},"method":{quote(e.method)},"path":{quote(e.path)},"item":{_quote(e.item)},'
            f'"client_request_id":{_quote(e.client_request_id)},"body_sha":"{e.body_sha}","body_len":{e.body_len},'
            f'"in_flight":{e.in_flight},"status":{e.status},"billed":{billed},"prompt_tokens":{e.prompt_tokens},'
            f'"completion_tokens":{e.completion_tokens},"fault":{_quote(e.fault)}}}\n'
        )
        self._write(line)

    def write_end(self, req: int, outcome: str) -> None:
        """Write down how a request ended."""
        self._write(f'{{"ev":"end","req":{req},"t":{self._tell_time()},"outcome":"{outcome}"}}\n')

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _write(self, line: str) -> None:
        data = line.encode()
        if os.write(self._fd, data) != len(data):
            raise OSError("the request log took only a part of a line: is its disk full?")

    def _tell_time(self) -> str:
        return f"{time.monotonic() - self._started_at:.6f}"

    def _tell_date(self) -> str:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._second_text}.{int((now - second) * 1000):03d}Z"


def _cut_torn_line(path: str) -> None:
    """Take away half a line at the end of the log: kill -9 can tear a write where it crosses a page."""
    with contextlib.suppress(OSError), open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LONGEST_LINE_BYTES))
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)


def _quote(text: str | None) -> str:
    return "null" if text is None else quote(text)
