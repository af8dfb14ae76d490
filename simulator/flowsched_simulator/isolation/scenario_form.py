"""The form of an isolation scenario file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from flowsched_models.form import DurationUs, Form, Name, NotNegative, Positive

MOST_CORES = 256
MOST_THREADS = 64
MOST_JOBS = 20_000_000
"""Jobs of all threads together: three numbers of 8 bytes are kept of each."""


class TaskForm(Form):
    """A task in a file."""

    name: Name
    kind: Literal["critical", "background"]
    cpus: Annotated[float, Field(gt=0, le=MOST_CORES)]
    """Mean usage in core-seconds per second."""
    deviation: NotNegative = 0.0
    duration_s: Positive | None = None
    threads: Annotated[int, Field(gt=0, le=MOST_THREADS)] = 1


class LoopForm(Form):
    """How every task spends its time."""

    period: DurationUs = 100_000.0
    sleep: Literal["relative", "until-next-period"] = "until-next-period"
    interval_s: Positive = 300.0
    wakeup: DurationUs = 25.0
    work_deviation: Annotated[float, Field(ge=0, le=0.2)] = 0.0015


class FairForm(Form):
    """The fair class."""

    tick: DurationUs = 4_000.0
    background: Literal["root", "group"] = "root"
    groups: Literal["one", "per-task"] = "one"


class ReservationForm(Form):
    """The reservations."""

    reserved: Literal["interval", "history"] = "interval"
    margin: Annotated[float, Field(ge=0, le=10)] = 0.1


class IsolationForm(Form):
    """An isolation scenario file."""

    api_version: Literal["flowsched/v1"] = Field(alias="apiVersion")
    kind: Literal["IsolationScenario"]
    name: Name
    description: str = ""
    cores: Annotated[int, Field(gt=0, le=MOST_CORES)]
    kernel: Annotated[str, Field(pattern=r"^\d+\.\d+")]
    duration_s: Positive
    window_s: Positive = 1.0
    loop: LoopForm = Field(default_factory=LoopForm)
    fair: FairForm = Field(default_factory=FairForm)
    deadline: ReservationForm = Field(default_factory=ReservationForm)
    tasks: Annotated[list[TaskForm], Field(min_length=1)]
