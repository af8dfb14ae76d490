"""A memcached that answers as a test wants: after a pause, with errors, not at all."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType


class ScriptedMemcached:
    """One thread for all connections, as one memcached thread: while it pauses, all requests wait.

    ``answer`` gets the number of the request (from 0) and returns what is sent; None closes the connection.
    """

    def __init__(self, answer: Callable[[int], bytes | None] = lambda _: b"END\r\n") -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.settimeout(0.02)
        self.port: int = self._listener.getsockname()[1]
        self.requests = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> ScriptedMemcached:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        connections: dict[socket.socket, bytes] = {}
        while not self._over.is_set():
            connections.update(dict.fromkeys(self._newcomers(), b""))
            busy = False
            for connection, rest in list(connections.items()):
                try:
                    got = connection.recv(1 << 16)
                except BlockingIOError:
                    continue
                except OSError:
                    got = b""
                busy = True
                *lines, rest = (rest + got).split(b"\n")
                if got and self._answer_all(connection, lines):
                    connections[connection] = rest
                else:
                    connection.close()
                    del connections[connection]
            if not busy:
                time.sleep(0.0005)
        for connection in connections:
            connection.close()

    def _newcomers(self) -> list[socket.socket]:
        found = []
        self._listener.setblocking(False)
        while True:
            try:
                connection = self._listener.accept()[0]
            except BlockingIOError:
                return found
            connection.setblocking(False)
            found.append(connection)

    def _answer_all(self, connection: socket.socket, lines: list[bytes]) -> bool:
        for line in lines:
            if line.startswith(b"version"):
                connection.sendall(b"VERSION 1.6.0\r\n")
                continue
            self.requests += 1
            answer = self._answer(self.requests - 1)
            if answer is None:
                return False
            try:
                connection.sendall(answer)
            except OSError:
                return False
        return True
