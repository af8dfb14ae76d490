"""Thousands of pods that no node can take, and pods that come and go beside them: flowsched beside kube-scheduler.

Each scheduler gets a fresh control plane. Pods larger than any node wait, of a priority that lets them evict all others;
then small pods are created and deleted at a rate. Measured are the time from creation to binding of the small ones, and the
longest time between two renewals of flowsched's lease.

    python -m benchmarks.k8s_hopeless --hopeless 20000 --rate 50
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from benchmarks.k8s_throughput import (
    RESULTS,
    SCHEDULERS,
    Api,
    BenchmarkError,
    Sight,
    cpu_s,
    make_pod,
    node_named,
    running_flowsched,
    running_plane,
    say,
)
from benchmarks.machine import describe_machine
from flowsched_models.text_table import text_table

CORES = 4
"""Of each node; a pod without hope asks for more."""
STAYS_S = 8.0
"""How long a small pod stays after it was created."""
SETTLED_WITHIN_S = 600.0
QPS = 5000
FIGURES = ("p50_s", "p99_s", "longest_s", "cpu_share", "lease_gap_s", "settled_s")


class _Condition(msgspec.Struct):
    type: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = msgspec.field(default_factory=list)


class _Meta(msgspec.Struct):
    name: str = ""


class _Waiting(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    object: _Waiting


@dataclass
class Lease:
    """When the watch showed a lease change."""

    renewed: list[float] = field(default_factory=list)

    async def follow(self, api: Api) -> None:
        """Watch until cancelled."""
        while True:
            path = "/apis/coordination.k8s.io/v1/namespaces/flowsched-system/leases?watch=1&timeoutSeconds=3600"
            async for now, _ in api.watch(path):
                self.renewed.append(now)

    def longest_gap(self, since: float) -> float:
        """Seconds between two renewals, of those after a moment."""
        times = [at for at in self.renewed if at >= since]
        return float(np.diff(times).max()) if len(times) > 1 else float("nan")


@dataclass(frozen=True)
class Options:
    """What is run."""

    nodes: int
    hopeless: int
    kinds: int
    rate: float
    seconds: float


def hopeless_pod(number: int, kinds: int, scheduler: str) -> dict[str, Any]:
    """A pod that no node has room for, whatever leaves."""
    pod = make_pod(f"hopeless-{number:05d}", scheduler)
    pod["spec"]["priorityClassName"] = "first"
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{1000 * CORES + 1000 + number % kinds}m"
    return pod


async def settle(api: Api, count: int) -> float:
    """Wait until all that have no hope were told so; the seconds that it took."""
    began, told = time.perf_counter(), set[str]()
    decoder = msgspec.json.Decoder(_Event)

    async def follow() -> None:
        while len(told) < count:
            async for _, line in api.watch("/api/v1/namespaces/hopeless/pods?watch=1&timeoutSeconds=3600"):
                pod = decoder.decode(line).object
                if any(c.type == "PodScheduled" for c in pod.status.conditions):
                    told.add(pod.metadata.name)
                    if len(told) == count:
                        return

    try:
        await asyncio.wait_for(follow(), SETTLED_WITHIN_S)
    except TimeoutError:
        raise BenchmarkError(f"{len(told)} of {count} pods were told that they wait") from None
    return time.perf_counter() - began


async def churn(api: Api, scheduler: str, options: Options, follower: asyncio.Task[None]) -> None:
    """Create small pods at a rate and delete each some seconds later."""
    collection = "/api/v1/namespaces/small/pods"
    began, made, gone = time.perf_counter(), 0, 0
    while (now := time.perf_counter() - began) < options.seconds + STAYS_S:
        requests = []
        while made < options.rate * min(now, options.seconds):
            requests.append(("POST", collection, msgspec.json.encode(make_pod(f"small-{made:05d}", scheduler))))
            made += 1
        while gone < made and gone < options.rate * (now - STAYS_S):
            requests.append(("DELETE", f"{collection}/small-{gone:05d}?gracePeriodSeconds=0", b""))
            gone += 1
        await api.send_all(requests, frozenset({200, 201}))
        if follower.done():
            follower.result()
        await asyncio.sleep(0.02)


async def measure(name: str, pid: int, folder: Path, options: Options) -> dict[str, float]:
    """One scheduler's figures."""
    scheduler, api, lease, sight = SCHEDULERS[name], Api(folder / "admin.kubeconfig"), Lease(), Sight()
    tasks = []
    try:
        if name == "flowsched":
            await api.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ADMIN)
        await api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", FIRST)
        for namespace in ("hopeless", "small"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await api.request("POST", "/api/v1/namespaces", body)
        nodes = [node_named(f"node-{i:05d}", CORES) for i in range(options.nodes)]
        await api.send_all([("POST", "/api/v1/nodes", msgspec.json.encode(node)) for node in nodes], frozenset({201}))
        tasks.append(asyncio.create_task(lease.follow(api)))
        follower = asyncio.create_task(sight.follow(api, "small"))
        tasks.append(follower)
        say(f"{name}: {options.hopeless} pods without hope")
        pods = [hopeless_pod(i, options.kinds, scheduler) for i in range(options.hopeless)]
        path = "/api/v1/namespaces/hopeless/pods"
        began = time.perf_counter()
        await api.send_all([("POST", path, msgspec.json.encode(pod)) for pod in pods], frozenset({201}))
        settled = await settle(api, options.hopeless)
        # The API server closes connections that were idle for so long.
        api.close()
        say(f"{name}: {options.rate:g} pods/s come and go for {options.seconds:g} s")
        cpu, at = cpu_s(pid), time.perf_counter()
        await churn(api, scheduler, options, follower)
        cpu = (cpu_s(pid) - cpu) / (time.perf_counter() - at)
        # One that was deleted before it was bound has waited at least as long as it was there.
        now = time.perf_counter()
        waits = [min(sight.bound.get(pod, now) - created, STAYS_S) for pod, created in sight.created.items()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        api.close()
    return {
        "p50_s": float(np.percentile(waits, 50)),
        "p99_s": float(np.percentile(waits, 99)),
        "longest_s": max(waits),
        "cpu_share": cpu,
        "lease_gap_s": lease.longest_gap(began) if name == "flowsched" else float("nan"),
        "settled_s": settled,
    }


ADMIN = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "flowsched-benchmark"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": "flowsched", "namespace": "flowsched-system"}],
}
FIRST = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "first"},
    "value": 1000,
}


def run(name: str, options: Options) -> dict[str, float]:
    """One scheduler on a control plane of its own."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="k8s-hopeless-")))
        parts = ["kube-scheduler"] if name == "kube_scheduler" else []
        state = stack.enter_context(running_plane(folder, parts, QPS))
        if name == "flowsched":
            pid = stack.enter_context(running_flowsched(folder, QPS, features={"preemption": True}))
        else:
            pid = state["processes"]["kube-scheduler"]["pid"]
        return asyncio.run(measure(name, pid, folder, options))


@click.command()
@click.option("--nodes", default=500, show_default=True, type=click.IntRange(1))
@click.option("--hopeless", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--kinds", default=1, show_default=True, type=click.IntRange(1), help="Different requests of them.")
@click.option("--rate", default=50.0, show_default=True, help="Small pods per second that come, and that go.")
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--scheduler", "schedulers", multiple=True, type=click.Choice(sorted(SCHEDULERS)), help="Only this one.")
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(
    nodes: int, hopeless: int, kinds: int, rate: float, seconds: float, schedulers: tuple[str, ...], keep: bool
) -> None:
    """Measure and print a table."""
    options = Options(nodes, hopeless, kinds, rate, seconds)
    try:
        found = {name: run(name, options) for name in schedulers or tuple(SCHEDULERS)}
    except BenchmarkError as error:
        raise click.ClickException(str(error)) from None
    rows = [["", *FIGURES], *([name, *(f"{entry[f]:.3g}" for f in FIGURES)] for name, entry in found.items())]
    text = "\n".join(text_table(rows, left=(), indent=""))
    if keep:
        stem = RESULTS / f"k8s-hopeless-{nodes}x{hopeless}x{kinds}"
        kept = {**vars(options), "found": found, "machine": describe_machine()}
        stem.with_suffix(".json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        stem.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
