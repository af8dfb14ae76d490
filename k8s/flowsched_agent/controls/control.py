"""What steers one task or service, whatever it is: a tree of processes, a cgroup, a container."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from flowsched.node.deadline import Deadline
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.threads import Threads
from flowsched_agent.sensors.cpu import UsedCpu
from flowsched_agent.system import System

Saved = dict[str, Any]
"""Original settings as plain JSON: enough to bring them back from another process."""


def try_all(acts: Iterable[Callable[[], None]]) -> None:
    """Do all of it. Raises the first :class:`ControlError` afterwards, unless that says that the target is gone."""
    refused: ControlError | None = None
    for act in acts:
        try:
            act()
        except ControlError as error:
            refused = refused or error
    if refused is not None and not refused.gone:
        raise refused


class Control(ABC):
    """Steers one task or service. All methods raise :class:`ControlError`, except where they say otherwise."""

    pid: int | None = None
    """The process that it began with, where that is known."""

    def __init__(self, system: System, name: str, threads: Threads) -> None:
        """``name``: for sentences."""
        self._system = system
        self.name = name
        self._threads = threads
        self._used = UsedCpu(system)
        self._most_s = 0.0

    @abstractmethod
    def set_cores(self, cores: tuple[int, ...]) -> None:
        """Let it run on these virtual CPUs only. Those that its cpuset does not hold are left out, and said so."""
        if not cores:
            raise ControlError(f"{self.name} was to run on the CPUs of an empty list", "it needs one at least")

    @abstractmethod
    def set_weight(self, weight: float) -> None:
        """CPU weight relative to the default of Linux; at most LOWEST_WEIGHT: only what others leave."""
        if not weight > 0:
            raise ControlError(f"{self.name} was to have weight {weight:g}", "weights are above 0")

    @abstractmethod
    def set_quota(self, cpus: float | None) -> None:
        """CPUs that it may use at most; None: as many as it finds."""
        if cpus is not None and not cpus > 0:
            raise ControlError(f"CPU limit of {self.name} must be > 0, got {cpus:g}", "to stop it, use pause")

    @abstractmethod
    def pause(self) -> None:
        """Stop it where it is."""

    @abstractmethod
    def resume(self) -> None:
        """Let it go on; nothing happens where it runs."""

    @abstractmethod
    def paused(self) -> bool:
        """Whether it stands still now."""

    def set_deadline(self, deadline: Deadline | None) -> None:
        """Owe its busiest thread run time in every period (SCHED_DEADLINE); None: back to how that was scheduled before."""
        self._threads.set_deadline(deadline)

    def cpu_s(self) -> float:
        """CPU seconds that it has used so far; never less than before."""
        self._most_s = max(self._most_s, self._used_s())
        return self._most_s

    @abstractmethod
    def _used_s(self) -> float:
        """CPU seconds as they are counted now: less than before where a part has ended."""

    @abstractmethod
    def alive(self) -> bool:
        """Whether anything of it is still there. Never raises."""

    @abstractmethod
    def saved(self) -> Saved:
        """Its settings from before the first change. To be written down before the first change."""

    @abstractmethod
    def before_first(self, announce: Callable[[], None]) -> None:
        """Call ``announce`` before something is changed of which ``saved`` did not say so yet, and does from then on.

        What it raises comes out of the setting, and nothing is changed.
        """

    @abstractmethod
    def restore(self) -> None:
        """Bring all of them back; does as much as it can before it raises."""

    def sentences(self) -> list[str]:
        """What came out otherwise than asked since this was last asked. Never raises."""
        said = list(dict.fromkeys(self._threads.said))
        self._threads.said.clear()
        return said
