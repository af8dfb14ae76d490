"""Counters of memcached from a server that is made up: on time, late, in pieces, garbled, started anew."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flowsched_agent.sensors.memcached import FIRST_WAIT_S, LONGEST_WAIT_S, MemcachedCounters, MemcachedStats

LONG_S = 20.0
"""A timeout that no test reaches; those that shall be late have a short one."""
SHORT_S = 0.05
COUNTERS = MemcachedCounters(queries=1111, pid=77)
Actuation = Callable[[socket.socket], None]


def answer(gets: int = 1000, pid: int = 77) -> bytes:
    lines = [f"pid {pid}", "uptime 5", "version 1.6.18 of 2023", f"cmd_get {gets}", "cmd_set 100", "cmd_touch 11"]
    lines += ["threads 4", "curr_connections 10", "get_hits 0"]
    return "".join(f"STAT {line}\r\n" for line in lines).encode() + b"END\r\n"


class Server:
    """Answers each question by the next act, and the last one again and again."""

    def __init__(self, family: int, address: object, acts: list[Actuation]) -> None:
        self.acts = acts
        self.questions: list[bytes] = []
        self.connections = 0
        self.let_go = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind(address)  # type: ignore[arg-type]
        self._listener.listen()
        self.address = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while question := connection.recv(100):
                self.questions.append(question)
                act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
                act(connection)

    def close(self) -> None:
        self.let_go.set()
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def says(text: bytes) -> Actuation:
    return lambda connection: connection.sendall(text)


def hangs_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def says_nothing(connection: socket.socket) -> None:
    """Always late."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*acts: Actuation, family: int = socket.AF_INET, address: object = ("127.0.0.1", 0)) -> Server:
        servers.append(Server(family, address, list(acts)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def reader(server: Server, timeout_s: float = LONG_S, now_s: Callable[[], float] = time.monotonic) -> MemcachedStats:
    return MemcachedStats("127.0.0.1", server.address[1], timeout_s, now_s=now_s)


def test_counters_over_one_connection(serve: Callable[..., Server]) -> None:
    server = serve(says(answer()), says(answer(3000)))
    stats = reader(server)
    assert stats.read() == COUNTERS
    second = stats.read()
    assert second is not None
    assert second.queries == 3111
    assert server.questions == [b"stats\r\n"] * 2
    assert server.connections == 1
    assert stats.problem is None
    stats.close()


def test_a_unix_socket(serve: Callable[..., Server], tmp_path: Path) -> None:
    path = str(tmp_path / "memcached.sock")
    serve(says(answer()), family=socket.AF_UNIX, address=path)
    stats = MemcachedStats(socket_path=path, timeout_s=LONG_S)
    assert stats.read() == COUNTERS
    assert stats.where == path


def test_an_answer_in_small_pieces(serve: Callable[..., Server]) -> None:
    def trickles(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in answer():
            connection.sendall(bytes([byte]))

    assert reader(serve(trickles)).read() == COUNTERS


def test_another_server_is_seen_by_pid_and_smaller_counters(serve: Callable[..., Server]) -> None:
    stats = reader(serve(says(answer(10**6, pid=77)), says(answer(5, pid=78))))
    first, second = stats.read(), stats.read()
    assert first is not None
    assert second is not None
    assert (first.pid, second.pid) == (77, 78)
    assert second.queries < first.queries


def test_no_answer_in_time_is_none_and_its_connection_is_given_up(serve: Callable[..., Server]) -> None:
    server, clock = serve(says_nothing, says(answer())), Clock()
    stats = reader(server, SHORT_S, now_s=clock)
    assert stats.read() is None
    assert "no answer in time" in str(stats.problem)
    clock.now += FIRST_WAIT_S
    found = None
    while found is None:
        # The machine may be too busy for the short timeout; then the wait is longer.
        found = stats.read()
        clock.now += LONGEST_WAIT_S
    assert found == COUNTERS
    assert server.connections >= 2


def test_the_deadline_is_for_the_whole_answer(serve: Callable[..., Server]) -> None:
    clock = Clock()

    def trickles(connection: socket.socket) -> None:
        """Each piece comes soon enough, all of them do not: time goes on with each."""
        for byte in answer():
            clock.now += 0.01
            with contextlib.suppress(OSError):
                connection.sendall(bytes([byte]))

    stats = reader(serve(trickles), 0.5, now_s=clock)
    assert stats.read() is None
    assert "no answer in time" in str(stats.problem)


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (says(b"ERROR\r\n"), "no stats"),
        (says(b"\x00\x01\x02garbage" * 10), "no stats"),
        (says(b"SERVER_ERROR out of memory\r\n"), "no stats"),
        (says(b"END\r\n"), "have no pid, cmd_get, cmd_set"),
        (says(b"STAT pid 7\r\nSTAT cmd_get 5\r\nEND\r\n"), "have no cmd_set"),
        (says(b"STAT pid 7\r\nSTAT cmd_get many\r\nSTAT cmd_set 1\r\nEND\r\n"), "many"),
        (says(b"STAT pid " + b"7" * 100_000), "no end within 65536 bytes"),
        (hangs_up, "closed the connection"),
    ],
    ids=["error", "garbage", "server-error", "empty", "half", "no-number", "endless", "hangs-up"],
)
def test_a_broken_answer_is_none_and_the_next_is_read(serve: Callable[..., Server], act: Actuation, why: str) -> None:
    clock = Clock()
    stats = reader(serve(act, says(answer())), now_s=clock)
    assert stats.read() is None
    assert why in str(stats.problem)
    clock.now += FIRST_WAIT_S
    assert stats.read() == COUNTERS
    assert stats.problem is None


def test_without_a_server_waits_grow(tmp_path: Path) -> None:
    clock = Clock()
    stats = MemcachedStats(socket_path=str(tmp_path / "nothing"), timeout_s=LONG_S, now_s=clock)
    waits: list[float] = []
    for _ in range(8):
        assert stats.read() is None
        first, tried = clock.now, str(stats.problem)
        stats.problem = None
        while stats.problem is None:
            clock.now += 0.05
            assert stats.read() is None
        waits.append(clock.now - first)
        assert "No such file" in tried
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.2, abs=0.11)
    assert waits[-1] <= LONGEST_WAIT_S + 0.06


def test_a_server_that_comes_later_is_found(serve: Callable[..., Server], tmp_path: Path) -> None:
    clock, path = Clock(), str(tmp_path / "later")
    stats = MemcachedStats(socket_path=path, timeout_s=LONG_S, now_s=clock)
    assert stats.read() is None
    serve(says(answer()), family=socket.AF_UNIX, address=path)
    assert stats.read() is None
    clock.now += FIRST_WAIT_S
    assert stats.read() == COUNTERS


def test_a_host_without_an_address() -> None:
    stats = MemcachedStats("no such host.invalid", 1, LONG_S)
    assert stats.read() is None
    assert stats.problem is not None
