"""Logs of a made-up controller: jobs on four virtual CPUs beside a service, played by the model itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from flowsched_models.catalogue import Catalogue
from flowsched_models.execution import Execution
from flowsched_models.machine import MachineType
from flowsched_models.measurements.controlled_run import ControlledRun
from flowsched_models.measurements.load_event import LoadEvent
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import HostFactory, Resident, ServiceLoad
from flowsched_models.service import LatencyCurve, ServiceProfile

MACHINE = "box-4"
SPEED = {"first": 0.8, "mixed": 1.3, "loud": 1.0}
"""In containers; 1 outside."""
DELAY_S = 0.3


def outside() -> Catalogue:
    """What is known of the machine without containers: no siblings are seen, and all jobs have speed 1."""
    jobs = (
        JobProfile("first", 60.0, 0.25, PhaseOrder.SERIAL_FIRST, 0.6, 0.6, 0.03, 500),
        JobProfile("mixed", 90.0, 0.07, PhaseOrder.MIXED, 0.2, 1.5, 0.04, 500),
        JobProfile("loud", 45.0, 0.12, PhaseOrder.MIXED, 0.4, 0.9, 0.12, 500),
    )
    curve = LatencyCurve(2, 2, 340.0, 270.0, 8000.0, 115000.0, 780.0, 2000.0, 120000.0)
    service = ServiceProfile("cache", (curve,), {"any": 1.0}, cpu_per_kqps=0.013, pressure=0.03)
    return Catalogue({j.name: j for j in jobs}, {"cache": service}, {MACHINE: MachineType(MACHINE, 4, 16_000)})


def inside(smt: bool = True) -> Catalogue:
    """The same machine as containers have it."""
    known = outside()
    jobs = {name: replace(job, speed={MACHINE: SPEED[name]}) for name, job in known.jobs.items()}
    return replace(known, jobs=jobs, machine_types={MACHINE: replace(known.machine_types[MACHINE], smt=smt)})


def run(seed: int, group: str, number: int, truth: Catalogue, noise: float = 0.03, year: str = "2024") -> ControlledRun:
    """Jobs start one after the other where there is room; the last one that started is paused while the load is high."""
    rng = np.random.default_rng((seed, number))
    loads = tuple((10.0 * k, 10.0 * k + 10.0, float(rng.integers(5, 100)) * 1000.0) for k in range(60))
    hosts = HostFactory(truth)
    cores = {name: ((0, 1), (1, 2, 3), (2, 3), (3,))[int(rng.integers(4))] for name in truth.jobs}
    starts = {name: 4.0 * k for k, name in enumerate(sorted(truth.jobs))}
    slow = {name: float(np.exp(noise * rng.standard_normal())) for name in truth.jobs}
    events = [LoadEvent(-1.0, "start", "cache", (0, 1), 2, 1.0)]
    left = dict.fromkeys(truth.jobs, 0.0)
    waiting: set[str] = set()
    t_s = 0.0
    for start_s, end_s, qps in loads:
        pausing = {"loud"} if qps > 60_000.0 else set()
        times = sorted({start_s, end_s, *(s for s in starts.values() if start_s < s < end_s)})
        for t_s, to_s in pairwise(times):
            for name, start in starts.items():
                if start == t_s:
                    events.append(LoadEvent(t_s, "start", name, cores[name], 2, 1.0))
            for name in sorted((pausing ^ waiting) & {n for n in left if starts[n] <= t_s}):
                events.append(LoadEvent(t_s, "pause" if name in pausing else "unpause", name, (), None, 1.0))
                waiting ^= {name}
            load = ServiceLoad("cache", (0, 1), 2, 1.0, 2000.0 * round(qps / 2000.0), "any")
            machine: Execution[str] = Execution(hosts.host(MACHINE, (load,)), t_s)
            running = [n for n in left if starts[n] <= t_s and n not in waiting]
            for name in running:
                ready_s = max(t_s, starts[name] + DELAY_S)
                job = Resident(name, 1.0, 2, cores[name], 1.0, progress=left[name], ready_s=ready_s)
                machine.start(name, job, slow[name])
            while machine.now_s < to_s - 1e-9 and running:
                for name in machine.advance(min(to_s, machine.next_event_s())):
                    events.append(LoadEvent(machine.now_s, "end", name, (), None, 1.0))
                    running.remove(name)
                    del left[name]
            for name in running:
                left[name] = machine.progress(name)
        if not left:
            break
    assert not left, "the load must last until the jobs have ended"
    ends = {e.job: e.t_s for e in events if e.kind == "end"}
    executions = {name: (starts[name], ends[name]) for name in sorted(starts)}
    return ControlledRun(group, year, "plan", 10.0, str(number), MACHINE, "cache", 2, tuple(events), loads, executions)
