"""Rounds of clusters of which little changes between two of them: the same code for this tree and for another checkout.

As a program it answers jobs until its input ends, one JSON line each. It imports nothing from `benchmarks`, because the
checkout that it measures is chosen by PYTHONPATH alone.
"""

from __future__ import annotations

import gc
import hashlib
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import flowsched
from flowsched import FlowScheduler, Settings
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.events import MachineAdded, RoundDecided, TaskBound, TaskFinished, TaskSubmitted
from flowsched.cluster.snapshot import MILLI, Machine, StartDelay, Task
from flowsched.solvers import make_solver
from flowsched.support.collector import collect_seldom
from flowsched_k8s import names, objects
from flowsched_k8s.cache import seconds
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.state import SchedulerState
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory


def _module(folder: str, name: str) -> Any:
    """A module of the Kubernetes side; before it had folders its modules stood side by side."""
    try:
        return import_module(f"flowsched_k8s.{folder}.{name}")
    except ModuleNotFoundError:
        return import_module(f"flowsched_k8s.{name}")


Configuration = _module("configuration", "configuration").Configuration
make_engine = _module("rounds", "planning").make_engine
plan_round = _module("rounds", "planning").plan_round


CREATED = "2026-01-01T00:00:00Z"
STEP_S = 1.0
ENDS = 100
"""One of so many running jobs ends between two rounds."""
Taken = dict[str, list[float]]
"""CPU milliseconds of each round, by stage."""


class Stopwatch:
    """CPU time of the stages of rounds."""

    def __init__(self) -> None:
        """Nothing has been measured."""
        self.taken: Taken = {}

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """What is done within it is a stage."""
        began = time.process_time()
        yield
        self.taken.setdefault(stage, []).append((time.process_time() - began) * 1e3)


def settled() -> None:
    """What set-up has left is out of the collector's way, as in the programs that are measured."""
    gc.collect()
    gc.freeze()


# The engine alone


def flow_rounds(machines: int, running: int, waiting: int, kinds: int, rounds: int) -> tuple[Taken, str]:
    """``flow`` on a cluster that is kept: each second 1 % of what runs ends, and ``waiting`` jobs of ``kinds`` kinds come.

    Before the first round ``running`` jobs are put on machines at random, at random moments of the last ten minutes.
    """
    catalogue = load_catalogue()
    draw = random.Random(machines)
    hosts = HostFactory(catalogue)
    state = ClusterState(catalogue, StartDelay(), hosts)
    types = ("e2-standard-4", "e2-standard-8", "e2-standard-2")
    shapes = [
        (draw.choice(sorted(catalogue.jobs)), draw.uniform(2.0, 20.0), draw.choice((500, 1000, 1000, 2000)))
        for _ in range(kinds)
    ]
    free: dict[str, int] = {}
    cores: dict[str, int] = {}
    for number in range(machines):
        kind = catalogue.machine_types[types[number % len(types)]]
        name = f"m{number:05d}"
        free[name], cores[name] = kind.vcpus * MILLI, kind.vcpus
        state.apply(MachineAdded(Machine(name, kind.name, free[name], kind.memory_mib, kind.vcpus)), 0.0)

    def task(name: str, at_s: float) -> Task:
        profile, scale, milli = shapes[draw.randrange(kinds)]
        return Task(name, name, profile, scale, milli, (milli,), 256, at_s)

    there: list[str] = []
    places = sorted(free)
    for number, at_s in enumerate(sorted(draw.uniform(0.0, 600.0) for _ in range(running))):
        new, machine = task(f"r{number}", at_s), draw.choice(places)
        if free[machine] < new.request_milli:
            continue
        free[machine] -= new.request_milli
        state.apply(TaskSubmitted(new), at_s)
        count = min(2, cores[machine])
        state.apply(TaskBound(new.name, machine, new.request_milli, count, tuple(range(cores[machine])), at_s), at_s)
        there.append(new.name)
    engine = FlowScheduler(make_solver("ortools"), replace(Settings(), exact_limit=0), hosts=hosts)
    watch, digest, now_s = Stopwatch(), hashlib.sha256(), 600.0
    settled()
    for number in range(rounds):
        now_s += STEP_S
        for _ in range(len(there) // ENDS):
            at = draw.randrange(len(there))
            there[at], there[-1] = there[-1], there[at]
            state.apply(TaskFinished(there.pop()), now_s)
        for k in range(waiting):
            state.apply(TaskSubmitted(task(f"n{number}-{k}", now_s)), now_s)
        with watch.time("snapshot"):
            snapshot = state.snapshot(now_s)
        with watch.time("decide"):
            decisions = engine.decide(snapshot)
        for p in decisions.placements:
            bound = TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, now_s)
            state.apply(bound, now_s)
            digest.update(f"{p.task} {p.machine} {p.width_milli} {p.cores}|".encode())
            there.append(p.task)
        state.apply(RoundDecided(decisions.plan, decisions.reservations), now_s)
    return watch.taken, digest.hexdigest()[:16]


# Kubernetes, without an API server


def kubernetes_rounds(nodes: int, running: int, waiting: int, rounds: int, measured: bool) -> tuple[Taken, str]:
    """The stages of rounds of the state machine that stands behind no API server: each second 1 % of what runs ends, and
    ``waiting`` pods come, with profiles of their own (``measured``) or all alike. ``running``: pods on each node at first.
    """
    catalogue = load_catalogue()
    kinds = sorted(catalogue.jobs)
    state, draw = SchedulerState(Configuration(), catalogue), random.Random(nodes)
    solver = make_solver("ortools")
    engine = make_engine(state.configuration.engine, solver)
    now_s = seconds(CREATED) + STEP_S

    def new(name: str, node: str | None = None) -> objects.Pod:
        profile = (draw.choice(kinds), draw.uniform(0.3, 3.0)) if measured else None
        return _pod(name, profile, node)

    there = [new(f"there-{i}-{k}", f"n{i:05d}") for i in range(nodes) for k in range(running)]
    state.observe([Seen(thing) for thing in (*map(_node, range(nodes)), *there)], now_s)
    state.activate()
    watch, digest, pods = Stopwatch(), hashlib.sha256(), {pod.metadata.uid: pod for pod in there}
    uids = [*pods]
    settled()
    for number in range(rounds):
        now_s += STEP_S
        gone = []
        for _ in range(len(uids) // ENDS):
            at = draw.randrange(len(uids))
            uids[at], uids[-1] = uids[-1], uids[at]
            gone.append(Gone(pods.pop(uids.pop())))
        state.observe(gone, now_s)
        fresh = {pod.metadata.uid: pod for pod in (new(f"new-{number}-{k}") for k in range(waiting))}
        state.observe([Seen(pod) for pod in fresh.values()], now_s)
        with watch.time("begin"):
            given, _ = state.begin_round(now_s)
        if given is None:
            raise RuntimeError("no pod takes part in the round")
        with watch.time("plan"):
            result = plan_round(given, solver, engine)
        with watch.time("end"):
            state.end_round(result, now_s)
        for chosen in result.chosen:
            digest.update(f"{chosen.uid} {chosen.node} {chosen.width_milli} {chosen.cores}|".encode())
            if chosen.uid in fresh:
                pods[chosen.uid] = _bound(fresh[chosen.uid], chosen.node)
                uids.append(chosen.uid)
        state.observe([Seen(pods[c.uid]) for c in result.chosen if c.uid in pods], now_s)
    return watch.taken, digest.hexdigest()[:16]


def _node(number: int) -> objects.Node:
    name, amounts = f"n{number:05d}", {"cpu": "16", "memory": "64Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    meta = {"name": name, "uid": name, "creationTimestamp": CREATED}
    return msgspec.convert({"metadata": meta, "spec": {}, "status": status}, objects.Node)


def _pod(name: str, profile: tuple[str, float] | None, node: str | None) -> objects.Pod:
    notes = {} if profile is None else {names.PROFILE: profile[0], names.SCALE: f"{profile[1]:.2f}"}
    meta = {"name": name, "namespace": "default", "uid": name, "annotations": notes, "creationTimestamp": CREATED}
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "256Mi"}}}
    spec = {"schedulerName": "flowsched", "containers": [container], **({"nodeName": node} if node else {})}
    status = {"phase": "Running", "startTime": CREATED} if node else {"phase": "Pending"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, objects.Pod)


def _bound(pod: objects.Pod, node: str) -> objects.Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


CASES: Mapping[str, Callable[..., tuple[Taken, str]]] = {"flow": flow_rounds, "kubernetes": kubernetes_rounds}


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """{case: name, of: {...}}: CPU ms of each round by stage, a digest of what was decided, and MiB at most."""
    taken, digest = CASES[job["case"]](**job["of"])
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"taken": taken, "decided": digest, "peak_mib": peak_mib}


def main(lines: Sequence[str] | None = None) -> None:
    """Say where the code comes from, then answer jobs."""
    collect_seldom()
    print(json.dumps({"flowsched": str(Path(flowsched.__file__).resolve().parent.parent)}), flush=True)
    for line in sys.stdin if lines is None else lines:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
