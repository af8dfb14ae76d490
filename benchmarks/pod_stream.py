"""Nodes, and pods that come one after the other and go again, drawn with a seed: what two schedulers are compared on.

The stream ``requests`` has pods that ask for resources, node labels, tolerations, distance and even spreading. Each other
stream adds one thing that only says which node would be better: for a quarter of the pods, or of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Json = dict[str, Any]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = ("a", "b", "c")
GPU = "example.com/gpu"
CORES = (2, 4, 8)
MIB_PER_CORE = (1024, 2048, 4096)
IMAGES = {f"example.invalid/image-{size}:1": size << 20 for size in (100, 500, 1500)}
"""Bytes by image."""
USED = 0.6
"""Share of the CPU from which on a pod goes for each that comes."""
KINDS = {
    "requests": 10,
    "only cpu": 2,
    "only memory": 2,
    "no requests": 2,
    "two containers": 2,
    "one zone": 2,
    "gpu": 1,
    "tolerates": 1,
    "apart": 2,
    "even": 2,
}
"""Kinds of pods in all streams, and how many of each come on average."""
STREAMS: dict[str, tuple[str, ...]] = {
    "requests": (),
    "taints to avoid": (),
    "preferred nodes": ("prefers a zone",),
    "preferred neighbours": ("prefers neighbours", "avoids neighbours"),
    "needed neighbours": ("needs neighbours",),
    "soft spreading": ("even if possible",),
    "images": ("has an image",),
    "partial requests": ("half of its containers",),
}
"""Kinds of pods that a stream has beside these; a quarter of its pods are of them."""


@dataclass(frozen=True)
class Step:
    """A pod is created, or one that was is deleted."""

    pod: str
    body: Json | None = None
    """None: it is deleted."""
    kind: str = ""


def draw_nodes(stream: str, count: int, rng: np.random.Generator) -> list[Json]:
    """Ready nodes of several sizes and shapes; one in five has GPUs, one in ten is closed by a taint."""
    return [_node(stream, number, rng) for number in range(count)]


def _node(stream: str, number: int, rng: np.random.Generator) -> Json:
    cores = int(rng.choice(CORES))
    name = f"node-{number:05d}"
    room = {"cpu": str(cores), "memory": f"{cores * int(rng.choice(MIB_PER_CORE))}Mi", "pods": "110"}
    if number % 5 == 1:
        room[GPU] = "4"
    taints = [{"key": "only", "value": "batch", "effect": "NoSchedule"}] if number % 10 == 2 else []
    status: Json = {"capacity": room, "allocatable": room}
    status["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}]
    if stream == "taints to avoid" and number % 4 == 3:
        taints.append({"key": "rather-not", "value": "", "effect": "PreferNoSchedule"})
    if stream == "images":
        has = [image for image in IMAGES if rng.random() < 0.4]
        status["images"] = [{"names": [image], "sizeBytes": IMAGES[image]} for image in has]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: ZONES[number % len(ZONES)]}},
        "spec": {"taints": taints},
        "status": status,
    }


def draw_steps(stream: str, pods: int, nodes: list[Json], rng: np.random.Generator) -> Iterator[Step]:
    """Pods come one by one; once they ask for a certain share of the CPU, one of them goes whenever one has come."""
    more = STREAMS[stream]
    kinds = KINDS | {kind: sum(KINDS.values()) / (3 * len(more)) for kind in more}
    shares = np.array(list(kinds.values()), float)
    room = 1000 * sum(int(n["status"]["allocatable"]["cpu"]) for n in nodes)
    there: dict[str, int] = {}
    for number in range(pods):
        kind = list(kinds)[int(rng.choice(len(kinds), p=shares / shares.sum()))]
        name = f"pod-{number:05d}"
        body, cpu = _pod(name, kind, rng)
        there[name] = cpu
        yield Step(name, body, kind)
        while sum(there.values()) > USED * room:
            gone = list(there)[int(rng.integers(len(there)))]
            del there[gone]
            yield Step(gone)


def _pod(name: str, kind: str, rng: np.random.Generator) -> tuple[Json, int]:
    """The pod, and its CPU request in milli-CPU."""
    cpu, memory = int(rng.integers(1, 31)) * 50, int(rng.integers(1, 33)) * 64
    app = f"app-{int(rng.integers(3))}"
    image = str(rng.choice(list(IMAGES)))
    zone = str(rng.choice(ZONES))
    asks = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    if kind in ("only memory", "no requests"):
        del asks["cpu"]
        cpu = 0
    if kind in ("only cpu", "no requests"):
        del asks["memory"]
    if kind == "gpu":
        asks[GPU] = "1"
    main: Json = {"name": "main", "image": "example.invalid/nothing:1", "resources": {"requests": asks, "limits": {}}}
    if kind == "gpu":
        main["resources"]["limits"] = {GPU: "1"}
    spec: Json = {"containers": [main], "terminationGracePeriodSeconds": 0}
    if kind == "two containers":
        spec["containers"].append({**main, "name": "beside"})
        cpu *= 2
    elif kind == "half of its containers":
        spec["containers"].append({"name": "beside", "image": "example.invalid/nothing:1"})
    elif kind == "one zone":
        spec["nodeSelector"] = {ZONE: zone}
    elif kind == "tolerates":
        spec["tolerations"] = [{"key": "only", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]
    elif kind == "has an image":
        main["image"] = image
    spec |= _relations(kind, app, zone)
    labels = {"app": app, "kind": kind.replace(" ", "-")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}, cpu


def _relations(kind: str, app: str, zone: str) -> Json:
    """Demands and wishes about other pods, and wishes about nodes. Demands are among pods of the same kind only."""
    own = {"matchLabels": {"app": app, "kind": kind.replace(" ", "-")}}
    alike = {"matchLabels": {"app": app}}
    by_host = {"topologyKey": HOSTNAME, "labelSelector": own}
    by_zone = {"topologyKey": ZONE, "labelSelector": alike}
    demand, wish = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    if kind == "apart":
        return {"affinity": {"podAntiAffinity": {demand: [by_host]}}}
    if kind == "needs neighbours":
        return {"affinity": {"podAffinity": {demand: [{**by_zone, "labelSelector": own}]}}}
    if kind == "prefers neighbours":
        return {"affinity": {"podAffinity": {wish: [{"weight": 50, "podAffinityTerm": by_zone}]}}}
    if kind == "avoids neighbours":
        return {"affinity": {"podAntiAffinity": {wish: [{"weight": 50, "podAffinityTerm": by_zone}]}}}
    if kind == "prefers a zone":
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        return {"affinity": {"nodeAffinity": {wish: [{"weight": 80, "preference": term}]}}}
    if kind in ("even", "even if possible"):
        unmet = "DoNotSchedule" if kind == "even" else "ScheduleAnyway"
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": unmet, "labelSelector": own}
        return {"topologySpreadConstraints": [spread]}
    return {}
