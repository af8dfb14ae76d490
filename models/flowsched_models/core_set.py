"""The virtual CPUs that a job may use, as a key of what is remembered about machines."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

_FEW = 64
"""So many numbers are hashed sooner than an attribute is looked up."""
_MOST_KEPT = 512


class CoreSet(tuple[int, ...]):
    """A tuple of many virtual CPUs that works out its hash once.

    All tasks that share the cores of a machine have the same ones: a round of a wide machine would else be spent on
    hashing them, task by task, each time a rate is looked up.
    """

    def __hash__(self) -> int:
        """That of an equal tuple."""
        try:
            return self._hash
        except AttributeError:
            self._hash: int = super().__hash__()
            return self._hash


def cores_but(vcpus: int, taken: Collection[int]) -> tuple[int, ...]:
    """The virtual CPUs of a machine, ascending, but for some; the same object for the same ones, so that keys with it are
    compared without looking at each.
    """
    return _cores_but(vcpus, frozenset(taken))


@lru_cache(_MOST_KEPT)
def _cores_but(vcpus: int, taken: frozenset[int]) -> tuple[int, ...]:
    cores = tuple([core for core in range(vcpus) if core not in taken])
    return cores if vcpus <= _FEW else CoreSet(cores)
