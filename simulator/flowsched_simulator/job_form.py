"""The form of a job: an item of a scenario, or a row of its arrivals file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from flowsched.cluster.cluster_form import BoundForm, JobGpus
from flowsched.disaggregation.coupled import coupled_names
from flowsched_models.document import Document, KeyPath, Problem
from flowsched_models.execution import INSTANT_S
from flowsched_models.form import Form, MemoryMib, MilliCpu, Name, NotNegative, Positive, Priority

MAX_COPIES = 100_000


class _JobKeys(Form):
    """The keys of a job by itself."""

    name: Name
    profile: Name | None = None
    request: MilliCpu
    widths: Annotated[list[MilliCpu], Field(min_length=1)] | None = None
    scale: Positive = 1.0
    runtime_s: NotNegative | None = None
    estimate_s: NotNegative | None = None
    walltime_s: Positive | None = None
    submit_s: NotNegative = 0.0
    goal_s: Positive | None = None
    deadline_s: Positive | None = None
    after: list[Name] = Field(default_factory=list)
    priority: Priority = 0
    weight: Positive = 1.0
    memory: MemoryMib | None = None
    machines: Annotated[list[Name], Field(min_length=1)] | None = None
    machine_labels: dict[str, str] = Field(default_factory=dict)
    copies: Annotated[int, Field(gt=0, le=MAX_COPIES)] = 1
    mix: Positive | None = None
    tasks: Annotated[int, Field(gt=0, le=MAX_COPIES)] = 1
    barrier: bool = False
    run_class: Name | None = Field(None, alias="class")
    true_profile: Name | None = None


class JobForm(BoundForm, _JobKeys):
    """A job in a file."""

    gpus: JobGpus = None

    @property
    def told_s(self) -> float | None:
        """The run time that policies are told, in seconds, an instant at least; None where it follows from the profile.

        That is the estimate, else the walltime, else the run time. Batch systems know that a job is killed at its walltime,
        so it is never longer than that.
        """
        if self.runtime_s is None:
            return None
        said_s = self.runtime_s if self.estimate_s is None else self.estimate_s
        if self.walltime_s is not None:
            said_s = self.walltime_s if self.estimate_s is None else min(said_s, self.walltime_s)
        return max(said_s, INSTANT_S)

    def names(self) -> list[str]:
        """The jobs that the entry stands for."""
        if self.copies == 1:
            return [self.name]
        return [f"{self.name}-{k}" for k in range(1, self.copies + 1)]

    def task_names(self, job: str) -> list[str]:
        """The tasks of one of these jobs."""
        if self.has_remote_gpus:
            return coupled_names(job, self.gpu_count)
        return [job] if self.tasks == 1 else [f"{job}/{k}" for k in range(1, self.tasks + 1)]

    @property
    def has_barrier(self) -> bool:
        """Whether each of its jobs has several tasks that start together."""
        return self.barrier and self.tasks > 1

    @property
    def has_remote_gpus(self) -> bool:
        """Whether GPUs may be on other machines than the CPU: its job is one sub-task, and one more for each GPU."""
        return self.gpus is not None and self.gpus.remote

    @property
    def gpu_count(self) -> int:
        """GPUs that it asks for."""
        return 0 if self.gpus is None else self.gpus.count or 1


class ArrivalForm(JobForm):
    """A job in an arrivals file: the same keys, and a time of submission."""

    submit_s: NotNegative


@dataclass(frozen=True)
class JobEntry:
    """A job with its place: an item of the scenario, or a row of its arrivals file."""

    form: JobForm
    document: Document
    path: KeyPath

    @property
    def data(self) -> Mapping[str, Any]:
        """Its keys and values as they were written."""
        value: Any = self.document.data
        for part in self.path:
            value = value[part]
        return dict(value)

    def problem(self, key: str, message: str, help: str = "") -> Problem:
        """A problem with one value of the job."""
        return self.document.problem((*self.path, key), message, help)

    def run_time_problems(self) -> Iterator[Problem]:
        """What its profile and its given run time lack or contradict."""
        form = self.form
        if form.profile is None and form.runtime_s is None:
            yield self.problem("profile", "is missing", "name a job profile, or give runtime_s")
        if form.estimate_s is not None and form.runtime_s is None:
            yield self.problem("estimate_s", "is for jobs with runtime_s", "add runtime_s, or leave estimate_s out")
        if form.runtime_s is not None and "scale" in form.model_fields_set:
            yield self.problem("scale", "has no meaning beside runtime_s, the whole run time", "leave it out")
        if form.runtime_s is not None and form.true_profile is not None:
            yield self.problem("true_profile", "has no meaning beside runtime_s, the whole run time", "leave it out")
        if form.gpus is not None and form.true_profile is not None:
            yield self.problem("true_profile", "is for jobs without GPUs", "leave it out, or gpus")

    def remote_problems(self) -> Iterator[Problem]:
        """What cannot be where its GPUs may be on other machines."""
        form = self.form
        if not form.has_remote_gpus:
            return
        at = "gpus"
        if form.gpus is not None and form.gpus.share is not None:
            yield self.problem(
                at, "asks for a share of a GPU that may be on another machine", "ask for whole ones: count"
            )
        if form.runtime_s is None:
            message = "may be on other machines (remote), which needs a run time that does not depend on cores"
            yield self.problem(at, message, "give runtime_s")
        if form.tasks > 1:
            yield self.problem(
                at, f"may be on other machines (remote), but the job has {form.tasks} tasks", "use copies"
            )
        if form.group is not None:
            message = "may be on other machines (remote): such a job is a task group of its own"
            yield self.problem("group", message, "leave it out")

    def barrier_problems(self) -> Iterator[Problem]:
        """What its barrier contradicts."""
        if self.form.has_barrier and self.form.group is not None:
            message = "a job with a barrier is a group of its own"
            yield self.problem("group", message, "leave out barrier to start with the group, or group to start alone")
