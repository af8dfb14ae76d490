"""Bulk rounds of pods without an API server, and what they cost: the same code for this tree and for another checkout.

As a program it answers jobs until its input ends, one JSON line each. It imports nothing from `benchmarks`, because the
checkout that it measures is chosen by PYTHONPATH alone.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import flowsched
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import Solver, make_solver
from flowsched.support.collector import collect_seldom
from flowsched_k8s import objects
from flowsched_k8s.cache import seconds
from flowsched_k8s.changes import Seen
from flowsched_k8s.state import SchedulerState
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import load_catalogue


def _module(folder: str, name: str) -> Any:
    """A module of the Kubernetes side; before it had folders its modules stood side by side."""
    try:
        return import_module(f"flowsched_k8s.{folder}.{name}")
    except ModuleNotFoundError:
        return import_module(f"flowsched_k8s.{name}")


Configuration = _module("configuration", "configuration").Configuration
make_engine = _module("rounds", "planning").make_engine
plan_round = _module("rounds", "planning").plan_round


Json = dict[str, Any]
Thing = objects.Node | objects.Pod
CREATED = "2026-01-01T00:00:00Z"


@cache
def parts() -> tuple[Catalogue, Solver, FlowScheduler]:
    """What rounds share."""
    solver = make_solver("ortools")
    return load_catalogue(), solver, make_engine(Configuration().engine, solver)


def read_node(plain: Json) -> objects.Node:
    """As the watch shows it."""
    named = {"uid": plain["metadata"]["name"], "creationTimestamp": CREATED, **plain["metadata"]}
    return msgspec.convert({"spec": {}, **plain, "metadata": named}, objects.Node)


def read_pod(plain: Json, node: str | None = None) -> objects.Pod:
    """As the watch shows it; ``node``: where it runs."""
    meta = {"namespace": "default", "uid": plain["metadata"]["name"], "creationTimestamp": CREATED, **plain["metadata"]}
    spec = {**plain["spec"], **({"nodeName": node} if node else {})}
    status = {"phase": "Running", "startTime": CREATED} if node else {"phase": "Pending"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, objects.Pod)


def one_round(things: Iterable[Thing]) -> tuple[dict[str, str], dict[str, float]]:
    """Node of each pod that one round places, and CPU seconds of its stages."""
    catalogue, solver, engine = parts()
    state = SchedulerState(Configuration(), catalogue)
    now_s = seconds(CREATED) + 1.0
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    began = time.process_time()
    given, _ = state.begin_round(now_s)
    if given is None:
        raise RuntimeError("no pod takes part in the round")
    planned = time.process_time()
    result = plan_round(given, solver, engine)
    ended = time.process_time()
    return {c.uid: c.node for c in result.chosen}, {"begin": planned - began, "plan": ended - planned}


def read_things(cluster: Mapping[str, Any]) -> Sequence[Thing]:
    """Of {nodes: [...], running: [[pod, node], ...], waiting: [...]}, all as the API server takes them."""
    running = [read_pod(plain, node) for plain, node in cluster["running"]]
    return [*map(read_node, cluster["nodes"]), *running, *map(read_pod, cluster["waiting"])]


def main() -> None:
    """Say where the code comes from, then answer jobs, {cluster: path}: {placed: {pod: node}, taken: {stage: CPU s}}."""
    collect_seldom()  # as the scheduler does
    print(json.dumps({"flowsched": str(Path(flowsched.__file__).resolve().parent.parent)}), flush=True)
    last, things = "", list[Thing]()
    for line in sys.stdin:
        path = json.loads(line)["cluster"]
        if path != last:
            last, things = path, list(read_things(json.loads(Path(path).read_text(encoding="utf-8"))))
        gc.collect()  # what the round before has left
        gc.freeze()
        placed, taken = one_round(things)
        print(json.dumps({"placed": placed, "taken": taken}), flush=True)


if __name__ == "__main__":
    main()
