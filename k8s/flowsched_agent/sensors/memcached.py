"""Counters of a memcached server: its ``stats`` over one lasting connection, each answer by a deadline."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
"""Between attempts to connect: doubled after each that failed."""
LARGEST = 64 * 1024
"""Bytes of one answer; 1.6.18 sends 92 lines in about 2.5 kB."""
MOST_COUNTED = 2**64 - 1
"""What a counter of memcached can hold, 64 bits without a sign."""
_QUOTED = 60
"""Characters of a wrong value that a message quotes."""
_QUERIES = ("cmd_get", "cmd_set", "cmd_touch")
"""Commands that are counted. ``cmd_get`` counts keys, so a get of 200 keys is 200; misses count as well."""


@dataclass(frozen=True)
class MemcachedCounters:
    """One answer. Counters start at 0 with the server: a smaller number, or another pid, means another server."""

    queries: int
    """Keys asked for, set and touched since it started."""
    pid: int


@dataclass(eq=False)
class MemcachedStats:
    """Asks one server. It is never waited for longer than the timeout in total, however it trickles."""

    host: str = "127.0.0.1"
    """An address, or a name that needs no server to be resolved, which nothing here could hurry."""
    port: int = 11211
    timeout_s: float = 0.05
    _: KW_ONLY
    socket_path: str | None = None
    """Of a UNIX socket, instead of host and port. ASCII protocol without password."""
    now_s: Callable[[], float] = time.monotonic
    problem: str | None = None
    """Why there was no answer last time, in one sentence."""
    _socket: socket.socket | None = None
    _wait_s: float = FIRST_WAIT_S
    _not_before_s: float = float("-inf")

    @property
    def where(self) -> str:
        """The server's address."""
        return self.socket_path if self.socket_path is not None else f"{self.host}:{self.port}"

    def read(self) -> MemcachedCounters | None:
        """Its counters; None if it does not answer in time. Never raises.

        After a late or broken answer the connection is given up: what comes later on it answers an older question.
        """
        began = self.now_s()
        if self._socket is None and began < self._not_before_s:
            return None
        try:
            counters = _counters(self._ask(began + self.timeout_s))
        except (OSError, ValueError) as error:
            self.close()
            self._not_before_s = self.now_s() + self._wait_s
            self.problem = f"{self.where} was asked for its stats: {_said(error)}; asked again in {self._wait_s:g} s"
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            return None
        self._wait_s = FIRST_WAIT_S
        self.problem = None
        return counters

    def close(self) -> None:
        """Give up the connection; the next read makes a new one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None

    def _ask(self, until_s: float) -> Mapping[str, str]:
        connection = self._connected(until_s)
        connection.settimeout(self._left(until_s))
        connection.sendall(b"stats\r\n")
        answer = b""
        while not answer.endswith(b"END\r\n"):
            connection.settimeout(self._left(until_s))
            part = connection.recv(16384)
            if not part:
                raise ConnectionResetError("it closed the connection")
            answer += part
            if not answer.startswith(b"STAT "[: len(answer)]) and not answer.startswith(b"END"[: len(answer)]):
                raise ValueError(f"it answered {answer[:40]!r}, no stats")
            if len(answer) > LARGEST:
                raise ValueError(f"its answer has no end within {LARGEST} bytes")
        lines = (line.split(" ", 2) for line in answer.decode("ascii", "replace").splitlines())
        return {line[1]: line[2] for line in lines if len(line) == 3 and line[0] == "STAT"}

    def _connected(self, until_s: float) -> socket.socket:
        if self._socket is None:
            if self.socket_path is not None:
                self._socket = self._opened(socket.AF_UNIX, self.socket_path, until_s)
            else:
                self._socket = self._first_of(self.host, self.port, until_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _first_of(self, host: str, port: int, until_s: float) -> socket.socket:
        """A connection to the first of a name's addresses that answers."""
        refused: OSError | None = None
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                return self._opened(family, address, until_s)
            except OSError as error:
                refused = error
        raise refused or OSError(f"{host} has no address")

    def _opened(self, family: int, address: Any, until_s: float) -> socket.socket:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._left(until_s))
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection

    def _left(self, until_s: float) -> float:
        left = until_s - self.now_s()
        if left <= 0:
            raise TimeoutError
        return left


def _counters(stats: Mapping[str, str]) -> MemcachedCounters:
    """Raises :class:`ValueError`."""
    missing = [key for key in ("pid", "cmd_get", "cmd_set") if key not in stats]
    if missing:
        raise ValueError(f"its stats have no {', '.join(missing)}")
    return MemcachedCounters(sum(_counted(stats, key) for key in _QUERIES), _counted(stats, "pid"))


def _counted(stats: Mapping[str, str], key: str) -> int:
    text = stats.get(key, "0")
    # The length first: int() also takes thousands of digits, which no float holds.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_COUNTED)) and int(text) <= MOST_COUNTED):
        raise ValueError(f"its {key} is {text[:_QUOTED]!r}, which no counter of memcached can be")
    return int(text)


def _said(error: OSError | ValueError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
