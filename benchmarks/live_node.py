"""What a real run on this machine needs: memcached, a batch job that counts its work, the agent as a process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from benchmarks import native

START_LIMIT_S = 10.0
_WORKER = Path(__file__).parent / "batch_worker.c"
_ATTEMPTS = 5


class LiveError(Exception):
    """Something of a real run cannot be had here; one sentence says why."""


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def statistics(port: int, timeout_s: float = 5.0) -> dict[str, str]:
    """What memcached says of itself. Raises :class:`OSError`."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            got = connection.recv(1 << 16)
            if not got:
                raise ConnectionError("memcached closed the connection")
            text += got
    words = (line.split(None, 2) for line in text.decode().splitlines())
    return {line[1]: line[2] for line in words if len(line) == 3 and line[0] == "STAT"}


def thread_ids(pid: int) -> list[int]:
    """Of a process; empty if it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    except FileNotFoundError:
        return []


def affinities(pid: int) -> set[tuple[int, ...]]:
    """The core sets of all threads of a process: one element where they all have the same."""
    found = set()
    for tid in thread_ids(pid):
        with contextlib.suppress(ProcessLookupError):
            found.add(tuple(sorted(os.sched_getaffinity(tid))))
    return found


def cpu_ns(pid: int) -> int:
    """CPU time of a process by its own clock. Raises :class:`OSError` if it is gone."""
    # The clock id of a process, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime_ns((~pid << 3) | 2)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def settings_of(pid: int) -> dict[str, object]:
    """Everything of a process that a controller of cores may change."""
    threads = {}
    for tid in thread_ids(pid):
        with contextlib.suppress(ProcessLookupError):
            threads[tid] = (
                tuple(sorted(os.sched_getaffinity(tid))),
                os.sched_getscheduler(tid),
                os.sched_getparam(tid).sched_priority,
                os.getpriority(os.PRIO_PROCESS, tid),
            )
    groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    return {"threads": threads, "groups": groups, "stopped": is_stopped(pid)}


def pin(pid: int, cores: Iterable[int]) -> None:
    """Every thread of a process onto some cores."""
    wanted = set(cores)
    for tid in thread_ids(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(tid, wanted)


def make_fifo(pid: int, priority: int = 1) -> None:
    """Every thread of a process; what it starts is normal again. Raises :class:`PermissionError`."""
    for tid in thread_ids(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(tid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))


def fifo_refused() -> str:
    """Why no process may be SCHED_FIFO here; empty if it may."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            make_fifo(process.pid)
        except OSError as error:
            return f"SCHED_FIFO is refused: {error.strerror}"
        finally:
            process.kill()
    return ""


def wait_for(condition: Callable[[], bool], limit_s: float, what: str, pause_s: float = 0.01) -> float:
    """Seconds until a condition held. Raises :class:`LiveError` after ``limit_s``."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > limit_s:
            raise LiveError(f"{what} did not come true within {limit_s:g} s")
        time.sleep(pause_s)
    return time.monotonic() - begun


class _Program:
    """A process of its own session, ended with everything that it started when the context is left."""

    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process. Raises :class:`LiveError` before it was started."""
        if self.process is None:
            raise LiveError("it was not started")
        return self.process.pid

    def running(self) -> bool:
        """Whether it is there."""
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        """Kill it, and whatever is left of its process group."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(START_LIMIT_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Memcached(_Program):
    """Debian's memcached on a free port of this machine, with two worker threads unless asked otherwise."""

    def __init__(self, threads: int = 2, port: int | None = None) -> None:
        self.threads = threads
        self._asked = port
        self.port = 0

    def __enter__(self) -> Memcached:
        program = shutil.which("memcached")
        if program is None:
            raise LiveError("memcached is not installed (apt-get install memcached)")
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        for _ in range(_ATTEMPTS):
            self.port = self._asked or free_port()
            command = [program, *user, "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", str(self.threads)]
            self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
            with contextlib.suppress(LiveError):
                wait_for(lambda: not self.running() or self._answers(), START_LIMIT_S, "memcached")
                if self.running():
                    return self
            self.end()
        raise LiveError("memcached could not be started on a free port")

    def _answers(self) -> bool:
        try:
            return statistics(self.port, 1.0)["pid"] == str(self.pid)
        except (OSError, KeyError):
            return False


class BatchWorker(_Program):
    """A CPU-bound job of one thread. Its work is counted in units of some 0.1 ms of a core."""

    def __init__(
        self,
        folder: Path,
        name: str = "batch",
        cores: Sequence[int] = (),
        prefix: Sequence[str] = (),
        rest_us: int = 0,
    ) -> None:
        """``prefix``: a command that starts the worker's own, such as setpriv; ``rest_us``: sleep after each unit."""
        self.counter = folder / f"{name}.units"
        self._cores = tuple(cores)
        self._prefix = tuple(prefix)
        self._rest_us = rest_us

    def __enter__(self) -> BatchWorker:
        program = native.compile(_WORKER.read_text(encoding="utf-8"))
        command = [*self._prefix, str(program), str(self.counter), str(self._rest_us)]
        self.process = subprocess.Popen(command, start_new_session=True)
        wait_for(lambda: not self.running() or self.units() > 0, START_LIMIT_S, "the first work of the batch job")
        if not self.running():
            raise LiveError(f"the batch job ended with code {self.process.returncode}")
        if self._cores:
            pin(self.pid, self._cores)
        return self

    def units(self) -> int:
        """Work done so far."""
        return units_done(self.counter)


def units_done(counter: Path) -> int:
    """What stands in the file of a batch worker."""
    try:
        content = counter.read_bytes()
    except FileNotFoundError:
        return 0
    return int(struct.unpack("=Q", content)[0]) if len(content) == 8 else 0


class Agent(_Program):
    """``flowsched agent`` as a user starts it, with its log in a file."""

    def __init__(
        self, configuration: Path, folder: Path, arguments: Sequence[str] = (), prefix: Sequence[str] = ()
    ) -> None:
        """``prefix``: a command that starts the agent's own, such as setpriv."""
        self.log = folder / "agent.log"
        self._command = [*prefix, sys.executable, "-m", "flowsched_agent", "--config", str(configuration), *arguments]

    def __enter__(self) -> Agent:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        return self

    def terminate(self, limit_s: float = START_LIMIT_S) -> int:
        """SIGTERM; the exit code."""
        assert self.process
        self.process.terminate()
        return self.process.wait(limit_s)

    def kill(self) -> None:
        """SIGKILL of this one process: it can clean up nothing, but whoever watches it can."""
        assert self.process
        self.process.kill()
        self.process.wait(START_LIMIT_S)

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
