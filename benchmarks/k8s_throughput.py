"""Pods bound per second and the time from creation to bind: flowsched beside the real kube-scheduler.

Every run starts a fresh control plane with simulated nodes and both schedulers. Batches of pods, each for one of the two,
follow one another in an order that alternates from run to run; between them all pods are deleted. Then plain bindings are
sent as fast as the API server takes them, which is the most that any scheduler could reach. Both clients are allowed
thousands of requests per second; in the first run kube-scheduler gets one more batch with the limit that it has by default.

    python -m benchmarks.k8s_throughput --nodes 1000 --pods 2000

With `--workloads 100` pods are of so many kinds, and no node may have two of one. With `--one-by-one` each pod is created
when the one before is bound: the wait of somebody who starts a single pod.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
import numpy as np
import yaml

from benchmarks.machine import describe_machine
from flowsched_models.text_table import text_table

HOUSE = Path(__file__).parent.parent
CONTROL_PLANE = HOUSE / "k8s" / "control_plane" / "control_plane.py"
MANIFESTS = HOUSE / "k8s" / "manifests"
RESULTS = Path(__file__).parent / "results"
CONNECTIONS = 32
CORES = (2, 4, 8)
"""Of the nodes in turn, with 4 GiB for each core."""
POD_CPU_MILLI = 100
RAW_BINDS = 2000
"""At most; their rate does not depend on how many there are."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FIGURES = ("pods_per_s", "p50_s", "p99_s", "cpu_ms_per_pod", "rss_mib")
SCHEDULERS = {"flowsched": "flowsched", "kube_scheduler": "default-scheduler"}
"""Entry of the result, and what pods write for spec.schedulerName."""
DEFAULT_QPS = "kube_scheduler_default_qps"


class BenchmarkError(Exception):
    """The measurement would not mean anything; the text says why."""


# Talking to the API server: as little as possible, since the client shares the cores with what is measured.


class Connection:
    """One kept-alive connection that sends a request and reads its answer."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        self._address = (host, port)
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        reader, _ = await self._write(method, path, body)
        status, headers = await self._read_head(reader)
        if headers.get("transfer-encoding") == "chunked":
            answer = b"".join([chunk async for chunk in self._chunks(reader)])
        else:
            answer = await reader.readexactly(int(headers.get("content-length", 0)))
        return status, answer

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        reader, _ = await self._write("GET", path, b"")
        status, _ = await self._read_head(reader)
        if status != 200:
            raise BenchmarkError(f"GET {path} answered {status}")
        async for chunk in self._chunks(reader):
            yield chunk

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _write(self, method: str, path: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._address
        if self._streams is None:
            self._streams = await asyncio.open_connection(host, port, ssl=self._tls, limit=1 << 20)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        return reader, writer

    @staticmethod
    async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value.strip().lower() for name, value in pairs}

    @staticmethod
    async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)


class Api:
    """The API server, over a fixed number of connections, as the administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        where = urlsplit(cluster["server"])
        tls = ssl.create_default_context(cadata=_decode(cluster["certificate-authority-data"]))
        with tempfile.TemporaryDirectory() as folder:
            pair = [Path(folder, end) for end in ("crt", "key")]
            for path, name in zip(pair, ("client-certificate-data", "client-key-data"), strict=True):
                path.touch(mode=0o600)
                path.write_text(_decode(user[name]))
            tls.load_cert_chain(pair[0], pair[1])
        self._where = (where.hostname or "", where.port or 443, tls)
        self._connections = [Connection(*self._where) for _ in range(CONNECTIONS)]

    async def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        status, answer = await self._connections[0].request(method, path, b"" if body is None else _encode(body))
        if status >= 300:
            raise BenchmarkError(f"{method} {path} answered {status}: {answer[:300].decode(errors='replace')}")
        decoded: dict[str, Any] = msgspec.json.decode(answer)
        return decoded

    async def send_all(self, requests: Sequence[tuple[str, str, bytes]], accepted: frozenset[int]) -> float:
        """Send them all, as many at once as there are connections; the seconds that it took."""
        left = iter(requests)

        async def work(connection: Connection) -> None:
            for method, path, body in left:
                status, answer = await connection.request(method, path, body)
                if status not in accepted:
                    raise BenchmarkError(f"{method} {path} answered {status}: {answer[:300].decode(errors='replace')}")

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(work(connection))
        return time.perf_counter() - began

    async def watch(self, path: str) -> AsyncIterator[tuple[float, bytes]]:
        """The events of a watch, each with the time at which it was here, on the clock of :func:`time.perf_counter`."""
        connection = Connection(*self._where)
        rest = b""
        try:
            async for chunk in connection.stream(path):
                now = time.perf_counter()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield now, line
        finally:
            connection.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


# What is created


def make_node(number: int) -> dict[str, Any]:
    """A node that is ready from the start; KWOK keeps it so and starts the pods that are bound to it."""
    return node_named(f"node-{number:05d}", CORES[number % len(CORES)])


def node_named(
    name: str,
    cores: int,
    labels: Mapping[str, str] = MappingProxyType({}),
    more: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The same with labels, and ``more`` that it has."""
    room = {"cpu": str(cores), "memory": f"{4 * cores}Gi", "pods": "110", **more}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **labels},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
    }


def make_pod(name: str, scheduler: str, workload: str = "") -> dict[str, Any]:
    """A small pod. One of a ``workload`` must not be on a node with another one of it."""
    requests = {"cpu": f"{POD_CPU_MILLI}m", "memory": "100Mi"}
    container = {"name": "main", "image": "example.invalid/nothing", "resources": {"requests": requests}}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }
    if workload:
        labels = {"app": workload}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
        pod["metadata"]["labels"] = labels
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod


# What is seen


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


@dataclass
class Sight:
    """When the watch showed each pod of a batch, and each on its node."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    deleted: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, api: Api, namespace: str) -> None:
        """Watch for ever; a busy API server ends watches that it cannot serve at once, so go on from the last event."""
        decoder = msgspec.json.Decoder(_Event)
        version = "0"
        while True:
            path = f"/api/v1/namespaces/{namespace}/pods?watch=1&resourceVersion={version}&timeoutSeconds=3600"
            async for now, line in api.watch(path):
                event = decoder.decode(line)
                if event.type == "ERROR":
                    raise BenchmarkError(f"the watch broke: {line.decode(errors='replace')}")
                version = event.object.metadata.resource_version
                self.see(now, event)
                self.changed.set()

    def see(self, now: float, event: _Event) -> None:
        name, node = event.object.metadata.name, event.object.spec.node_name
        self.created.setdefault(name, now)
        if event.type == "DELETED":
            self.deleted += 1
        elif node:
            self.bound.setdefault(name, now)
            if self.nodes.setdefault(name, node) != node:
                raise BenchmarkError(f"{name} was bound twice")
            if event.object.status.phase != "Pending":
                self.running.add(name)

    async def until(self, done: Callable[[], bool], seconds: float, what: str, follower: asyncio.Task[None]) -> None:
        deadline = time.perf_counter() + seconds
        while not done():
            self.changed.clear()
            if follower.done():
                follower.result()
            if time.perf_counter() > deadline:
                raise BenchmarkError(f"{what}: {len(self.bound)} of {len(self.created)} pods bound after {seconds:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), 1.0)


def check_fit(nodes: dict[str, str]) -> None:
    """Nobody wins by overcommitting nodes."""
    for node, pods in Counter(nodes.values()).items():
        room = CORES[int(node.removeprefix("node-")) % len(CORES)] * 1000 // POD_CPU_MILLI
        if pods > min(room, 110):
            raise BenchmarkError(f"{node} has room for {room} pods and got {pods}")


# Processes


def cpu_s(pid: int) -> float:
    """What a process has used so far, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise BenchmarkError(f"process {pid} has ended")


def control_plane(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(CONTROL_PLANE), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"control_plane.py {arguments[0]} failed")
    return done.stdout


@contextlib.contextmanager
def running_plane(folder: Path, parts: Sequence[str], qps: int, *options: str) -> Iterator[dict[str, Any]]:
    """A fresh control plane; its state."""
    control_plane("up", str(folder), "--parts", ",".join(parts), "--scheduler-qps", str(qps), *options)
    try:
        yield json.loads((folder / "state.json").read_text())
    finally:
        control_plane("down", str(folder))


@contextlib.contextmanager
def running_flowsched(folder: Path, qps: int, python: str = sys.executable, **more: Any) -> Iterator[int]:
    """flowsched as its manifests would run it: its own ServiceAccount, roles and environment, electing a leader; its pid.

    ``python`` is the interpreter that runs it; ``more`` stands in its configuration beside what every benchmark needs.
    """
    environment = {**os.environ, **environment_of(python)}
    kubectl = [str(folder / "bin" / "kubectl"), "--kubeconfig", str(folder / "admin.kubeconfig")]
    # What has no place here, such as a monitor of another API, is refused without harm to the rest.
    subprocess.run(
        [*kubectl, "apply", "-k", str(MANIFESTS)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    kubeconfig = control_plane("token", str(folder), "flowsched-system", "flowsched").strip()
    config = folder / "flowsched.yaml"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "config.flowsched.io/v1alpha1",
                "kind": "FlowSchedulerConfiguration",
                "clientConnection": {"qps": qps, "burst": qps},
                "leaderElection": {"leaderElect": True, "resourceNamespace": "flowsched-system"},
                "server": dict.fromkeys(("health", "metrics", "loopback"), "127.0.0.1:0"),
                **more,
            }
        )
    )
    command = [python, "-m", "flowsched.cli", "run", "--config", str(config), "--kubeconfig", kubeconfig]
    log = folder / "logs" / "flowsched.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
    try:
        yield process.pid
    except BenchmarkError as error:
        code = process.poll()
        if code is None:
            raise
        end = log.read_text(errors="replace")[-3000:]
        raise BenchmarkError(f"{error}; flowsched ended with code {code}:\n{end}") from None
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# Measuring


@dataclass(frozen=True)
class Options:
    nodes: int
    pods: int
    runs: int
    qps: int
    kwok: bool
    schedulers: tuple[str, ...]
    default_qps: bool
    one_by_one: bool = False
    python: str = sys.executable
    workloads: int = 0
    """Kinds of pods, each kept apart from others of it; 0: pods without terms."""


async def run_batch(
    api: Api, namespace: str, scheduler: str, options: Options, *, pods: int, pid: int
) -> dict[str, float]:
    """Create pods for one scheduler, wait until all are bound, and take them away again."""
    await api.request(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    collection = f"/api/v1/namespaces/{namespace}/pods"
    sight = Sight()
    follower = asyncio.create_task(sight.follow(api, namespace))
    names = [f"pod-{number:05d}" for number in range(pods)]
    kinds = [f"w{number % options.workloads}" if options.workloads else "" for number in range(pods)]
    pairs = zip(names, kinds, strict=True)
    creations = [("POST", collection, _encode(make_pod(name, scheduler, kind))) for name, kind in pairs]
    patience = 120.0 + pods / 10
    cpu = cpu_s(pid)
    try:
        if options.one_by_one:
            for number, creation in enumerate(creations, 1):
                await api.send_all([creation], frozenset({201}))
                await sight.until(lambda number=number: len(sight.bound) == number, patience, scheduler, follower)
        else:
            await api.send_all(creations, frozenset({201}))
            await sight.until(lambda: len(sight.bound) == pods, patience, scheduler, follower)
        if options.kwok:
            await sight.until(lambda: len(sight.running) == pods, patience, "waiting for KWOK", follower)
        # Events are written behind the binds, by both.
        await asyncio.sleep(1.0)
        cpu = cpu_s(pid) - cpu
        rss = rss_mib(pid)
        check_fit(sight.nodes)
        events = await count_events(api, namespace)
        deletions = [("DELETE", f"{collection}/{name}?gracePeriodSeconds=0", b"") for name in names]
        await api.send_all(deletions, frozenset({200, 404}))
        await sight.until(lambda: sight.deleted == pods, patience, "deleting", follower)
    finally:
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
    waits = [sight.bound[name] - sight.created[name] for name in names]
    return {
        "pods_per_s": pods / (max(sight.bound.values()) - min(sight.created.values())),
        "p50_s": float(np.percentile(waits, 50)),
        "p99_s": float(np.percentile(waits, 99)),
        "cpu_ms_per_pod": 1e3 * cpu / pods,
        "rss_mib": rss,
        # Kept beside the figures: a batch whose pods came slower than they could be bound measures the client.
        "created_per_s": pods / (max(sight.created.values()) - min(sight.created.values())),
        "events": float(events),
    }


async def count_events(api: Api, namespace: str) -> int:
    """How many events there are: a scheduler that writes none has it easier."""
    page = await api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?limit=1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


async def measure_raw_binds(api: Api, options: Options) -> float:
    """How fast the API server takes bindings of pods that no scheduler touches."""
    namespace, pods = "raw", min(options.pods, RAW_BINDS)
    await api.request(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    collection = f"/api/v1/namespaces/{namespace}/pods"
    names = [f"pod-{number:05d}" for number in range(pods)]
    await api.send_all([("POST", collection, _encode(make_pod(name, "nobody"))) for name in names], frozenset({201}))
    bindings = []
    for number, name in enumerate(names):
        target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{number % options.nodes:05d}"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        bindings.append(("POST", f"{collection}/{name}/binding", _encode(body)))
    return pods / await api.send_all(bindings, frozenset({201}))


async def measure_run(options: Options, number: int, folder: Path, pids: dict[str, int]) -> Run:
    """All batches of one run; the order of the two schedulers alternates."""
    result = Run()
    api = Api(folder / "admin.kubeconfig")
    try:
        nodes = [("POST", "/api/v1/nodes", _encode(make_node(number))) for number in range(options.nodes)]
        await api.send_all(nodes, frozenset({201}))
        for name in pids:
            # Whoever has bound a few pods has its caches and its lease.
            await run_batch(api, f"warm-up-{_dashed(name)}", SCHEDULERS[name], options, pods=20, pid=pids[name])
        for name in list(pids) if number % 2 == 0 else list(reversed(pids)):
            namespace = f"batch-{_dashed(name)}"
            say(f"run {number + 1}: {name}")
            result.entries[name] = await run_batch(
                api, namespace, SCHEDULERS[name], options, pods=options.pods, pid=pids[name]
            )
        say(f"run {number + 1}: raw binds")
        result.raw_binds_per_s = await measure_raw_binds(api, options)
        if number == 0 and options.default_qps and "kube_scheduler" in pids:
            say(f"run {number + 1}: {DEFAULT_QPS}")
            pid = restart_with_default_qps(folder)
            scheduler = SCHEDULERS["kube_scheduler"]
            await run_batch(api, "warm-up-default-qps", scheduler, options, pods=20, pid=pid)
            result.entries[DEFAULT_QPS] = await run_batch(
                api, "batch-default-qps", scheduler, options, pods=options.pods, pid=pid
            )
    finally:
        api.close()
    return result


@dataclass
class Run:
    entries: dict[str, dict[str, float]] = field(default_factory=dict)
    raw_binds_per_s: float = 0.0


def restart_with_default_qps(folder: Path) -> int:
    """kube-scheduler again, without the limits that it was given; its pid."""
    config = folder / "kube-scheduler.config"
    content = json.loads(config.read_text())
    content["clientConnection"] = {"kubeconfig": content["clientConnection"]["kubeconfig"]}
    config.write_text(json.dumps(content))
    control_plane("restart", str(folder), "kube-scheduler")
    pid: int = json.loads((folder / "state.json").read_text())["processes"]["kube-scheduler"]["pid"]
    return pid


def measure(options: Options) -> list[Run]:
    runs = []
    for number in range(options.runs):
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="k8s-throughput-")))
            parts = ["kwok"] * options.kwok + ["kube-scheduler"] * ("kube_scheduler" in options.schedulers)
            state = stack.enter_context(running_plane(folder, parts, options.qps))
            pids = {}
            if "kube_scheduler" in options.schedulers:
                pids["kube_scheduler"] = state["processes"]["kube-scheduler"]["pid"]
            if "flowsched" in options.schedulers:
                pids["flowsched"] = stack.enter_context(running_flowsched(folder, options.qps, options.python))
            runs.append(asyncio.run(measure_run(options, number, folder, pids)))
    return runs


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """The median over the runs, figure by figure."""
    summary: dict[str, Any] = {}
    for name in (*SCHEDULERS, DEFAULT_QPS):
        entries = [run.entries[name] for run in runs if name in run.entries]
        if entries:
            summary[name] = {f: round(statistics.median(entry[f] for entry in entries), 6) for f in FIGURES}
    summary["raw_binds_per_s"] = round(statistics.median(run.raw_binds_per_s for run in runs), 1)
    return summary


def table(summary: dict[str, Any], runs: Sequence[Run]) -> str:
    """Medians, with the range over the runs in brackets."""
    lines = [["", *FIGURES]]
    for name, entry in summary.items():
        if isinstance(entry, dict):
            cells = []
            for figure in FIGURES:
                values = [run.entries[name][figure] for run in runs if name in run.entries]
                cells.append(f"{entry[figure]:.4g} [{min(values):.4g}, {max(values):.4g}]")
            lines.append([name, *cells])
    rows = text_table(lines, left=(), indent="")
    raw = [run.raw_binds_per_s for run in runs]
    rows.append(f"raw binds per s: {summary['raw_binds_per_s']:.4g} [{min(raw):.4g}, {max(raw):.4g}]")
    return "\n".join(rows)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def python_version(python: str) -> str:
    """What runs flowsched, with its compiler: those of two builds differ by a tenth."""
    asked = "import platform; print(platform.python_version(), platform.python_compiler())"
    done = subprocess.run([python, "-c", asked], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{python} does not run: it ended with code {done.returncode}")
    return done.stdout.strip()


def environment_of(python: str) -> dict[str, str]:
    """The Deployment's environment, for the image's Python: an older one does not know the allocator and would not start."""
    if tuple(map(int, python_version(python).split(".")[:2])) < (3, 13):
        return {}
    deployment = yaml.safe_load((MANIFESTS / "base" / "deployment.yaml").read_text(encoding="utf-8"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"]}


def say(text: str) -> None:
    click.echo(text, err=True)


@click.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--pods", default=2000, show_default=True, type=click.IntRange(1))
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1))
@click.option("--kube-scheduler-qps", default=5000, show_default=True, help="Of either scheduler's client.")
@click.option(
    "--kwok/--no-kwok", default=True, show_default=True, help="Whether bound pods are started, as kubelets do."
)
@click.option(
    "--default-qps/--no-default-qps", default=True, show_default=True, help="One batch with kube-scheduler's own."
)
@click.option(
    "--workloads",
    default=0,
    type=click.IntRange(0),
    help="Pods of so many workloads, each with anti-affinity to itself.",
)
@click.option("--one-by-one", is_flag=True, help="Create a pod when the one before is bound.")
@click.option("--scheduler", "schedulers", multiple=True, type=click.Choice(sorted(SCHEDULERS)), help="Only this one.")
@click.option(
    "--python",
    default=sys.executable,
    type=click.Path(exists=True, dir_okay=False, executable=True),
    help="The interpreter that runs flowsched, instead of this one.",
)
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
@click.option("--json", "as_json", is_flag=True)
def main(
    nodes: int,
    pods: int,
    runs: int,
    kube_scheduler_qps: int,
    kwok: bool,
    default_qps: bool,
    workloads: int,
    one_by_one: bool,
    schedulers: tuple[str, ...],
    python: str,
    keep: bool,
    as_json: bool,
) -> None:
    """Measure and print a table."""
    room = sum(CORES[n % len(CORES)] * 1000 // POD_CPU_MILLI for n in range(nodes))
    if pods + 20 > room:
        raise click.UsageError(f"{nodes} nodes have room for {room} pods, not for {pods} and a few to warm up")
    chosen = schedulers or tuple(SCHEDULERS)
    options = Options(nodes, pods, runs, kube_scheduler_qps, kwok, chosen, default_qps, one_by_one, python, workloads)
    try:
        version = python_version(python)
        results = measure(options)
    except BenchmarkError as error:
        raise click.ClickException(str(error)) from None
    summary = summarise(results)
    text = table(summary, results)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        kept = {
            "nodes": nodes,
            "pods": pods,
            "kwok": kwok,
            "workloads": workloads,
            "summary": summary,
            "runs": [{**run.entries, "raw_binds_per_s": run.raw_binds_per_s} for run in results],
            "machine": {**describe_machine(), "python": version},
            "environment": environment_of(python),
            "load_average": os.getloadavg()[0],
        }
        stem = f"k8s-throughput-{nodes}x{pods}{'-one-by-one' * one_by_one}{f'-{workloads}' * (workloads > 0)}"
        (RESULTS / f"{stem}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"{stem}.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(summary) if as_json else text)


if __name__ == "__main__":
    main()
