"""Answers over HTTP, whatever they say: only to GET, compressed where it is worth it, and never with a fault's details.

Answers without login are given on loopback, where any page in a browser reaches them too by a name of its own that it lets
point there (DNS rebinding). So there the ``Host`` of a request must be loopback.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

from aiohttp import web

from flowsched.support.address import Address, is_loopback
from flowsched_k8s.api.login import Login
from flowsched_k8s.http.connections import SENT_WITHIN_S, LimitedSite, serving
from flowsched_models.document import InputError

LOG = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""What is wrong, in a few words; None if nothing is."""
SMALL = 1024
"""Shorter answers are not worth compressing."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers one path."""


async def listen(
    app: web.Application, key: str, address: Address, tls: Callable[[], ssl.SSLContext] | None = None
) -> tuple[web.AppRunner, Address]:
    """Listen until the runner is cleaned up; the address has the port that was found free.

    ``tls``: what a new connection is served with; None for plain HTTP.

    Raises :class:`InputError`, which names the configuration's key, if the address cannot be had.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=0.9 * SENT_WITHIN_S)
    await runner.setup()
    try:
        await LimitedSite(runner, address.host or None, address.port, tls).start()
    except OSError as error:
        await runner.cleanup()
        reason = (error.strerror or str(error)).lower()
        raise InputError.one("configuration", f"cannot listen on {address}: {reason}", key=key) from None
    return runner, Address(address.host, runner.addresses[0][1])


def application(paths: Mapping[str, Handler], *, local: bool = False) -> web.Application:
    """Answers each path by its handler, and says of any other what there is.

    ``local``: it listens on loopback, and answers only requests whose ``Host`` is.
    """

    @web.middleware
    async def friendly(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Say what there is to those who ask for what is not, and hide faults from the outside."""
        with serving(request):
            return await answer(request, handler)

    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        if local and not _is_local(request):
            text = f"only requests to localhost are answered here, not to {_hosts(request)}\n"
            return web.Response(status=403, text=text)
        if request.method != "GET":
            return web.Response(status=405, text="only GET is answered here\n", headers={"Allow": "GET"})
        try:
            return await handler(request)
        except web.HTTPNotFound as missing:
            if request.match_info.http_exception is not None:
                listed = "\n".join(paths)
                return web.Response(status=404, text=f"there is no {printable(request.path)}; there is:\n{listed}\n")
            return web.Response(status=404, text=missing.text)
        except web.HTTPException:
            raise
        except Exception:
            LOG.exception("an answer failed", extra={"path": request.path})
            return web.Response(status=500, text="the answer failed; the log says why\n")

    app = web.Application(middlewares=[friendly])
    for path, handler in paths.items():
        app.router.add_get(path, handler, allow_head=False)
    return app


def _is_local(request: web.Request) -> bool:
    named = request.headers.getall("Host", [])
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]{1,5})?", named[0]) if len(named) == 1 else None
    return match is not None and is_loopback(match[1] or match[2])


def _hosts(request: web.Request) -> str:
    return " and ".join(f"'{printable(host)}'" for host in request.headers.getall("Host", [""])[:2])


async def compressed(request: web.Request, body: bytes, content_type: str) -> web.Response:
    """The answer, compressed if it is long and the client takes that."""
    headers = headers_of(content_type)
    if len(body) > SMALL:
        headers["Vary"] = "Accept-Encoding"
        if _takes_gzip(request.headers.get("Accept-Encoding", "")):
            body = await asyncio.to_thread(gzip.compress, body, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers)


def scraped(metrics: Callable[[str], tuple[bytes, str]]) -> Handler:
    """Answers with metrics. ``metrics``: the text to scrape and its content type, for an Accept header."""

    async def answer(request: web.Request) -> web.Response:
        body, content_type = metrics(request.headers.get("Accept", ""))
        return await compressed(request, body, content_type)

    return answer


def guarded(handler: Handler, login: Login | None) -> Handler:
    """Answers callers that are admitted; all of them where there is no login."""
    if login is None:
        return handler

    async def answer(request: web.Request) -> web.StreamResponse:
        refusal = await login.refusal(request.headers.get("Authorization", ""))
        if refusal is None:
            return await handler(request)
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
        return web.Response(status=refusal.status, text=f"{refusal.text}\n", headers=headers)

    return answer


def headers_of(content_type: str) -> dict[str, str]:
    """Of every answer: none is kept."""
    return {"Content-Type": content_type, "Cache-Control": "no-store"}


def _takes_gzip(accept: str) -> bool:
    for part in accept.lower().split(","):
        coding, _, parameters = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
    return False


def printable(text: str) -> str:
    """What a client asked for, as it may stand in an answer."""
    return quote(text[:200], safe="/-._~ ")
