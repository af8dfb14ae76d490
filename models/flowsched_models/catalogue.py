"""All profiles that a run knows: jobs, services, machine types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile
from flowsched_models.service import ServiceProfile


@dataclass(frozen=True)
class Catalogue:
    """Profiles by name. Read from YAML by :func:`flowsched_models.profiles.load_catalogue`."""

    jobs: Mapping[str, JobProfile]
    services: Mapping[str, ServiceProfile]
    machine_types: Mapping[str, MachineType]
    source: str = "<memory>"

    def speed(self, job: str, machine_type: str) -> float:
        """Speed of a job on a machine type, relative to the reference type (``v``)."""
        profile = self.jobs[job]
        return profile.speed.get(machine_type, self.machine_types[machine_type].speed)
