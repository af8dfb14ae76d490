"""What one tenant's pods cost all others: flowsched beside kube-scheduler.

Each scheduler gets a fresh control plane for each input. Pods of one tenant say much: many host ports, many terms of
anti-affinity, many made-up resources, at the size that the table names and at half of it. Then pods of another tenant come,
one a second. Measured are the time from their creation to their binding (the next one, and the longest of all), the longest
time between two renewals of flowsched's lease, the most memory, and how many times as much CPU the whole size took as half
of it. Of the inputs whose name begins with `leader` all pods are there before the scheduler starts: measured is the time
from the start of the process to the binding of the other tenant's pod; `leader-nothing` is what the start takes by itself.

    python -m benchmarks.k8s_tenants
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import msgspec

from benchmarks.k8s_hopeless import ADMIN, Lease
from benchmarks.k8s_throughput import (
    RESULTS,
    SCHEDULERS,
    Api,
    BenchmarkError,
    Sight,
    control_plane,
    cpu_s,
    make_pod,
    node_named,
    running_flowsched,
    running_plane,
    say,
)
from benchmarks.machine import describe_machine
from flowsched_models.text_table import text_table

CORES = 64
QPS = 5000
OTHERS = 10
"""Pods of the other tenant."""
PATIENCE_S = 150.0
"""So long the next pod of the other tenant is waited for."""
HOSTNAME = "kubernetes.io/hostname"
FIGURES = ("next_s", "longest_s", "lease_gap_s", "rss_mib", "cpu_s")
Object = dict[str, Any]


def ports(number: int, count: int) -> Object:
    """A pod with host ports of its own."""
    first = 1 + number * count
    return {
        "containers": [
            {**CONTAINER, "ports": [{"containerPort": first + i, "hostPort": first + i} for i in range(count)]}
        ]
    }


def terms(number: int, count: int) -> Object:
    """A pod that keeps pods with any of many labels away."""
    return {"affinity": {"podAntiAffinity": {REQUIRED: [apart_from(f"w{number}-{i}") for i in range(count)]}}}


def resources(number: int, count: int) -> Object:
    """A pod that asks for many resources that no node has."""
    asked = {f"example.com/r{number}-{i}": "1" for i in range(count)}
    return {"containers": [{**CONTAINER, "resources": {"requests": asked, "limits": asked}}]}


def waits(number: int, _: int) -> Object:
    """A pod that no node has room for, with a term of its own."""
    asked = {"cpu": str(2 * CORES)}
    return {**apart(number, 1), "containers": [{**CONTAINER, "resources": {"requests": asked}}]}


def apart(number: int, _: int) -> Object:
    """A pod of a workload of its own, which is kept apart from others of it."""
    return {"affinity": {"podAntiAffinity": {REQUIRED: [apart_from(f"w{number}")]}}}


def apart_from(app: str) -> Object:
    return {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CONTAINER = MappingProxyType({"name": "main", "image": "example.invalid/nothing"})


@dataclass(frozen=True)
class Input:
    """What the first tenant does."""

    pods: int
    length: int
    spec: Callable[[int, int], Object]
    """Of a pod, by its number and length."""
    before: bool = False
    """Whether all of it is there before the scheduler starts."""
    bound: bool = False
    nodes: int = 6


INPUTS = {
    "ports": Input(1, 1_500, ports),
    "terms": Input(20, 8_000, terms),
    "resources": Input(60, 2_000, resources),
    "leader-nothing": Input(0, 1, apart, before=True),
    "leader-waiting": Input(2_000, 1, waits, before=True),
    "leader-bound": Input(3_000, 1, apart, before=True, bound=True, nodes=60),
}


def pods_of(attack: Input, part: float, scheduler: str) -> list[Object]:
    """The first tenant's, ``part`` of the size: of their length, or of their number where each has one term."""
    many = round(part * attack.pods) if attack.length == 1 else attack.pods
    found = []
    for i in range(many):
        pod = make_pod(f"says-{i:04d}", scheduler)
        pod["metadata"]["labels"] = {"app": f"w{i}"}
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1m", "memory": "1Mi"}
        pod["spec"] |= attack.spec(i, max(1, round(part * attack.length)))
        if attack.bound:
            pod["spec"]["nodeName"] = f"node-{i % attack.nodes:05d}"
        found.append(pod)
    return found


def most_mib(pid: int) -> float:
    """The most memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise BenchmarkError(f"process {pid} has ended")


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[int]:
    """A scheduler that starts now; its pid."""
    if name == "flowsched":
        with running_flowsched(folder, QPS) as pid:
            yield pid
    else:
        control_plane("restart", str(folder), "kube-scheduler")
        yield int(json.loads((folder / "state.json").read_text())["processes"]["kube-scheduler"]["pid"])


async def measure(name: str, folder: Path, attack: Input, part: float) -> dict[str, float]:
    """One scheduler's figures for a part of an input."""
    api, lease, sight = Api(folder / "admin.kubeconfig"), Lease(), Sight()
    scheduler = SCHEDULERS[name]
    path = "/api/v1/namespaces/{}/pods"
    tasks: list[asyncio.Task[None]] = []

    async def create(namespace: str, pods: Sequence[Object]) -> None:
        bodies = [("POST", path.format(namespace), msgspec.json.encode(pod)) for pod in pods]
        await api.send_all(bodies, frozenset({201}))

    try:
        await api.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ADMIN)
        for namespace in ("first", "other"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await api.request("POST", "/api/v1/namespaces", body)
        for i in range(attack.nodes):
            await api.request("POST", "/api/v1/nodes", node_named(f"node-{i:05d}", CORES))
        follower = asyncio.create_task(sight.follow(api, "other"))
        tasks += [asyncio.create_task(lease.follow(api)), follower]
        said = pods_of(attack, part, scheduler)
        others = [make_pod(f"other-{i}", scheduler) for i in range(OTHERS)]
        if attack.before:
            if name == "kube_scheduler":
                control_plane("stop", str(folder), "kube-scheduler")
            await create("first", said)
            await create("other", others[:1])
            since = time.perf_counter()
            with running(name, folder) as pid:
                with contextlib.suppress(BenchmarkError):
                    await sight.until(lambda: bool(sight.bound), PATIENCE_S, name, follower)
                next_s = sight.bound.get("other-0", time.perf_counter()) - since
                await follow_on(create, others[1:], sight, follower, name)
                return figures(pid, cpu_s(pid), next_s, sight, lease, since)
        with running(name, folder) as pid:
            await create("other", [make_pod("warm-up", scheduler)])
            await sight.until(lambda: bool(sight.bound), PATIENCE_S, name, follower)
            cpu, since = cpu_s(pid), time.perf_counter()
            await create("first", said)
            await create("other", others[:1])
            with contextlib.suppress(BenchmarkError):
                await sight.until(lambda: "other-0" in sight.bound, PATIENCE_S, name, follower)
            now = time.perf_counter()
            next_s = sight.bound.get("other-0", now) - sight.created.get("other-0", since)
            await follow_on(create, others[1:], sight, follower, name)
            return figures(pid, cpu_s(pid) - cpu, next_s, sight, lease, since)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        api.close()


async def follow_on(
    create: Any, others: Sequence[Object], sight: Sight, follower: asyncio.Task[None], name: str
) -> None:
    """One pod a second, until all are bound or have waited for long."""
    for pod in others:
        await asyncio.sleep(1.0)
        await create("other", [pod])
    with contextlib.suppress(BenchmarkError):
        await sight.until(lambda: len(sight.bound) == len(sight.created), PATIENCE_S, name, follower)


def figures(pid: int, cpu: float, next_s: float, sight: Sight, lease: Lease, since: float) -> dict[str, float]:
    """As they stand in the table."""
    now = time.perf_counter()
    later = [sight.bound.get(pod, now) - at for pod, at in sight.created.items() if pod not in ("warm-up", "other-0")]
    return {
        "next_s": next_s,
        "longest_s": max(later),
        "lease_gap_s": lease.longest_gap(since),
        "rss_mib": most_mib(pid),
        "cpu_s": cpu,
    }


def run(name: str, what: str, part: float) -> dict[str, float]:
    """On a control plane of its own."""
    say(f"{what}, {part:g} of it: {name}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="k8s-tenants-")))
        parts = ["kube-scheduler"] if name == "kube_scheduler" else []
        stack.enter_context(running_plane(folder, parts, QPS))
        return asyncio.run(measure(name, folder, INPUTS[what], part))


def table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """One row for each input and scheduler; where the start is measured, its CPU is no part of what doubles."""
    rows = [["input", "scheduler", *FIGURES, "times_half"]]
    for what, by_name in found.items():
        for name, entry in by_name.items():
            start = found.get("leader-nothing", {}).get(name, {}).get("cpu_s", 0.0) if INPUTS[what].before else 0.0
            half = entry["half_cpu_s"] - start
            times = (entry["cpu_s"] - start) / half if half > 0.0 else float("nan")
            rows.append([what, name, *(f"{entry[f]:.3g}" for f in FIGURES), f"{times:.3g}"])
    return "\n".join(text_table(rows, left=(0, 1), indent=""))


@click.command()
@click.option("--input", "inputs", multiple=True, type=click.Choice(list(INPUTS)), help="Only this one.")
@click.option("--scheduler", "schedulers", multiple=True, type=click.Choice(sorted(SCHEDULERS)), help="Only this one.")
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(inputs: tuple[str, ...], schedulers: tuple[str, ...], keep: bool) -> None:
    """Measure and print a table."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    try:
        for what in inputs or tuple(INPUTS):
            for name in schedulers or tuple(SCHEDULERS):
                entry = run(name, what, 1.0)
                half = run(name, what, 0.5)["cpu_s"] if INPUTS[what].pods else float("nan")
                found.setdefault(what, {})[name] = {**entry, "half_cpu_s": half}
    except BenchmarkError as error:
        raise click.ClickException(str(error)) from None
    text = table(found)
    if keep:
        stem = RESULTS / "k8s-tenants"
        sizes = {what: {"pods": INPUTS[what].pods, "length": INPUTS[what].length} for what in found}
        kept = {"sizes": sizes, "found": found, "machine": describe_machine(), "load_average": os.getloadavg()[0]}
        stem.with_suffix(".json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        stem.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
