"""Jobs whose run time is given: profiles that take as long on any machine, on any number of cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowsched_models.catalogue import Catalogue
from flowsched_models.profile import JobProfile, PhaseOrder

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
