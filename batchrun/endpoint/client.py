"""The way to the endpoint: ready bytes out, a reply or a break back, one request for each call."""

import io
import json
import ssl
import time
from types import TracebackType
from typing import Self

import aiohttp

from batchrun.core.marks import stored_under
from batchrun.core.model_name import asking_for
from batchrun.core.outcome import Break, BreakKind, Reply, Timing
from batchrun.core.streaming import in_pieces, is_streamed
from batchrun.endpoint.address import host_port, proxy_for
from batchrun.endpoint.breaks import StaleConnection, after_sending, before_sending
from batchrun.endpoint.decode import LARGEST_BYTES, decode
from batchrun.endpoint.lookup import Means
from batchrun.endpoint.mask import Mask
from batchrun.endpoint.sdk import Client
from batchrun.endpoint.stream import MEDIA_TYPE, Stream
from batchrun.endpoint.wording import tidy

KEEPALIVE_S = 4.0  # below the 5 s after which common servers (uvicorn, Node) drop an idle connection
MOST_CONNECTIONS = 10_000  # never the narrow place: how many requests are out is the caller's to say
STALE_TRIES = 8  # pooled connections that may turn out unusable before one request
PARTIAL_BYTES = 65_536  # kept of an answer that broke off
HEAD_BYTES = 65_536  # of one header line
WHOLE_BYTES = 1_000_000  # a larger request body is handed over piece by piece
PROBE_S = 5.0
NAME_CHARS = 200  # of a model's name


class Endpoint:
    """One OpenAI-compatible endpoint. Everything its server or the network does comes back as a value.

    Args:
        base_url: normalised (`address.normalise_base_url`).
        api_key: cleaned (`key.clean_key`).
        concurrency: requests that will be out at once; the caller keeps to it.
        timeout_s: total time of one exchange, from the hand-over to the last byte.
        connect_timeout_s: time for a connection; never more than half of `timeout_s`, so that a hang while
            connecting is always told from one after it.
        lookup: how it can be asked about requests; they are marked with their attempt's id accordingly.
        idempotency_header: under which it takes idempotency keys; None: it is sent none.
        is_measured: answers are asked for in pieces, and the time of each is noted; they come back whole.
        renames: a model, and its name here: whoever asks for the one asks for the other.

    Raises:
        EndpointFault: the environment asks for a proxy that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        concurrency: int,
        timeout_s: float,
        connect_timeout_s: float = 10.0,
        lookup: Means | None = None,
        idempotency_header: str | None = None,
        is_measured: bool = False,
        renames: tuple[str, str] | None = None,
    ) -> None:
        self.address = base_url  # for the ledger: holds no secret
        self._host = host_port(base_url)
        self._is_tls = base_url.startswith("https:")
        self._proxy = proxy_for(base_url)
        self._mask = Mask(api_key)
        self._client = Client(base_url, api_key, timeout_s=timeout_s)
        self._connections = max(concurrency, MOST_CONNECTIONS)
        self._timeout_s = timeout_s
        self._connect_timeout_s = min(connect_timeout_s, timeout_s / 2)
        self._lookup = lookup
        self._key_header = idempotency_header
        self._is_measured = is_measured
        self._renames = renames
        self._urls: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the connection pool in the running loop; the first exchange would do it too."""
        self._opened()

    async def close(self) -> None:
        """Close all connections. The endpoint can be opened again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await self._client.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def exchange(
        self, *, path: str, body: bytes, attempt_id: str, idempotency_key: str | None = None
    ) -> Reply | Break:
        """Send one request, once, and return what came of it; only being cancelled raises.

        Args:
            path: such as "/v1/chat/completions".
            body: the request's JSON, ready.
            attempt_id: sent as X-Client-Request-Id.
            idempotency_key: what it is sent under, where the endpoint honours that.
        """
        exchange = _Exchange(streamed=path if self._is_measured and is_streamed(path) else None)
        try:
            response = await self._send(path, body, attempt_id, idempotency_key)
            # crash point: receive-begun
            return await exchange.receive(response)
        except Exception as error:
            return self._broken(error, exchange)

    async def is_reachable(self) -> bool:
        """Ask for the list of models, which is never billed: any HTTP reply counts."""
        return isinstance(await self.get("/v1/models"), Reply)

    async def models(self) -> list[str] | None:
        """Return the names of the models the endpoint lists, fit to be recorded; None where it gives no such list.

        Listing is never billed, and takes `PROBE_S` at the most.
        """
        reply = await self.get("/v1/models")
        if not isinstance(reply, Reply) or reply.status != 200:
            return None
        try:
            listed = json.loads(reply.body)["data"]
            names = [model["id"] for model in listed if isinstance(model["id"], str)]
        except (ValueError, TypeError, LookupError, RecursionError):
            return None
        return list(dict.fromkeys(tidy(name, self._mask, longest=NAME_CHARS) for name in names))

    async def _send(
        self, path: str, body: bytes, attempt_id: str, idempotency_key: str | None
    ) -> aiohttp.ClientResponse:
        session = self._session or self._opened()
        url = self._urls.get(path) or self._urls.setdefault(path, self._client.ready_url(path))
        headers = {"X-Client-Request-Id": attempt_id}
        if self._renames is not None:
            body = asking_for(body, *self._renames)
        if self._lookup == "litellm":
            headers["x-litellm-call-id"] = attempt_id
        elif self._lookup == "openai":
            body = stored_under(path, body, idempotency_key or attempt_id)  # one key, one body
        if self._is_measured:
            body = in_pieces(path, body)
        if self._key_header is not None and idempotency_key is not None:
            headers[self._key_header] = idempotency_key
        for _ in range(STALE_TRIES):
            try:
                return await session.post(
                    url,
                    data=body if len(body) < WHOLE_BYTES else io.BytesIO(body),
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                )
            except StaleConnection as stale:
                last = stale
        raise last

    async def get(self, path: str, *, limit_s: float = PROBE_S) -> Reply | Break:
        """Ask for something that is never billed, such as the list of models; it takes `limit_s` at the most.

        A path without "/v1" is one of the server's own pages, beside the API.
        """
        return await self._look("GET", path, None, limit_s=limit_s)

    async def post_unbilled(self, path: str, body: bytes, *, limit_s: float) -> Reply | Break:
        """Send a question that generates nothing and is never billed: the ledger knows nothing of it."""
        return await self._look("POST", path, body, limit_s=limit_s)

    async def _look(self, method: str, path: str, body: bytes | None, *, limit_s: float) -> Reply | Break:
        session = self._session or self._opened()
        timeout = aiohttp.ClientTimeout(
            total=min(limit_s, self._timeout_s), connect=min(PROBE_S, self._connect_timeout_s)
        )
        is_api = path.startswith("/v1/")
        url = self._client.ready_url(path) if is_api else self.address.removesuffix("/v1") + path
        exchange = _Exchange()
        try:
            response = await session.request(
                method, url, data=body, allow_redirects=False, proxy=self._proxy, timeout=timeout
            )
            return await exchange.receive(response)
        except Exception as error:
            return self._broken(error, exchange)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    keepalive_timeout=KEEPALIVE_S,
                    ssl=_tls_context() if self._is_tls else True,
                ),
                headers=self._client.ready_headers(),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s, connect=self._connect_timeout_s),
                request_class=_Request,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=HEAD_BYTES,
                max_field_size=HEAD_BYTES,
            )
        return self._session

    def _broken(self, error: Exception, exchange: "_Exchange") -> Break:
        kind, words = before_sending(
            error, host=self._host, is_tls=self._is_tls, connect_timeout_s=self._connect_timeout_s
        ) or after_sending(error, host=self._host, timeout_s=self._timeout_s, got=exchange.got)
        return exchange.broken(kind, self._mask.text(words))


class _Request(aiohttp.ClientRequest):
    """A request that looks at its pooled connection once more before the first byte.

    aiohttp re-uses a connection on which the server has spoken unasked (a late 408, a second answer), and would take
    those words for the answer to the next request.
    """

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if conn.protocol is None or conn.protocol.should_close:
            raise StaleConnection
        # crash point: send-connected
        response = await super().send(conn)
        # crash point: send-begun
        return response


class _Exchange:
    """The clock and the receiver of one exchange."""

    __slots__ = ("_began", "_chunks", "_first_byte_at", "_sent_at", "_size", "_status", "_stream", "_streamed")

    def __init__(self, *, streamed: str | None = None) -> None:
        self._streamed = streamed  # the path whose answer was asked for in pieces
        self._sent_at = time.time()
        self._began = time.monotonic()
        self._first_byte_at: float | None = None
        self._status: int | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._stream: Stream | None = None

    @property
    def got(self) -> str:
        """Tell how far the answer had come; "" where nothing of it had."""
        return "" if self._status is None else f"status {self._status} and {self._size:,} bytes had come"

    async def receive(self, response: aiohttp.ClientResponse) -> Reply | Break:
        self._first_byte_at = time.time()
        self._status = response.status
        if self._streamed is not None and _is_stream(response):
            self._stream = Stream(self._began, path=self._streamed)
        content = response.content
        try:
            while not content.at_eof():
                chunk = await content.readany()
                if self._stream is not None:
                    self._stream.feed(chunk)
                self._chunks.append(chunk)
                self._size += len(chunk)
                if self._size > LARGEST_BYTES:
                    return self.broken(BreakKind.LOST, f"the answer is larger than {LARGEST_BYTES:,} bytes")
        finally:
            response.close()  # the connection is back in the pool by now if the whole body has come
        # crash point: receive-whole
        return self._reply(response)

    def _reply(self, response: aiohttp.ClientResponse) -> Reply | Break:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if self._stream is not None:
            return self._put_together(self._stream, headers)
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        if coding := headers.get("content-encoding"):
            # The header stays where the coding could not be undone: that is the mark by which `classify` knows.
            decoded = decode(body, coding)
            if decoded is not None:
                body = decoded
                del headers["content-encoding"]
        return Reply(response.status, headers, body, self._timing())

    def _put_together(self, stream: Stream, headers: dict[str, str]) -> Reply | Break:
        timing = self._timing()
        stream.finish()
        if not stream.is_whole:
            return self.broken(BreakKind.LOST, "the stream ended before its answer did")
        return Reply(self._status or 0, headers, stream.body(), timing)

    def broken(self, kind: BreakKind, detail: str) -> Break:
        partial = b"".join(self._chunks)[:PARTIAL_BYTES]
        return Break(kind, detail, self._timing(), self._status, partial)

    def _timing(self) -> Timing:
        trace = None if self._stream is None else self._stream.trace()
        return Timing(self._sent_at, self._first_byte_at, time.time(), time.monotonic() - self._began, trace)


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    """Say whether a reply is an answer in pieces; one that is packed besides is read when it is there."""
    is_events = response.status < 300 and response.content_type == MEDIA_TYPE
    return is_events and "Content-Encoding" not in response.headers


def _tls_context() -> ssl.SSLContext:
    """Trust what the system or SSL_CERT_FILE trusts, read now and not when aiohttp was imported."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
