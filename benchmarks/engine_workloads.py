"""Workloads of `benchmarks.engine`, as scenario files that any checkout reads alike.

A *crowd* is a cluster of equal parts of the three machine types of the bundled scenario, four memcached services at 30K
queries a second with a core each, and jobs of few kinds: each of 40 draws (one of the seven bundled PARSEC profiles, a
request of 1, 2 or 4 cores, a scale from 0.3 to 3, log-uniform) stands for ten equal jobs of widths 1, 2 and 4, all
shuffled.

*Load* is arriving work over capacity. Capacity is the number of batch cores (the cores that belong to no service) divided
by the mean one-core work of the jobs that were drawn, in jobs a second; one-core work is ``work_s * scale`` of the profile,
seconds on one thread of the reference machine type. Thus ``arrivals per second = load * batch cores / mean work``. It counts
hyperthreads as whole cores and no differences in speed. Times between arrivals are exponential; they are drawn once for
each seed and scaled, so every load has the same jobs in the same order.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowsched.cluster.snapshot import MILLI
from flowsched_models.profiles import load_catalogue
from flowsched_simulator import Scenario

TYPES = ("n2d-highcpu-2", "n2d-highmem-4", "e2-standard-8")
WIDTHS = (1, 2, 4)
LEAST_SCALE, MOST_SCALE = 0.3, 3.0
LOADS = (0.45, 0.74, 0.97, 1.19)
SERVICES = 4
START_DELAY = {"at_submission_s": 1.0, "after_waiting_s": 3.0}


@dataclass(frozen=True)
class Crowd:
    """What to draw."""

    of_each_type: int = 20
    """Machines of each type."""
    draws: int = 40
    """Kinds of jobs."""
    copies: int = 10
    """Equal jobs of each kind."""
    requests: tuple[int, ...] = WIDTHS
    """Cores that a kind may ask for."""
    widths: tuple[int, ...] = WIDTHS
    """Cores that every job may be given."""
    share_service_cores: bool = True
    """Whether light jobs may be given the cores of services too; as in a scenario file that does not say."""
    fewer: int = 0
    """How many fewer there are of the largest machine type."""

    @property
    def machines(self) -> int:
        return self.of_each_type * len(TYPES) - self.fewer

    @property
    def jobs(self) -> int:
        return self.draws * self.copies


EIGHT = Crowd(of_each_type=3, fewer=1, copies=2)
SIXTY = Crowd()
THREE_HUNDRED = Crowd(of_each_type=100, draws=150)
WIDE = Crowd(requests=(4,), widths=(4,))
"""Jobs that take four cores or wait."""


def crowd_document(crowd: Crowd, load: float, seed: int) -> dict[str, Any]:
    """A scenario file as plain data. The same seed draws the same jobs at every load."""
    catalogue = load_catalogue()
    rng = np.random.default_rng([seed, 15])
    names = sorted(catalogue.jobs)
    kinds = [
        {
            "profile": names[int(rng.integers(len(names)))],
            "request": int(rng.choice(crowd.requests)),
            "scale": round(float(np.exp(rng.uniform(math.log(LEAST_SCALE), math.log(MOST_SCALE)))), 4),
        }
        for _ in range(crowd.draws)
    ]
    order = rng.permutation(np.repeat(np.arange(crowd.draws), crowd.copies)).tolist()
    gaps = rng.exponential(1.0, size=crowd.jobs)
    machines = [{"name": f"node-{k:03d}-{kind}", "type": kind} for kind in TYPES for k in range(crowd.of_each_type)]
    machines = machines[: crowd.machines]
    hosts = rng.choice(len(machines), size=min(SERVICES, len(machines)), replace=False).tolist()
    cores = sum(catalogue.machine_types[m["type"]].vcpus for m in machines) - len(hosts)
    work_s = float(np.mean([catalogue.jobs[kinds[k]["profile"]].work_s * kinds[k]["scale"] for k in order]))
    submitted = np.cumsum(gaps) * work_s / (load * cores)
    return {
        "apiVersion": "flowsched/v1",
        "kind": "Scenario",
        "name": f"crowd-{crowd.machines}-{round(100 * load)}-{seed}",
        "description": f"{crowd.jobs} jobs at {load:.0%} of {cores} batch cores, seed {seed}",
        "objective": "completion",
        "machines": machines,
        "services": [memcached(f"memcached-{i + 1}", machines[m]["name"]) for i, m in enumerate(hosts)],
        "jobs": [
            {
                "name": f"job-{i:04d}",
                **kinds[k],
                "widths": list(crowd.widths),
                "submit_s": round(at, 6),
            }
            for i, (k, at) in enumerate(zip(order, submitted.tolist(), strict=True))
        ],
        "start_delay": START_DELAY,
        "share_service_cores": crowd.share_service_cores,
    }


def memcached(name: str, machine: str) -> dict[str, Any]:
    """A service as the bundled scenario has it, on core 0 of a machine."""
    return {
        "name": name,
        "profile": "memcached",
        "machine": machine,
        "cores": "0",
        "threads": 1,
        "request": 1,
        "memory": "512Mi",
        "qps": "30K",
        "slo_p95": "1ms",
        "client": "mcperf-30k",
    }


def scenario_document(scenario: Scenario) -> dict[str, Any]:
    """A scenario of the bundled profiles as plain data: machines, services and jobs, and when they arrive."""
    arrivals: Any = "all-at-once"
    if scenario.arrivals.kind == "poisson":
        arrivals = {"poisson": {"rate_per_minute": scenario.arrivals.rate_per_minute}}
    return {
        "apiVersion": "flowsched/v1",
        "kind": "Scenario",
        "name": scenario.name,
        "description": scenario.description,
        "objective": scenario.objective.value,
        "machines": [{"name": m.name, "type": m.type} for m in scenario.machines],
        "services": [{**memcached(s.name, s.machine), "cores": ",".join(map(str, s.cores))} for s in scenario.services],
        "jobs": [
            {
                "name": t.name,
                "profile": t.profile,
                "request": t.request_milli / MILLI,
                "widths": [w / MILLI for w in t.widths_milli],
                "scale": t.scale,
                **({"submit_s": t.submit_s} if t.submit_s else {}),
            }
            for t in scenario.tasks
        ],
        "arrivals": arrivals,
        "start_delay": {
            "at_submission_s": scenario.start_delay.at_submission_s,
            "after_waiting_s": scenario.start_delay.after_waiting_s,
        },
        "share_service_cores": scenario.share_service_cores,
    }


def write(document: Mapping[str, Any], folder: Path) -> Path:
    """The file (JSON is YAML too), named by its content."""
    path = folder / f"{digest(document)}.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def digest(document: Mapping[str, Any]) -> str:
    """What tells workloads apart in kept results."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
