"""The solvers by name: ours, and those that other packages announce."""

from __future__ import annotations

from flowsched.errors import SolverError
from flowsched.solvers.solver import Capabilities, Solver
from flowsched.support.registry import Registry
from flowsched_models.document import Problem

GROUP = "flowsched.solvers"
"""Entry points of this group are solvers of other packages: ``name = "module:Class"``."""
_BUILT_IN = {
    "ortools": "flowsched.solvers.ortools:OrtoolsSolver",
    "incremental": "flowsched.solvers.incremental:IncrementalSolver",
    "simplex": "flowsched.solvers.simplex:SimplexSolver",
    "relay": "flowsched.solvers.relay:RelaySolver",
    "highs": "flowsched.solvers.highs:HighsSolver",
    "networkx": "flowsched.solvers.networkx:NetworkxSolver",
}


def make_solver(name: str) -> Solver:
    """A solver by its name; raises :class:`SolverError`, a ``KeyError``, if it is unknown, lacks what it needs or cannot be
    made.
    """
    solver: type[Solver] = SOLVERS[name]
    missing = solver.capabilities.missing
    if missing:
        raise _error(f"the solver '{name}' {missing}, which is not installed", f"usable here: {', '.join(installed())}")
    try:
        return solver()
    except Exception as error:  # other people's code
        message = f"the solver '{name}' cannot be made ({type(error).__name__}: {error})"
        raise _error(message, f"usable here: {', '.join(installed())}") from error


def installed() -> tuple[str, ...]:
    """Names of the solvers that can be used here."""
    names = []
    for name in SOLVERS:
        try:
            usable = not SOLVERS[name].capabilities.missing
        except SolverError:
            continue
        if usable:
            names.append(name)
    return tuple(names)


def _check(name: str, loaded: object, who: str) -> None:
    """Whether it looks like a solver; what it answers is for the conformance suite."""
    if not callable(loaded):
        what = f"is {loaded!r}, which cannot be called"
    elif not isinstance(getattr(loaded, "capabilities", None), Capabilities):
        what = "has no capabilities"
    elif not callable(getattr(loaded, "solve", None)):
        what = "has no method solve"
    else:
        return
    raise _error(
        f"the solver '{name}' of {who} {what}",
        "its entry point should name a class with name, capabilities (flowsched.solvers.Capabilities) and solve",
    )


def _error(message: str, help: str) -> SolverError:
    return SolverError([Problem("--solver", None, "", message, help)])


SOLVERS = Registry("solver", GROUP, _BUILT_IN, _check, _error)
