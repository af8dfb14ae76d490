"""Jobs taken apart: a sub-task for CPU and memory, and one for each GPU, which may be on any machine.

After DRMaestro (M. Amaral, "Improving Resource Efficiency in Virtualized Datacenters", PhD thesis, UPC 2019, section
5.3.3, figure 22; Journal of Cloud Computing 2021, doi 10.1186/s13677-021-00238-6). All sub-tasks of a job start together.

What is simplified: machines know rates of the tasks on them alone, so each sub-task carries the whole run time of its job
and is slowed down by the network of its own machine. The job ends with the last of them, and all of them keep what they
hold until then. A job of which now one end, now the other is the slower one would in truth take longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from flowsched.cluster.snapshot import Task
from flowsched.gpu.devices import TaskGpus
from flowsched_models.profile import JobProfile


@dataclass(frozen=True)
class CoupledJob:
    """A job that waits: what has its CPU and memory, and a sub-task for each GPU that may be elsewhere."""

    first: Task
    """Any task that is no such sub-task; it may have GPUs of its own machine."""
    parts: tuple[Task, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All that starts together."""
        return self.first, *self.parts

    @property
    def age(self) -> tuple[int, tuple[float, int, str, str]]:
        """Sort key: higher priority first, then by arrival."""
        return -self.first.priority, self.first.arrival


def coupled_names(job: str, gpus: int) -> list[str]:
    """Names of the sub-tasks of a job: its own, and one for each GPU."""
    return [job, *(f"{job}/gpu-{k}" for k in range(1, gpus + 1))]


def coupled(task: Task) -> tuple[Task, ...]:
    """A task that asks for whole GPUs as sub-tasks, in a task group with the name of its job."""
    gpus = task.gpus
    if gpus is None or gpus.is_share:
        raise ValueError(f"{task.name}: only whole GPUs can be on other machines")
    own, *others = coupled_names(task.name, gpus.count)
    first = replace(task, name=own, gpus=None, group=task.job)
    part = replace(
        first,
        profile=serving_name(task.profile),
        request_milli=0,
        widths_milli=(0,),
        memory_mib=0,
        resources=(),
        gpus=TaskGpus(1, models=gpus.models),
        gpus_for=own,
    )
    return first, *(replace(part, name=name) for name in others)


def serving_name(profile: str) -> str:
    """Name of the profile of what serves a GPU to a job of this one."""
    return f"{profile}:gpu"


def serving_profile(profile: JobProfile) -> JobProfile:
    """What serves a GPU to a job: as long, and as much on the network. The caches and cores that the job suffers by are
    those of its other part; the server keeps one virtual CPU busy.
    """
    return replace(profile, name=serving_name(profile.name), sensitivity=0.0, pressure=0.0, smt_gain=1.0)


def coupled_jobs(tasks: Iterable[Task]) -> list[CoupledJob]:
    """Tasks put together again, the oldest job first."""
    parts: dict[str, list[Task]] = {}
    firsts = []
    for task in tasks:
        if task.gpus_for:
            parts.setdefault(task.gpus_for, []).append(task)
        else:
            firsts.append(task)
    jobs = [CoupledJob(task, tuple(parts.get(task.name, ()))) for task in firsts]
    return sorted(jobs, key=lambda job: job.age)


def is_remote(task: Task, places: Mapping[str, str], coupled_with: Iterable[str]) -> bool:
    """Whether a task has other sub-tasks of its job on other machines. ``places``: machines by task.

    Raises ``ValueError`` where one of them has no place: all start, or none does.
    """
    found = False
    for name in coupled_with:
        if name not in places:
            raise ValueError(f"{task.name} was placed without {name}: the sub-tasks of a job start together")
        found = found or places[name] != places[task.name]
    return found
