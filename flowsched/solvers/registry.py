"""The solvers by name: ours, and those that other packages announce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from flowsched.solvers.solver import Capabilities, Solver
from flowsched_models.document import InputError, Problem, name_help

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


class SolverError(InputError, KeyError):
    """A solver that there is not, or that cannot be used here; the text is for the user."""

    def __str__(self) -> str:
        """One line per problem, as for every error of an input."""
        return InputError.__str__(self)


class Registry(Mapping[str, type[Solver]]):
    """Name to class of every known solver, usable here or not; a class is loaded when it is looked up."""

    @cached_property
    def _places(self) -> dict[str, str | EntryPoint]:
        # Our own names cannot be taken over: who says ortools gets ours.
        others = {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value))}
        return {**_BUILT_IN, **{name: entry for name, entry in others.items() if name not in _BUILT_IN}}

    def __getitem__(self, name: str) -> type[Solver]:
        """The class; raises :class:`SolverError` for an unknown name, one that cannot be loaded, and what is no solver."""
        place = self._places.get(name)
        if place is None:
            raise _error(f"there is no solver '{name}'", name_help(name, self))
        if isinstance(place, str):
            module, _, cls = place.partition(":")
            found: type[Solver] = getattr(import_module(module), cls)
            return found
        try:
            loaded: type[Solver] = place.load()
        except Exception as error:  # other people's code: anything may go wrong
            who = "another package" if place.dist is None else place.dist.name
            message = f"the solver '{name}' of {who} cannot be loaded ({type(error).__name__}: {error})"
            raise _error(message, f"install it again, or take another one: {', '.join(_BUILT_IN)}") from error
        _check(name, loaded, "another package" if place.dist is None else place.dist.name)
        return loaded

    def __iter__(self) -> Iterator[str]:
        """The names, ours first."""
        return iter(self._places)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        """Whether there is one of that name, without loading it."""
        return name in self._places


SOLVERS = Registry()


def make_solver(name: str) -> Solver:
    """A solver by its name; raises :class:`SolverError`, a ``KeyError``, if it is unknown, lacks what it needs or cannot be
    made.
    """
    solver = SOLVERS[name]
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
