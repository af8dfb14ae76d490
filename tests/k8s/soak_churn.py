"""The cluster of a soak: nodes of several kinds, and pods of all kinds that come and go."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from cluster_watch import AWAY, ClusterWatch
from plane import Space

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL

NODES, CPU = 24, 4
POPULATION = 100
"""Pods that there are at a time, about; they ask for some 90 % of the CPU."""
CARD = "example.com/card"
DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
KINDS = ("plain", "plain", "measured", "gang", "spread", "urgent", "port", "apart", "near", "card", "fast", "tolerant")


class Churn:
    """Makes nodes, and makes and deletes pods."""

    def __init__(
        self,
        space: Space,
        watch: ClusterWatch,
        scheduler: str,
        pool: Mapping[str, str],
        counts: Counter[str],
        seed: int,
    ) -> None:
        """Pods are for ``scheduler``, nodes of its ``pool``."""
        self.space, self.scheduler = space, scheduler
        self._watch, self._pool, self._counts = watch, pool, counts
        self._draw = random.Random(seed)
        self._nodes = 0
        self._number = 0

    def add_node(self) -> None:
        """One more, in one of three zones; some have cards, fast disks or a taint."""
        self._nodes += 1
        labels = {**self._pool, names.ZONE: "abc"[self._nodes % 3], "disk": "fast" if self._nodes % 2 else "slow"}
        self.space.make_nodes(
            1,
            prefix=f"n{self._nodes}",
            cpu=str(CPU),
            pods=30,
            labels=labels,
            resources={CARD: "2"} if self._nodes % 4 == 0 else None,
            taints=[DEDICATED] if self._nodes % 6 == 5 else (),
        )

    def run(self, ending: threading.Event) -> None:
        """Until the end; what fails while the API server is away is left."""
        while not ending.wait(0.5):
            with contextlib.suppress(*AWAY):
                pods = [pod.metadata.name for pod in self._watch.pods(self.space.name)]
                for name in self._draw.sample(sorted(pods), max(0, min(8, len(pods) - POPULATION))):
                    self.space.delete_pod(name)
                    self._counts["deleted"] += 1
                for _ in range(self._draw.randint(1, 4)):
                    self._create()

    def _create(self) -> None:
        self._number += 1
        name, cpu = f"p{self._number}", self._draw.choice(("500m", "1", "1500m", "2"))
        kind = self._draw.choice(KINDS)
        self._counts[kind] += 1
        if kind == "gang":
            labels = {NAME_LABEL: name, MINIMUM_LABEL: "3"}
            for i in range(3):
                self.pod(f"{name}-{i}", cpu="500m", labels=labels)
        else:
            self.pod(name, **self._spec(kind, cpu))

    def _spec(self, kind: str, cpu: str) -> dict[str, Any]:
        """Of a kind of pod that is alone, as for ``Space.make_pod``."""
        labels = {"app": f"{kind}{self._number % 5}"}
        same = {"matchLabels": labels}
        match kind:
            case "measured":
                profile = self._draw.choice(("canneal", "radix", "ferret"))
                return {"cpu": cpu, "annotations": {names.PROFILE: profile}}
            case "spread":
                constraint = {"maxSkew": 2, "topologyKey": names.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
                spread = [{**constraint, "labelSelector": same}]
                return {"cpu": "500m", "labels": labels, "topologySpreadConstraints": spread}
            case "apart" | "near":
                term = {
                    "topologyKey": "kubernetes.io/hostname" if kind == "apart" else names.ZONE,
                    "labelSelector": same,
                }
                required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
                affinity = {"podAntiAffinity" if kind == "apart" else "podAffinity": required}
                return {"cpu": "500m", "labels": labels, "affinity": affinity}
            case "port" | "card":
                amounts = {"cpu": "250m", "memory": "64Mi", **({CARD: "1"} if kind == "card" else {})}
                port = 8000 + self._number % 2
                ports = [{"containerPort": port, "hostPort": port}] if kind == "port" else []
                limits = {CARD: "1"} if kind == "card" else {}
                resources = {"requests": amounts, "limits": limits}
                return {"containers": [{"name": "main", "image": "test", "resources": resources, "ports": ports}]}
            case "fast":
                return {"cpu": cpu, "nodeSelector": {"disk": "fast"}}
            case "tolerant":
                return {"cpu": cpu, "tolerations": [{"operator": "Equal", **DEDICATED}]}
            case "urgent" if self._number % 7 == 0:
                return {"cpu": cpu, "priorityClassName": "system-cluster-critical"}
        return {"cpu": cpu}

    def pod(self, name: str, **more: Any) -> None:
        """A pod for the scheduler."""
        self.space.make_pod(name, scheduler=self.scheduler, **more)
