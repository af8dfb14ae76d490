"""Arriving tasks as a machine sees them: a class, when it starts there, and what it is given."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple


class Arrival(NamedTuple):
    """A task of a class that joins a machine. Sorted tuples of arrivals identify what joins a machine in a round."""

    task_class: int
    start_after: int
    """0: starts now; k: after the k-th completion on the machine, once it fits."""
    width_milli: int
    """CPU request, and CPU weight where cores are shared."""
    shared: bool = False
    """Whether it may use the services' cores too."""


Colocation = tuple[Arrival, ...]
"""All arriving tasks of one machine, sorted."""


def joined(colocation: Colocation, arrival: Arrival) -> Colocation:
    """A co-location with one more arrival."""
    at = bisect_left(colocation, arrival)
    return (*colocation[:at], arrival, *colocation[at:])
