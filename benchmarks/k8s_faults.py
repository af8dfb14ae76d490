"""Time to the binding of another namespace's pod while bindings of some namespaces fail or hang: beside kube-scheduler.

A validating webhook on `pods/binding` with `failurePolicy: Fail` is configured for labelled namespaces; nothing listens at
its address (`away`), or what listens never says anything (`hangs`). Pods of these namespaces are created, and then, at a
steady rate, pods of another namespace, which no webhook is asked about. The same for flowsched and for kube-scheduler, on
the same API server, one after the other.

    python -m benchmarks.k8s_faults
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.k8s_throughput import (
    RESULTS,
    SCHEDULERS,
    Api,
    BenchmarkError,
    Sight,
    make_node,
    make_pod,
    run_batch,
    running_flowsched,
    running_plane,
    say,
)
from benchmarks.k8s_throughput import Options as Throughput
from benchmarks.machine import describe_machine
from flowsched_models.text_table import text_table

LABEL = "benchmark.example.com/webhook"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
FAULTS = ("away", "hangs")
TIMEOUT_S = 10
"""Of the webhook, as where none is given."""
PATIENCE_S = 40.0
"""So long after the last pod of the other namespace was created it is waited for those that are not bound."""
HEADS = ("namespaces", "pods", "fault", "scheduler", "bound", "p50_s", "p99_s", "longest_s", "told_all_s")


@dataclass(frozen=True)
class Options:
    """What is measured."""

    nodes: int
    layouts: tuple[tuple[int, int], ...]
    """(namespaces that fail, pods in each)."""
    seconds: float
    rate: float
    """Pods of the other namespace per second."""
    faults: tuple[str, ...]
    schedulers: tuple[str, ...]
    qps: int = 5000


@dataclass
class Outcome:
    """Of one scheduler under one fault."""

    namespaces: int
    pods: int
    fault: str
    scheduler: str
    waits_s: list[float]
    """Of the other namespace's pods, from creation to binding; as long as was waited for those that were not bound."""
    bound: int
    told_all_s: float | None
    """From the first pod's creation until all pods of the namespaces that fail say so in a condition; None: not all did."""

    def figures(self) -> dict[str, Any]:
        """As they stand in the table."""
        p50, p99, longest = (float(np.percentile(self.waits_s, q)) for q in (50, 99, 100))
        told = None if self.told_all_s is None else round(self.told_all_s, 1)
        first = (self.namespaces, self.pods, self.fault, self.scheduler, f"{self.bound}/{len(self.waits_s)}")
        return dict(zip(HEADS, (*first, round(p50, 3), round(p99, 3), round(longest, 3), told), strict=True))


@contextlib.contextmanager
def address_of(fault: str) -> Iterator[int]:
    """A port of this machine where nothing listens, or something that accepts connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if fault == "hangs":
            listener.listen(4096)
        yield int(listener.getsockname()[1])


def webhook(port: int, authority: bytes) -> dict[str, Any]:
    """Asked about every binding in the labelled namespaces."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"},
        "webhooks": [
            {
                "name": "guard.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": TIMEOUT_S,
                "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": base64.b64encode(authority).decode()},
                "namespaceSelector": {"matchLabels": {LABEL: "asked"}},
                "rules": [
                    {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}
                ],
            }
        ],
    }


async def in_force(api: Api, namespace: str) -> None:
    """Wait until the API server asks the webhook: a binding that would change nothing is not accepted any more."""
    collection = f"/api/v1/namespaces/{namespace}/pods"
    await api.request("POST", collection, make_pod("probe", "nobody"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-00000"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "probe"}, "target": target}
    for _ in range(100):
        try:
            await asyncio.wait_for(api.request("POST", f"{collection}/probe/binding?dryRun=All", body), 1.0)
        except (BenchmarkError, TimeoutError):
            break
        await asyncio.sleep(0.1)
    else:
        raise BenchmarkError("the webhook is never asked")
    # Its connection may still wait for the answer.
    api._connections[0].close()
    await api.request("DELETE", f"{collection}/probe?gracePeriodSeconds=0")


async def told(api: Api, namespaces: Sequence[str], pods: int, began: float, until: float) -> float | None:
    """Seconds until all pods have a condition that names the webhook, or None if that is not so in time."""
    left = set(namespaces)
    while time.perf_counter() < until:
        for namespace in sorted(left):
            found = (await api.request("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"]
            conditions = [c for pod in found for c in pod["status"].get("conditions", ())]
            if sum("webhook" in c.get("message", "") for c in conditions) >= pods:
                left.discard(namespace)
        if not left:
            return time.perf_counter() - began
        await asyncio.sleep(0.5)
    return None


async def measure_one(
    kubeconfig: Path, api: Api, options: Options, namespaces: int, pods: int, fault: str, scheduler: str
) -> Outcome:
    """One scheduler under one fault; all pods that were made are gone afterwards."""
    authority = (kubeconfig.parent / "pki" / "ca.crt").read_bytes()
    stem = f"{scheduler.replace('_', '-')}-{fault}-{namespaces}"
    bad, other = [f"bad-{stem}-{n}" for n in range(namespaces)], f"other-{stem}"
    labelled = {LABEL: "asked"}
    for name, labels in [*((n, labelled) for n in bad), (other, {})]:
        await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    with address_of(fault) as port:
        await api.request("POST", WEBHOOKS, webhook(port, authority))
        sight = Sight()
        follower = asyncio.create_task(sight.follow(api, other))
        watching: asyncio.Task[float | None] | None = None
        # One request at a time goes over a connection.
        reader = Api(kubeconfig)
        try:
            await in_force(api, bad[0])
            called = SCHEDULERS[scheduler]
            creations = [
                ("POST", f"/api/v1/namespaces/{namespace}/pods", json.dumps(make_pod(f"pod-{i:04d}", called)).encode())
                for i in range(pods)
                for namespace in bad
            ]
            began = time.perf_counter()
            await api.send_all(creations, frozenset({201}))
            watching = asyncio.create_task(told(reader, bad, pods, began, began + PATIENCE_S))
            count = round(options.seconds * options.rate)
            collection = f"/api/v1/namespaces/{other}/pods"
            first = time.perf_counter()
            for number in range(count):
                await asyncio.sleep(max(0.0, first + number / options.rate - time.perf_counter()))
                await api.request("POST", collection, make_pod(f"pod-{number:04d}", called))
            with contextlib.suppress(BenchmarkError):
                await sight.until(lambda: len(sight.bound) == count, PATIENCE_S, other, follower)
            now = time.perf_counter()
            waits = [sight.bound.get(name, now) - sight.created[name] for name in sight.created]
            told_all_s = await watching
        finally:
            follower.cancel()
            if watching is not None:
                watching.cancel()
            await asyncio.gather(follower, *([watching] if watching else []), return_exceptions=True)
            reader.close()
            await api.request("DELETE", f"{WEBHOOKS}/guard")
    for name in (*bad, other):
        await api.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
    return Outcome(namespaces, pods, fault, scheduler, waits, len(sight.bound), told_all_s)


@contextlib.contextmanager
def running(name: str, folder: Path, qps: int) -> Iterator[int]:
    """A scheduler; its pid. flowsched is started for each measurement, as it ends where the API server is overloaded."""
    if name == "flowsched":
        with running_flowsched(folder, qps) as pid:
            yield pid
    else:
        yield int(json.loads((folder / "state.json").read_text())["processes"]["kube-scheduler"]["pid"])


async def measure_all(options: Options, folder: Path) -> list[Outcome]:
    """Both schedulers under every fault, in turn."""
    found: list[Outcome] = []
    kubeconfig = folder / "admin.kubeconfig"
    api = Api(kubeconfig)
    try:
        nodes = [("POST", "/api/v1/nodes", json.dumps(make_node(n)).encode()) for n in range(options.nodes)]
        await api.send_all(nodes, frozenset({201}))
        warm = Throughput(options.nodes, 20, 1, options.qps, True, options.schedulers, False)
        for namespaces, pods in options.layouts:
            for fault in options.faults:
                for name in options.schedulers:
                    say(f"{namespaces} namespaces of {pods} pods, the webhook {fault}: {name}")
                    # Idle connections are closed by the API server.
                    api.close()
                    with running(name, folder, options.qps) as pid:
                        namespace = f"warm-up-{len(found)}"
                        await run_batch(api, namespace, SCHEDULERS[name], warm, pods=20, pid=pid)
                        found.append(await measure_one(kubeconfig, api, options, namespaces, pods, fault, name))
                    say(json.dumps(found[-1].figures()))
    finally:
        api.close()
    return found


def measure(options: Options) -> list[Outcome]:
    """On a control plane of its own."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="k8s-faults-")))
        parts = ["kwok"] + ["kube-scheduler"] * ("kube_scheduler" in options.schedulers)
        stack.enter_context(running_plane(folder, parts, options.qps))
        return asyncio.run(measure_all(options, folder))


def table(outcomes: Sequence[Outcome]) -> str:
    """One row for each."""
    rows = [[str("never" if v is None else v) for v in outcome.figures().values()] for outcome in outcomes]
    return "\n".join(text_table([list(HEADS), *rows], left=(2, 3), indent=""))


def _layout(_context: object, _parameter: object, given: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    try:
        found = tuple((int(n), int(pods)) for n, pods in (text.split("x") for text in given))
    except ValueError:
        raise click.BadParameter("write it as 50x20: fifty namespaces of twenty pods each") from None
    if any(n < 1 or pods < 1 for n, pods in found):
        raise click.BadParameter("at least one namespace of one pod")
    return found


@click.command()
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(1))
@click.option("--layout", "layouts", multiple=True, default=("1x1000", "50x20"), show_default=True, callback=_layout)
@click.option("--seconds", default=20.0, show_default=True, help="So long pods of the other namespace come.")
@click.option("--rate", default=20.0, show_default=True, help="Of these, per second.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), help="Only this one.")
@click.option("--scheduler", "schedulers", multiple=True, type=click.Choice(sorted(SCHEDULERS)), help="Only this one.")
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(
    nodes: int,
    layouts: tuple[tuple[int, int], ...],
    seconds: float,
    rate: float,
    faults: tuple[str, ...],
    schedulers: tuple[str, ...],
    keep: bool,
) -> None:
    """Measure and print a table."""
    options = Options(nodes, layouts, seconds, rate, faults or FAULTS, schedulers or tuple(SCHEDULERS))
    try:
        outcomes = measure(options)
    except BenchmarkError as error:
        raise click.ClickException(str(error)) from None
    text = table(outcomes)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        kept = {
            "nodes": nodes,
            "seconds": seconds,
            "rate": rate,
            "outcomes": [o.figures() for o in outcomes],
            "machine": describe_machine(),
            "load_average": os.getloadavg()[0],
        }
        (RESULTS / "k8s-faults.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "k8s-faults.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
