"""How many replicas of a workload one bulk round puts on a node, and what the round costs.

Six mixes of Deployments, jobs and jobs with GPUs wait at once for an empty cluster of thirty nodes of 16 cores, six of 8
and four of 32 with GPUs in three zones, as after a restart of the API server; and the first of them with a spread over nodes
that must hold. No API server stands behind the scheduler's state machine.

    python -m benchmarks.k8s_spread
    python -m benchmarks.k8s_spread --times 10
    python -m benchmarks.k8s_spread --before ../flowsched-before --repeats 15

With `--before` and a checkout of another commit rounds of both alternate, in a process for each. With `--large` 1,000 pods
wait on 5,000 nodes with 30,000 of 1,000 workloads. With `--live` the first mix waits on a real control plane, for flowsched
and for kube-scheduler in turn. `--one-by-one N` compares N random clusters, 70 to 95 % full, with the same pods in the same
order, a round each: it counts the workloads that have two more replicas on some node, and those of these of which the round
places more.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec

from benchmarks.engine_trees import HERE, Tree
from benchmarks.k8s_round_worker import CREATED, Json, Thing, one_round, parts, read_node, read_pod, read_things
from benchmarks.k8s_throughput import RESULTS, Api, node_named, running_flowsched, running_plane
from benchmarks.machine import describe_machine, measured_on
from flowsched_k8s import names
from flowsched_k8s.cache import seconds
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.rounds.planning import plan_round
from flowsched_k8s.state import SchedulerState
from flowsched_models.text_table import text_table

HOSTNAME, ZONE, GPU = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "nvidia.com/gpu"
SIZES = ((16, 30, 0), (8, 6, 0), (32, 4, 4))
"""Cores, nodes and GPUs of each."""
SPREAD = ("ReplicaSet", "StatefulSet")
"""Controllers whose pods are spread by default."""
HARD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 3,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
SPACE = "spread"
WORKER = Path(__file__).resolve().with_name("k8s_round_worker.py")
STAGES = ("begin", "plan")
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Workload:
    """Equal pods of one controller."""

    name: str
    kind: str
    pods: int
    cpu_milli: int
    memory: str = "256Mi"
    gpus: int = 0
    spec: Mapping[str, Any] | None = None
    profile: str | None = None

    def make(self, scheduler: str = "flowsched", uid: str | None = None) -> list[Json]:
        """Its pods, as the API server takes them; ``uid``: of the controller."""
        requests = {"cpu": f"{self.cpu_milli}m", "memory": self.memory, **({GPU: str(self.gpus)} if self.gpus else {})}
        container: Json = {"name": "main", "image": "example.invalid/nothing", "resources": {"requests": requests}}
        if self.gpus:
            container["resources"]["limits"] = {GPU: str(self.gpus)}
        api = "batch/v1" if self.kind == "Job" else "apps/v1"
        owner = {"apiVersion": api, "kind": self.kind, "name": self.name, "uid": uid or self.name, "controller": True}
        return [
            {
                "metadata": {
                    "name": f"{self.name}-{k:04d}",
                    "labels": {"app": self.name},
                    "annotations": {names.PROFILE: self.profile} if self.profile else {},
                    "ownerReferences": [owner],
                },
                "spec": {"schedulerName": scheduler, "containers": [container], **(self.spec or {})},
            }
            for k in range(self.pods)
        ]


def mixes(times: int) -> dict[str, list[Workload]]:
    """By name, the workloads that wait at once."""

    def several(name: str, kind: str, pods: int, *more: Any, **others: Any) -> Workload:
        return Workload(name, kind, pods * times, *more, **others)

    web = several("web", "ReplicaSet", 60, 500)
    train = several("train", "Job", 8, 4000, "8Gi", 1)
    sizes = (250, 500, 1000, 2000)
    return {
        "web and jobs": [web, several("batch", "Job", 100, 4000, "1Gi"), train],
        "two Deployments": [web, several("api", "ReplicaSet", 30, 1000), several("batch", "Job", 60, 4000)],
        "eight Deployments": [
            *(several(f"d{k}", "ReplicaSet", 20, sizes[k % 4]) for k in range(8)),
            several("batch", "Job", 40, 6000),
            several("train", "Job", 8, 4000, "8Gi", 2),
        ],
        "almost full": [
            replace(web, cpu_milli=1000),
            several("db", "StatefulSet", 10, 4000, "8Gi"),
            several("batch", "Job", 120, 4000),
            several("train", "Job", 4, 8000, "16Gi", 2),
        ],
        "wide replicas": [
            replace(web, cpu_milli=2000),
            several("train", "Job", 16, 6000, "8Gi", 1),
            several("batch", "Job", 200, 1000),
        ],
        "narrow replicas": [
            replace(web, cpu_milli=100, memory="64Mi"),
            several("cache", "ReplicaSet", 40, 1000, "6Gi"),
            several("batch", "Job", 80, 4000),
            train,
        ],
        "DoNotSchedule": [
            replace(web, spec=HARD),
            several("batch", "Job", 130, 4000, "1Gi"),
            several("train", "Job", 4, 8000, "16Gi", 2),
        ],
    }


def make_nodes(times: int) -> list[Json]:
    """The nodes, as the API server takes them."""
    sizes = [(cores, gpus) for cores, count, gpus in SIZES for _ in range(count * times)]
    return [make_node(f"n{cores:02d}-{k:04d}", cores, "abc"[k % 3], gpus) for k, (cores, gpus) in enumerate(sizes)]


def make_node(name: str, cores: int, zone: str, gpus: int = 0) -> Json:
    """One node; KWOK keeps it ready."""
    return node_named(name, cores, {ZONE: zone}, {GPU: str(gpus)} if gpus else {})


# Without an API server


def each_alone(things: Sequence[Thing], waiting: Sequence[Json]) -> dict[str, str]:
    """Node of each pod if each comes when the one before is bound."""
    catalogue, solver, engine = parts()
    state = SchedulerState(Configuration(), catalogue)
    now_s = seconds(CREATED) + 1.0
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    by_uid = {plain["metadata"]["name"]: plain for plain in waiting}
    placed: dict[str, str] = {}
    for plain in waiting:
        now_s += 0.001
        state.observe([Seen(read_pod(plain))], now_s)
        given, _ = state.begin_round(now_s)
        if given is None:
            continue
        result = plan_round(given, solver, engine)
        state.end_round(result, now_s)
        for chosen in result.chosen:
            placed[chosen.uid] = chosen.node
            state.observe([Seen(read_pod(by_uid[chosen.uid], chosen.node))], now_s)
    return placed


def most_of(placed: Mapping[str, str], pods: Iterable[Json]) -> dict[str, int]:
    """By workload that is spread, the most of its pods on one node."""
    there: dict[str, Counter[str]] = {}
    for plain in pods:
        owner = plain["metadata"]["ownerReferences"][0]
        if owner["kind"] in SPREAD:
            on = there.setdefault(owner["name"], Counter())
            if plain["metadata"]["name"] in placed:
                on[placed[plain["metadata"]["name"]]] += 1
    return {name: max(on.values(), default=0) for name, on in there.items()}


@dataclass(frozen=True)
class Cluster:
    """Nodes, what runs there and what waits, as the API server takes them."""

    mix: str
    nodes: Sequence[Json]
    waiting: Sequence[Json]
    running: Sequence[tuple[Json, str]] = ()
    """Pods with their nodes."""
    asked: float | None = None
    """CPU that waiting pods ask for, of all there is."""


def clusters_of_mixes(times: int) -> list[Cluster]:
    """One for each mix."""
    nodes = make_nodes(times)
    cores = sum(cores * count for cores, count, _ in SIZES) * times
    return [
        Cluster(
            name,
            nodes,
            [plain for workload in workloads for plain in workload.make()],
            asked=sum(w.pods * w.cpu_milli for w in workloads) / 1000 / cores,
        )
        for name, workloads in mixes(times).items()
    ]


def large_cluster() -> Cluster:
    """1,000 of 31,000 pods of 1,000 workloads wait on 5,000 nodes."""
    draw = random.Random(1)
    nodes = [make_node(f"n{k:05d}", (8, 16, 32)[k % 3], "abcde"[k % 5]) for k in range(5000)]
    sets = [Workload(f"w{k:04d}", "ReplicaSet", 31, draw.choice((100, 250, 500, 1000))) for k in range(1000)]
    pods = [plain for workload in sets for plain in workload.make()]
    draw.shuffle(pods)
    running = [(plain, f"n{draw.randrange(5000):05d}") for plain in pods[1000:]]
    return Cluster("1,000 workloads", nodes, pods[:1000], running)


def measure(cluster: Cluster, repeats: int) -> Json:
    """A row; CPU seconds are medians."""
    things = read_things(asdict(cluster))
    one_round(things)  # loads what is compiled
    done = [one_round(things) for _ in range(repeats)]
    return _row(cluster, done[0][0]) | _medians([taken for _, taken in done])


def measure_pairs(cluster: Cluster, repeats: int, trees: Sequence[Tree]) -> Json:
    """The same by this tree and, in pairs of rounds of which the first alternates, by another: ``before``. ``of_before``:
    medians of the ratios of the pairs.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        path.write_text(json.dumps(asdict(cluster)), encoding="utf-8")
        job = {"cluster": str(path)}
        placed = [tree.ask(job)["placed"] for tree in trees]  # loads what is compiled
        taken: list[list[dict[str, float]]] = [[], []]
        for pair in range(repeats):
            for which in (0, 1) if pair % 2 else (1, 0):
                taken[which].append(trees[which].ask(job)["taken"])
    now, before = ([{**t, "both": sum(t.values())} for t in mine] for mine in taken)
    ratios = {stage: median(a[stage] / b[stage] for a, b in zip(now, before, strict=True)) for stage in now[0]}
    rows = [_row(cluster, p) | _medians(t) for p, t in zip(placed, taken, strict=True)]
    return rows[0] | {"before": rows[1], "of_before": ratios}


def _row(cluster: Cluster, placed: Mapping[str, str]) -> Json:
    pods = [*(plain for plain, _ in cluster.running), *cluster.waiting]
    return {
        "mix": cluster.mix,
        "nodes": len(cluster.nodes),
        "asked": cluster.asked,
        "pods": len(cluster.waiting),
        "placed": len(placed),
        "most": max(most_of(placed, pods).values()),
    }


def _medians(taken: Sequence[Mapping[str, float]]) -> Json:
    return {f"{stage}_s": median(each[stage] for each in taken) for stage in STAGES}


# Random clusters


def random_cluster(seed: int) -> tuple[list[Thing], list[Json]]:
    """Nodes of three sizes with what runs there, and pods of several workloads that wait; a quarter have a profile."""
    draw = random.Random(seed)
    profiles = sorted(parts()[0].jobs)
    sizes = draw.choice([(16, 8, 32), (4, 8, 16), (8, 16, 64), (32, 16, 96)])
    weights = [draw.random() + 0.1 for _ in sizes]
    which = [*range(3), *(draw.choices(range(3), weights)[0] for _ in range(draw.randint(7, 37)))]
    nodes = [make_node(f"n{k:02d}", sizes[s], "abc"[k % 3], 4 * (seed % 2) * (s == 2)) for k, s in enumerate(which)]
    free = {plain["metadata"]["name"]: 1000 * int(plain["status"]["allocatable"]["cpu"]) for plain in nodes}
    full = draw.uniform(0.7, 0.95) * sum(free.values())
    there: list[Thing] = list(map(read_node, nodes))
    used, before = 0, draw.choice([0, 0, 0.3, 0.6]) * full
    while used < before:
        cpu_milli = draw.choice([500, 1000, 2000, 4000])
        fitting = [name for name, left in free.items() if left >= cpu_milli]
        node = draw.choice(fitting)
        (plain,) = Workload(f"old-{len(there)}", "Job", 1, cpu_milli).make()
        there.append(read_pod(plain, node))
        free[node] -= cpu_milli
        used += cpu_milli
    waiting: list[Json] = []
    while used < full and len(waiting) < 400:
        cpu_milli = draw.choice([100, 250, 500, 1000, 2000, 4000])
        count = min(draw.choice([2, 5, 10, 20, 40, 60]), int((full - used) / cpu_milli) + 1)
        kind = draw.choice(["ReplicaSet", "ReplicaSet", "StatefulSet", "Job"])
        profile = draw.choice(profiles) if draw.random() < 0.25 else None
        waiting += Workload(f"w{len(waiting)}", kind, count, cpu_milli, "64Mi", profile=profile).make()
        used += count * cpu_milli
    draw.shuffle(waiting)
    return there, waiting


def compare(seed: int) -> Json:
    """A random cluster in one round and one by one; ``more``: by workload with two more on a node, the most of both.

    ``fewer``: those of which pods wait that came one by one, and the round places more.
    """
    there, waiting = random_cluster(seed)
    together, _ = one_round([*there, *map(read_pod, waiting)])
    alone = each_alone(there, waiting)
    most, least = most_of(together, waiting), most_of(alone, waiting)
    measured = {p["metadata"]["ownerReferences"][0]["name"] for p in waiting if p["metadata"]["annotations"]}
    more = {name: [most[name], least[name]] for name in most if most[name] > max(1, least[name]) + 1}
    owner = {p["metadata"]["name"]: p["metadata"]["ownerReferences"][0]["name"] for p in waiting}
    once, in_turn = (Counter(owner[name] for name in placed) for placed in (together, alone))
    return {
        "seed": seed,
        "workloads": len(most),
        "measured": len(measured & most.keys()),
        "more": more,
        "more_measured": len(measured & more.keys()),
        "fewer": sorted(name for name in more if in_turn[name] < once[name]),
        "fewer_measured": sum(in_turn[name] < once[name] for name in measured & more.keys()),
        "together": len(together),
        "alone": len(alone),
    }


# On a real control plane


def measure_live() -> list[Json]:
    """The first mix for each scheduler, on a plane of its own."""
    found = []
    for scheduler, name in (("flowsched", "flowsched"), ("kube-scheduler", "default-scheduler")):
        parts = ("kwok", "kube-scheduler") if scheduler == "kube-scheduler" else ("kwok",)
        with tempfile.TemporaryDirectory() as folder, running_plane(Path(folder), parts, 5000):
            found.append({"scheduler": scheduler, **asyncio.run(_live(Path(folder), name))})
    return found


async def _live(folder: Path, scheduler: str) -> Json:
    """flowsched starts when all pods wait; kube-scheduler takes one after the other in any case."""
    api = Api(folder / "admin.kubeconfig")
    workloads = next(iter(mixes(1).values()))
    try:
        nodes = [("POST", "/api/v1/nodes", msgspec.json.encode(plain)) for plain in make_nodes(1)]
        await api.send_all(nodes, frozenset({201}))
        await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        for owner in workloads:
            await _create(api, owner, scheduler)
        if scheduler != "flowsched":
            return await _bound(api, workloads)
        with running_flowsched(folder, 5000):
            return await _bound(api, workloads)
    finally:
        api.close()


async def _create(api: Api, workload: Workload, scheduler: str) -> None:
    """The controller, which kube-scheduler reads the selector of, and its pods."""
    uid = None
    if workload.kind == "ReplicaSet":
        meta = {"name": workload.name, "labels": {"app": workload.name}}
        (pod, *_) = workload.make()
        spec = {
            "replicas": workload.pods,
            "selector": {"matchLabels": {"app": workload.name}},
            "template": {
                "metadata": {"labels": {"app": workload.name}},
                "spec": {"containers": pod["spec"]["containers"]},
            },
        }
        made = await api.request(
            "POST",
            f"/apis/apps/v1/namespaces/{SPACE}/replicasets",
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec},
        )
        uid = made["metadata"]["uid"]
    path = f"/api/v1/namespaces/{SPACE}/pods"
    pods = [("POST", path, msgspec.json.encode(plain)) for plain in workload.make(scheduler, uid)]
    await api.send_all(pods, frozenset({201}))


async def _bound(api: Api, workloads: Sequence[Workload]) -> Json:
    """Once as many pods are bound as will be: how many, and the most replicas on a node."""
    count, steady = -1, 0
    path = f"/api/v1/namespaces/{SPACE}/pods"
    async with asyncio.timeout(PATIENCE_S):
        while steady < 5 or not count:
            found = (await api.request("GET", path))["items"]
            now = sum(bool(pod["spec"].get("nodeName")) for pod in found)
            count, steady = now, steady + 1 if now == count else 0
            if now == sum(w.pods for w in workloads):
                break
            await asyncio.sleep(1.0)
    placed = {pod["metadata"]["name"]: node for pod in found if (node := pod["spec"].get("nodeName"))}
    return {"pods": len(found), "placed": len(placed), "most": max(most_of(placed, found).values())}


# Command


def table(rows: Sequence[Json], columns: Mapping[str, Callable[[Json], str]]) -> str:
    """Rows with some columns."""
    return "\n".join(
        text_table([list(columns), *([show(row) for show in columns.values()] for row in rows)], left=(0,), indent="")
    )


def of_mixes(rows: Sequence[Json]) -> str:
    """A line for each mix, and what it cost another tree where there is one."""
    columns: dict[str, Callable[[Json], str]] = {
        "waiting": lambda r: str(r["mix"]),
        "nodes": lambda r: f"{r['nodes']:,}",
        "CPU asked": lambda r: "" if r["asked"] is None else f"{r['asked']:.0%}",
        "pods": lambda r: f"{r['pods']:,}",
        "placed": lambda r: f"{r['placed']:,}",
        "most on a node": lambda r: str(r["most"]),
        "begin_round ms": lambda r: f"{1e3 * r['begin_s']:.0f}",
        "plan ms": lambda r: f"{1e3 * r['plan_s']:.0f}",
    }
    if "before" in rows[0]:
        columns |= {
            "before: placed": lambda r: f"{r['before']['placed']:,}",
            "most": lambda r: str(r["before"]["most"]),
            "begin_round": lambda r: f"{1e3 * r['before']['begin_s']:.0f}",
            "plan": lambda r: f"{1e3 * r['before']['plan_s']:.0f}",
            "now of before: plan": lambda r: f"{r['of_before']['plan']:.2f}",
            "both": lambda r: f"{r['of_before']['both']:.2f}",
        }
    return table(rows, columns)


def _of_clusters(rows: Sequence[Json]) -> str:
    measured = [sum(row[key] for row in rows) for key in ("measured", "more_measured", "fewer_measured")]
    whole = [sum(row["workloads"] for row in rows), *(sum(len(row[key]) for row in rows) for key in ("more", "fewer"))]
    lines = [
        ["workloads of replicas", "all", "two more on a node", "of which more are placed"],
        ["without a profile", *(str(n - m) for n, m in zip(whole, measured, strict=True))],
        ["with a profile", *map(str, measured)],
    ]
    return f"{len(rows)} clusters, in one round and one by one\n\n" + "\n".join(text_table(lines, left=(0,), indent=""))


@click.command()
@click.option("--times", default=1, show_default=True, type=click.IntRange(1), help="So many times nodes and pods.")
@click.option("--large", is_flag=True, help="1,000 workloads on 5,000 nodes instead.")
@click.option("--live", is_flag=True, help="The first mix on a real control plane instead.")
@click.option("--one-by-one", "clusters", default=0, type=click.IntRange(0), help="So many random clusters instead.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="Seed of the first random cluster.")
@click.option(
    "--before",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Compare CPU times with a checkout of another commit, whose rounds alternate with this tree's.",
)
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1), help="Rounds; CPU times are medians.")
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(
    times: int, large: bool, live: bool, clusters: int, first: int, before: Path | None, repeats: int, keep: bool
) -> None:
    """Measure and print a table."""
    if live:
        name, rows = "live", measure_live()
        shown = {"": "scheduler", "pods": "pods", "placed": "placed", "most on a node": "most"}
        text = table(rows, {title: lambda r, key=key: str(r[key]) for title, key in shown.items()})
    elif clusters:
        name, rows = "one-by-one", [compare(seed) for seed in range(first, first + clusters)]
        text = _of_clusters(rows)
    else:
        name = "large" if large else f"{40 * times}-nodes"
        found = [large_cluster()] if large else clusters_of_mixes(times)
        if before is None:
            rows = [measure(cluster, repeats) for cluster in found]
        else:
            name += "-before"
            with Tree(HERE, WORKER) as here, Tree(before, WORKER) as there:
                rows = [measure_pairs(cluster, repeats, (here, there)) for cluster in found]
        text = of_mixes(rows)
    machine = describe_machine()
    click.echo(f"{text}\n\n{measured_on(machine)}")
    if keep:
        kept = {"rows": rows, "machine": machine}
        (RESULTS / f"k8s-spread-{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"k8s-spread-{name}.txt").write_text(f"{text}\n\n{measured_on(machine)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
