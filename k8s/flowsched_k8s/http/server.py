"""What flowsched answers over HTTP: is it alive and ready, its metrics, its configuration, its state and its records.

Everything is read only. What tells names, requests and rounds of all tenants is on loopback only. The address there answers
everything, so that nothing is lost when only it is reached.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import msgspec
from aiohttp import web

from flowsched.support.address import Address
from flowsched_k8s.api.login import Login
from flowsched_k8s.configuration.configuration import ServerSettings
from flowsched_k8s.http.certificate import ServedCertificate
from flowsched_k8s.http.web_server import (
    Check,
    Handler,
    application,
    compressed,
    guarded,
    headers_of,
    listen,
    printable,
    scraped,
)
from flowsched_k8s.records.records import Records
from flowsched_k8s.records.state_dump import MOST

LOG = logging.getLogger(__name__)

ARCHIVE = "application/zip"
"""Content type of a record as an archive."""


@dataclass(frozen=True)
class Answers:
    """Where the answers come from. Callables are called in the event loop and must be quick."""

    live: Mapping[str, Check]
    ready: Mapping[str, Check]
    notes: Mapping[str, Check]
    """What is wrong and makes no replica unready: told by ``/readyz``."""
    metrics: Callable[[str], tuple[bytes, str]]
    """The text to scrape and its content type, for an Accept header."""
    configuration: Callable[[], Any]
    state: Callable[[str | None, int], Awaitable[bytes]]
    """All that the scheduler knows, as JSON: of one pod only, where one is given, and so many entries of each list."""
    records: Records


class Server:
    """Listens until stopped."""

    def __init__(
        self, answers: Answers, settings: ServerSettings, login: Login | None, clock: Callable[[], float]
    ) -> None:
        """``login``: of callers from the network; None answers them all. ``clock``: seconds since 1970."""
        self._answers = answers
        self._settings = settings
        self._login = login
        self._clock = clock
        self._runners: list[web.AppRunner] = []

    async def start(self) -> ServerSettings:
        """Listen; the addresses with the ports that were found free.

        Raises :class:`InputError` if an address cannot be had, or a certificate cannot be used.
        """
        answers, settings = self._answers, self._settings
        certificate = ServedCertificate(settings.certificate, self._clock)
        try:
            bound = {
                "health": await self._listen(health_only(answers), "health"),
                "metrics": await self._listen(metrics_only(answers, self._login), "metrics", certificate.context),
                "loopback": await self._listen(everything(answers), "loopback"),
            }
            return settings.model_copy(update=bound)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening; answers under way get a second."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _listen(
        self, app: web.Application, name: str, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> Address:
        runner, bound = await listen(app, f"server.{name}", getattr(self._settings, name), tls)
        self._runners.append(runner)
        return bound


def health_only(answers: Answers) -> web.Application:
    """``/livez``, ``/readyz`` and ``/healthz``."""
    return application(_health_paths(answers))


def metrics_only(answers: Answers, login: Login | None) -> web.Application:
    """``/metrics``, for callers that are admitted."""
    return application({"/metrics": guarded(scraped(answers.metrics), login)})


def everything(answers: Answers) -> web.Application:
    """All paths, for requests to loopback."""

    def listing() -> dict[str, Any]:
        return {"records": [asdict(kept) for kept in answers.records.listing()]}

    async def record(request: web.Request) -> web.Response:
        packed = _wants_archive(request)
        asked, pod = request.match_info["round"], request.query.get("pod")
        round = answers.records.find(asked, pod)
        body = None if round is None else await asyncio.to_thread(answers.records.render, round, packed=packed)
        if round is None or body is None:
            raise web.HTTPNotFound(text=f"{_no_record(asked, pod)}; see /debug/records\n")
        if not packed:
            return await compressed(request, body, "application/json")
        name = f'attachment; filename="round-{round}.npz"'
        return web.Response(body=body, headers={**headers_of(ARCHIVE), "Content-Disposition": name})

    return application(
        {
            **_health_paths(answers),
            "/metrics": scraped(answers.metrics),
            "/configz": _json(answers.configuration),
            "/debug/state": _state(answers.state),
            "/debug/records": _json(listing),
            "/debug/records/{round}": record,
        },
        local=True,
    )


def _health_paths(answers: Answers) -> dict[str, Handler]:
    return {
        "/livez": _checks("livez", answers.live),
        "/readyz": _checks("readyz", answers.ready, answers.notes),
        "/healthz": _checks("healthz", answers.live),
    }


def _checks(name: str, checks: Mapping[str, Check], notes: Mapping[str, Check] = MappingProxyType({})) -> Handler:
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
        told = []
        for note, look in notes.items():
            said = _looked(note, look)
            told += [] if said is None else [f"[!]{note}: {said}"]
            lines.append(f"[+]{note} ok" if said is None else told[-1])
        if failed:
            lines.append(f"{name} check failed")
            return web.Response(status=500, text="\n".join(lines) + "\n")
        if "verbose" in request.query:
            return web.Response(text="\n".join([*lines, f"{name} check passed"]) + "\n")
        return web.Response(text="\n".join(["ok", *told, ""]) if told else "ok")

    return answer


def _looked(name: str, look: Check) -> str | None:
    try:
        return look()
    except Exception as error:
        LOG.exception("a check failed itself", extra={"check": name})
        return f"the check itself failed ({type(error).__name__})"


def _json(plain: Callable[[], Any]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return await compressed(request, msgspec.json.encode(plain(), enc_hook=str) + b"\n", "application/json")

    return answer


def _state(state: Callable[[str | None, int], Awaitable[bytes]]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        asked = request.query.get("limit", str(MOST))
        if not (asked.isascii() and asked.isdigit() and len(asked) < 9 and 1 <= int(asked) <= MOST):
            raise web.HTTPBadRequest(text=f"limit must be from 1 to {MOST}, but is '{printable(asked)}'\n")
        return await compressed(request, await state(request.query.get("pod"), int(asked)) + b"\n", "application/json")

    return answer


def _wants_archive(request: web.Request) -> bool:
    """Whether a record shall be an archive; JSON is what those get who do not say."""
    form = request.query.get("format")
    if form is None:
        return ARCHIVE in (part.partition(";")[0].strip() for part in request.headers.get("Accept", "").split(","))
    if form not in ("json", "npz"):
        raise web.HTTPBadRequest(text=f"there is no format '{printable(form)}'; there are: json, npz\n")
    return form == "npz"


def _no_record(round: str, pod: str | None) -> str:
    if pod is None:
        return f"there is no record of round '{printable(round)}'"
    if round == "latest":
        return f"no round that decided on pod '{printable(pod)}' is kept"
    return f"no record is kept of a round '{printable(round)}' that decided on pod '{printable(pod)}'"
