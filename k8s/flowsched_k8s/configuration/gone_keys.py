"""Keys of the configuration that earlier versions had, with what took their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from flowsched_models.document import Problem

_EVERY_POD = (
    "every measured pod is priced by forecasts; engine.pricings bounds how many, and engine.candidates on how many nodes"
    " of a cluster with more than 128"
)
_PASSES = "passes of min-cost flow at forecast prices took its place"
_IMPROVED = (
    "moves and swaps follow while at most engine.improvedTasks pods wait; engine.improvementForecasts bounds them"
)

GONE = {
    "rounds.searchTasks": _EVERY_POD,
    "rounds.searchMachines": _EVERY_POD,
    "engine.passes": _IMPROVED,
    "engine.exchanges": _IMPROVED,
    "engine.starts": _PASSES,
    "loadSource.latencyQuery": "no decision used the latency that it gave; prices go by the load and the profile's curves",
    "engine.refineWidths": "every width is priced together with its place",
}
"""By path of the key: what a person who has set it should know."""


def explained(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems; one about a key that is gone says what took its place."""
    for problem in problems:
        why = GONE.get(problem.key)
        yield problem if why is None else replace(problem, message=f"this key is gone: {why}", help="remove it")
