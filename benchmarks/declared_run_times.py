"""What declared run times are worth on Kubernetes: pods without a profile that say how long they run, or do not.

1,000 pods of 1 to 16 cores come to 40 nodes of 16 cores, as a Poisson process at a load of 1.1 of all CPU; a pod runs as
long as it declares, or a drawn factor longer or shorter. Silent pods are placed at linear prices, whatever runs there; those
that declare their run time are planned and backfilled. Nothing but the scheduler's state machine runs: time is that of the
pods.

    python -m benchmarks.declared_run_times
    python -m benchmarks.declared_run_times --error 0.5
    python -m benchmarks.declared_run_times --share 0.5
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import msgspec
import numpy as np

from benchmarks.machine import describe_machine, measured_on
from flowsched.solvers import make_solver
from flowsched_k8s import names, objects
from flowsched_k8s.cache import seconds
from flowsched_k8s.changes import Change, Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.rounds.planning import make_engine, plan_round
from flowsched_k8s.state import SchedulerState
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
CREATED = "2026-01-01T00:00:00Z"
CORES = (1, 2, 4, 8, 16)
SHARES = (0.4, 0.25, 0.2, 0.1, 0.05)
"""Of the pods, by cores."""
MEDIAN_S, SIGMA = 120.0, 1.0
"""Of run times, log-normal; a pod runs for ten seconds at least."""
NODE_CORES = 16
SEEDS = 20
"""Reported seeds begin here: others were for choosing."""
SILENT, DECLARED = VARIANTS = "silent", "declared"
"""What pods say of how long they run."""


@dataclass(frozen=True)
class Workload:
    """Pods in the order in which they come."""

    cores: tuple[int, ...]
    arrives_s: tuple[float, ...]
    declared_s: tuple[float | None, ...]
    run_s: tuple[float, ...]


@dataclass(frozen=True)
class World:
    """A cluster and what comes to it."""

    nodes: int = 40
    pods: int = 1000
    load: float = 1.1
    error: float = 0.0
    """Standard deviation of the logarithm of true over declared run times."""
    share: float = 1.0
    """Of pods that declare theirs."""

    def workload(self, seed: int) -> Workload:
        """Drawn by the seed: the same pods at the same moments, whatever they declare."""
        draw = np.random.default_rng(seed)
        cores = draw.choice(CORES, self.pods, p=SHARES)
        told = np.maximum(10.0, np.round(MEDIAN_S * np.exp(SIGMA * draw.standard_normal(self.pods))))
        gaps = draw.exponential(size=self.pods)
        run = told * np.exp(self.error * draw.standard_normal(self.pods))
        says = draw.random(self.pods) < self.share
        per_pod_s = float((cores * run).mean()) / (self.load * self.nodes * NODE_CORES)
        declared = tuple([float(s) if yes else None for s, yes in zip(told, says, strict=True)])
        return Workload(
            tuple(cores.tolist()), tuple((per_pod_s * gaps.cumsum()).tolist()), declared, tuple(run.tolist())
        )


def play(world: World, seed: int, variant: str) -> dict[str, float]:
    """Waits of all pods of a world, in seconds: means, by width too, the 99th percentile and the longest."""
    wanted = world.workload(seed)
    state = SchedulerState(Configuration(), load_catalogue(), random.Random(seed))
    solver = make_solver("ortools")
    engine = make_engine(state.configuration.engine, solver)
    start_s = seconds(CREATED)
    state.observe([Seen(_node(i)) for i in range(world.nodes)], start_s)
    state.activate()
    waits: dict[int, float] = {}
    ends: list[tuple[float, int]] = []
    pods: dict[str, objects.Pod] = {}
    coming = 0
    now = start_s
    while len(waits) < world.pods:
        arrival = start_s + wanted.arrives_s[coming] if coming < world.pods else math.inf
        due = state.next_round_s(now)
        now = max(now, min(arrival, ends[0][0] if ends else math.inf, math.inf if due is None else due))
        if math.isinf(now):
            raise RuntimeError(f"{world.pods - len(waits)} pods wait, and nothing will happen")
        changes: list[Change] = []
        while ends and ends[0][0] <= now:
            changes.append(Gone(pods.pop(_name(heapq.heappop(ends)[1]))))
        while coming < world.pods and start_s + wanted.arrives_s[coming] <= now:
            told = wanted.declared_s[coming] if variant == DECLARED else None
            pods[_name(coming)] = pod = _pod(coming, wanted.cores[coming], told, now)
            changes.append(Seen(pod))
            coming += 1
        state.observe(changes, now)
        due = state.next_round_s(now)
        if due is None or due > now:
            continue
        given, _ = state.begin_round(now, keep_record=False)
        if given is None:
            continue
        result = plan_round(given, solver, engine)
        state.end_round(result, now)
        bound: list[Change] = []
        for chosen in result.chosen:
            number = int(chosen.uid.removeprefix("pod-"))
            waits[number] = now - start_s - wanted.arrives_s[number]
            heapq.heappush(ends, (now + wanted.run_s[number], number))
            pods[chosen.uid] = pod = _bound(pods[chosen.uid], chosen.node, now)
            bound.append(Seen(pod))
        state.observe(bound, now)
    found = np.array([waits[i] for i in range(world.pods)])
    cores = np.array(wanted.cores)
    wide = cores >= NODE_CORES // 2
    return {
        "mean_s": float(found.mean()),
        "narrow_s": float(found[~wide].mean()),
        "wide_s": float(found[wide].mean()),
        "p99_s": float(np.percentile(found, 99.0)),
        "longest_s": float(found.max()),
        "core_weighted_s": float((found * cores).sum() / cores.sum()),
    }


def ratio(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """The geometric mean over seeds of the mean wait, declared over silent, and its 95 % interval, of paired runs."""
    logs = np.log([row[DECLARED]["mean_s"] / row[SILENT]["mean_s"] for row in rows])
    half = 1.96 * float(logs.std(ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return math.exp(float(logs.mean())), math.exp(float(logs.mean()) - half), math.exp(float(logs.mean()) + half)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each figure."""
    words = {
        "mean_s": "mean wait",
        "narrow_s": "of pods below half a node",
        "wide_s": "of the others",
        "core_weighted_s": "mean wait by cores",
        "p99_s": "99th percentile",
        "longest_s": "longest wait",
    }
    lines = []
    for figure, word in words.items():
        lines.append((word, *(f"{fmean(row[variant][figure] for row in rows):.1f}" for variant in VARIANTS)))
    middle, low, high = ratio(rows)
    said = f"mean wait, declared over silent: {middle:.2f} [{low:.2f}, {high:.2f}], {len(rows)} seeds"
    return "\n".join((*text_table((("seconds", *VARIANTS), *lines), indent=""), said))


@click.command()
@click.option("--seeds", default=10, show_default=True, help="How many.")
@click.option("--first", default=SEEDS, show_default=True, help="The first of them.")
@click.option("--nodes", default=World.nodes, show_default=True)
@click.option("--pods", default=World.pods, show_default=True)
@click.option("--load", default=World.load, show_default=True, help="Of all CPU.")
@click.option(
    "--error", default=World.error, show_default=True, help="Of declared run times: sigma of a log-normal factor."
)
@click.option("--share", default=World.share, show_default=True, help="Of pods that declare their run time.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(seeds: int, first: int, nodes: int, pods: int, load: float, error: float, share: float, keep: bool) -> None:
    """Measure and print a table."""
    world = World(nodes, pods, load, error, share)
    rows = []
    for seed in range(first, first + seeds):
        one: dict[str, Any] = {"seed": seed, **{variant: play(world, seed, variant) for variant in VARIANTS}}
        rows.append(one)
        waits = [f"{variant} {one[variant]['mean_s']:.1f} s" for variant in VARIANTS]
        click.echo(f"seed {seed}: {', '.join(waits)}", err=True)
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        machine = describe_machine()
        name = (
            "declared_run_times" + (f"-error-{error:g}" if error else "") + (f"-share-{share:g}" if share < 1.0 else "")
        )
        kept = {"world": msgspec.to_builtins(world), "rows": rows, "machine": machine}
        (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"{name}.txt").write_text(f"{text}\n{measured_on(machine)}\n", encoding="utf-8")
    click.echo(text)


def _name(number: int) -> str:
    return f"pod-{number}"


def _node(number: int) -> objects.Node:
    name, amounts = f"n{number:03d}", {"cpu": str(NODE_CORES), "memory": "64Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    meta = {"name": name, "uid": name, "creationTimestamp": CREATED}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    return msgspec.convert({"metadata": meta, "spec": {}, "status": status}, objects.Node)


def _moment(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pod(number: int, cores: int, declared_s: float | None, now: float) -> objects.Pod:
    name = _name(number)
    notes = {} if declared_s is None else {names.RUN_TIME: f"{declared_s:g}s"}
    meta = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "annotations": notes,
        "creationTimestamp": _moment(now),
    }
    container = {"name": "main", "resources": {"requests": {"cpu": str(cores), "memory": "256Mi"}}}
    spec = {"schedulerName": "flowsched", "containers": [container], "restartPolicy": "Never"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, objects.Pod)


def _bound(pod: objects.Pod, node: str, now: float) -> objects.Pod:
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=node),
        status=msgspec.structs.replace(pod.status, phase="Running", start_time=_moment(now)),
    )


if __name__ == "__main__":
    main()
