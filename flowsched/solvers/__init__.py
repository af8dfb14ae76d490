"""Solvers of min-cost flow networks, one file each, behind one small protocol."""

from __future__ import annotations

from flowsched.solvers.networkx import NetworkxSolver
from flowsched.solvers.ortools import OrtoolsSolver
from flowsched.solvers.solver import Solution, Solver, Status

SOLVERS: dict[str, type[OrtoolsSolver] | type[NetworkxSolver]] = {
    "ortools": OrtoolsSolver,
    "networkx": NetworkxSolver,
}


def make_solver(name: str) -> Solver:
    """A solver by its name; raises ``KeyError`` for an unknown one."""
    return SOLVERS[name]()


__all__ = ["SOLVERS", "NetworkxSolver", "OrtoolsSolver", "Solution", "Solver", "Status", "make_solver"]
