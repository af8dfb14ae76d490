"""Requests to the API server over kept-alive connections: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from flowsched_k8s.api.access import Access, one_line
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.objects import Status

_log = logging.getLogger(__name__)
T = TypeVar("T")

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
CREDENTIALS_FOR = 30.0
"""Seconds after which the credentials are looked at again; tokens of pods change within the hour."""
_READ_BUFFER = 1 << 20
_CONNECT_WITHIN = 10.0
_STATUS = msgspec.json.Decoder(Status)


@dataclass(frozen=True)
class Reply:
    """What the API server answered, whatever it was."""

    status: int
    body: bytes
    retry_after: float = 0.0
    """Seconds for which the server wants no other request like this."""

    @property
    def ok(self) -> bool:
        """Whether it did what was asked."""
        return 200 <= self.status < 300


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        """Keep what the server said."""
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")

    @classmethod
    def of(cls, reply: Reply) -> ApiError:
        """The refusal in a reply; proxies in between do not answer with a Status."""
        try:
            status = _STATUS.decode(reply.body)
            reason, message = status.reason, status.message
        except msgspec.DecodeError:
            reason, message = "", reply.body[:200].decode(errors="replace")
        return cls(reply.status, reason, message, reply.retry_after)


class UnreachableError(Exception):
    """There was no answer. ``sent`` says whether the server may have got the request and carried it out."""

    def __init__(self, message: str, sent: bool) -> None:
        """Keep why."""
        self.sent = sent
        super().__init__(message)


class NotAllowedError(Exception):
    """The guard of a request forbade it at the moment of sending. Nothing was sent."""


@dataclass(eq=False)
class Connection:
    """One API server. Requests share ``connections`` kept-alive connections; streams and urgent requests have their own."""

    access: Access
    _: KW_ONLY
    connections: int = 32
    timeout: float = 30.0
    """In seconds."""
    limit: RateLimit | None = None
    user_agent: str = "flowsched"
    on_request: Callable[[str, str, float], None] | None = None
    """Told of every request: method, code (``<error>`` if there was no answer), seconds."""
    clock: Callable[[], float] = time.monotonic
    _session: aiohttp.ClientSession | None = None
    _headers: dict[str, str] = field(default_factory=dict)
    _credentials_at: float | None = None
    _credentials_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _silent: bool = False

    def __post_init__(self) -> None:
        """Prepare; nothing is opened before the first request."""
        self._slots = asyncio.Semaphore(self.connections)
        self._server = URL(self.access.server, encoded=True)
        self._within = aiohttp.ClientTimeout(total=self.timeout, sock_connect=_CONNECT_WITHIN)

    async def __aenter__(self) -> Self:
        """Use as ``async with``."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
        urgent: bool = False,
        guard: Callable[[], bool] | None = None,
    ) -> Reply:
        """Send one request and return the answer, whatever its status.

        An urgent one waits for no free connection and no rate limit. The guard is asked after all waiting, right
        before sending: if it says no, :class:`NotAllowedError` is raised. Raises :class:`UnreachableError`.
        """
        url = self._url(path, query)
        data = None if body is None else msgspec.json.encode(body)
        if urgent:
            return await self._send(method, url, data, content_type, accept, timeout, guard)
        if self.limit is not None:
            await self.limit.wait()
        # Waiting here and not for the connector: the time limit is for the server, not for the queue.
        async with self._slots:
            return await self._send(method, url, data, content_type, accept, timeout, guard)

    async def get(self, path: str, type_: type[T], query: Mapping[str, str] | None = None) -> T:
        """GET and decode. Raises :class:`ApiError` and :class:`UnreachableError`."""
        reply = await self.request("GET", path, query=query)
        if not reply.ok:
            raise ApiError.of(reply)
        return msgspec.json.decode(reply.body, type=type_)

    @asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], stall: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """A GET whose body comes bit by bit, in chunks as they arrive.

        No bytes for ``stall`` seconds are an error. Raises :class:`ApiError` and :class:`UnreachableError`, both
        also while the chunks are read.
        """
        began = self.clock()
        code = "<error>"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN, sock_read=stall)
        try:
            session = await self._opened()
            async with session.get(
                self._url(path, query),
                headers=await self._current_headers(JSON),
                timeout=timeout,
                proxy=self.access.proxy,
                server_hostname=self.access.server_name,
                read_bufsize=_READ_BUFFER,
            ) as answer:
                code = str(answer.status)
                self._count("GET", code, began)
                if answer.status != 200:
                    reply = Reply(answer.status, await answer.read(), _retry_after(answer))
                    self._check_credentials(reply)
                    raise ApiError.of(reply)
                yield answer.content.iter_any()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if code == "<error>":
                self._count("GET", code, began, error)
            raise UnreachableError(one_line(error), sent=True) from error

    async def _send(
        self,
        method: str,
        url: URL,
        data: bytes | None,
        content_type: str,
        accept: str,
        timeout: float | None,
        guard: Callable[[], bool] | None,
    ) -> Reply:
        for attempt in (1, 2):
            session = await self._opened()
            headers = await self._current_headers(accept)
            if data is not None:
                headers["Content-Type"] = content_type
            if guard is not None and not guard():
                raise NotAllowedError
            began = self.clock()
            try:
                async with session.request(
                    method,
                    url,
                    data=data,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_WITHIN)
                    if timeout
                    else self._within,
                    proxy=self.access.proxy,
                    server_hostname=self.access.server_name,
                ) as answer:
                    reply = Reply(answer.status, await answer.read(), _retry_after(answer))
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                self._count(method, "<error>", began, error)
                never = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
                raise UnreachableError(one_line(error), sent=not never) from error
            self._count(method, str(reply.status), began)
            if attempt == 1 and self._check_credentials(reply):
                continue
            return reply
        raise AssertionError

    def _check_credentials(self, reply: Reply) -> bool:
        """Whether a refusal may be due to old credentials: new ones are then fetched for the next request."""
        if reply.status != 401:
            return False
        self._credentials_at = None
        return True

    async def _current_headers(self, accept: str) -> dict[str, str]:
        at = self._credentials_at
        if at is None or self.clock() - at >= CREDENTIALS_FOR:
            async with self._credentials_lock:
                if self._credentials_at == at:
                    await self._refresh()
        return {**self._headers, "Accept": accept}

    async def _refresh(self) -> None:
        try:
            authorization = await asyncio.to_thread(self.access.authorization)
        except Exception as error:  # Whatever a plugin or a missing file brings about; the next request tries again.
            raise UnreachableError(f"no credentials: {one_line(error)}", sent=False) from error
        # Compression costs more time than it saves within a cluster.
        self._headers = {"User-Agent": self.user_agent, "Accept-Encoding": "identity"}
        if authorization:
            self._headers["Authorization"] = authorization
        self._credentials_at = self.clock()

    async def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self.access.tls or False)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
            )
        return self._session

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        if query:
            return URL(f"{self.access.server}{path}?{urlencode(query)}", encoded=True)
        # Each binding has a path of its own: a whole URL would be parsed anew for each.
        return self._server.with_path(f"{self._server.raw_path.rstrip('/')}{path}", encoded=True)

    def _count(self, method: str, code: str, began: float, error: Exception | None = None) -> None:
        if (error is not None) != self._silent:
            # Said once for all requests: each of them fails while the server is away.
            self._silent = error is not None
            if error is not None:
                _log.warning("the API server %s does not answer, trying again: %s", self.access.server, one_line(error))
            else:
                _log.warning("the API server %s answers again", self.access.server)
        if self.on_request is not None:
            self.on_request(method, code, self.clock() - began)


def path_of(prefix: str, resource: str, namespace: str = "", name: str = "", sub: str = "") -> str:
    """The path of an object or a collection; names are data and cannot leave their place in it.

    ``prefix`` is ``/api/v1`` or ``/apis/GROUP/VERSION``.
    """
    parts = [prefix]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource)
    parts += [quote(part, safe="") for part in (name, sub) if part]
    return "/".join(parts)


def _retry_after(answer: aiohttp.ClientResponse) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0
