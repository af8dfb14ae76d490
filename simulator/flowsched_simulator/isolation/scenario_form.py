"""The form of an isolation scenario file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from flowsched_models.form import DurationUs, Form, Name, NotNegative, Positive
from flowsched_models.isolation.workload import Loop, Task
from flowsched_simulator.form_reader import NamedForm

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

    def task(self, duration_s: float) -> Task:
        """The task; ``duration_s``: of the run, if it has none of its own."""
        is_critical = self.kind == "critical"
        return Task(self.name, is_critical, self.cpus, self.deviation, self.duration_s or duration_s, self.threads)


class LoopForm(Form):
    """How every task spends its time."""

    period: DurationUs = 100_000.0
    sleep: Literal["relative", "until-next-period"] = "until-next-period"
    interval_s: Positive = 300.0
    wakeup: DurationUs = 25.0
    work_deviation: Annotated[float, Field(ge=0, le=0.2)] = 0.0015

    def loop(self) -> Loop:
        """The loop, in seconds."""
        is_relative = self.sleep == "relative"
        return Loop(self.period * 1e-6, is_relative, self.interval_s, self.wakeup, self.work_deviation)


class FairForm(Form):
    """The fair class."""

    tick: DurationUs = 4_000.0
    background: Literal["root", "group"] = "root"
    groups: Literal["one", "per-task"] = "one"


class ReservationForm(Form):
    """The reservations."""

    reserved: Literal["interval", "history"] = "interval"
    """What the runtime is made from: the need of each interval, which is known when it begins, and the margin; or one
    runtime for the whole run, from mean and deviation of an earlier run of the same tasks."""
    margin: Annotated[float, Field(ge=0, le=10)] = 0.1


class IsolationForm(NamedForm):
    """An isolation scenario: what is simulated, as its file says it."""

    kind: Literal["IsolationScenario"]
    cores: Annotated[int, Field(gt=0, le=MOST_CORES)]
    kernel: Annotated[str, Field(pattern=r"^\d+\.\d+")]
    """Its release says what the admission test leaves for ordinary tasks."""
    duration_s: Positive
    window_s: Positive = 1.0
    loop: LoopForm = Field(default_factory=LoopForm)
    fair: FairForm = Field(default_factory=FairForm)
    deadline: ReservationForm = Field(default_factory=ReservationForm)
    tasks: Annotated[list[TaskForm], Field(min_length=1)]
    _source: str = PrivateAttr("<memory>")

    def model_post_init(self, context: Any) -> None:
        """Note the document that it is read from."""
        if context is not None:
            self._source = context.source

    @property
    def source(self) -> str:
        """How the file is called in messages."""
        return self._source
