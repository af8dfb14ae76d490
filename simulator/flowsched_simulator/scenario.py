"""A scenario: a cluster, the services on it, and the jobs that arrive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from flowsched.cluster.snapshot import MILLI, Machine, Service, StartDelay, Task, by_machine, cores_beside
from flowsched.gpu.shapes import GpuShape
from flowsched.relations.relation import Relation, TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_models.text_table import counted
from flowsched_simulator.arrivals import Arrivals


class Objective(StrEnum):
    """What the users of a scenario want from a policy that can be told."""

    MAKESPAN = "makespan"
    """All jobs done as soon as possible: they were submitted together and are worth something together."""
    COMPLETION = "completion"
    """Each job done by its own goal."""


@dataclass(frozen=True)
class Stragglers:
    """Some runs, of any task on any machine, take longer than all else says."""

    share: float
    """Of all runs."""
    factor: float
    """True run time over that of other runs."""


@dataclass(frozen=True)
class JobTerms:
    """What holds for a job as a whole."""

    deadline_s: float | None = None
    """Seconds after submission by which it has to end, or None; no policy is told, but for a ``goal_s`` of its tasks."""
    after: tuple[str, ...] = ()
    """Jobs that have to end before it is submitted."""
    walltime_s: float | None = None
    """Seconds that each of its tasks may run for, after which it is killed; None: as long as it takes."""

    def at_most_s(self, run_s: float) -> float:
        """A run time in seconds, cut off where its tasks are killed."""
        return run_s if self.walltime_s is None else min(run_s, self.walltime_s)


_NO_TERMS = JobTerms()


@dataclass(frozen=True, repr=False)
class Scenario(ShortRepr):
    """Read from YAML by :func:`flowsched_simulator.scenario_file.load_scenario`."""

    name: str
    description: str
    catalogue: Catalogue
    machines: tuple[Machine, ...]
    services: tuple[Service, ...]
    tasks: tuple[Task, ...]
    """Those of a job have its name as their ``job``; a job's only task is named as the job. ``submit_s`` before arrivals are
    drawn."""
    objective: Objective = Objective.COMPLETION
    arrivals: Arrivals = field(default_factory=Arrivals)
    start_delay: StartDelay = field(default_factory=StartDelay)
    relations: tuple[Relation, ...] = ()
    task_groups: tuple[TaskGroup, ...] = ()
    share_service_cores: bool = False
    """Whether tasks of little weight may be given services' cores too."""
    run_time_factors: Mapping[str, float] = field(default_factory=dict)
    """True over estimated run time of tasks whose ``estimate_s`` differs from their ``runtime_s``, by name."""
    estimate_error: float = 0.0
    """Standard deviation of the log of a factor on what policies are told of each task's run time, drawn by the seed; the
    truth stays."""
    true_profiles: Mapping[str, str] = field(default_factory=dict)
    """Profile that a task has in truth, by task, where policies are told another one."""
    sensitivity_error: float = 0.0
    """Standard deviation of the log of a factor on the true sensitivity of each job profile to its neighbours, drawn by the
    seed."""
    stragglers: Stragglers | None = None
    """Runs that take longer in truth."""
    job_terms: Mapping[str, JobTerms] = field(default_factory=dict)
    """What holds for jobs as a whole, by job, where there is anything."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """Class of jobs that are copies of another, by job: its name. Any other job is a class by itself, unless its tasks name
    one."""
    barriers: frozenset[str] = frozenset()
    """Jobs whose tasks start together: each has a task group of its own, with its name. So have jobs whose GPUs may be on
    other machines."""
    gpu_demand: tuple[tuple[GpuShape, int], ...] = ()
    """Shapes of tasks that are expected where there are GPUs, with how many of each; empty: learnt from those that come."""
    source: str = "<memory>"

    def overview(self) -> Overview:
        """Machines, services and jobs in numbers; a row per job."""
        machines, services, jobs = len(self.machines), len(self.services), len({t.job for t in self.tasks})
        words = (
            f"{self.name}: {counted(machines, 'machine')}, {counted(services, 'service')}, {counted(jobs, 'job')},"
            f" objective {self.objective.value}"
        )
        rows = ((t.name, t.profile, t.request_milli / MILLI, t.scale, t.submit_s, t.priority) for t in self.tasks)
        return Overview(words, ("job", "profile", "request", "scale", "submit_s", "priority"), rows, len(self.tasks))

    @cached_property
    def given_run_times(self) -> bool:
        """Whether the run times of all jobs are given."""
        return all(self.catalogue.jobs[t.profile].has_given_run_time for t in self.tasks)

    def terms_of(self, job: str) -> JobTerms:
        """What holds for a job as a whole."""
        return self.job_terms.get(job, _NO_TERMS)

    def class_of(self, task: Task) -> str:
        """The class of a task: tasks of one are expected to run for as long as each other, relative to their forecasts."""
        return task.run_class or self.classes.get(task.job, task.job)

    def batch_cores(self) -> dict[str, tuple[int, ...]]:
        """By machine, the virtual CPUs that belong to no service."""
        here = by_machine(self.services)
        return {m.name: cores_beside(m, here[m.name]) for m in self.machines}
