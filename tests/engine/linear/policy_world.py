"""Small clusters for tests of policies, in the words of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.pricing.linear.policy import CostModel
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundOutcome, Rounds, RoundSettings
from flowsched.solvers import make_solver

CORE = 1000
DUE_S = 600.0


def a_class(name: str = "job", cores: float = 1.0, **rest: object) -> TaskClass:
    """A class of some width; everything else as a test names it."""
    return TaskClass(name, round(cores * CORE), **rest)  # type: ignore[arg-type]


def a_machine(name: str, cores: int = 8, memory: int = 64, type: str = "m", **kind: object) -> MachineSpec:
    """A machine whose kind knows its size."""
    return MachineSpec(
        name,
        MachineKind(type, cores=float(cores), **kind),  # type: ignore[arg-type]
        {"cpu": cores * CORE, "memory": memory},
    )


class World:
    """A cluster with its rounds."""

    def __init__(self, policy: CostModel, machines: Sequence[MachineSpec], settings: RoundSettings | None = None):
        self.cluster = ClusterRows.of(policy)
        self.rows = self.cluster.add_machines(machines)
        self.rounds = Rounds(self.cluster, make_solver("ortools"), settings or RoundSettings(due_age_s=DUE_S))

    def submit(self, task_class: TaskClass, count: int = 1, created_s: float = 0.0) -> np.ndarray:
        """Tasks wait; their rows."""
        number = self.cluster.intern(task_class)
        return self.cluster.submit(np.full(count, number), np.full(count, created_s))

    def run(self, task_class: TaskClass, machine: str, count: int = 1) -> np.ndarray:
        """Tasks run on a machine already."""
        tasks = self.submit(task_class, count)
        self.cluster.bind(tasks, np.full(count, self.cluster.row(machine)))
        return tasks

    def round(self, now_s: float = 0.0) -> RoundOutcome:
        """Decide and bind."""
        outcome = self.rounds.decide(now_s)
        self.cluster.bind(outcome.tasks, outcome.machines)
        return outcome

    def on(self, machine: str) -> list[str]:
        """Names of the classes that run on a machine, one for each task."""
        there = self.cluster.tasks.running_on(self.cluster.row(machine))
        return sorted(self.cluster.classes[c].name for c in self.cluster.tasks.task_class[there].tolist())

    def counts(self) -> np.ndarray:
        """Tasks by machine, in the order in which machines joined."""
        running = self.cluster.tasks.machine[self.cluster.tasks.state == 2]
        return np.bincount(running, minlength=self.cluster.machines.rows)[self.rows]

    def waiting(self) -> list[str]:
        """Names of the classes that wait, one for each task."""
        return sorted(
            self.cluster.classes[c].name for c in self.cluster.tasks.task_class[self.cluster.tasks.state == 1].tolist()
        )


def price_of(cluster: ClusterRows, number: int, row: int, readings: np.ndarray) -> float:
    """What a task of a class costs on a machine with some readings, from what the policy said and nothing else."""
    policy, task_class = cluster.classes.policy, cluster.classes[number]
    kind = cluster.machines.kinds[int(cluster.machines.kind[row])]
    prices = policy.price(task_class, [kind])
    if not kind.has(task_class.selector):
        return float("inf")
    sums = zip(prices.coefficients, policy.factors(kind), readings / FIXED, strict=True)
    return float(prices.base[0]) + sum(c * f * x for c, f, x in sums)
