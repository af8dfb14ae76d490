"""All profiles that a run knows: jobs, services, machine types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched_models.gpu_topology import GpuTopology
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile
from flowsched_models.service import ServiceProfile
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_models.text_table import counted


@dataclass(frozen=True, repr=False)
class Catalogue(ShortRepr):
    """Profiles by name. Read from YAML by :func:`flowsched_models.profiles.load_catalogue`."""

    jobs: Mapping[str, JobProfile]
    services: Mapping[str, ServiceProfile]
    machine_types: Mapping[str, MachineType]
    source: str = "<memory>"
    gpu_topologies: Mapping[str, GpuTopology] = field(default_factory=dict)

    def overview(self) -> Overview:
        """Profiles in numbers; a row per job."""
        jobs, services, types = len(self.jobs), len(self.services), len(self.machine_types)
        words = f"of {counted(jobs, 'job')}, {counted(services, 'service')} and {counted(types, 'machine type')}"
        rows = ((name, job.work_s, job.serial_fraction, job.memory_mib) for name, job in self.jobs.items())
        return Overview(words, ("job", "work_s", "serial_fraction", "memory_mib"), rows, jobs)

    def speed(self, job: str, machine_type: str) -> float:
        """Speed of a job on a machine type, relative to the reference type (``v``)."""
        profile = self.jobs[job]
        return profile.speed.get(machine_type, self.machine_types[machine_type].speed)
