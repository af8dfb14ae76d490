"""The process of its own in which a solver runs under a time limit: it dies, is interrupted, and ends with its owner."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from flowsched.network.network import Network
from flowsched.solvers import Solution, Status
from flowsched.solvers.worker import Worker


def network(arcs: list[tuple[int, int, int, int]], supplies: list[int]) -> Network:
    columns = np.array(arcs, dtype=np.int64).reshape(-1, 4).T
    return Network(*columns, np.array(supplies, dtype=np.int64), 1.0)


DETOUR = network([(0, 1, 4, 2), (1, 2, 4, 2), (0, 2, 1, 9)], [5, 0, -5])


def test_a_worker_that_dies_is_told_and_replaced() -> None:
    worker = Worker("ortools")
    assert worker.solve(DETOUR, 60.0).status is Status.OPTIMAL
    assert worker.solve(DETOUR, None).status is Status.OPTIMAL
    process = worker._process
    assert process is not None
    process._process.kill()
    process._process.wait()

    answer = worker.solve(DETOUR, 60.0)

    assert answer.status is Status.FEASIBLE
    assert "ended before its answer" in answer.report
    assert worker.solve(DETOUR, 60.0).status is Status.OPTIMAL


def test_an_answer_to_an_interrupted_question_is_not_given_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker("ortools")
    assert worker.solve(DETOUR, 60.0).cost == 25
    assert worker._process is not None

    def interrupted(timeout_s: float | None) -> Solution | None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(worker._process, "answer", interrupted)
        worker.solve(DETOUR, 60.0)

    assert worker.solve(network([(0, 1, 5, 100)], [3, -3]), 60.0).cost == 300


def test_a_process_ends_in_the_middle_of_a_solve_when_its_owner_is_gone() -> None:
    """A solve that is neither stopped nor waited for, as after the owner was killed."""
    code = """
        import time
        import flowsched.solvers as solvers
        from flowsched.solvers.worker import serve
        class Endless:
            solved = 0
            def solve(self, network):
                self.solved += 1
                if self.solved > 1:
                    time.sleep(600.0)
        solvers.make_solver = lambda name: Endless()
        serve("endless")
    """
    arrays = (DETOUR.tails, DETOUR.heads, DETOUR.capacities, DETOUR.unit_costs, DETOUR.supplies)

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        input=pickle.dumps((arrays, 1.0)),
        capture_output=True,
        timeout=60.0,
    )

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_worker_ends_with_its_owner() -> None:
    worker = Worker("ortools")
    worker.solve(DETOUR, 60.0)
    assert worker._process is not None
    process = worker._process._process
    assert process.poll() is None

    del worker

    assert process.wait(timeout=30.0) != 0


def test_the_process_that_solves_prints_nothing_but_answers() -> None:
    """Its answers go over standard output, so what a library prints there must not."""
    code = """
        import os, pickle, sys
        import flowsched.solvers as solvers
        from flowsched.solvers.worker import serve
        real = solvers.make_solver
        class Loud:
            def solve(self, network):
                os.write(1, b"hello")
                return real("ortools").solve(network)
        solvers.make_solver = lambda name: Loud()
        serve("loud")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ}
    )

    assert done.returncode == 0
    assert b"hello" in done.stderr
    assert b"hello" not in done.stdout
