"""What the agent answers over HTTP, in threads of its own: ``/healthz``, ``/livez``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from flowsched.support.address import Address
from flowsched_agent.metrics import CONTENT_TYPE
from flowsched_models.document import InputError, Problem

PATHS = ("/healthz", "/livez", "/metrics", "/readyz")
PATIENCE_S = 5.0
"""A client that says nothing for so long is let go."""
Check = Callable[[], str | None]
"""What is wrong, in a few words; None if nothing is."""


class Server:
    """Listens until closed."""

    def __init__(self, address: Address, live: Check, ready: Check, metrics: Callable[[], bytes]) -> None:
        """Listen at once. Raises :class:`InputError` if the address cannot be had."""
        everywhere = not address.host and socket.has_dualstack_ipv6()

        class Answer(BaseHTTPRequestHandler):
            timeout = PATIENCE_S
            server_version = "flowsched-agent"
            sys_version = ""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._say(200, metrics(), CONTENT_TYPE)
                elif path in PATHS:
                    wrong = (ready if path == "/readyz" else live)()
                    self._say(200, b"ok\n") if wrong is None else self._say(500, f"{wrong}\n".encode())
                else:
                    self._say(404, ("there is:\n" + "\n".join(PATHS) + "\n").encode())

            def _say(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Scrapes are not worth a line each."""

        class Listening(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if everywhere or ":" in address.host else socket.AF_INET
            daemon_threads = True

            def server_bind(self) -> None:
                if everywhere:
                    self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                # Not that of HTTPServer: it asks the network for the name of the machine.
                TCPServer.server_bind(self)

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that closed its connection is no error of ours."""

        try:
            self._server = Listening((address.host or ("::" if everywhere else ""), address.port), Answer)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(
                [Problem("configuration", None, "server", f"cannot listen on {address}: {reason}")]
            ) from None
        self.address = Address(address.host, int(self._server.server_address[1]))
        """With the port that was found free."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
