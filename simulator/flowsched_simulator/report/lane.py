"""Lanes: how those who may use a core at the same time divide its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Occupant:
    """A job or a service that may use some cores of a machine for some time."""

    cores: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True)
class LanePiece:
    """One occupant in one lane of one core's row, for a time in which the division of the row is the same."""

    occupant: int
    """Index in the sequence that was divided."""
    core: int
    start_s: float
    end_s: float
    lane: int
    """From 0, counted from the top of the row."""
    lanes: int
    """How many lanes the row has in this time, all of one height."""


def split_lanes(occupants: Sequence[Occupant]) -> list[LanePiece]:
    """Divide the rows of one machine's cores. Earlier occupants of the sequence lie above later ones."""
    users: dict[int, list[int]] = {}
    for index, occupant in enumerate(occupants):
        if occupant.end_s > occupant.start_s:
            for core in set(occupant.cores):
                users.setdefault(core, []).append(index)
    return [piece for core in sorted(users) for piece in _split_core(core, users[core], occupants)]


def most_lanes(pieces: Sequence[LanePiece]) -> int:
    """Return the largest number of lanes in any row; 1 where there is nothing."""
    return max((piece.lanes for piece in pieces), default=1)


def _split_core(core: int, users: Sequence[int], occupants: Sequence[Occupant]) -> list[LanePiece]:
    times = sorted({time for user in users for time in (occupants[user].start_s, occupants[user].end_s)})
    pieces: list[LanePiece] = []
    latest: dict[int, int] = {}
    for start_s, end_s in pairwise(times):
        active = [u for u in users if occupants[u].start_s <= start_s and end_s <= occupants[u].end_s]
        for lane, user in enumerate(active):
            before = pieces[latest[user]] if user in latest else None
            if before and before.end_s == start_s and (before.lane, before.lanes) == (lane, len(active)):
                pieces[latest[user]] = LanePiece(user, core, before.start_s, end_s, lane, len(active))
            else:
                latest[user] = len(pieces)
                pieces.append(LanePiece(user, core, start_s, end_s, lane, len(active)))
    return pieces
