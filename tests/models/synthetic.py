"""Measurements made by the model itself, with noise: what a calibration must find again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowsched_models.calibration.observation import spread_cores
from flowsched_models.catalogue import Catalogue
from flowsched_models.lookahead import Entry, Lookahead
from flowsched_models.machine import MachineType
from flowsched_models.measurements.measurements import (
    InterferenceTime,
    MeasuredExecution,
    Measurements,
    Run,
    ThreadTime,
    Where,
)
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import HostFactory

REFERENCE = MachineType("ref-8", 8, 32_000, smt=True)
FAST = MachineType("fast-4", 4, 16_000, speed=1.2, bandwidth=0.8)
HERE = Where("made up", 0)


def truth() -> Catalogue:
    """Three jobs that differ in everything."""
    jobs = (
        JobProfile("first", 120.0, 0.25, PhaseOrder.SERIAL_FIRST, 0.6, 0.6, 0.03, 500, speed={"fast-4": 1.3}),
        JobProfile("mixed", 300.0, 0.07, PhaseOrder.MIXED, 0.3, 1.5, 0.04, 500, speed={"fast-4": 1.1}),
        JobProfile("loud", 90.0, 0.12, PhaseOrder.MIXED, 0.8, 0.9, 0.12, 500, speed={"fast-4": 1.25}),
    )
    return Catalogue({j.name: j for j in jobs}, {}, {m.name: m for m in (REFERENCE, FAST)})


def measured(
    seed: int, *, noise: float = 0.03, groups: int = 5, runs: int = 8, catalogue: Catalogue | None = None
) -> Measurements:
    """Sweeps, times beside an aggressor and runs of several groups; every duration with log-normal noise."""
    catalogue = catalogue or truth()
    rng = np.random.default_rng(seed)
    hosts = HostFactory(catalogue)

    def noisy(seconds: float) -> float:
        return float(seconds * np.exp(noise * rng.standard_normal()))

    times, beside, made = [], [], []
    for g in range(groups):
        group = f"group-{g}"
        for machine in (REFERENCE, FAST):
            for name in catalogue.jobs:
                for n in (1, 2, 4, 8)[: 4 if machine is REFERENCE else 3]:
                    cores = spread_cores(machine, n)
                    alone_s = hosts.host(machine.name).alone_s(name, n, cores)
                    times.append(ThreadTime(group, machine.name, name, n, n, noisy(alone_s), HERE))
        for name, job in catalogue.jobs.items():
            for kind, factor in (("none", 1.0), ("llc", 1.0 + job.sensitivity)):
                beside.append(InterferenceTime(group, REFERENCE.name, name, kind, noisy(100.0 * factor), HERE))
        for r in range(runs):
            executions: list[MeasuredExecution] = []
            for machine in (REFERENCE, FAST):
                names = [str(n) for n in rng.permutation(list(catalogue.jobs))[: int(rng.integers(2, 4))]]
                entries = [_entry(rng, name, machine) for name in names]
                outcome = Lookahead(hosts.host(machine.name), 1e9, 1e9, 0.0).run(entries)
                for e, end in zip(entries, outcome.ends_s[0].tolist(), strict=True):
                    duration = noisy(end - e.ready_s)
                    executions.append(
                        MeasuredExecution(
                            e.profile,
                            machine.name,
                            machine.name,
                            e.cores,
                            e.threads,
                            e.weight,
                            None,
                            e.ready_s,
                            e.ready_s + duration,
                            HERE,
                        )
                    )
            made.append(Run(group, f"schedule-{r}", "0", "", tuple(executions)))
    return Measurements(tuple(times), tuple(beside), tuple(made))


def _entry(rng: np.random.Generator, name: str, machine: MachineType) -> Entry:
    low = int(rng.integers(0, machine.vcpus // 2))
    cores = tuple(range(machine.vcpus)) if rng.random() < 0.5 else tuple(range(low, low + machine.vcpus // 2))
    weight = float(rng.choice([0.5, 1.0, 2.0]))
    return Entry(
        name, 1.0, int(rng.choice([len(cores) // 2, len(cores)])), cores, weight, ready_s=float(rng.integers(0, 30))
    )


def ignorant(catalogue: Catalogue) -> Catalogue:
    """What is known before: the machines' cores, and nothing of what the fit shall find."""
    types = {n: replace(m, speed=1.0, bandwidth=1.0) for n, m in catalogue.machine_types.items()}
    return Catalogue({}, {}, types)
