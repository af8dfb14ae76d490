"""The form of a node scenario file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from flowsched_models.form import DurationUs, Form, Name, NotNegative, Positive, PositiveInt, Priority, Rate
from flowsched_models.quantity import QuantityError, parse_rate, shown
from flowsched_simulator.form_reader import NamedForm

_SHOWN = 5
"""Mistakes of one list that are told."""
LEAST_INTERVAL_S = 0.05
"""No load changes faster: a controller decides every 100 ms."""
Interval = Annotated[float, Field(ge=LEAST_INTERVAL_S, le=1e6)]


class NodeMachineForm(Form):
    """The machine in a file."""

    type: Name
    cores: PositiveInt | None = None


class DrawForm(Form):
    """What loads are drawn from."""

    min: Rate
    max: Rate


def _wave(value: Any) -> Any:
    help = "write a list of loads such as [5K, 60K], or the name of a CSV file"
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise QuantityError("a wave needs at least one load" if value == [] else f"{shown(value)} is not a wave", help)
    loads, faults = [], []
    for place, item in enumerate(value, start=1):
        try:
            loads.append(parse_rate(item))
        except QuantityError as error:
            faults.append(f"{error.message} (number {place} of the list)")
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise QuantityError("; ".join(faults[:_SHOWN]) + more, "write loads as 30000 or 30K")
    return tuple(loads)


class LoadForm(Form):
    """The load of a service: a wave, a range to draw from, or both (the range is then for drawn runs only)."""

    wave: (
        Annotated[
            str | tuple[float, ...],
            BeforeValidator(_wave),
            WithJsonSchema(
                {"type": ["string", "array"], "description": "loads by interval, or a CSV file with a column qps"}
            ),
        ]
        | None
    ) = None
    draw: DrawForm | None = None


class NodeServiceForm(Form):
    """A latency service in a file."""

    name: Name
    profile: Name
    threads: PositiveInt
    cores: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    client: Name
    slo_p95: DurationUs
    load: LoadForm


class DeadlineForm(Form):
    """CPU time that a critical job is owed in every period."""

    runtime: DurationUs
    period: DurationUs


class NodeJobForm(Form):
    """A job in a file."""

    name: Name
    profile: Name
    threads: PositiveInt
    scale: Positive = 1.0
    submit_s: NotNegative = 0.0
    deadline: DeadlineForm | None = None
    priority: Priority = 0
    shares: bool = True
    run_class: Name | None = Field(None, alias="class")


class QueuesForm(Form):
    """The two queues of a design: names of jobs, in order; both empty: as it was published."""

    high: list[Name] = Field(default_factory=list)
    low: list[Name] = Field(default_factory=list)


class PolicyForm(Form):
    """What a policy's design fixes for this scenario: part of the design, not something that it finds."""

    threads: dict[str, PositiveInt] = Field(default_factory=dict)
    """Threads by job, where they are not those of the scenario."""
    queues: QueuesForm | None = None


class NodeScenarioForm(NamedForm):
    """A node scenario file. That there are services and jobs is looked at when it is built: with every entry broken a list
    is empty too, and what is wrong elsewhere should be told all the same.
    """

    kind: Literal["NodeScenario"]
    profiles: list[str] = Field(default_factory=list)
    machine: NodeMachineForm
    services: list[NodeServiceForm]
    qps_interval_s: Interval = 10.0
    jobs: list[NodeJobForm]
    start_delay_s: NotNegative = 0.0
    policies: dict[str, PolicyForm] = Field(default_factory=dict)
