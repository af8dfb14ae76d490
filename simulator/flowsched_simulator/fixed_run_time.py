"""Jobs whose run time is given: profiles that take as long on any number of cores, and what policies are told instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowsched_models.catalogue import Catalogue
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_simulator.world import RunTimeError

_LEAST_MEMORY_MIB = 1
FIXED, GIVEN_RUN_TIME = "fixed", ":1s"
"""Names of such profiles: ``fixed:1s``, and with another profile's interference ``vips:1s``."""


def fixed_profile(catalogue: Catalogue, base: str | None) -> JobProfile:
    """A profile that at scale 1 runs one second alone on any machine of the catalogue, on any number of cores.

    The ``scale`` of a task is its run time in seconds: tasks of all run times share the profile, so that rates and prices
    that are remembered by profile serve them all.

    What it suffers from neighbours and does to them, and its memory, are those of the profile ``base``; without one it
    does and suffers nothing. It keeps one virtual CPU busy.
    """
    fixed: dict[str, Any] = {
        "name": f"{base or FIXED}{GIVEN_RUN_TIME}",
        "work_s": 1.0,
        "serial_fraction": 1.0,
        "phase_order": PhaseOrder.SERIAL_FIRST,
        "oversubscription": 0.0,
        "speed": dict.fromkeys(catalogue.machine_types, 1.0),
        "error": 0.0,
    }
    if base is not None:
        return replace(catalogue.jobs[base], **fixed)
    return JobProfile(smt_gain=1.0, sensitivity=0.0, pressure=0.0, memory_mib=_LEAST_MEMORY_MIB, **fixed)


@dataclass(frozen=True)
class EstimatedRunTimes:
    """Machines on which jobs take longer or shorter than policies are told, by a factor for each."""

    factors: Mapping[str, float]
    """True over estimated run time, by task; 1 for those that are not named."""
    error: RunTimeError
    """What the machines differ by beside that."""

    def factor(self, task: str, machine: str) -> float:
        """Run time of a task on a machine, relative to what the models say of the estimate."""
        return self.factors.get(task, 1.0) * self.error.factor(task, machine)
