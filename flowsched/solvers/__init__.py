"""Solvers of min-cost flow networks, one file each, behind one small protocol.

Importing this imports no solver's library: files are loaded when a solver is asked for, libraries when it first solves.
"""

from __future__ import annotations

from flowsched.errors import SolverError
from flowsched.solvers.registry import SOLVERS, installed, make_solver
from flowsched.solvers.solver import Capabilities, Requirement, Solution, Solver, Status

__all__ = [
    "SOLVERS",
    "Capabilities",
    "Requirement",
    "Solution",
    "Solver",
    "SolverError",
    "Status",
    "installed",
    "make_solver",
]
