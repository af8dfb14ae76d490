"""Latency services on small clusters, for tests of what they keep off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import objects_builders as b
from consistency import check_state
from model_scheduler import CATALOGUE, ModelScheduler
from model_server import ModelServer

from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.objects import Pod
from flowsched_models.catalogue import Catalogue

DUE_S = 5.0
GOAL = "p95=1ms@30000qps"
EDGE = "p95=839us@30000qps"
"""Hardly above what memcached has alone on one core, as its slowest client sees it: it bears no neighbour."""
SAID = {names.PROFILE: "memcached", names.WORKLOAD_CLASS: names.LATENCY_SENSITIVE}
APART = b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(app="svc"))])


def service(
    name: str,
    goal: str = GOAL,
    cpu: str = "100m",
    *,
    notes: Mapping[str, str] | None = None,
    priority: int = 0,
    **said: str,
) -> Pod:
    """A service of tenant a that has its node for itself, as far as other services go. ``notes``: all of its annotations."""
    usual = {**SAID, names.SLO: goal, **{f"flowsched.io/{key}": text for key, text in said.items()}}
    more = {"labels": {"app": "svc"}, "priority": priority, "affinity": APART}
    return b.pod(name, "a", cpu=cpu, memory="16Mi", annotations=usual if notes is None else notes, **more)


def engine(**settings: Any) -> Settings:
    """Of a scheduler whose pods are overdue soon."""
    return Settings(due_age_s=DUE_S, due_runs=0.0, **settings)


def cluster(count: int = 6, cpu: str = "8", catalogue: Catalogue = CATALOGUE, **configuration: Any) -> ModelScheduler:
    """Empty nodes."""
    server = ModelServer()
    for i in range(count):
        server.put(b.node(f"n{i}", cpu, "32Gi"))
    return ModelScheduler(server, Configuration(**{"engine": engine(), **configuration}), catalogue)


def six_services(goal: str = GOAL, **configuration: Any) -> ModelScheduler:
    """A service of 100m on each of six nodes."""
    running = cluster(**configuration)
    running.create(*(service(f"svc{i}", goal) for i in range(6)))
    running.settle(within=1.0)
    assert len(set(running.where().values())) == 6
    return running


def say(running: ModelScheduler, name: str, **notes: str | None) -> None:
    """Change annotations of a pod; None removes one."""
    said = {f"flowsched.io/{key.replace('_', '-')}": text for key, text in notes.items()}
    running.server.annotate(running.server.pods["a", name], said)
    running.deliver()
    check_state(running.state)


def caps(running: ModelScheduler) -> Mapping[str, float]:
    """Pressure of all on a node that its services bear."""
    machines = running.state.cache.machines
    return {name: machines.service(name)[0] for name in running.state.cache.nodes}
