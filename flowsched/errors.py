"""All that the engine raises on purpose.

    Exception
    +-- InputError            a user's mistake: every problem with its place and what would help; exit code 2
    |   +-- SolverError       no such solver, or one that cannot be used here (also a KeyError)
    |   +-- PolicyError       no such cost model, or settings that it does not take (also a KeyError)
    +-- ValueError
    |   +-- EventError       an event that contradicts the state of a bulk round; nothing has changed
    |   +-- ShapeError        a value in a record that is not what its shape demands
    +-- MakingError           a record could not be made
    +-- RestoreError          a part of a record from which no round can be restored

Anything else that comes out of the engine is a bug.
"""

from __future__ import annotations

from flowsched_models.document import InputError

__all__ = ["EventError", "InputError", "MakingError", "PolicyError", "RestoreError", "ShapeError", "SolverError"]


class SolverError(InputError, KeyError):
    """A solver that there is not, or that cannot be used here; the text is for the user."""

    def __str__(self) -> str:
        """One line per problem, as for every error of an input."""
        return InputError.__str__(self)


class PolicyError(InputError, KeyError):
    """A policy that there is not, that is broken, or whose settings are; the text is for the user."""

    def __str__(self) -> str:
        """One sentence per problem, without its source: an option, for instance, is named by its command."""
        return "\n".join(p.message + (f"; {p.help}" if p.help else "") for p in self.problems)


class EventError(ValueError):
    """An event that contradicts the state; nothing has changed."""


class ShapeError(ValueError):
    """A value that is not what it must be; the message says which one and what it must be."""


class MakingError(Exception):
    """A record could not be made; says why."""


class RestoreError(Exception):
    """Why a part cannot be restored, in words that follow a colon."""
