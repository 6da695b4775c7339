"""The way to the endpoint: ready bytes out, a reply or a break back, one request for each call."""

import asyncio
import json
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

from batchrun.core.marks import stored_under
from batchrun.core.model_name import asking_for
from batchrun.core.outcome import Break, Reply
from batchrun.core.streaming import in_pieces, is_streamed
from batchrun.endpoint.address import host_port, proxy_for
from batchrun.endpoint.breaks import Hung, Misplaced, NoConnection, NotConnected, after_sending, before_sending
from batchrun.endpoint.decode import LARGEST_BYTES
from batchrun.endpoint.exchange import Exchange
from batchrun.endpoint.lookup import Means
from batchrun.endpoint.mask import Mask
from batchrun.endpoint.pool import Hop, Pool
from batchrun.endpoint.sdk import Client
from batchrun.endpoint.wording import tidy

PROBE_S = 5.0
NAME_CHARS = 200  # of a model's name
IN_A_TARGET = "/%:@!$&'()*+,;=-._~?"  # signs that stand in a request's target as they are


class Endpoint:
    """One OpenAI-compatible endpoint. Everything its server or the network does comes back as a value.

    Args:
        base_url: normalised (`address.normalise_base_url`).
        api_key: cleaned (`key.clean_key`).
        timeout_s: total time of one exchange, from the hand-over to the last byte.
        connect_timeout_s: time for a connection; never more than half of `timeout_s`, so that a hang while
            connecting is always told from one after it.
        lookup: how it can be asked about requests; they are marked with their attempt's id accordingly.
        idempotency_header: under which it takes idempotency keys; None: it is sent none.
        is_measured: answers are asked for in pieces, and the time of each is noted; they come back whole.
        renames: a model, and its name here: whoever asks for the one asks for the other.

    Raises:
        EndpointFault: the environment asks for a proxy that cannot be used, or for a header that cannot be sent.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
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
        self._fixed_headers = self._client.ready_headers()
        self._timeout_s = timeout_s
        self._connect_timeout_s = min(connect_timeout_s, timeout_s / 2)
        self._lookup = lookup
        self._key_header = idempotency_header
        self._is_measured = is_measured
        self._renames = renames
        self._heads: dict[tuple[str, str], bytes] = {}  # (method, path): what each such request begins with
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Make the connection pool in the running loop; the first exchange would do it too."""
        self._opened()

    async def close(self) -> None:
        """Close all connections. The endpoint can be opened again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
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
        exchange = Exchange(streamed=path if self._is_measured and is_streamed(path) else None)
        try:
            await self._send(path, body, attempt_id, idempotency_key, exchange)
            # crash point: receive-whole
            return exchange.reply()
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
        self, path: str, body: bytes, attempt_id: str, idempotency_key: str | None, exchange: Exchange
    ) -> None:
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
        request = _request(self._head("POST", path), headers, body)
        await self._ask(request, exchange, idempotency_key or attempt_id, self._timeout_s, self._connect_timeout_s)

    async def _ask(self, request: bytes, exchange: Exchange, name: str, limit_s: float, connect_limit_s: float) -> None:
        pool = self._pool or self._opened()
        deadline = asyncio.get_running_loop().time() + limit_s
        connection = await pool.take(timeout_s=connect_limit_s)
        before, connection.carried = connection.carried, name
        exchange.has_begun = True
        try:
            await connection.ask(request, exchange, deadline=deadline, most_bytes=LARGEST_BYTES)
            if before not in (None, name) and exchange.is_named(before):
                connection.close()  # what comes next on it would be the answer to this one
                exchange.forget()
                raise Misplaced(before)
        except Hung:
            if before is not None:
                pool.keep_none()
            raise
        finally:
            pool.put_back(connection)

    async def get(self, path: str, *, limit_s: float = PROBE_S) -> Reply | Break:
        """Ask for something that is never billed, such as the list of models; it takes `limit_s` at the most.

        A path without "/v1" is one of the server's own pages, beside the API.
        """
        return await self._look("GET", path, None, limit_s=limit_s)

    async def post_unbilled(self, path: str, body: bytes, *, limit_s: float) -> Reply | Break:
        """Send a question that generates nothing and is never billed: the ledger knows nothing of it."""
        return await self._look("POST", path, body, limit_s=limit_s)

    async def _look(self, method: str, path: str, body: bytes | None, *, limit_s: float) -> Reply | Break:
        exchange = Exchange()
        limit_s = min(limit_s, self._timeout_s)
        try:
            request = _request(self._head(method, path), {}, body)
            await self._ask(request, exchange, path, limit_s, min(PROBE_S, limit_s, self._connect_timeout_s))
            return exchange.reply()
        except Exception as error:
            return self._broken(error, exchange)

    def _opened(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self.address, proxy=self._proxy)
        return self._pool

    def _head(self, method: str, path: str) -> bytes:
        """Return what each such request begins with: its first line, and the headers that all of them carry."""
        if (head := self._heads.get((method, path))) is None:
            is_api = path.startswith("/v1/")
            parts = urlsplit(self._client.ready_url(path) if is_api else self.address.removesuffix("/v1") + path)
            target = quote(parts.path or "/", safe=IN_A_TARGET)
            fixed = {"Host": parts.netloc, **self._fixed_headers}
            if self._proxy is not None and not self._is_tls:  # a proxy is told the whole address
                target = f"{parts.scheme}://{parts.netloc}{target}"
                if (authorization := Hop.of(self._proxy).authorization) is not None:
                    fixed["Proxy-Authorization"] = authorization
            lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fixed.items())]
            head = self._heads[method, path] = "\r\n".join([*lines, ""]).encode()
        return head

    def _broken(self, error: Exception, exchange: Exchange) -> Break:
        if not exchange.has_begun and not isinstance(error, NotConnected):
            error = NoConnection(error)  # whatever it was, no byte had left
        kind, words = before_sending(
            error, host=self._host, is_tls=self._is_tls, connect_timeout_s=self._connect_timeout_s
        ) or after_sending(error, host=self._host, timeout_s=self._timeout_s, got=exchange.got)
        return exchange.broken(kind, self._mask.text(words))


def _request(head: bytes, headers: dict[str, str], body: bytes | None) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if body is None:
        return head + lines.encode() + b"\r\n"
    return b"%b%bContent-Length: %d\r\n\r\n%b" % (head, lines.encode(), len(body), body)
