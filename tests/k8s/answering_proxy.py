"""An HTTP proxy in front of the API server that answers some requests itself."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable

import aiohttp
from aiohttp import web
from plane import Plane

HANG = 0
"""Instead of a status: no answer at all."""
Answer = Callable[[str, str], int | None]
"""Of a method and a path with its query: the status that the proxy answers with; None for what passes."""
_HOPS = {"transfer-encoding", "content-length", "connection", "host", "content-encoding"}


class AnsweringProxy:
    """Everything passes but what :attr:`answer` says. Plain HTTP, so that a token is all that a client shows."""

    def __init__(self, plane: Plane) -> None:
        self.answer: Answer = lambda _method, _path: None
        self.asked: list[tuple[str, str]] = []
        """Every request, in the order of their arrival."""
        self._server = plane.server
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> AnsweringProxy:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        self.address = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> int:
        self._session = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(None))
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path_qs))
        status = self.answer(request.method, request.path_qs)
        if status == HANG:
            await asyncio.Event().wait()
        if status is not None:
            told = {"kind": "Status", "code": status, "reason": "InternalError", "message": "broken for a test"}
            return web.json_response(told, status=status)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
        body = await request.read()
        url = f"{self._server}{request.raw_path}"
        async with self._session.request(request.method, url, data=body, headers=headers, ssl=self._tls) as reply:
            kept = {name: value for name, value in reply.headers.items() if name.lower() not in _HOPS}
            answer = web.StreamResponse(status=reply.status, headers=kept)
            await answer.prepare(request)
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                async for part in reply.content.iter_any():
                    await answer.write(part)
            return answer
