"""Compiled upkeep of the list of tasks that wait, in O(tasks of an event)."""

from __future__ import annotations

from pathlib import Path

from flowsched.support.arrays import IntArray
from flowsched_models.compiled import compiler

borrowing = compiler([Path(__file__)], borrows=True)


@borrowing
def enlist(tasks: IntArray, pending: IntArray, position: IntArray, count: IntArray) -> None:
    """Append tasks to the list of those that wait."""
    for task in tasks:
        pending[count[0]] = task
        position[task] = count[0]
        count[0] += 1


@borrowing
def delist(tasks: IntArray, pending: IntArray, position: IntArray, count: IntArray) -> None:
    """Take tasks off that list; the last one takes the free place."""
    for task in tasks:
        count[0] -= 1
        last = pending[count[0]]
        place = position[task]
        pending[place] = last
        position[last] = place
