"""Requests to the API server over kept-alive connections: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import io
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec
import pycurl

from flowsched_k8s.api.access import Access, Credentials, one_line
from flowsched_k8s.api.outage import Outage
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.api.stream import Stream
from flowsched_k8s.api.transfers import TransferError, Transfers, new_handle
from flowsched_k8s.objects import Status

T = TypeVar("T")

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
CREDENTIALS_FOR = 30.0
"""Seconds after which the credentials are looked at again; tokens of pods change within the hour."""
LONGEST_PAUSE_S = 30.0
"""As long as a server that asks to be left alone is left alone at most: an outage is mostly over before what it asks for."""
_BESIDE = 32
"""Idle connections that are kept of urgent requests and streams."""
_STATUS = msgspec.json.Decoder(Status)


@dataclass(frozen=True)
class Reply:
    """What the API server answered, whatever it was."""

    status: int
    body: bytes
    retry_after: float = 0.0
    """Seconds for which the server wants no other request like this; at most :data:`LONGEST_PAUSE_S`."""

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
            status = decoded(reply.body, _STATUS)
            reason, message = status.reason, status.message
        except MalformedError:
            reason, message = "", reply.body[:200].decode(errors="replace")
        return cls(reply.status, reason, message, reply.retry_after)


class MalformedError(ApiError):
    """What was answered is not what the API server says there, such as the page of a proxy."""

    def __init__(self, status: int, why: str) -> None:
        """``why``: what is wrong with it."""
        super().__init__(status, "", f"the answer is not what was expected: {why}")


def decoded(body: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T], status: int = 200) -> T:
    """What an answer says. Raises :class:`MalformedError`, and nothing else, whatever was answered."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedError(status, one_line(error)) from None


class UnreachableError(TransferError):
    """There was no answer. ``sent`` says whether the server may have got the request and carried it out."""


class NotAllowedError(Exception):
    """The guard of a request forbade it at the moment of sending. Nothing was sent."""


class _Options(NamedTuple):
    """All of a request but its path and its body."""

    method: str
    has_body: bool
    timeout: float
    headers: list[str]


@dataclass(eq=False)
class _Exchange:
    """A handle of libcurl, for one request after the other."""

    curl: pycurl.Curl
    credentials: Credentials
    """Those that it shows."""
    asked: _Options | None = None
    """How the last request was sent; libcurl remembers it."""
    _body: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.curl.setopt(pycurl.WRITEFUNCTION, self._body.append)

    def taken(self) -> bytes:
        """The body of the answer, which is then forgotten."""
        body = b"".join(self._body)
        self._body.clear()
        return body


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
    outage: Outage | None = None
    """Where it tells that requests have no answer; connections to one server may share it. None: one of its own."""
    clock: Callable[[], float] = time.monotonic
    _opened: Transfers | None = None
    _idle: list[_Exchange] = field(default_factory=list)
    _credentials: Credentials = field(default_factory=lambda: Credentials(None))
    _credentials_at: float | None = None
    _credentials_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _headers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """By accepted and sent type of content."""

    def __post_init__(self) -> None:
        """Prepare; nothing is opened before the first request."""
        self._outage = self.outage or Outage(self.access.address)
        self._slots = asyncio.Semaphore(self.connections)
        server = urlsplit(self.access.server)
        port = f":{server.port}" if server.port else ""
        name = f"{self.access.server_name}{port}" if self.access.server_name else server.netloc
        self._base = urlunsplit(server._replace(netloc=name, path=server.path.rstrip("/")))

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
        transfers, self._opened = self._opened, None
        self._idle.clear()
        if transfers is not None:
            transfers.close()

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
        return decoded(reply.body, msgspec.json.Decoder(type_), reply.status)

    async def follow(
        self,
        path: str,
        query: Mapping[str, str],
        stall: float,
        opened: Callable[[], None],
        take: Callable[[bytes], None],
    ) -> None:
        """A GET whose answer comes bit by bit, until it ends: ``take`` gets each part of the body as it arrives.

        ``opened`` is called before, when the server has begun to answer. No bytes for ``stall`` seconds are an error.
        Raises :class:`ApiError`, :class:`UnreachableError` and what ``opened`` and ``take`` raise.
        """
        began = self.clock()

        def answered(status: int) -> None:
            self._count("GET", str(status), began)
            if status == 200:
                opened()

        await self._renew_credentials()
        curl = self._new_handle()
        _ask(curl, self._url(path, query), None, _Options("GET", False, 0.0, self._headers_of(JSON, "")))
        stream = Stream(self._transfers(), curl, stall, answered, take)
        try:
            await stream.run()
        except TransferError as error:
            if not stream.status:
                self._count("GET", "<error>", began, error)
            raise UnreachableError(one_line(error), sent=True) from error
        if stream.status != 200:
            reply = Reply(stream.status, stream.refusal, _retry_after(curl))
            self._check_credentials(reply)
            raise ApiError.of(reply)

    async def _send(
        self,
        method: str,
        url: str,
        data: bytes | None,
        content_type: str,
        accept: str,
        timeout: float | None,
        guard: Callable[[], bool] | None,
    ) -> Reply:
        for attempt in (1, 2):
            await self._renew_credentials()
            if guard is not None and not guard():
                raise NotAllowedError
            exchange = self._idle.pop() if self._idle else _Exchange(self._new_handle(), self._credentials)
            curl, began = exchange.curl, self.clock()
            headers = self._headers_of(accept, content_type if data is not None else "")
            options = _Options(method, data is not None, timeout or self.timeout, headers)
            _ask(curl, url, data, options, exchange.asked)
            exchange.asked = options
            try:
                await self._transfers().run(curl)
            except TransferError as error:
                self._count(method, "<error>", began, error)
                raise UnreachableError(one_line(error), error.sent) from error
            status = curl.getinfo(pycurl.RESPONSE_CODE)
            reply = Reply(status, exchange.taken(), _retry_after(curl))
            self._count(method, str(status), began)
            if exchange.credentials is self._credentials:
                self._idle.append(exchange)
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

    async def _renew_credentials(self) -> None:
        at = self._credentials_at
        if at is None or self.clock() - at >= CREDENTIALS_FOR:
            async with self._credentials_lock:
                if self._credentials_at == at:
                    await self._refresh()

    async def _refresh(self) -> None:
        try:
            found = await asyncio.to_thread(self.access.credentials)
        except Exception as error:  # Whatever a plugin or a missing file brings about; the next request tries again.
            raise UnreachableError(f"no credentials: {one_line(error)}", sent=False) from error
        if found != self._credentials:
            self._credentials = found
            self._headers.clear()
            self._idle.clear()
        self._credentials_at = self.clock()

    def _headers_of(self, accept: str, content_type: str) -> list[str]:
        headers = self._headers.get((accept, content_type))
        if headers is None:
            # Compression costs more time than it saves within a cluster, and a body need not wait to be asked for.
            named = {
                "Host": urlsplit(self.access.server).netloc.rpartition("@")[2],
                "User-Agent": self.user_agent,
                "Accept": accept,
                "Accept-Encoding": "identity",
                "Authorization": self._credentials.authorization or "",
                "Content-Type": content_type,
                "Expect": "",
            }
            # Without a value libcurl leaves a header out that it would add by itself.
            headers = [f"{name}: {value}" if value else f"{name}:" for name, value in named.items()]
            self._headers[(accept, content_type)] = headers
        return headers

    def _new_handle(self) -> pycurl.Curl:
        curl = new_handle(self.access.proxy)
        tls, shown = self.access.tls, self._credentials
        if tls is not None:
            if tls.authorities:
                curl.setopt(pycurl.CAINFO_BLOB, tls.authorities)
            else:
                trusted = ssl.get_default_verify_paths()
                curl.setopt(pycurl.CAINFO, trusted.cafile or trusted.openssl_cafile)
                curl.setopt(pycurl.CAPATH, trusted.capath or trusted.openssl_capath)
            if not tls.verified:
                curl.setopt(pycurl.SSL_VERIFYPEER, 0)
                curl.setopt(pycurl.SSL_VERIFYHOST, 0)
            if shown.certificate:
                curl.setopt(pycurl.SSLCERT_BLOB, shown.certificate)
                curl.setopt(pycurl.SSLKEY_BLOB, shown.key)
        if self.access.server_name is not None:
            # libcurl looks for the address's name in the certificate: that name is the address, found elsewhere.
            server = urlsplit(self.access.server)
            host = f"[{server.hostname}]" if ":" in (server.hostname or "") else server.hostname
            curl.setopt(pycurl.CONNECT_TO, [f"::{host}:"])
        return curl

    def _transfers(self) -> Transfers:
        if self._opened is None:
            self._opened = Transfers(self.connections + _BESIDE)
        return self._opened

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._base}{path}?{urlencode(query)}" if query else f"{self._base}{path}"

    def _count(self, method: str, code: str, began: float, error: Exception | None = None) -> None:
        now = self.clock()
        if error is not None:
            self._outage.failed(one_line(error), now)
        else:
            self._outage.answered(now)
        if self.on_request is not None:
            self.on_request(method, code, now - began)


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


def _retry_after(curl: pycurl.Curl) -> float:
    return min(float(curl.getinfo(pycurl.RETRY_AFTER)), LONGEST_PAUSE_S)


def _ask(curl: pycurl.Curl, url: str, data: bytes | None, options: _Options, before: _Options | None = None) -> None:
    curl.setopt(pycurl.URL, url)
    if options != before:
        curl.setopt(pycurl.HTTPHEADER, options.headers)
        curl.setopt(pycurl.TIMEOUT_MS, round(options.timeout * 1000))
        curl.setopt(pycurl.POST if options.has_body else pycurl.HTTPGET, 1)
        curl.setopt(pycurl.CUSTOMREQUEST, options.method)
    if data is not None:
        # Read from a source that cannot be read again, as libcurl otherwise repeats, unasked, what a server that
        # closed its connection may have carried out.
        curl.setopt(pycurl.POSTFIELDSIZE, len(data))
        curl.setopt(pycurl.READFUNCTION, io.BytesIO(data).read)
