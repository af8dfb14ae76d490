"""What flowsched answers over HTTP: is it alive and ready, its metrics, its configuration, its state and its records.

Everything is read only. Addresses may be one or two; the one for metrics also answers what the one for health does, so
that nothing is lost when only it is reached.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from aiohttp import web

from flowsched.support.address import Address
from flowsched_k8s.configuration import ServerSettings
from flowsched_k8s.records import Kept
from flowsched_models.document import InputError, Problem

LOG = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""What is wrong, in a few words; None if nothing is."""
ARCHIVE = "application/zip"
"""Content type of a record as an archive."""
SMALL = 1024
"""Shorter answers are not worth compressing."""


class RecordStore(Protocol):
    """Where records of rounds come from."""

    def listing(self) -> Sequence[Kept]:
        """What is kept, latest first."""
        ...

    def find(self, round: str, pod: str | None = None) -> str | None:
        """The round of a kept record, ``latest`` being the last one; with a pod, only if it decided on that."""
        ...

    def render(self, round: str, *, packed: bool = False) -> bytes | None:
        """A record as JSON or as an archive; called in a thread."""
        ...


@dataclass(frozen=True)
class Answers:
    """Where the answers come from. Callables are called in the event loop and must be quick."""

    live: Mapping[str, Check]
    ready: Mapping[str, Check]
    metrics: Callable[[str], tuple[bytes, str]]
    """The text to scrape and its content type, for an Accept header."""
    configuration: Callable[[], Any]
    state: Callable[[], Any]
    """Everything that the scheduler knows, as plain data."""
    records: RecordStore


class Server:
    """Listens until stopped."""

    def __init__(self, answers: Answers, addresses: ServerSettings) -> None:
        self._answers = answers
        self._addresses = addresses
        self._runners: list[web.AppRunner] = []

    async def start(self) -> tuple[Address, Address]:
        """Listen; the addresses for health and for metrics, with the ports that were found free.

        Raises :class:`InputError` if an address cannot be had.
        """
        health, metrics = self._addresses.health, self._addresses.metrics
        try:
            if health == metrics:
                bound = await self._listen(everything(self._answers), "metrics", metrics)
                return bound, bound
            return (
                await self._listen(health_only(self._answers), "health", health),
                await self._listen(everything(self._answers), "metrics", metrics),
            )
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening; answers under way get a second."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _listen(self, app: web.Application, name: str, address: Address) -> Address:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, address.host or None, address.port).start()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"cannot listen on {address}: {reason}"
            raise InputError([Problem("configuration", None, f"server.{name}", message)]) from None
        return Address(address.host, runner.addresses[0][1])


def health_only(answers: Answers) -> web.Application:
    """``/livez``, ``/readyz`` and ``/healthz``."""
    return _application(_health_paths(answers))


def everything(answers: Answers) -> web.Application:
    """All paths."""

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = answers.metrics(request.headers.get("Accept", ""))
        return await _compressed(request, body, content_type)

    async def configz(request: web.Request) -> web.Response:
        return await _json(request, answers.configuration())

    async def state(request: web.Request) -> web.Response:
        return await _json(request, answers.state())

    async def listing(request: web.Request) -> web.Response:
        return await _json(request, {"records": [asdict(kept) for kept in answers.records.listing()]})

    async def record(request: web.Request) -> web.Response:
        packed = _wants_archive(request)
        asked, pod = request.match_info["round"], request.query.get("pod")
        round = answers.records.find(asked, pod)
        body = None if round is None else await asyncio.to_thread(answers.records.render, round, packed=packed)
        if round is None or body is None:
            raise web.HTTPNotFound(text=f"{_no_record(asked, pod)}; see /debug/records\n")
        if not packed:
            return await _compressed(request, body, "application/json")
        name = f'attachment; filename="round-{round}.npz"'
        return web.Response(body=body, headers={**_headers(ARCHIVE), "Content-Disposition": name})

    return _application(
        {
            **_health_paths(answers),
            "/metrics": metrics,
            "/configz": configz,
            "/debug/state": state,
            "/debug/records": listing,
            "/debug/records/{round}": record,
        }
    )


def _health_paths(answers: Answers) -> dict[str, Handler]:
    return {
        "/livez": _checks("livez", answers.live),
        "/readyz": _checks("readyz", answers.ready),
        "/healthz": _checks("healthz", answers.live),
    }


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _application(paths: Mapping[str, Handler]) -> web.Application:
    @web.middleware
    async def friendly(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Say what there is to those who ask for what is not, and hide faults from the outside."""
        if request.method != "GET":
            return web.Response(status=405, text="only GET is answered here\n", headers={"Allow": "GET"})
        try:
            return await handler(request)
        except web.HTTPNotFound as missing:
            if request.match_info.http_exception is not None:
                listed = "\n".join(paths)
                return web.Response(status=404, text=f"there is no {_printable(request.path)}; there is:\n{listed}\n")
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


def _checks(name: str, checks: Mapping[str, Check]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        left_out = set(request.query.getall("exclude", []))
        lines = []
        failed = []
        for check, look in checks.items():
            if check in left_out:
                lines.append(f"[+]{check} excluded: ok")
                continue
            wrong = _looked(check, look)
            if wrong is None:
                lines.append(f"[+]{check} ok")
            else:
                failed.append(check)
                lines.append(f"[-]{check} failed: {wrong}")
        if failed:
            lines.append(f"{name} check failed")
            return web.Response(status=500, text="\n".join(lines) + "\n")
        if "verbose" in request.query:
            return web.Response(text="\n".join([*lines, f"{name} check passed"]) + "\n")
        return web.Response(text="ok")

    return answer


def _looked(name: str, look: Check) -> str | None:
    try:
        return look()
    except Exception as error:
        LOG.exception("a check failed itself", extra={"check": name})
        return f"the check itself failed ({type(error).__name__})"


async def _json(request: web.Request, value: Any) -> web.Response:
    return await _compressed(request, msgspec.json.encode(value, enc_hook=str) + b"\n", "application/json")


async def _compressed(request: web.Request, body: bytes, content_type: str) -> web.Response:
    headers = _headers(content_type)
    if len(body) > SMALL:
        headers["Vary"] = "Accept-Encoding"
        if _takes_gzip(request.headers.get("Accept-Encoding", "")):
            body = await asyncio.to_thread(gzip.compress, body, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers)


def _headers(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type, "Cache-Control": "no-store"}


def _wants_archive(request: web.Request) -> bool:
    """Whether a record shall be an archive; JSON is what those get who do not say."""
    form = request.query.get("format")
    if form is None:
        return ARCHIVE in (part.partition(";")[0].strip() for part in request.headers.get("Accept", "").split(","))
    if form not in ("json", "npz"):
        raise web.HTTPBadRequest(text=f"there is no format '{_printable(form)}'; there are: json, npz\n")
    return form == "npz"


def _no_record(round: str, pod: str | None) -> str:
    if pod is None:
        return f"there is no record of round '{_printable(round)}'"
    if round == "latest":
        return f"no round that decided on pod '{_printable(pod)}' is kept"
    return f"no record is kept of a round '{_printable(round)}' that decided on pod '{_printable(pod)}'"


def _takes_gzip(accept: str) -> bool:
    for part in accept.lower().split(","):
        coding, _, parameters = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
    return False


def _printable(text: str) -> str:
    return quote(text[:200], safe="/-._~ ")
