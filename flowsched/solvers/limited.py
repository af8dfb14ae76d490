"""A solver under a time limit for every solve, which remembers what the limit stopped."""

from __future__ import annotations

from typing import ClassVar

from flowsched.network.network import Network
from flowsched.solvers.solver import Capabilities, Solution, Solver, Status


class LimitedSolver:
    """Passes every network on with the limit. A round that was stopped depends on the speed of the machine."""

    capabilities: ClassVar[Capabilities] = Capabilities(exact=False, repeatable=False)

    def __init__(self, inner: Solver, time_limit_s: float) -> None:
        """``time_limit_s``: seconds of wall clock for each solve, not for a round."""
        self.inner = inner
        self._time_limit_s = time_limit_s
        self._stopped: list[str] = []

    @property
    def name(self) -> str:
        """The name of the solver that is limited."""
        return self.inner.name

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        """Solve under the limit, or under the one that is given if that is shorter."""
        limit = self._time_limit_s if time_limit_s is None else min(time_limit_s, self._time_limit_s)
        solution = self.inner.solve(network, time_limit_s=limit)
        if solution.status is Status.FEASIBLE:
            self._stopped.append(solution.report)
        return solution

    def take_stopped(self) -> tuple[str, ...]:
        """Reports of the solves that the limit has stopped since the last call."""
        taken, self._stopped = self._stopped, []
        return tuple(taken)


def limited(solver: Solver, time_limit_s: float | None) -> Solver:
    """The solver under a limit; itself without one."""
    return solver if time_limit_s is None else LimitedSolver(solver, time_limit_s)


def unlimited(solver: Solver) -> Solver:
    """The solver without its limit, and without what it remembers: for records, made by other threads at leisure."""
    inner = solver.inner if isinstance(solver, LimitedSolver) else solver
    return type(inner)() if inner.capabilities.warm_start else inner


def take_stopped(solver: Solver) -> tuple[str, ...]:
    """What its limit has stopped since the last call; nothing for a solver without one."""
    return solver.take_stopped() if isinstance(solver, LimitedSolver) else ()
