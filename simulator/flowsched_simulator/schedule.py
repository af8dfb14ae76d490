"""A given schedule: placements, to be replayed instead of asking a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict

from flowsched.cluster.snapshot import Service
from flowsched.support.configuration import written
from flowsched_models.form import CoreSet, Form, MilliCpu, Name, NotNegative, PositiveInt
from flowsched_models.quantity import parse_milli

Milli = Annotated[int, written(parse_milli, MilliCpu)]


class Place(Form):
    """Where a schedule has a latency service."""

    machine: Name
    cores: CoreSet
    threads: PositiveInt = 1


class ScheduledTask(Form):
    """One job of a schedule. Exactly one of ``start_s`` and ``after`` is set."""

    model_config = ConfigDict(alias_generator=lambda name: name.removesuffix("_milli"), validate_by_name=True)

    job: Name
    machine: Name
    cores: CoreSet
    threads: PositiveInt
    start_s: NotNegative | None = None
    after: Name | None = None
    request_milli: Milli | None = None
    """CPU request, its weight where cores are shared; None: an equal split of every core it may use."""
    limit_milli: Milli | None = None
    """CPU limit, or None for no limit."""


def place_of(service: Service) -> Place:
    """Where a scenario has a service itself."""
    return Place.model_construct(machine=service.machine, cores=service.cores, threads=service.threads)


@dataclass(frozen=True)
class Schedule:
    """Read from YAML by :func:`flowsched_simulator.schedule_file.load_schedule`."""

    name: str
    cluster: str
    """The scenario whose cluster, profiles and jobs it places."""
    services: Mapping[str, Place]
    """By the names of the scenario."""
    tasks: tuple[ScheduledTask, ...]
    source: str = "<memory>"
