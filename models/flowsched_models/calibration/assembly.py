"""From fitted parameters to profiles: jobs, machine types, and what stands in for what was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.calibration.parameter import family_of
from flowsched_models.calibration.runtime_fit import Fitted
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType
from flowsched_models.measurements.measurements import Measurements
from flowsched_models.profile import JobProfile

SWEPT_HOST_ERROR = 0.1
"""``error`` of measured machine types of which it is not known how their hosts differ."""
UNKNOWN_HOST_ERROR = 0.25
"""``error`` of machine types that were not measured themselves: sisters of one family differ by that much too."""
DEFAULT_MEMORY_MIB = 1024
"""Of a job whose memory was not measured."""
MEMORY_MARGIN = 1.1
"""What a job asks for beside the most that it was seen to use."""
DIGITS = 4
"""Significant digits of fitted numbers in profiles."""


@dataclass(frozen=True)
class LogErrors:
    """Standard deviations of log(measured/predicted) run time, as far as they are known."""

    jobs: Mapping[str, float]
    hosts: Mapping[str, float]


def assemble(
    fitted: Fitted, base: Catalogue, data: Measurements, errors: LogErrors | None = None, *, unmeasured: bool = True
) -> tuple[Catalogue, tuple[str, ...]]:
    """The profiles of what was measured, and a sentence for everything that was assumed.

    ``base`` gives what times do not tell: memory, virtual CPUs, siblings, thread counts that a program takes, services.
    ``unmeasured``: with the machine types of ``base`` that were not measured, too. Those that share a family with a measured
    one get the factors of the family, all others the middle of the families.
    """
    known = errors or LogErrors({}, {})
    assumed: list[str] = []
    types = _machine_types(fitted, base, known, assumed, unmeasured)
    jobs = {
        name: _job(fitted, j, name, base, data, types, known, assumed) for j, name in enumerate(fitted.parameters.jobs)
    }
    return Catalogue(jobs, dict(base.services), types, "calibrated"), tuple(assumed)


def with_errors(catalogue: Catalogue, errors: LogErrors) -> Catalogue:
    """The same profiles with other errors of predictions."""
    jobs = {
        n: replace(j, error=rounded(errors.jobs[n], 2)) if n in errors.jobs else j for n, j in catalogue.jobs.items()
    }
    types = {
        n: replace(m, error=rounded(errors.hosts[n], 2)) if n in errors.hosts else m
        for n, m in catalogue.machine_types.items()
    }
    return replace(catalogue, jobs=jobs, machine_types=types)


def _machine_types(
    fitted: Fitted, base: Catalogue, known: LogErrors, assumed: list[str], unmeasured: bool
) -> dict[str, MachineType]:
    parameters, values = fitted.parameters, fitted.values
    families = {family_of(t) for t in parameters.machine_types} | {family_of(parameters.reference)}
    found = {}
    strangers = []
    for name in sorted(base.machine_types):
        machine = base.machine_types[name]
        error = UNKNOWN_HOST_ERROR
        if name in parameters.machine_types:
            t = parameters.machine_types.index(name)
            speed, bandwidth = float(values.type_speed[t]), float(values.bandwidth[t])
            error = known.hosts.get(name, SWEPT_HOST_ERROR)
        elif not unmeasured:
            continue
        elif family_of(name) in families:
            level, _, bandwidth = parameters.of_family(fitted.vector, family_of(name))
            speed = float(np.exp(level))
        else:
            speed, bandwidth = _middle(fitted), 1.0
            strangers.append(name)
        found[name] = replace(machine, speed=rounded(speed), bandwidth=rounded(bandwidth), error=rounded(error, 2))
    if strangers:
        assumed.append(
            f"{', '.join(strangers)}: nothing of the family was measured, so the speed is the middle of those that were"
            f" ({_middle(fitted):.3g} of {parameters.reference}), within a wide error of {UNKNOWN_HOST_ERROR}"
        )
    return found


def _job(
    fitted: Fitted,
    j: int,
    name: str,
    base: Catalogue,
    data: Measurements,
    types: Mapping[str, MachineType],
    known: LogErrors,
    assumed: list[str],
) -> JobProfile:
    values = fitted.values
    before = base.jobs.get(name)
    peak = max((t.max_rss_mib or 0.0 for t in data.thread_times if t.job == name), default=0.0)
    if peak > 0.0:
        memory = int(np.ceil(peak * MEMORY_MARGIN))
    elif before is not None:
        memory = before.memory_mib
    else:
        memory = DEFAULT_MEMORY_MIB
        assumed.append(f"{name}: its memory was not measured, {DEFAULT_MEMORY_MIB} MiB are assumed")
    profile = JobProfile(
        name,
        rounded(float(values.work_s[j])),
        rounded(float(values.serial_fraction[j])),
        fitted.phase_order[j],
        rounded(float(values.smt_gain[j])),
        rounded(float(values.sensitivity[j])),
        rounded(float(values.pressure[j])),
        memory,
        round(float(values.oversubscription[j]), 3),
        before.threads_power_of_two if before is not None else False,
        {t: s for t in sorted(types) if (s := _speed(fitted, j, t)) is not None},
    )
    return replace(profile, error=rounded(known.jobs[name], 2)) if name in known.jobs else profile


def _speed(fitted: Fitted, j: int, machine_type: str) -> float | None:
    """Speed of a job on a type; None where only the type's own default is known, or it is the reference's."""
    parameters = fitted.parameters
    if machine_type in parameters.machine_types:
        if machine_type == parameters.reference:
            return None
        return rounded(float(fitted.values.speed[parameters.machine_types.index(machine_type), j]))
    family = family_of(machine_type)
    if family not in parameters.families:
        return None
    level, of_jobs, _ = parameters.of_family(fitted.vector, family)
    return rounded(float(np.exp(level + of_jobs[j])))


def _middle(fitted: Fitted) -> float:
    """Geometric mean of the families' speeds, the reference's 1 among them."""
    logs = fitted.vector[fitted.parameters.slices["family speed"]]
    return float(np.exp(np.sum(logs) / (len(logs) + 1)))


def rounded(value: float, digits: int = DIGITS) -> float:
    """A number with as many significant digits as profiles have."""
    return float(f"{value:.{digits}g}")
