"""The form of a scenario file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from flowsched.cluster.cluster_form import GpuDemandForm, MachineKeys, RelationForm, ServiceForm, TaskGroupForm
from flowsched_models.form import Form, Name, NotNegative, Positive
from flowsched_models.machine import MachineType
from flowsched_models.quantity import QuantityError, format_memory, shown
from flowsched_simulator.arrivals import DAY_S
from flowsched_simulator.form_reader import NamedForm
from flowsched_simulator.job_form import MAX_COPIES, JobForm
from flowsched_simulator.truth import MAX_SIGMA, MAX_STRAGGLER

MAX_CORES = 100_000


class MachineEntryForm(MachineKeys):
    """A machine of a scenario, or so many equal ones: of a measured type, or plain ones with so many cores."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["type"]}, {"required": ["cores", "memory"]}]})

    name: Name | None = None
    type: Name | None = None
    cores: Annotated[int, Field(gt=0, le=MAX_CORES)] | None = None
    copies: Annotated[int, Field(gt=0, le=MAX_COPIES)] = 1

    def names(self) -> list[str]:
        """The machines that the entry stands for."""
        name = self.name or self.type_name
        return [name] if self.copies == 1 else [f"{name}-{k}" for k in range(1, self.copies + 1)]

    @property
    def type_name(self) -> str:
        """The machine type: the one that it names, or that of all plain machines with its cores and memory."""
        return self.type or f"plain-{self.cores}-{format_memory(self.memory or 0)}"

    def plain_type(self) -> MachineType | None:
        """What a plain machine brings: cores without siblings, each as fast as one of the reference type."""
        if self.type is not None or self.cores is None or self.memory is None:
            return None
        return MachineType(self.type_name, self.cores, self.memory)


class ScenarioGroupForm(TaskGroupForm):
    """A task group of a scenario, whose clock begins at 0."""

    deadline_s: NotNegative | None = None


class PoissonForm(Form):
    """Random arrivals at a steady rate."""

    rate_per_minute: Positive
    jobs: Annotated[int, Field(gt=0, le=MAX_COPIES)] | None = None


class DiurnalForm(PoissonForm):
    """Random arrivals whose rate moves with the time of day."""

    amplitude: Annotated[float, Field(ge=0, le=1)] | None = None
    peak_s: NotNegative | None = None
    levels: Annotated[list[NotNegative], Field(min_length=1)] | None = None
    period_s: Positive = DAY_S


class BurstyForm(PoissonForm):
    """Random arrivals in bursts."""

    burst_s: Positive
    calm_s: Positive
    share: Annotated[float, Field(gt=0, le=1)] = 0.9


class ArrivalsForm(Form):
    """How jobs arrive; none of these: all at once."""

    poisson: PoissonForm | None = None
    diurnal: DiurnalForm | None = None
    bursty: BurstyForm | None = None
    file: str | None = None

    @property
    def process(self) -> PoissonForm | None:
        """The random process, if there is one."""
        return self.poisson or self.diurnal or self.bursty


def _one_of(value: Any) -> Any:
    forms = "all-at-once, {poisson: {rate_per_minute: 6}}, {diurnal: ...}, {bursty: ...}, {file: arrivals.csv}"
    if value == "all-at-once":
        return ArrivalsForm()
    if isinstance(value, str) or value is None:
        raise QuantityError(f"{shown(value)} is not a kind of arrivals", f"write one of {forms}")
    # One unknown key is left to the form, which knows what was meant.
    if isinstance(value, dict) and len(value) != 1:
        raise QuantityError("must be exactly one kind of arrivals", f"write one of {forms}")
    return value


class StartDelayForm(Form):
    """How long a program takes to start."""

    at_submission_s: NotNegative = 0.0
    after_waiting_s: NotNegative = 0.0


class StragglersForm(Form):
    """Runs that take longer in truth."""

    share: Annotated[float, Field(gt=0, le=1)]
    factor: Annotated[float, Field(gt=1, le=MAX_STRAGGLER)]


class ScenarioForm(NamedForm):
    """A scenario file."""

    kind: Literal["Scenario"]
    objective: Literal["makespan", "completion"] = "completion"
    profiles: list[str] = Field(default_factory=list)
    machines: Annotated[list[MachineEntryForm], Field(min_length=1)]
    services: list[ServiceForm] = Field(default_factory=list)
    jobs: list[JobForm] = Field(default_factory=list)
    arrivals: Annotated[
        ArrivalsForm, BeforeValidator(_one_of, json_schema_input_type=ArrivalsForm | Literal["all-at-once"])
    ] = Field(default_factory=ArrivalsForm)
    start_delay: StartDelayForm = Field(default_factory=StartDelayForm)
    relations: list[RelationForm] = Field(default_factory=list)
    task_groups: list[ScenarioGroupForm] = Field(default_factory=list)
    share_service_cores: bool = True
    estimate_error: Annotated[float, Field(ge=0, le=MAX_SIGMA)] = 0.0
    sensitivity_error: Annotated[float, Field(ge=0, le=MAX_SIGMA)] = 0.0
    stragglers: StragglersForm | None = None
    gpu_demand: list[GpuDemandForm] = Field(default_factory=list)
