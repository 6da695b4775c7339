"""What a doctor is shown in tests: servers that say what they are told to, or nothing at all."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Finding = dict[str, Any]
Doctor = Callable[..., list[Finding]]  # the command's arguments, and the exit code that is expected
Reply = tuple[int, Mapping[str, str], bytes]


class Server:
    """An HTTP server on loopback with one reply a path (404 for any other), and what it was asked."""

    def __init__(self, replies: Mapping[str, Reply]) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked.append(f"{self.command} {self.path}")
                status, headers, body = replies.get(self.path, (404, {}, b"{}"))
                self.send_response_only(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(replies: Mapping[str, Reply]) -> Iterator[Server]:
    server = Server(replies)
    try:
        yield server
    finally:
        server.close()


def models(*names: str, owned_by: str = "somebody", headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
    """Return a list of models, as a server that owns them gives it."""
    listed = [{"id": name, "object": "model", "owned_by": owned_by, **more} for name in names]
    return 200, headers or {}, json.dumps({"object": "list", "data": listed}).encode()


@contextlib.contextmanager
def silence() -> Iterator[int]:
    """Yield the port of a server that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


def rows(findings: list[Finding], area: str, level: str | None = None) -> list[tuple[str, str]]:
    """Return (name, message) of an area's findings, or of those of one level."""
    return [(one["name"], one["message"]) for one in findings if one["area"] == area and level in (None, one["level"])]


def mends(findings: list[Finding], area: str) -> list[str]:
    return [one["mend"] for one in findings if one["area"] == area and one["mend"]]
