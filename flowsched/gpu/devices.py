"""GPUs as devices: what a machine has, what a task asks for, and what is left of each device.

A task takes whole devices or a share of one. Shares of different devices do not add up: 460 and 380 thousandths left on
two devices hold no share of 810.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from flowsched_models.catalogue import Catalogue
from flowsched_models.gpu_profile import NO_GPU_PROFILE, NO_GPUS, GpuUse

WHOLE_MILLI = 1000
"""A whole device, in thousandths."""


@dataclass(frozen=True, order=True)
class MachineGpus:
    """The GPUs of a machine: ``count`` devices of one model."""

    model: str
    count: int
    memory_mib: int | None = None
    """Of each device; nothing depends on it yet."""
    topology: str = ""
    """Name of how they are linked, in the catalogue; empty where that is not known."""


@dataclass(frozen=True, order=True)
class TaskGpus:
    """What a task asks for: whole devices, or a share of one."""

    count: int = 1
    share_milli: int = WHOLE_MILLI
    """Of each device, in thousandths; below a whole one only of a single device."""
    models: tuple[str, ...] = ()
    """Models that it may run on, in alphabetical order; empty for any."""

    def __post_init__(self) -> None:
        """Refuse what no task can ask for."""
        if self.count < 1:
            raise ValueError(f"a task that asks for GPUs asks for one at least, got {self.count}")
        if not 1 <= self.share_milli <= WHOLE_MILLI:
            raise ValueError(f"the share of a GPU is 1 to {WHOLE_MILLI} thousandths, got {self.share_milli}")
        if self.count > 1 and self.share_milli < WHOLE_MILLI:
            raise ValueError(f"{self.count} GPUs are whole ones, got {self.share_milli} thousandths of each")

    @property
    def is_share(self) -> bool:
        """Whether it is a part of one device."""
        return self.share_milli < WHOLE_MILLI

    @property
    def milli(self) -> int:
        """Of all devices together, in thousandths."""
        return self.count * self.share_milli

    def __str__(self) -> str:
        """For example ``2 GPUs of model P100 or V100``."""
        what = f"{self.share_milli}m of a GPU" if self.is_share else f"{self.count} GPU{'s' * (self.count > 1)}"
        return f"{what} of model {' or '.join(self.models)}" if self.models else what


def suits(gpus: MachineGpus | None, wanted: TaskGpus) -> bool:
    """Whether a machine has the model and the devices, however full they are."""
    if gpus is None or gpus.count < wanted.count:
        return False
    return not wanted.models or gpus.model in wanted.models


def has_devices(left: Sequence[int], wanted: TaskGpus) -> bool:
    """Whether devices with so much left each hold what a task asks for, its model apart."""
    return sum(milli >= wanted.share_milli for milli in left) >= wanted.count


def fullest(left: Sequence[int], wanted: TaskGpus) -> tuple[int, ...]:
    """The devices that a task takes where it is not said which: of those that hold it the fullest, the first of equals.

    Empty where it does not fit.
    """
    able = sorted((milli, device) for device, milli in enumerate(left) if milli >= wanted.share_milli)
    return tuple(device for _, device in able[: wanted.count]) if len(able) >= wanted.count else ()


def taken(left: Sequence[int], wanted: TaskGpus, devices: Iterable[int]) -> tuple[int, ...]:
    """What is left of each device once a task has taken its part of some; below 0 where that is more than there is."""
    rest = list(left)
    for device in devices:
        rest[device] -= wanted.share_milli
    return tuple(rest)


def given_back(left: Sequence[int], wanted: TaskGpus, devices: Iterable[int]) -> tuple[int, ...]:
    """What is left of each device once a task is gone."""
    rest = list(left)
    for device in devices:
        rest[device] += wanted.share_milli
    return tuple(rest)


def untouched(gpus: MachineGpus | None) -> tuple[int, ...]:
    """What is left of each device of an idle machine."""
    return () if gpus is None else (WHOLE_MILLI,) * gpus.count


def use_of(
    catalogue: Catalogue,
    profile: str,
    gpus: MachineGpus | None,
    wanted: TaskGpus | None,
    devices: Sequence[int] = (),
    remote: bool = False,
) -> GpuUse:
    """Where a task's GPUs are on a machine, as far as its speed depends on it; without ``devices`` the best linked ones,
    undisturbed. ``remote``: parts of its job are on other machines; it may then be the part without GPUs of its own.
    """
    known = catalogue.jobs[profile].gpus
    if known is NO_GPU_PROFILE:
        return NO_GPUS
    if gpus is None or wanted is None:
        return known.use_from_afar() if remote and wanted is None else NO_GPUS
    topology = catalogue.gpu_topologies.get(gpus.topology)
    if not devices:
        return known.best_use(gpus.model, topology, min(wanted.count, gpus.count))
    return known.use(gpus.model, topology, devices, remote)


def profiles_of_worst(catalogue: Catalogue) -> set[str]:
    """Names of the profiles that interference at sockets is measured by: of the largest sensitivity, and pressure."""
    jobs = list(catalogue.jobs.values())
    if not jobs:
        return set()
    most = max(jobs, key=lambda j: j.gpus.socket.sensitivity), max(jobs, key=lambda j: j.gpus.socket.pressure)
    return {job.name for job in most}


class GpuJob(NamedTuple):
    """A task with the devices that it has on a machine."""

    profile: str
    devices: tuple[int, ...]


@dataclass(frozen=True)
class DevicesNow:
    """The GPUs of a machine as they are. It knows its hash: equal states of many machines are looked up in each round."""

    gpus: MachineGpus
    left: tuple[int, ...]
    """Of each device, in thousandths."""
    jobs: tuple[GpuJob, ...] = ()
    """In order of profile and devices."""

    @classmethod
    def idle(cls, gpus: MachineGpus) -> DevicesNow:
        """All devices are free."""
        return cls(gpus, untouched(gpus))

    def with_task(self, profile: str, wanted: TaskGpus, devices: Sequence[int]) -> DevicesNow:
        """Once one more task has some."""
        jobs = tuple(sorted((*self.jobs, GpuJob(profile, tuple(devices)))))
        return DevicesNow(self.gpus, taken(self.left, wanted, devices), jobs)

    def without_task(self, profile: str, wanted: TaskGpus, devices: Sequence[int]) -> DevicesNow:
        """Once a task has given them back."""
        jobs = list(self.jobs)
        jobs.remove(GpuJob(profile, tuple(devices)))
        return DevicesNow(self.gpus, given_back(self.left, wanted, devices), tuple(jobs))

    def __hash__(self) -> int:
        """Of all that it holds."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.gpus, self.left, self.jobs))


def left_beside(gpus: MachineGpus | None, there: Iterable[tuple[TaskGpus | None, Sequence[int]]]) -> tuple[int, ...]:
    """What is left of each device beside tasks with the devices that they have."""
    left = untouched(gpus)
    for wanted, devices in there:
        if wanted is not None:
            left = taken(left, wanted, devices)
    return left
