"""A proxy in front of the API server that does something else with some of the requests than to pass them on.

It speaks plain HTTP to its client and TLS to the API server, and looks at each request by itself: what it is about decides
which rule it meets. Whatever meets none is passed on, watches as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import re
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from urllib.parse import unquote

import aiohttp
from aiohttp import web

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
_PASSED = ("Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_PASSED_BACK = ("Content-Type", "Content-Length", "Content-Encoding", "Retry-After")
_BOOKMARK = b'"type":"BOOKMARK"'
_LOOK_S = 0.02


class Does(Enum):
    """What becomes of a request."""

    ANSWER = "answer"
    """It is answered here, and never arrives."""
    HANG = "hang"
    """It does not arrive, and has no answer as long as the rule holds; then its connection is cut."""
    DELAY = "delay"
    """It arrives late."""
    LATE = "late"
    """Each part of its answer arrives late, of a watch each event."""
    HALF = "half"
    """It arrives, and its connection is cut in the middle of the answer."""
    DOUBLE = "double"
    """It arrives twice, one after the other; the answer is that to the second one."""
    DROP = "drop"
    """It arrives, and its connection is cut at the first byte of the answer."""
    CUT = "cut"
    """Its connection is cut before it arrives."""
    SILENCE = "silence"
    """Nothing of the answer arrives as long as the rule holds, and all of it afterwards: for watches."""


@dataclass(frozen=True)
class Asked:
    """What a request is about."""

    method: str
    path: str
    query: Mapping[str, str]
    namespace: str
    resource: str
    """In lower case and in the plural, as in paths."""
    name: str
    sub: str
    """The sub-resource, such as ``binding``."""

    @property
    def watches(self) -> bool:
        return self.query.get("watch") in ("1", "true")

    @property
    def lists(self) -> bool:
        return self.method == "GET" and not self.name and not self.watches

    @classmethod
    def of(cls, method: str, path: str, query: Mapping[str, str]) -> Asked:
        found = _PATH.fullmatch(path)
        parts = {k: unquote(v or "") for k, v in found.groupdict().items()} if found else {}
        return cls(
            method,
            path,
            query,
            parts.get("namespace", ""),
            parts.get("resource", ""),
            parts.get("name", ""),
            parts.get("sub", ""),
        )


@dataclass(eq=False)
class Rule:
    """What is done to the requests that it matches."""

    matches: Callable[[Asked], bool]
    does: Does
    status: int = 500
    """Of the answer, with ``body`` and ``headers``."""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """Of the delay, and of each part of a late answer."""
    bookmarks: bool = False
    """Whether bookmarks come through a silence."""
    times: int | None = None
    """How many requests it is done to; None: all."""
    share: float = 1.0
    """Of the requests that it matches, drawn by chance, so much."""
    under_way: bool = False
    """A silence of the watches that are under way when it begins; new ones are passed on."""
    began: float = math.inf
    """When it began to hold, by the clock of the proxy."""
    done: int = 0
    """How many it has been done to."""


def failing(matches: Callable[[Asked], bool], status: int, message: str, reason: str = "", **headers: str) -> Rule:
    """A rule that answers as the API server does when something behind it fails; ``Retry_After`` is a header."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    named = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Rule(matches, Does.ANSWER, status, json.dumps(body).encode(), named)


def webhook_fails(matches: Callable[[Asked], bool]) -> Rule:
    """As if the webhook that is asked about these requests were away."""
    text = 'Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: connection refused'
    return failing(matches, 500, text, "InternalError")


class FaultProxy:
    """See the module. It listens at ``address`` while it is entered."""

    def __init__(self, server: str, authority: Path, seed: int = 1) -> None:
        """``authority``: the certificate that the API server's is signed by; ``seed``: of what happens by chance."""
        self._server = server
        self._tls = ssl.create_default_context(cafile=str(authority))
        self.rules: tuple[Rule, ...] = ()
        """The first one that matches counts."""
        self.seen: deque[Asked] = deque(maxlen=100_000)
        """The latest requests."""
        self._draw = random.Random(seed)
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self.address = ""
        self._under_way: dict[int, tuple[web.Request, Asked]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        self.address = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.rules = ()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextlib.contextmanager
    def faults(self, *rules: Rule) -> Iterator[tuple[Rule, ...]]:
        """These rules hold, beside those that do already."""
        for rule in rules:
            rule.began = self._loop.time()
        before, self.rules = self.rules, (*rules, *self.rules)
        try:
            yield rules
        finally:
            self.rules = before

    def cut(self, matches: Callable[[Asked], bool] | None = None) -> None:
        """Cut the connections of such requests that are under way, such as watches; None: all, also idle ones."""

        def now() -> None:
            if matches is None:
                for transport in list(self._transports):
                    transport.abort()
                return
            for request, asked in list(self._under_way.values()):
                if matches(asked):
                    self._cut(request)

        self._loop.call_soon_threadsafe(now)

    def _rule(self, asked: Asked) -> Rule | None:
        for rule in self.rules:
            if rule.under_way or (rule.times is not None and rule.done >= rule.times) or not rule.matches(asked):
                continue
            if rule.share >= 1.0 or self._draw.random() < rule.share:
                rule.done += 1
                return rule
        return None

    async def _start(self) -> int:
        unlimited = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._client = aiohttp.ClientSession(
            connector=connector, timeout=unlimited, auto_decompress=False, skip_auto_headers=("Accept-Encoding",)
        )
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        asked = Asked.of(request.method, request.raw_path.partition("?")[0], request.query)
        self.seen.append(asked)
        if request.transport is not None:
            self._transports.add(request.transport)
        self._under_way[id(request)] = request, asked
        try:
            return await self._answered(request, asked)
        finally:
            del self._under_way[id(request)]

    async def _answered(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        rule = self._rule(asked)
        body = await request.read()
        does = rule.does if rule is not None else None
        if rule is not None and does is Does.ANSWER:
            return web.Response(status=rule.status, body=rule.body, headers=rule.headers)
        if rule is not None and does is Does.HANG:
            while rule in self.rules:
                await asyncio.sleep(_LOOK_S)
        if does in (Does.HANG, Does.CUT):
            return self._cut(request)
        if rule is not None and does is Does.DELAY:
            await asyncio.sleep(rule.seconds)
        if does is Does.DOUBLE:
            async with self._forwarded(request, body) as answer:
                await answer.read()
        try:
            async with self._forwarded(request, body) as answer:
                if does is Does.DROP:
                    return self._cut(request)
                return await self._passed_on(request, asked, answer, rule)
        except aiohttp.ClientError:
            return self._cut(request)

    def _forwarded(self, request: web.Request, body: bytes) -> aiohttp.client._RequestContextManager:
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        return self._client.request(
            request.method, f"{self._server}{request.raw_path}", data=body or None, headers=headers
        )

    async def _passed_on(
        self, request: web.Request, asked: Asked, answer: aiohttp.ClientResponse, rule: Rule | None
    ) -> web.StreamResponse:
        began = self._loop.time()
        headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        response = web.StreamResponse(status=answer.status, headers=headers)
        if rule is not None and rule.does is Does.LATE:
            await asyncio.sleep(rule.seconds)
        await response.prepare(request)
        held: list[bytes] = []
        reading: asyncio.Task[bytes] | None = None
        try:
            while True:
                if reading is None:
                    reading = asyncio.ensure_future(answer.content.readany())
                await asyncio.wait({reading}, timeout=_LOOK_S if held else None)
                silence = self._silence(asked, began, rule)
                if held and silence is None:
                    await response.write(b"".join(held))
                    held.clear()
                if not reading.done():
                    continue
                part, reading = reading.result(), None
                if rule is not None and rule.does is Does.LATE and asked.watches and rule in self.rules:
                    await asyncio.sleep(rule.seconds)
                if silence is not None and not (silence.bookmarks and _BOOKMARK in part):
                    held.append(part)
                elif rule is not None and rule.does is Does.HALF:
                    await response.write(part[: len(part) // 2])
                    return self._cut(request)
                elif part:
                    await response.write(part)
                if not part:
                    break
        finally:
            if reading is not None:
                reading.cancel()
        await response.write_eof()
        return response

    def _silence(self, asked: Asked, began: float, rule: Rule | None) -> Rule | None:
        """The rule under which nothing of an answer that began at such a time arrives now."""
        for one in self.rules:
            if one.does is Does.SILENCE and (
                one is rule or (one.under_way and began < one.began and one.matches(asked))
            ):
                return one
        return None

    @staticmethod
    def _cut(request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
