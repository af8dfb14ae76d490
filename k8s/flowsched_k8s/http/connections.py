"""Connections to one address: how many there may be, and how long a client may take to send a request or read an answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import cast

from aiohttp import web

MOST = 200
"""Connections to one address. One more ends another one: of the client that has most, that without a request for longest."""
SHARE = 8
"""Of so many file descriptors one may be a connection to one address: the process needs the others itself."""
SENT_WITHIN_S = 10.0
"""A connection ends that has sent no whole head of a request so long after it was opened, or after the last answer."""
READ_WITHIN_S = 30.0
"""So does an answer of which nothing more is read for so long."""
AT_A_TIME = 32
"""Connections that are accepted before others are looked at. It takes five such looks until a request that came with its
connection is served, in which no :data:`MOST` others may come.
"""
QUEUE = 1024
"""Connections that wait to be accepted. With more the kernel lets clients try again, after a second or three."""


class LimitedSite(web.BaseSite):
    """Listens on one address."""

    def __init__(
        self, runner: web.AppRunner, host: str | None, port: int, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """``tls``: what a new connection is served with; None for plain HTTP."""
        super().__init__(runner)
        self._host, self._port = host, port
        self.tls = tls
        self._all: dict[_Connection, None] = {}
        self._turns = count()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = MOST if limit == resource.RLIM_INFINITY else max(1, min(MOST, limit // SHARE))

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self._all)

    @property
    def name(self) -> str:
        """Of what listens, as URL."""
        return f"http{'' if self.tls is None else 's'}://{self._host or ''}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises :class:`OSError`."""
        await super().start()
        server = self._runner.server
        assert server is not None, "the runner is set up"
        loop = asyncio.get_running_loop()
        made = cast(Callable[[], asyncio.Protocol], server)
        self._server = await loop.create_server(
            lambda: _Connection(self, made()), self._host, self._port, backlog=AT_A_TIME
        )
        for listening in self._server.sockets:
            # asyncio takes one number for how many it accepts at a time and how many the kernel lets wait for that.
            with socket.socket(fileno=os.dup(listening.fileno())) as same:
                same.listen(QUEUE)

    def opened(self, connection: _Connection) -> None:
        """Count a connection in, and end another one if there are too many."""
        if len(self._all) >= self._most:
            # Not the oldest of all: a client that sends its request at once, as a kubelet does, is served meanwhile. And
            # not of all clients: one that opens many takes them from itself.
            held = Counter(other.client for other in self._all)
            min(self._all, key=lambda other: (other.served, -held[other.client], other.turn)).end()
        self._all[connection] = None
        connection.turn = self.next_turn()

    def next_turn(self) -> int:
        """Larger each time."""
        return next(self._turns)

    def closed(self, connection: _Connection) -> None:
        """Count a connection out."""
        self._all.pop(connection, None)


@contextlib.contextmanager
def serving(request: web.Request) -> Iterator[None]:
    """Around the answer to a request whose head has come whole."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, _Connection):
        yield
        return
    connection.begin()
    try:
        yield
    finally:
        connection.finish()


class _Connection(asyncio.Protocol):
    """Passes everything on to what answers, and ends what takes too long."""

    def __init__(self, site: LimitedSite, inner: asyncio.Protocol) -> None:
        self._site = site
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        """Of the socket, whether or not TLS goes over it."""
        self._over: asyncio.Transport | None = None
        """What requests come by; None before."""
        self._early = b""
        """What came before that was told."""
        self._handshake: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._answers = 0
        self.client = ""
        """The address that it comes from."""
        self.turn = 0
        """When it was opened, or its last request came."""

    @property
    def served(self) -> bool:
        """Whether an answer is made or sent."""
        return self._answers > 0 or self._unread is not None

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.client = str((transport.get_extra_info("peername") or ("",))[0])
        self._site.opened(self)
        self._expect()
        if self._site.tls is None:
            self._open(self._transport)
        else:
            self._transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._secure(self._transport, self._site.tls()))

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        over = None
        with contextlib.suppress(OSError):
            over = await loop.start_tls(transport, self, tls, server_side=True, ssl_handshake_timeout=SENT_WITHIN_S)
        if over is None or over.is_closing():
            self.end()
        else:
            self._open(over)

    def _open(self, over: asyncio.Transport) -> None:
        self._over = over
        self._inner.connection_made(over)
        if self._early:
            early, self._early = self._early, b""
            self._inner.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._over is None:
            self._early += data
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._over is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        self._watch()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._cancel_watch()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._site.closed(self)
        self._cancel_expectation()
        self._cancel_watch()
        if self._over is not None:
            self._inner.connection_lost(exc)

    # Requests

    def begin(self) -> None:
        """The head of a request has come whole."""
        self._answers += 1
        self.turn = self._site.next_turn()
        self._cancel_expectation()

    def finish(self) -> None:
        """Its answer is made."""
        self._answers -= 1
        self._expect()

    def end(self) -> None:
        """At once, whatever is under way."""
        self._site.closed(self)
        self._cancel_expectation()
        if self._transport is not None:
            self._transport.abort()

    def _expect(self) -> None:
        """The time of the next request begins."""
        if self._late is None and self._transport is not None and not self._transport.is_closing():
            self._late = asyncio.get_running_loop().call_later(SENT_WITHIN_S, self._is_late)

    def _is_late(self) -> None:
        self._late = None
        if self.served:
            self._expect()
        else:
            self.end()

    def _cancel_expectation(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    # Answers

    def _watch(self) -> None:
        left = self._left()
        self._unread = asyncio.get_running_loop().call_later(READ_WITHIN_S, self._look, left)

    def _look(self, left: int) -> None:
        if self._left() >= left:
            self.end()
        else:
            self._watch()

    def _left(self) -> int:
        """Bytes that were not sent yet."""
        of = {self._transport, self._over} - {None}
        return sum(transport.get_write_buffer_size() for transport in of if transport is not None)

    def _cancel_watch(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
