"""Job profiles from measured throughputs: speed by model of GPU, links over servers, contention of two jobs on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.cell import Floats
from flowsched_models.gpu_profile import NO_CONTENTION, Contention, GpuProfile
from flowsched_models.gpu_topology import GpuLinks, GpuTopology
from flowsched_models.measurements.gpu_throughputs import GpuThroughputs, TrainingJob
from flowsched_models.profile import JobProfile, PhaseOrder

STEPS = 1000
"""Of a job of scale 1."""
_ON_ONE_THREAD = JobProfile("", 1.0, 0.9999, PhaseOrder.MIXED, 0.0, 0.0, 0.0, 4096, error=0.1)
"""*Assumed*: one thread drives the GPUs, and more are next to no use."""


@dataclass(frozen=True)
class GpuFit:
    """Profiles of training jobs, and how well they tell what was measured."""

    profiles: Mapping[TrainingJob, JobProfile]
    topologies: tuple[GpuTopology, ...]
    """Two servers of four GPUs of each model, seen as one machine."""
    assumed_speeds: tuple[tuple[TrainingJob, str], ...]
    """Where a job was not measured, or does not fit: its speed there is that on one GPU."""
    faster_spread: int
    """Jobs and models that were faster spread than packed; their links count 1."""
    errors: Floats
    """[pairs] predicted over measured slow-down, minus 1."""
    constant_errors: Floats
    """[pairs] the same if all pairs had the median slow-down."""


def link_class(gpu: str) -> str:
    """The class of the links between servers with GPUs of a model: what spreading costs differs by model."""
    return f"{gpu.lower()}-network"


def fit_gpus(measured: GpuThroughputs) -> GpuFit:
    """Fit profiles to throughputs. Speeds and links are measured ratios; contention is a fit."""
    contention, errors, constant = _contention(measured)
    profiles: dict[TrainingJob, JobProfile] = {}
    assumed = []
    faster = 0
    for job, rates in sorted(measured.packed.items()):
        fastest = max(rates.values())
        speed = {gpu: rate / fastest for gpu, rate in rates.items()}
        alone = measured.packed.get(replace(job, gpus=1), {})
        for gpu in measured.gpus:
            if gpu not in speed and gpu in alone:
                speed[gpu] = alone[gpu] / max(alone.values())
                assumed.append((job, gpu))
        spread = measured.spread.get(job, {})
        ratios = {gpu: rates[gpu] / spread[gpu] for gpu in sorted(rates.keys() & spread.keys())}
        faster += sum(ratio < 1.0 for ratio in ratios.values())
        gpus = GpuProfile(
            dict(sorted(speed.items())),
            {link_class(gpu): max(1.0, ratio) for gpu, ratio in ratios.items()},
            device=contention.get(replace(job, gpus=1), NO_CONTENTION),
        )
        profiles[job] = replace(_ON_ONE_THREAD, name=job.name, work_s=STEPS / fastest, gpus=gpus)
    topologies = tuple(_two_servers(gpu) for gpu in measured.gpus)
    return GpuFit(profiles, topologies, tuple(assumed), faster, errors, constant)


def _contention(measured: GpuThroughputs) -> tuple[dict[TrainingJob, Contention], Floats, Floats]:
    """Sensitivities and pressures of least squares on log slow-downs, over all models of GPU; the mean pressure is 1."""
    from scipy.optimize import least_squares  # Only calibration needs it.

    jobs = sorted({job for pair in measured.pairs for job in (pair.job, pair.other)})
    if not jobs:
        return {}, np.zeros(0), np.zeros(0)
    number = {job: k for k, job in enumerate(jobs)}
    one = np.array([number[pair.job] for pair in measured.pairs])
    other = np.array([number[pair.other] for pair in measured.pairs])
    slower = np.log([pair.slowdown for pair in measured.pairs])

    def residuals(values: Floats) -> Floats:
        found: Floats = np.log1p(values[one] * values[len(jobs) + other]) - slower
        return found

    fitted = least_squares(residuals, np.full(2 * len(jobs), 0.5), bounds=(0.0, np.inf))
    sensitivity, pressure = np.split(fitted.x, 2)
    unit = float(pressure.mean()) or 1.0
    found = {
        job: Contention(float(s * unit), float(p / unit)) for job, s, p in zip(jobs, sensitivity, pressure, strict=True)
    }
    return found, np.expm1(residuals(fitted.x)), np.expm1(np.median(slower) - slower)


def _two_servers(gpu: str) -> GpuTopology:
    servers = ((0, 1, 2, 3), (4, 5, 6, 7))
    inside = tuple((device, f"server-{k}") for k, devices in enumerate(servers) for device in devices)
    between = tuple((f"server-{k}", "network") for k in range(len(servers)))
    links = GpuLinks("server", 1.0, inside), GpuLinks(link_class(gpu), 20.0, between)
    return GpuTopology(f"two-{gpu.lower()}-servers", servers, links)
