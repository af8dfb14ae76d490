"""Runs one scheduler on one scenario file and reports the figures: the same code for this tree and for another checkout.

As a program it answers jobs until its input ends, one JSON line each. It imports nothing from `benchmarks`, because the
checkout that it measures is chosen by PYTHONPATH alone.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import flowsched
from flowsched import Decisions, Settings, Snapshot
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory
from flowsched_simulator import EngineOptions, Scenario, load_scenario
from flowsched_simulator.policies import check_policies, schedulers
from flowsched_simulator.run import Run
from flowsched_simulator.simulation import Simulation

GOAL_FACTOR, LENGTH_WEIGHT, EPS, BETA, REFERENCE_S = 3.0, 1.5, 1.0, 20.0, 60.0
"""The penalty that plans are measured with: goal of a job over its best run time, weight of length, slopes before and
beyond the goal, and the run time in seconds whose weight is 1. Constants, so that no setting moves the yardstick."""
WITHOUT_CERTIFICATE: Mapping[str, Any] = {"exact_limit": 0}
"""CP-SAT certificates decide nothing; a tree whose rounds have no such setting needs none."""

Look = Callable[[Snapshot, Decisions], None]
"""Called with every round."""


@dataclass
class Timed:
    """A scheduler with the CPU time that each of its rounds takes, in ms."""

    inner: Any
    """A scheduler of whichever tree is measured."""
    cpu_ms: list[float] = field(default_factory=list)
    look: Look | None = None

    @property
    def name(self) -> str:
        return self.inner.name

    def decide(self, snapshot: Snapshot) -> Decisions:
        return self._timed(lambda: self.inner.decide(snapshot), snapshot)

    def decide_on(self, state: Any, now_s: float) -> Decisions:
        snapshot = state.snapshot(now_s)
        if hasattr(self.inner, "decide_on"):
            return self._timed(lambda: self.inner.decide_on(state, now_s), snapshot)
        return self.decide(snapshot)

    def _timed(self, decide: Callable[[], Decisions], snapshot: Snapshot) -> Decisions:
        began = time.process_time()
        decisions = decide()
        self.cpu_ms.append((time.process_time() - began) * 1e3)
        if self.look is not None:
            self.look(snapshot, decisions)
        return decisions


def settings_with(changes: Mapping[str, Any]) -> Settings:
    """Default settings without certificates, and with some changes. Raises ``ValueError`` for a setting that is unknown."""
    known = {f.name for f in fields(Settings)}
    if unknown := sorted(changes.keys() - known):
        raise ValueError(f"flowsched.Settings has no field '{unknown[0]}'")
    return replace(Settings(), **{k: v for k, v in WITHOUT_CERTIFICATE.items() if k in known}, **changes)


def run_variants(
    scenario: Scenario,
    scheduler: str,
    settings: Mapping[str, Any],
    look: Look | None = None,
    variant: str | None = None,
) -> list[dict[str, Any]]:
    """The figures of every variant of a scheduler, or of the one that is named; the engine has one, without a name."""
    hosts = HostFactory(scenario.catalogue)  # nothing that another run has computed makes this one faster
    options = EngineOptions(settings_with(settings))
    found = []
    for label, inner in schedulers(scheduler, scenario, 0, options, hosts):
        if variant not in (None, label):
            continue
        timed = Timed(inner, look=look)
        gc.collect()
        run = Simulation(scenario, timed, hosts=hosts, variant=label).run()
        found.append({"variant": label, **figures(run, timed.cpu_ms)})
    return found


def figures(run: Run, cpu_ms: list[float]) -> dict[str, Any]:
    """What is compared. Seconds unless the key says otherwise; None where a job never ended."""
    done = [job.completion_s for job in run.jobs if job.completion_s is not None]
    whole = len(done) == len(run.jobs)
    text = "|".join(f"{j.job} {j.machine} {j.width_milli} {j.cores} {j.end_s}" for j in run.jobs)
    return {
        "jobs": len(run.jobs),
        "unfinished": len(run.jobs) - len(done),
        "mean_completion_s": float(np.mean(done)) if whole else None,
        "p95_completion_s": float(np.percentile(done, 95, method="higher")) if whole else None,
        "mean_penalty": float(np.mean([penalty(j.completion_s or 0.0, j.alone_s) for j in run.jobs]))
        if whole
        else None,
        "makespan_s": run.makespan_s if whole else None,
        "slo_violation_ratio": run.slo_violation_ratio,
        "rounds": len(cpu_ms),
        "cpu_p50_ms": float(np.percentile(cpu_ms, 50)) if cpu_ms else None,
        "cpu_p99_ms": float(np.percentile(cpu_ms, 99)) if cpu_ms else None,
        "cpu_s": sum(cpu_ms) / 1e3,
        "schedule": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def penalty(completion_s: float, best_s: float) -> float:
    """w g(completion) of a job whose best run time is ``best_s``; its goal is GOAL_FACTOR times that."""
    goal_s = GOAL_FACTOR * best_s
    late_s = max(0.0, completion_s - goal_s)
    gentle: float = EPS * min(completion_s, goal_s) / goal_s + BETA * late_s / goal_s
    return float((best_s / REFERENCE_S) ** LENGTH_WEIGHT * gentle)


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """One job: {scenario: path, scheduler: name, settings: {...}, variant: name or null for all}; what the variants did, or
    ``unknown`` where there is no such scheduler.
    """
    try:
        check_policies((job["scheduler"],))
    except InputError as error:
        return {"unknown": error.problems[0].message}
    scenario = load_scenario(job["scenario"])
    settings, variant = job.get("settings", {}), job.get("variant")
    return {"variants": run_variants(scenario, job["scheduler"], settings, variant=variant)}


def main() -> None:
    """Say where the code comes from, then answer jobs, with the garbage collector as the checkout's own program has it."""
    if find_spec("flowsched.support.collector") is not None:
        import_module("flowsched.support.collector").collect_seldom()
    hello = {"flowsched": str(Path(flowsched.__file__).resolve().parent.parent)}
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
