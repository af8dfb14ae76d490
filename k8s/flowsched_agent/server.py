"""What the agent answers over HTTP, in a thread of its own: ``/healthz``, ``/livez``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from flowsched.support.address import Address
from flowsched_agent.loop_thread import LoopThread
from flowsched_k8s.web_server import Check, Handler, application, headers_of, listen, scraped


class Server:
    """Listens until closed."""

    def __init__(
        self, address: Address, live: Check, ready: Check, metrics: Callable[[str], tuple[bytes, str]]
    ) -> None:
        """Listen at once. Raises :class:`InputError` if the address cannot be had.

        ``metrics``: the text to scrape and its content type, for an Accept header.
        """
        alive = _health(live)
        app = application({"/healthz": alive, "/livez": alive, "/metrics": scraped(metrics), "/readyz": _health(ready)})
        self._thread = LoopThread("server")
        try:
            self._runner, self.address = self._thread.begin(listen(app, "server", address)).result()
        except BaseException:
            self._thread.close()
            raise

    def close(self) -> None:
        """Stop listening; answers under way get a second."""
        self._thread.begin(self._runner.cleanup()).result()
        self._thread.close()


def _health(check: Check) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        wrong = check()
        status, text = (200, "ok") if wrong is None else (500, wrong)
        return web.Response(status=status, text=f"{text}\n", headers=headers_of("text/plain; charset=utf-8"))

    return answer
