"""Another Python process that solves: for libraries that cannot be stopped when a time limit strikes, or not be loaded here.

    python -P -m flowsched.solvers.worker

The process says that it is ready, then answers one network after the other, and ends when its input does. It is kept between
solves, so that only the first one, and the first one after a limit struck, wait until it is there.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from flowsched.network.network import Network
from flowsched.solvers.feasible import stopped
from flowsched.solvers.solver import Solution, Status, without_flow

INSIDE = "FLOWSCHED_SOLVER_PROCESS"
"""Set in the environment of such a process, so that a solver in it does not ask for another one."""
_QUICK_SHARE = 0.5
"""After this share of the limit the quick flow is made, while the process goes on: most solves end before."""


class Worker:
    """One process for one solver. May be used by several threads, one after the other."""

    def __init__(self, solver: str) -> None:
        """``solver``: a name in ``flowsched.solvers.SOLVERS``. The process starts with the first solve, or ``start``."""
        self._solver = solver
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def start(self) -> None:
        """Start the process, or another one if it has ended, without waiting for it."""
        if self._process is None or not self._process.alive:
            self._process = _Process(self._solver)

    def solve(self, network: Network, time_limit_s: float | None) -> Solution:
        """The process' answer, or a feasible flow when the limit strikes.

        The limit counts from when the process is ready; making the quick flow may take longer than what is left of it.
        """
        if time_limit_s is not None and time_limit_s <= 0.0:
            return stopped(network, self._solver, 0.0)
        with self._lock:
            try:
                return self._solve(network, time_limit_s)
            except BaseException:
                # Interrupted between question and answer (Ctrl-C): the next question must not get this one's answer.
                if self._process is not None:
                    self._process.end()
                    self._process = None
                raise

    def _solve(self, network: Network, time_limit_s: float | None) -> Solution:
        self.start()
        process = self._process
        assert process is not None
        process.wait_until_ready()
        began = time.monotonic()
        process.ask(network)
        if time_limit_s is None:
            ended = without_flow(network, Status.REFUSED, f"the process of {self._solver} ended before its answer")
            return process.answer(None) or ended
        answer = process.answer(time_limit_s * _QUICK_SHARE)
        if answer is not None:
            return answer
        fallback = stopped(network, self._solver, time_limit_s)
        if process.alive:
            answer = process.answer(max(0.0, time_limit_s - (time.monotonic() - began)))
        if answer is not None:
            return answer
        died = not process.alive
        process.end()
        self._process = None
        if died:
            return replace(fallback, report=f"the process of {self._solver} ended before its answer; {fallback.report}")
        self.start()
        return fallback


class _Process:
    """A process, and a thread that reads what it says."""

    def __init__(self, solver: str) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flowsched.solvers.worker", solver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, INSIDE: "1"},
        )
        self._said: queue.SimpleQueue[Solution | None] = queue.SimpleQueue()
        self._ready = False
        self.alive = True
        threading.Thread(target=_listen, args=(self._process.stdout, self._said), daemon=True).start()
        self._end = weakref.finalize(self, _end, self._process)

    def wait_until_ready(self) -> None:
        """Returns when it answers, or has ended."""
        if self.alive and not self._ready:
            self.alive = self._said.get() is not None
            self._ready = self.alive

    def ask(self, network: Network) -> None:
        """Hand a network over."""
        stdin = self._process.stdin
        if not self.alive or stdin is None:
            return
        try:
            pickle.dump(replace(network, nodes=(), terms=(), units=()), stdin, protocol=5)
            stdin.flush()
        except OSError:
            self.alive = False

    def answer(self, timeout_s: float | None) -> Solution | None:
        """The solution; None if there is none in time, or the process has ended."""
        if not self.alive:
            return None
        try:
            said = self._said.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self.alive = said is not None
        return said

    def end(self) -> None:
        """End it at once."""
        self.alive = False
        self._end()


def _listen(stream: Any, said: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            said.put(pickle.load(stream))
    except Exception:  # the end, or not an answer: the caller that waits must hear of it
        said.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what it had not read yet
                stream.close()


def serve(name: str) -> None:
    """Answer networks from standard input on standard output, until there are no more."""
    from flowsched.solvers import make_solver

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not end up among the answers
    solver = make_solver(name)
    # The first solve loads the library.
    tail, head, capacity, cost, supplies = (np.array(a, dtype=np.int64) for a in ([0], [1], [1], [0], [1, -1]))
    solution = solver.solve(Network(tail, head, capacity, cost, supplies, 1.0))
    asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(sys.stdin.buffer, asked), daemon=True).start()
    while True:
        with suppress(BrokenPipeError):  # the other end is closed, which the other thread is about to hear
            pickle.dump(solution, answers, protocol=5)
            answers.flush()
        solution = solver.solve(asked.get())


def _hear(stream: Any, asked: queue.SimpleQueue[Any]) -> None:
    """Pass networks on, and end the process when there are no more, in the middle of a solve too: its owner has gone, maybe
    killed, and a solve without a limit would go on in vain.
    """
    try:
        while True:
            asked.put(pickle.load(stream))
    except Exception:  # the end, or half a network
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
