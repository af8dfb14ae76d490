"""Lanes: how the jobs on one machine divide its CPU over time, for a drawing of jobs above each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_EVEN = 9
"""Decimals of a height, so that sums in another order are the same lane."""


@dataclass(frozen=True)
class Occupant:
    """A job or a service that may use some cores of a machine for some time."""

    cores: tuple[int, ...]
    start_s: float
    end_s: float
    weight: float = 1.0
    """CPU weight, in cores requested: what it gets of a core that others use too."""
    most: float = float("inf")
    """Cores that it can use at once: one for each of its threads."""


@dataclass(frozen=True)
class LanePiece:
    """A rectangle of one occupant's lane: a time in which neither its height nor its place changes."""

    occupant: int
    """Index in the sequence that was divided."""
    start_s: float
    end_s: float
    low: float
    """Lower edge, in cores from core 0."""
    high: float
    """Upper edge: ``high - low`` is the CPU that it may use, in cores."""


def split_lanes(occupants: Sequence[Occupant]) -> list[LanePiece]:
    """Give everything that runs on one machine a lane as high as its share of the CPU, at the height of its cores.

    Occupants that have a core in common stack above each other within the cores that they use together; an occupant with
    cores of its own lies exactly there. Earlier occupants of the sequence lie below later ones.
    """
    present = [n for n, one in enumerate(occupants) if one.end_s > one.start_s and one.cores]
    starting: dict[float, list[int]] = {}
    for index in present:
        starting.setdefault(occupants[index].start_s, []).append(index)
    times = sorted({time for index in present for time in (occupants[index].start_s, occupants[index].end_s)})
    pieces: list[LanePiece] = []
    open_spans: dict[int, tuple[float, list[tuple[float, float]]]] = {}
    active: list[int] = []
    for time, _ in pairwise(times):
        active = sorted([n for n in active if occupants[n].end_s > time] + starting.get(time, []))
        spans = _spans(active, occupants)
        for index in sorted(open_spans.keys() - spans.keys()):
            pieces += _closed(index, time, *open_spans.pop(index))
        for index, now in spans.items():
            if index in open_spans and open_spans[index][1] != now:
                pieces += _closed(index, time, *open_spans.pop(index))
            open_spans.setdefault(index, (time, now))
    for index in sorted(open_spans):
        pieces += _closed(index, times[-1], *open_spans[index])
    return pieces


def shares(active: Sequence[int], occupants: Sequence[Occupant]) -> dict[int, float]:
    """Return the CPU that each may use while all of them run, in cores.

    A core is divided by weight, as Linux control groups do; an occupant with few threads runs on the cores with the least
    others, and what it leaves goes to them.
    """
    left = {core: 1.0 for index in active for core in occupants[index].cores}
    found: dict[int, float] = {}
    rest = list(active)
    while rest:
        weights = dict.fromkeys(left, 0.0)
        for index in rest:
            for core in occupants[index].cores:
                weights[core] += occupants[index].weight
        parts = {
            index: {core: left[core] * occupants[index].weight / weights[core] for core in occupants[index].cores}
            for index in rest
        }
        wanted = {index: sum(part.values()) for index, part in parts.items()}
        satisfied = [index for index in rest if wanted[index] > occupants[index].most]
        if not satisfied:
            return found | wanted
        for index in satisfied:
            found[index] = need = occupants[index].most
            # Its threads are where the least others are.
            for core in sorted(parts[index], key=lambda core: (weights[core], core)):
                taken = min(need, parts[index][core])
                left[core] -= taken
                need -= taken
        rest = [index for index in rest if index not in found]
    return found


def _spans(active: Sequence[int], occupants: Sequence[Occupant]) -> dict[int, list[tuple[float, float]]]:
    """The stretches of cores on which each is drawn, from below."""
    spans: dict[int, list[tuple[float, float]]] = {}
    for members, cores in _together(active, occupants):
        height = shares(members, occupants)
        at = 0.0
        for index in sorted(members, key=lambda n: (min(occupants[n].cores), n)):
            spans[index] = _on_cores(at, at + height[index], cores)
            at += height[index]
    return spans


def _together(active: Sequence[int], occupants: Sequence[Occupant]) -> list[tuple[list[int], list[int]]]:
    """Occupants that have a core in common, directly or through others, with all their cores in order."""
    groups: list[tuple[list[int], set[int]]] = []
    for index in active:
        members, cores = [index], set(occupants[index].cores)
        apart = []
        for group in groups:
            if cores.isdisjoint(group[1]):
                apart.append(group)
            else:
                members, cores = group[0] + members, cores | group[1]
        groups = [*apart, (members, cores)]
    return [(members, sorted(cores)) for members, cores in groups]


def _on_cores(low: float, high: float, cores: Sequence[int]) -> list[tuple[float, float]]:
    """Where a stretch of the cores of a group lies on the machine; in parts where these are not next to each other."""
    found: list[tuple[float, float]] = []
    for place, core in enumerate(cores):
        below, above = max(low, place), min(high, place + 1)
        if above - below > 1e-9:
            start, end = round(core + below - place, _EVEN), round(core + above - place, _EVEN)
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
    return found


def _closed(index: int, end_s: float, start_s: float, spans: Sequence[tuple[float, float]]) -> list[LanePiece]:
    return [LanePiece(index, start_s, end_s, low, high) for low, high in spans]
