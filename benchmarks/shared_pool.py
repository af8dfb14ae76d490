"""Two schedulers on the same nodes: how many pods a kubelet would refuse because both gave the same room away.

kube-scheduler and flowsched place pods on one set of nodes that are nine tenths full. Pods come at a steady rate for
either, run for as long as keeps the nodes at that, and go. The program plays the kubelets: it admits pods in the order in
which the API server bound them, and refuses what does not fit (`OutOfcpu`), as a kubelet does; whoever made such a pod would
have to make it anew.

    python -m benchmarks.shared_pool --rates 10,50,100 --seconds 60
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.k8s_throughput import (
    CORES,
    RESULTS,
    SCHEDULERS,
    Api,
    BenchmarkError,
    Connection,
    Sight,
    _Event,
    make_node,
    make_pod,
    run_batch,
    running_flowsched,
    running_plane,
    say,
)
from benchmarks.k8s_throughput import Options as BatchOptions
from benchmarks.machine import describe_machine, measured_on

SIZES = (250, 500, 1000)
"""CPU of the pods in turn, in milli-CPU: equal ones would leave no gaps to fight for."""
FILLED = 0.9
SETTLES_S = 10.0
"""Pods that come before this are to fill the nodes and are not counted."""


@dataclass
class Kubelets:
    """Who is admitted on which node. Bound pods are seen in the order of the API server's revisions."""

    room: dict[str, int]
    used: Counter[str] = field(default_factory=Counter)
    admitted: dict[str, tuple[str, int]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def see(self, pod: str, node: str, cpu: int) -> bool:
        """A pod has been bound: whether the kubelet takes it."""
        if self.used[node] + cpu > self.room[node]:
            self.refused.add(pod)
            return False
        self.used[node] += cpu
        self.admitted[pod] = node, cpu
        return True

    def gone(self, pod: str) -> None:
        """A pod has been deleted."""
        node, cpu = self.admitted.pop(pod, ("", 0))
        self.used[node] -= cpu


class _Seen(Sight):
    """Tells the kubelets of what is bound, in order."""

    def __init__(self, kubelets: Kubelets, leaves: asyncio.Queue[tuple[float, str]], stays_s: float) -> None:
        super().__init__()
        self._kubelets, self._leaves, self._stays_s = kubelets, leaves, stays_s

    def see(self, now: float, event: _Event) -> None:
        name = event.object.metadata.name
        first = event.type != "DELETED" and bool(event.object.spec.node_name) and name not in self.bound
        super().see(now, event)
        if event.type == "DELETED":
            self._kubelets.gone(name)
        elif first:
            taken = self._kubelets.see(name, event.object.spec.node_name, cpu_of(name))
            self._leaves.put_nowait((now + (self._stays_s if taken else 0.0), name))


def cpu_of(name: str) -> int:
    """Milli-CPU of a pod, by its number."""
    return SIZES[int(name.rpartition("-")[2]) % len(SIZES)]


async def measure(
    api: Api, rate: float, seconds: float, nodes: int, schedulers: Sequence[str], together: int
) -> dict[str, Any]:
    """One world at so many pods a second for each scheduler, of which so many come at once."""
    room = {f"node-{n:05d}": CORES[n % len(CORES)] * 1000 for n in range(nodes)}
    stays_s = FILLED * sum(room.values()) / (rate * len(schedulers) * float(np.mean(SIZES)))
    kubelets = Kubelets(room)
    leaves: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
    sight = _Seen(kubelets, leaves, stays_s)
    space = f"shared-{rate:g}-{len(schedulers)}-{schedulers[0]}".replace("_", "-")
    await api.request(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    )
    collection = f"/api/v1/namespaces/{space}/pods"
    until = time.perf_counter() + stays_s + SETTLES_S + seconds
    counted_from = until - seconds

    async def arrive() -> None:
        number, began = 0, time.perf_counter()
        step = 1 if together == 1 else together * len(schedulers)
        async with asyncio.TaskGroup() as group:
            while (now := time.perf_counter()) < until:
                due = int((now - began) * rate * len(schedulers))
                while number < due - due % step:
                    group.create_task(create(number, schedulers[number % len(schedulers)]))
                    number += 1
                await asyncio.sleep(0.01)

    async def create(number: int, scheduler: str) -> None:
        pod = make_pod(f"{scheduler.replace('_', '-')}-{number // len(schedulers)}", SCHEDULERS[scheduler])
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        requests["cpu"] = f"{cpu_of(pod['metadata']['name'])}m"
        await send("POST", collection, json.dumps(pod).encode(), 201)

    async def leave() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(go(*await leaves.get()))

    async def go(at: float, name: str) -> None:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        await send("DELETE", f"{collection}/{name}?gracePeriodSeconds=0", b"", 200, 404)

    async def send(method: str, path: str, body: bytes, *accepted: int) -> None:
        connection = await free.get()
        try:
            status, answer = await connection.request(method, path, body)
        finally:
            free.put_nowait(connection)
        if status not in accepted:
            raise BenchmarkError(f"{method} {path} answered {status}: {answer[:300].decode(errors='replace')}")

    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in api._connections:
        free.put_nowait(connection)
    tasks = [asyncio.create_task(sight.follow(api, space)), asyncio.create_task(leave())]
    try:
        await arrive()
        await asyncio.sleep(5.0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {s: figures(sight, kubelets, s, counted_from, until) for s in schedulers}


def figures(sight: Sight, kubelets: Kubelets, scheduler: str, since: float, until: float) -> dict[str, float]:
    """What became of one scheduler's pods that came in a span."""
    mine = [n for n, at in sight.created.items() if n.startswith(scheduler.replace("_", "-")) and since <= at < until]
    bound = [n for n in mine if n in sight.bound]
    refused = sum(n in kubelets.refused for n in bound)
    waits = [sight.bound[n] - sight.created[n] for n in bound] or [float("nan")]
    return {
        "pods": len(mine),
        "bound": len(bound),
        "refused": refused,
        "refused_percent": 100.0 * refused / max(1, len(bound)),
        "p50_s": float(np.percentile(waits, 50)),
        "p99_s": float(np.percentile(waits, 99)),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """One line for each scheduler in each world."""
    form = "{:>11}  {:14}  {:14}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>8}"
    lines = [form.format("pods/s each", "scheduler", "beside", "bound", "refused", "%", "p50 s", "p99 s", "withheld")]
    for row in rows:
        for name, f in row["found"].items():
            beside = ", ".join(other for other in row["found"] if other != name) or "nobody"
            numbers = (f"{f['refused_percent']:.2f}", f"{f['p50_s']:.3f}", f"{f['p99_s']:.3f}")
            withheld = f.get("withheld", "")
            lines.append(
                form.format(f"{row['rate']:g}", name, beside, f["bound"], f["refused"], *numbers, withheld).rstrip()
            )
    return "\n".join(lines)


@click.command()
@click.option("--rates", default="10,50,100", show_default=True, help="Pods a second for each scheduler.")
@click.option("--seconds", default=60.0, show_default=True, help="How long pods are counted at each rate.")
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(1))
@click.option(
    "--together", default=1, show_default=True, type=click.IntRange(1), help="Pods of each that come at once."
)
@click.option(
    "--scoring", default="spread", show_default=True, type=click.Choice(("spread", "pack")), help="flowsched's."
)
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(rates: str, seconds: float, nodes: int, together: int, scoring: str, keep: bool) -> None:
    """Measure and print a table."""
    rows = []
    for rate in map(float, rates.split(",")):
        for schedulers in (tuple(SCHEDULERS), ("flowsched",)):
            with contextlib.ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shared-pool-")))
                state = stack.enter_context(running_plane(folder, ["kube-scheduler"], 5000))
                pids = {"kube_scheduler": state["processes"]["kube-scheduler"]["pid"]}
                pids["flowsched"] = stack.enter_context(running_flowsched(folder, 5000, engine={"scoring": scoring}))
                say(f"{rate:g} pods a second for {' and '.join(schedulers)}")
                try:
                    found = asyncio.run(_measure(folder, rate, seconds, nodes, schedulers, pids, together))
                except BenchmarkError as error:
                    raise click.ClickException(str(error)) from None
                rows.append({"rate": rate, "found": found})
    text = table(rows)
    click.echo(text)
    click.echo(measured_on(machine := describe_machine()))
    if keep:
        kept = {
            "nodes": nodes,
            "seconds": seconds,
            "together": together,
            "scoring": scoring,
            "rows": rows,
            "machine": machine,
            "load_average": os.getloadavg()[0],
        }
        (RESULTS / "shared-pool.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "shared-pool.txt").write_text(text + "\n", encoding="utf-8")


async def _measure(
    folder: Path,
    rate: float,
    seconds: float,
    nodes: int,
    schedulers: Sequence[str],
    pids: dict[str, int],
    together: int,
) -> dict[str, Any]:
    api = Api(folder / "admin.kubeconfig")
    try:
        made = [("POST", "/api/v1/nodes", json.dumps(make_node(n)).encode()) for n in range(nodes)]
        await api.send_all(made, frozenset({201}))
        plain = BatchOptions(nodes, 20, 1, 5000, False, tuple(schedulers), False)
        for name in schedulers:
            # Whoever has bound a few pods has its caches and its lease.
            await run_batch(api, f"warm-up-{name.replace('_', '-')}", SCHEDULERS[name], plain, pods=20, pid=pids[name])
        found = await measure(api, rate, seconds, nodes, schedulers, together)
        # Since the start, not only of the pods that are counted.
        log = (folder / "logs" / "flowsched.log").read_text(encoding="utf-8", errors="replace")
        found["flowsched"]["withheld"] = log.count("binding not sent")
        return found
    finally:
        api.close()


if __name__ == "__main__":
    main()
