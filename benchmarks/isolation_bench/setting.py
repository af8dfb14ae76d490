"""The ways of scheduling that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """How the critical task is set apart."""

    GROUPS = "groups"
    """A cpu group of a weight beside the background's."""
    DEADLINE = "deadline"
    """SCHED_DEADLINE."""
    FIFO = "fifo"
    """SCHED_FIFO."""


@dataclass(frozen=True)
class Setting:
    """One of them."""

    name: str
    way: Way
    weight: float = 1.0
    """Of the critical task's group, relative to the default of Linux."""
    siblings: bool = False
    """Every background process in a group of its own of weight 1; else all in one."""
    margin: float = 0.0
    """Of the reservation over the runtime that the task needs."""


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("equal", Way.GROUPS),
        Setting("shares-95", Way.GROUPS, 19.0),
        Setting("shares-95-siblings", Way.GROUPS, 19.0, siblings=True),
        Setting("shares-99", Way.GROUPS, 99.0),
        Setting("shares-99-siblings", Way.GROUPS, 99.0, siblings=True),
        Setting("deadline", Way.DEADLINE, margin=0.1),
        Setting("deadline-no-margin", Way.DEADLINE),
        Setting("fifo", Way.FIFO),
    )
}
"""19 beside 1 is 95 %, as 19456 shares beside 1024 are."""
DEFAULT = ("equal", "shares-95", "shares-99", "deadline", "fifo")


@dataclass(frozen=True)
class CriticalTask:
    """What the critical task does, and what is measured of it."""

    runtime_us: int = 4_000
    """CPU time that each job needs."""
    period_us: int = 10_000
    seconds: float = 3.0
    window_us: int = 100_000
    relative_sleep: bool = False
    background: int = 0
    """Processes that burn CPU beside it; 0: two per core."""

    @property
    def jobs(self) -> int:
        """How many."""
        return max(1, round(self.seconds * 1e6 / self.period_us))
