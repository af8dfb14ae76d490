"""A file of events from a live cluster, played: what came of it, and how the player is found.

The engine knows no live cluster. The package that records events offers a player of them as an entry point.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from flowsched.cluster.decision import Scheduler
from flowsched.cluster.settings import Settings
from flowsched_models.document import InputError
from flowsched_models.extras import install_extra

PLAYERS = "flowsched.events"
_GZIP = b"\x1f\x8b"
_KIND = b'"kind":"Events"'
_HEAD = 256


@dataclass(frozen=True)
class OtherDecision:
    """A task that is decided on otherwise than recorded."""

    round: int
    line: int
    """Of the file: where the round begins."""
    task: str
    recorded: str
    now: str

    def __str__(self) -> str:
        """One sentence."""
        return f"round {self.round} (line {self.line}), {self.task}: recorded {self.recorded}, now {self.now}"


@dataclass(frozen=True)
class OtherPolicy:
    """What another policy had decided, round by round from the recorded state. Counts are of tasks in rounds."""

    policy: str
    rounds: int
    rounds_differing: int
    placed: int
    """Placements of the policy."""
    recorded: int
    """Placements of the record."""
    same: int
    elsewhere: int
    """Both place the task, on different machines."""
    only_recorded: int
    only_policy: int


@dataclass(frozen=True)
class PlayedEvents:
    """What came of playing a file."""

    rounds: int
    """Rounds that were decided anew and compared."""
    placements: int
    """As recorded."""
    rounds_differing: int = 0
    first: OtherDecision | None = None
    policies: tuple[OtherPolicy, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether every decision was the recorded one."""
        return not self.rounds_differing

    def verdict(self) -> str:
        """One line."""
        counted = f"{_count(self.rounds, 'round')}, {_count(self.placements, 'placement')}"
        if self.same:
            return f"{counted}: the same decisions as recorded"
        return f"{counted}: {_count(self.rounds_differing, 'round')} decided differently; the first: {self.first}"

    def plain(self) -> dict[str, Any]:
        """As data."""
        return {"same": self.same, **asdict(self)}


SchedulersOf = Callable[[Settings], Mapping[str, Scheduler]]
"""Schedulers by the name that is told, made with the settings that the file was recorded with."""


Player = Callable[[Path, SchedulersOf | None], PlayedEvents]
"""Plays a file; with schedulers nothing is compared with the record but what these had decided. Raises
:class:`InputError` for a file that cannot be read.
"""


def looks_like_events(path: Path) -> bool:
    """Whether a file begins as a file of events does; whether it can be read is another question."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            return _KIND in file.readline(_HEAD)
    except (OSError, EOFError, zlib.error):
        return path.name.endswith(".gz")


def find_player() -> Player:
    """The installed player of events. Raises :class:`InputError` where there is none."""
    message = "no installed package plays events"
    for found in entry_points(group=PLAYERS):
        try:
            player: Player = found.load()
        except ImportError as error:
            message = f"the player of events cannot be loaded: {error}"
        else:
            return player
    raise InputError.one("simulate", message, install_extra("k8s"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
