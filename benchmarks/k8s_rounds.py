"""CPU time of Kubernetes rounds without an API server: replicas of one deployment on 1,000 nodes, by stage; or pods of
higher priority that find no room on nodes with ten others each (``preempting``). Rounds that follow one another are in
`kept_state`.

The scheduler's state machine is fed the nodes and pods, and no API server stands behind it. One round then takes all pods:
``begin_round`` and ``end_round`` run on the event loop, beside the renewal of the lease; ``plan`` runs in a thread.

    python -m benchmarks.k8s_rounds
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import click
import msgspec

from benchmarks.machine import describe_machine
from flowsched.solvers import make_solver
from flowsched_k8s import objects
from flowsched_k8s.cache import seconds
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.instructions import Bind, Evict, Instruction
from flowsched_k8s.learning.saved_runs import Saved
from flowsched_k8s.rounds.planning import make_engine, plan_round
from flowsched_k8s.state import SchedulerState
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import text_table

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"
CREATED = "2026-01-01T00:00:00Z"
ZONES = 5
TIERS = ("a", "b", "c", "d")
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
STAGES = ("begin_round", "plan", "end_round")


def _spread(key: str) -> dict[str, Any]:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }


def _tiers() -> dict[str, Any]:
    """Three of the four tiers of nodes, so that a spread compares only some of them."""
    wanted = [{"key": "tier", "operator": "In", "values": list(TIERS[:3])}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "zones": _spread(ZONE),
    "zones, some nodes": _spread(ZONE) | _tiers(),
    "hosts": _spread(HOSTNAME),
}
"""Specs of the replicas by name: unrelated; spread over zones, on all nodes or some; spread over nodes."""
PREEMPTING = "preempting"
LOWER = 10
"""Pods of lower priority on each node; together they request all of its CPU."""


@click.command()
@click.option("--replicas", default="500,1000,2000,5000", show_default=True, help="Pods that wait at once.")
@click.option("--nodes", default=1000, show_default=True)
@click.option("--shape", type=click.Choice((*SHAPES, PREEMPTING)), multiple=True, help="Only these.")
@click.option("--repeats", default=3, show_default=True, help="Rounds per case; the median counts.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(replicas: str, nodes: int, shape: tuple[str, ...], repeats: int, as_json: bool, keep: bool) -> None:
    """Measure and print a table."""
    counts = [int(count) for count in replicas.split(",")]
    rows = [measure(name, count, nodes, repeats) for name in shape or SHAPES for count in counts]
    outcome = {"rows": rows, "machine": describe_machine()}
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "k8s_rounds.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "k8s_rounds.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def measure(shape: str, replicas: int, nodes: int, repeats: int) -> dict[str, Any]:
    """Median CPU seconds of a round's stages. Raises ``RuntimeError`` if a replica is not bound."""
    seconds_of: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for _ in range(repeats):
        stages = preempting_round(replicas, nodes) if shape == PREEMPTING else one_round(shape, replicas, nodes)
        for stage, taken in stages.items():
            seconds_of[stage].append(taken)
    return {"shape": shape, "replicas": replicas, "nodes": nodes} | {s: median(t) for s, t in seconds_of.items()}


def one_round(shape: str, replicas: int, nodes: int, configuration: Configuration | None = None) -> dict[str, float]:
    """CPU seconds of the stages of one round that places all replicas."""
    state = SchedulerState(configuration or Configuration(), load_catalogue())
    now_s = seconds(CREATED) + 1.0
    if state.learner is not None:
        state.learner.lead(Saved(until_s=now_s), now_s)
    things: list[Any] = [_node(i) for i in range(nodes)]
    things += [_replica(i, SHAPES[shape]) for i in range(replicas)]
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    taken, out = timed_round(state, now_s)
    bound = sum(isinstance(instruction, Bind) for instruction in out)
    if bound != replicas:
        raise RuntimeError(f"{bound} of {replicas} replicas were bound")
    return taken


def preempting_round(waiting: int, nodes: int) -> dict[str, float]:
    """CPU seconds of the stages of the first round; `end_round` looks for victims. Victims are
    looked for while a bound of work lasts: the pods beyond it have their turn in later rounds.
    """
    state = SchedulerState(Configuration(features=Features(preemption=True)), load_catalogue())
    now_s = seconds(CREATED) + 1.0
    things: list[Any] = [_node(i) for i in range(nodes)]
    for i in range(nodes * LOWER):
        spec = {"nodeName": f"n{i % nodes:05d}", "priority": i % 7}
        things.append(_pod(f"lower-{i:06d}", {"cpu": "1600m"}, spec))
    things += [_pod(f"higher-{i:05d}", {"cpu": "4"}, {"priority": 1000}) for i in range(waiting)]
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    taken, out = timed_round(state, now_s)
    if not any(isinstance(instruction, Evict) for instruction in out):
        raise RuntimeError("no pod is evicted")
    return taken


def timed_round(state: SchedulerState, now_s: float) -> tuple[dict[str, float], Sequence[Instruction]]:
    """CPU seconds of the stages of a round, and what is to be done."""
    solver = make_solver("ortools")
    engine = make_engine(state.configuration.engine, solver)
    taken: dict[str, float] = {}

    def timed(stage: str, call: Callable[[], T]) -> T:
        began = time.process_time()
        answer = call()
        taken[stage] = time.process_time() - began
        return answer

    given, _ = timed("begin_round", lambda: state.begin_round(now_s))
    if given is None:
        raise RuntimeError("no pod takes part in the round")
    result = timed("plan", lambda: plan_round(given, solver, engine))
    out = timed("end_round", lambda: state.end_round(result, now_s))
    return taken, out


def _node(number: int) -> objects.Node:
    name = f"n{number:05d}"
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    labels = {HOSTNAME: name, ZONE: f"z{number % ZONES}", "tier": TIERS[number // ZONES % len(TIERS)]}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": CREATED},
            "spec": {},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        objects.Node,
    )


def _replica(number: int, spec: dict[str, Any]) -> objects.Pod:
    return _pod(f"web-{number:05d}", {"cpu": "100m", "memory": "128Mi"}, spec, {"app": "web"})


def _pod(
    name: str, requests: dict[str, str], spec: dict[str, Any], labels: dict[str, str] | None = None
) -> objects.Pod:
    container = {"name": "main", "resources": {"requests": requests}}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": labels or {},
                "creationTimestamp": CREATED,
            },
            "spec": {"schedulerName": "flowsched", "containers": [container], **spec},
            "status": {"phase": "Running", "startTime": CREATED} if "nodeName" in spec else {"phase": "Pending"},
        },
        objects.Pod,
    )


def table(rows: list[dict[str, Any]]) -> str:
    """CPU seconds by stage."""
    lines = [["pods", "replicas", "nodes", *(f"{stage} s" for stage in STAGES)]]
    for row in rows:
        shown = (f"{row[stage]:.3f}" for stage in STAGES)
        lines.append([row["shape"], str(row["replicas"]), str(row["nodes"]), *shown])
    return "\n".join(text_table(lines, left=(), indent=""))


if __name__ == "__main__":
    main()
