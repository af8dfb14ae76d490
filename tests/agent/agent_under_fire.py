"""A process that forks agents on request: for tests that kill them at any moment, without waiting for imports each time.

For each configuration it forks a process that reads the name of a controller, forks an agent, prints its process id, and
prints ``ended CODE`` when it is gone. ``restless`` changes everything it can at every tick; ``configured`` is the agent's.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import socket
import subprocess
import sys
import traceback
from pathlib import Path

from flowsched.node import LOWEST_WEIGHT, Allocation, Node, Reading, TaskGrant
from flowsched.support.log_lines import set_up_logging
from flowsched_agent.configuration_file import load_configuration
from flowsched_agent.process import run_agent


class Restless:
    """Pauses, weighs down and moves all tasks at random."""

    period_s = 0.01

    def __init__(self, node: Node, seed: int) -> None:
        self._cores = node.cores
        self._rng = random.Random(seed)

    def decide(self, reading: Reading) -> Allocation:
        rng = self._rng
        return Allocation(
            tasks={
                t.task.name: TaskGrant(
                    run=rng.random() < 0.5,
                    cores=(rng.choice(self._cores),),
                    weight=rng.choice([LOWEST_WEIGHT, 0.25, 1.0]),
                )
                for t in reading.tasks
            }
        )


_ready: list[tuple[socket.socket, object]] = []


def ready_to_fork() -> socket.socket:
    """Requests to a process that has imported the agent, for all tests; it ends with this one, which holds the other end."""
    if not _ready:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            argv = [sys.executable, __file__, str(its.fileno())]
            nothing = subprocess.DEVNULL
            _ready.append((ours, subprocess.Popen(argv, stdin=nothing, stdout=nothing, pass_fds=[its.fileno()])))
    return _ready[0][0]


def fork_ready() -> None:
    """Such a process by a fork of this one, which has no other threads and has imported the agent."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        if (child := os.fork()) == 0:
            ours.close()
            answer(its)
            os._exit(0)
    _ready.append((ours, child))


def answer(requests: socket.socket) -> None:
    """Each message is the path of a configuration, with the three standard files of the process that is to serve it."""
    while True:
        path, files, _, _ = socket.recv_fds(requests, 4096, 3)
        if not path:
            return
        if os.fork() == 0:
            requests.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            try:
                serve(Path(path.decode()))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def serve(path: Path) -> None:
    print(os.getpid(), flush=True)
    configuration = load_configuration(path)
    for number, controller in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            set_up_logging("text", 0)
            code = 70
            try:
                make = {"restless": functools.partial(Restless, seed=number), "configured": None}[controller.strip()]
                code = run_agent(configuration.model_copy(update={"server": None}), make=make)
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    answer(socket.socket(fileno=int(sys.argv[1])))
