"""What finished pods that are kept cost the scheduler and the API server, with and without learning from them.

A fresh control plane has so many nodes, and on these so many pods that have succeeded. A scheduler is started on it, once
with `learning: off` and once with `learning: observe`; measured are its memory and the CPU time of both after so many
seconds. The line below the table is what the other way to see ends would take: one watch of pods for everything, whose
cache keeps whole pods.

    python -m benchmarks.k8s_finished_pods --nodes 5000 --pods 50000
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.k8s_throughput import (
    Api,
    cpu_s,
    make_node,
    make_pod,
    rss_mib,
    running_flowsched,
    running_plane,
    say,
)
from benchmarks.machine import describe_machine, measured_on
from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.objects import Pod
from flowsched_models.text_table import text_table

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
OWNERS = 200
RUN_S = 60
Request = tuple[str, str, bytes]
"""Method, path and body."""


def job(number: int, nodes: int) -> dict[str, Any]:
    """A pod of one of some Jobs, as it is on one of so many nodes."""
    owner = f"encode-{number % OWNERS}"
    pod = make_pod(f"{owner}-{number}", "flowsched")
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
    labels = {"batch.kubernetes.io/job-name": owner, "job-name": owner}
    pod["metadata"] |= {"ownerReferences": [reference], "labels": labels}
    pod["spec"] |= {"nodeName": make_node(number % nodes)["metadata"]["name"], "restartPolicy": "Never"}
    return pod


def ended(pod: dict[str, Any]) -> dict[str, Any]:
    """The same after its end."""
    began, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago)) for ago in (RUN_S, 0))
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": end}}
    container = {"name": "main", "image": "test", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": end}
        for kind, status in (("Initialized", "True"), ("Ready", "False"), ("PodScheduled", "True"))
    ]
    status = {"phase": "Succeeded", "startTime": began, "conditions": conditions, "containerStatuses": [container]}
    return {**pod, "status": status}


def made(nodes: int, pods: int) -> Iterator[Request]:
    """What makes so many nodes, and then so many pods on them."""
    for number in range(nodes):
        yield "POST", NODES, json.dumps(make_node(number)).encode()
    for number in range(pods):
        yield "POST", PODS, json.dumps(job(number, nodes)).encode()


def ends(nodes: int, pods: int) -> Iterator[Request]:
    """What ends these pods."""
    for number in range(pods):
        pod = job(number, nodes)
        yield "PUT", f"{PODS}/{pod['metadata']['name']}/status", json.dumps(ended(pod)).encode()


async def whole_pods(folder: Path) -> None:
    """Hold all pods as the cache of pods does, and print what that took."""
    before = rss_mib(os.getpid())
    async with Connection(find_access(folder / "admin.kubeconfig")) as connection:
        reflector = Reflector(connection, "/api/v1/pods", Pod, lambda _: None)
        await reflector.list_once(required=True)
        print(json.dumps([len(reflector.cache), rss_mib(os.getpid()) - before]))


def measured(folder: Path, learning: str, server: int, seconds: float) -> tuple[float, float, float]:
    """Memory in MiB, and CPU seconds of the scheduler and of the API server."""
    before = cpu_s(server)
    with running_flowsched(folder, 5000, learning=learning) as pid:
        time.sleep(seconds)
        return rss_mib(pid), cpu_s(pid), cpu_s(server) - before


@click.command()
@click.option("--nodes", default=5_000, show_default=True, type=click.IntRange(1))
@click.option("--pods", default=50_000, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=60.0, show_default=True, help="After which is measured.")
@click.option("--whole", "whole", default=None, type=click.Path(path_type=Path), hidden=True)
def main(nodes: int, pods: int, seconds: float, whole: Path | None) -> None:
    """Measure."""
    if whole is not None:
        asyncio.run(whole_pods(whole))
        return
    rows = []
    with tempfile.TemporaryDirectory() as named, running_plane(folder := Path(named), (), 5000) as state:
        for what, requests in (("made", made(nodes, pods)), ("ended", ends(nodes, pods))):
            api = Api(folder / "admin.kubeconfig")  # its connections are those of one event loop
            took = asyncio.run(api.send_all([*requests], frozenset({200, 201})))
            say(f"{pods} pods {what} in {took:.0f} s")
        server = int(state["processes"]["kube-apiserver"]["pid"])
        for learning in ("off", "observe"):
            memory, own, others = measured(folder, learning, server, seconds)
            rows.append((learning, f"{memory:.0f}", f"{own:.1f}", f"{others:.1f}"))
        command = [sys.executable, "-m", "benchmarks.k8s_finished_pods", "--whole", str(folder)]
        count, more = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print("\n".join(text_table([("learning", "memory, MiB", "CPU, s", "CPU of the API server, s"), *rows])))
    print(f"a cache of whole pods takes {more:.0f} MiB more for {count} of them")
    print(f"{nodes} nodes, {pods} finished pods, {seconds:g} s after the start. {measured_on(describe_machine())}")


if __name__ == "__main__":
    main()
