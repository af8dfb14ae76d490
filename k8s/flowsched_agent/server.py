"""What the agent answers over HTTP, in a thread of its own: all of it on loopback, in a cluster also health and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from flowsched.support.address import Address
from flowsched_agent.configuration import ClusterServer
from flowsched_agent.loop_thread import LoopThread
from flowsched_k8s.api import login
from flowsched_k8s.api.access import Access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.http.certificate import ServedCertificate
from flowsched_k8s.http.web_server import Check, Handler, application, guarded, headers_of, listen, scraped


@dataclass(frozen=True)
class Network:
    """What is served on the network, and the API server that says to whom."""

    settings: ClusterServer
    access: Access
    clock: Callable[[], float]
    """Seconds since 1970."""


class Server:
    """Listens until closed."""

    def __init__(
        self,
        loopback: Address | None,
        live: Check,
        ready: Check,
        metrics: Callable[[str], tuple[bytes, str]],
        network: Network | None = None,
    ) -> None:
        """Listen at once. Raises :class:`InputError` if an address cannot be had, or a certificate cannot be used.

        ``metrics``: the text to scrape and its content type, for an Accept header.
        """
        alive = _health(live)
        self._health = {"/healthz": alive, "/livez": alive, "/readyz": _health(ready)}
        self._metrics = scraped(metrics)
        self._runners: list[web.AppRunner] = []
        self._connection: Connection | None = None
        self._thread = LoopThread("server")
        self.addresses: Mapping[str, Address] = {}
        """By ``loopback``, ``health`` and ``metrics``, with the ports that were found free."""
        try:
            self.addresses = self._thread.begin(self._start(loopback, network)).result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening; answers under way get a second."""
        self._thread.begin(self._stop()).result()
        self._thread.close()

    async def _start(self, loopback: Address | None, network: Network | None) -> Mapping[str, Address]:
        apps: dict[str, tuple[Address, web.Application, str, ServedCertificate | None]] = {}
        if loopback is not None:
            everything = application({**self._health, "/metrics": self._metrics}, local=True)
            apps["loopback"] = loopback, everything, "server", None
        if network is not None and network.settings.health is not None:
            apps["health"] = network.settings.health, application(self._health), "kubernetes.server.health", None
        if network is not None and network.settings.metrics is not None:
            certificate = ServedCertificate(network.settings.certificate, network.clock)
            admitted = application({"/metrics": guarded(self._metrics, self._login(network))})
            apps["metrics"] = network.settings.metrics, admitted, "kubernetes.server.metrics", certificate
        found = {}
        for name, (address, app, key, tls) in apps.items():
            runner, found[name] = await listen(app, key, address, None if tls is None else tls.context)
            self._runners.append(runner)
        return found

    def _login(self, network: Network) -> login.Login | None:
        if network.settings.authentication == "none":
            return None
        self._connection = Connection(
            network.access,
            connections=4,
            timeout=login.ANSWER_WITHIN_S,
            limit=RateLimit(login.PER_SECOND, login.BURST),
            user_agent="flowsched-agent",
        )
        return login.Login(self._connection, "/metrics")

    async def _stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        if self._connection is not None:
            await self._connection.close()


def _health(check: Check) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        wrong = check()
        status, text = (200, "ok") if wrong is None else (500, wrong)
        return web.Response(status=status, text=f"{text}\n", headers=headers_of("text/plain; charset=utf-8"))

    return answer
