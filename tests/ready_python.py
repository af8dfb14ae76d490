"""``python -m MODULE`` without the wait for its imports: a process forked from one that has them (``fork_server.py``).

Forked processes share all that is imported, and what a fresh one draws by chance when it starts, such as the order of sets
of strings. A test of just that starts a fresh one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

SERVER = Path(__file__).with_name("fork_server.py")
_lock = threading.Lock()


@functools.cache
def _server(owner: int) -> socket.socket:
    """The server of the process ``owner``; it ends with it, which holds the other end."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command, quiet = [sys.executable, str(SERVER), str(its.fileno())], subprocess.DEVNULL
        # A thread would be missing in what is forked: OpenBLAS is to start none.
        own = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        subprocess.Popen(command, stdin=quiet, stdout=quiet, pass_fds=[its.fileno()], env=own)
    return ours


class ReadyPython:
    """A process that runs a module: what ``subprocess.Popen`` offers of it."""

    def __init__(
        self,
        module: str,
        *words: object,
        stdout: IO[Any],
        stderr: IO[Any],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.args = [module, *map(str, words)]
        own = os.environ if env is None else env
        asked = json.dumps({"words": self.args, "cwd": str(cwd or Path.cwd()), "env": dict(own)})
        told, tells = os.pipe()
        self._told = os.fdopen(told)
        with open(os.devnull) as nothing:  # noqa: PTH123
            files = [nothing.fileno(), stdout.fileno(), stderr.fileno(), tells]
            with _lock:
                server = _server(os.getpid())
            socket.send_fds(server, [asked.encode()], files)
        os.close(tells)
        self.returncode: int | None = None
        started = self._told.readline()
        if not started:
            raise RuntimeError(f"{SERVER.name} has ended, so that it starts nothing; its own words are above")
        self.pid = int(started)
        self._ended = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        with self._told:
            # Nothing is told where who tells it was killed too.
            self.returncode = int(self._told.readline() or -signal.SIGKILL)
        self._ended.set()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self.returncode if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def run_ready(
    module: str, *words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end, and what it printed."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = ReadyPython(module, *words, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read())
        return subprocess.CompletedProcess(process.args, code, *texts)
