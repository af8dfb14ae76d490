"""What is run, and what comes of it; :mod:`process_runner` runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched_models.measuring.aggressor import Aggressor


@dataclass(frozen=True)
class Program:
    """A command to run, pinned to CPUs."""

    command: tuple[str, ...]
    cores: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of those of this process."""


@dataclass(frozen=True)
class Disturbance:
    """An aggressor and the CPU that it is pinned to."""

    aggressor: Aggressor
    core: int


@dataclass(frozen=True)
class Ended:
    """How one program ended."""

    start_s: float
    """On the system's monotonic clock."""
    end_s: float
    exit_code: int
    """0 is success; minus the signal's number if a signal ended it."""
    user_s: float
    """CPU time in its own code, over all threads and processes that it waited for."""
    sys_s: float
    """CPU time in the kernel."""
    max_rss_mib: float
    """Largest resident memory of any of its processes."""
    said: str = ""
    """The last line of its standard error."""

    @property
    def real_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    programs: tuple[Ended, ...]
    """In the order of the programs; empty if the run was given up."""
    trouble: str = ""
    """Why the run was given up, in words that follow the name of the run."""
    too_long: bool = False
    """Whether it was given up for its time limit."""
    other_cpus: float | None = None
    """CPUs that were busy with anything else meanwhile, on average; None if that cannot be told."""
