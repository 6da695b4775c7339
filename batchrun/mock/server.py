"""The server: opens the port, and stops without breaking off what is under way."""

import asyncio
import signal
import threading
from collections.abc import Callable

from batchrun.mock.config import MockConfig
from batchrun.mock.connection import Company, Connection
from batchrun.mock.endpoint import Endpoint

BACKLOG = 4096


class MockServer:
    """A mock endpoint in the running event loop."""

    def __init__(self, config: MockConfig) -> None:
        self.config = config
        self._server: asyncio.Server | None = None
        self._endpoint: Endpoint | None = None
        self._company = Company()
        self._port = 0

    @property
    def port(self) -> int:
        """The port in use; 0 before the start."""
        return self._port

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return render_base_url(self.config.host, self._port)

    async def start(self) -> None:
        """Open the log and the port; `OSError` if one of them cannot be had."""
        loop = asyncio.get_running_loop()
        self._endpoint = endpoint = Endpoint(self.config, loop)
        try:
            self._server = await loop.create_server(
                lambda: Connection(endpoint, self._company), self.config.host, self.config.port, backlog=BACKLOG
            )
        except OSError:
            endpoint.close()
            raise
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port, let requests in flight end for `drain_s`, then cut them off and close the log."""
        if self._server is None or self._endpoint is None:
            return
        self._server.close()
        await self._company.disband(self.config.drain_s)
        self._endpoint.close()
        self._server = self._endpoint = None

    async def __aenter__(self) -> "MockServer":
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()


def serve(config: MockConfig, on_ready: Callable[[str, int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, in an event loop of its own; `on_ready` is called with host and port.

    Signals are only heard in the main thread; from another thread it serves until the process ends.
    """
    asyncio.run(_serve(config, on_ready))


def render_base_url(host: str, port: int) -> str:
    """Write the base URL that clients of an OpenAI-compatible endpoint are given."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


async def _serve(config: MockConfig, on_ready: Callable[[str, int], None] | None) -> None:
    stop_wanted = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop_wanted.set)
    async with MockServer(config) as server:
        if on_ready is not None:
            on_ready(config.host, server.port)
        await stop_wanted.wait()
