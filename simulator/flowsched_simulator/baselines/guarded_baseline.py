"""A baseline of another package: what goes wrong in it is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

from flowsched.cluster.decision import Decisions, LatePostponements, Postponement, Scheduler
from flowsched.cluster.snapshot import Snapshot
from flowsched_models.document import InputError


@runtime_checkable
class Guarded(Protocol):
    """A scheduler whose mistakes are told in a sentence."""

    def mistakes(self, what: str) -> AbstractContextManager[None]:
        """Whatever is raised inside becomes an :class:`InputError`, which says that the scheduler did ``what``."""


Guard = Callable[[str], AbstractContextManager[None]]
"""Told what a scheduler does, it gives the context in which its mistakes are told; see :class:`Guarded`."""


def guard_of(scheduler: Scheduler) -> Guard:
    """The guard of a scheduler that has one; errors of others are ours, and pass."""
    return scheduler.mistakes if isinstance(scheduler, Guarded) else _unguarded


def _unguarded(what: str) -> AbstractContextManager[None]:  # noqa: ARG001
    return nullcontext()


class GuardedBaseline:
    """A baseline whose code is of another package."""

    def __init__(self, name: str, package: str, place: str, make: Callable[[], Scheduler]) -> None:
        """Make it. ``place``: its code, as ``module:Class``. Raises :class:`InputError` where that fails."""
        self.name = name
        self._package = package
        self._place = place
        with self.mistakes("cannot be made"):
            self._inner = make()

    def decide(self, snapshot: Snapshot) -> Decisions:
        """What it decides. Raises :class:`InputError` where it fails, and where its reasons fail once they are asked for."""
        with self.mistakes(f"fails in the round at {snapshot.now_s:g} s"):
            decisions = self._inner.decide(snapshot)
            late = decisions.postponements
            if isinstance(late, LatePostponements):
                reasons = partial(self._reasons, late, snapshot.now_s)
                decisions = replace(decisions, postponements=LatePostponements(len(late), reasons))
            return decisions

    def _reasons(self, late: LatePostponements, now_s: float) -> Sequence[Postponement]:
        with self.mistakes(f"fails to say why tasks wait in the round at {now_s:g} s"):
            return late.all

    @contextmanager
    def mistakes(self, what: str) -> Iterator[None]:
        """Whatever is raised inside becomes an :class:`InputError`, which says that the baseline did ``what``."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # other people's code: anything may go wrong
            package = self._package or "another package"
            message = f"the baseline '{self.name}' of {package} {what} ({type(error).__name__}: {error})"
            raise InputError.one("baselines", message, f"its code is {self._place}") from error
