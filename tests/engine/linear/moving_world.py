"""What a cluster's running tasks cost and take, worked out once more in plain Python, one task at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.cluster.settings import Settings
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.cluster.task_rows import RUNNING
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.full_round import propose
from flowsched.round.linear.moves import Moves, carry_out
from flowsched.solvers import make_solver

KIND = MachineKind("plain")
FREE_MOVES = Settings(migration_price=0.0, migration_pause_s=0.0, migration_moves=1000)


def spec(name: str, cores: int, headroom: float = 0.0, kind: MachineKind = KIND, **rest: object) -> MachineSpec:
    readings = {"headroom": headroom} if headroom else {}
    return MachineSpec(name, kind, {"cpu": 1000 * cores, "memory": 1 << 20}, readings, **rest)  # type: ignore[arg-type]


def a_class(name: str, cores: int = 1, pressure: float = 0.5, sensitivity: float = 0.5, **rest: object) -> TaskClass:
    return TaskClass(name, 1000 * cores, (), sensitivity, pressure, **{"run_s": 100.0, **rest})  # type: ignore[arg-type]


def cluster_of(machines: Sequence[MachineSpec], waiting: float = 4.0, growth: float = 4.0) -> ClusterRows:
    cluster = ClusterRows.of(FlowCostModel(waiting=waiting, growth=growth))
    cluster.add_machines(machines)
    return cluster


def run(cluster: ClusterRows, task_class: TaskClass, machine: str, count: int = 1, end_s: float = np.inf) -> np.ndarray:
    """Tasks that came at 0 and run."""
    tasks = wait(cluster, task_class, count)
    cluster.bind(tasks, np.full(count, cluster.row(machine)), np.full(count, end_s))
    return tasks


def wait(cluster: ClusterRows, task_class: TaskClass, count: int = 1, created_s: float = 0.0) -> np.ndarray:
    return cluster.submit(np.full(count, cluster.intern(task_class)), np.full(count, created_s))


class Mover:
    """Full rounds on one cluster; it knows which tasks moved when."""

    def __init__(self, cluster: ClusterRows, settings: Settings = FREE_MOVES) -> None:
        self.cluster, self.settings = cluster, settings
        self._moved_s: dict[int, float] = {}

    def propose(self, now_s: float = 0.0, barred: np.ndarray | None = None) -> Moves:
        moved_s = np.full(len(self.cluster.tasks.state), -np.inf)
        moved_s[list(self._moved_s)] = list(self._moved_s.values())
        return propose(self.cluster, make_solver("ortools"), self.settings, now_s, moved_s, barred=barred)

    def turn(self, now_s: float = 0.0) -> Moves:
        """One full round, carried out."""
        moves = self.propose(now_s)
        carry_out(moves, self.cluster)
        self._moved_s |= dict.fromkeys(moves.tasks[~moves.starts].tolist(), now_s)
        return moves


def total_cost(cluster: ClusterRows) -> float:
    """Sum over machines of what its tasks cost as they come, from the policy's own numbers."""
    total = 0.0
    felt = {row: (cluster.machines.own_readings[row] / FIXED).tolist() for row in range(cluster.machines.rows)}
    for task in np.flatnonzero(cluster.tasks.state == RUNNING).tolist():
        row = int(cluster.tasks.machine[task])
        kind = cluster.machines.kinds[cluster.machines.kind[row]]
        prices = cluster.classes.policy.price(cluster.classes[cluster.tasks.task_class[task]], [kind])
        factors = cluster.classes.policy.factors(kind)
        total += float(prices.base[0])
        for f, factor in enumerate(factors):
            total += float(prices.coefficients[f]) * factor * felt[row][f]
        for f in range(len(factors)):
            felt[row][f] += float(prices.effects[f])
    return total


def overcommitted(cluster: ClusterRows, came: Sequence[int] = ()) -> list[str]:
    """Machines on which more is asked for than there is; of rows in ``came`` also those beyond a limit."""
    wrong = []
    asked: dict[tuple[int, str], int] = {}
    brought: dict[tuple[int, int], float] = {}
    for task in np.flatnonzero(cluster.tasks.state == RUNNING).tolist():
        row, task_class = int(cluster.tasks.machine[task]), cluster.classes[cluster.tasks.task_class[task]]
        for resource, amount in task_class.demand().items():
            asked[row, resource] = asked.get((row, resource), 0) + amount
        prices = cluster.classes.policy.price(task_class, [cluster.machines.kinds[cluster.machines.kind[row]]])
        for f, effect in enumerate(prices.effects):
            brought[row, f] = brought.get((row, f), 0.0) + float(effect)
    for (row, resource), amount in asked.items():
        there = int(cluster.machines.allocatable[row, cluster.classes.resources.index(resource)])
        if amount > there:
            wrong.append(f"{cluster.machines.name(row)}: {amount} of {there} {resource}")
    for row in came:
        for f in range(cluster.machines.limits.shape[1]):
            limit, reading = (
                cluster.machines.limits[row, f],
                cluster.machines.own_readings[row, f] / FIXED + brought.get((row, f), 0.0),
            )
            if limit < UNLIMITED and brought.get((row, f), 0.0) > 0.0 and reading > limit / FIXED + 1e-5:
                wrong.append(f"{cluster.machines.name(row)}: {reading} above {limit / FIXED}")
    return wrong


def tiny(seed: int, use: float) -> ClusterRows:
    """Three machines and up to seven tasks, at random where they fit."""
    rng = np.random.default_rng([seed, 5])
    cores = [int(rng.choice([2, 4])) for _ in range(3)]
    machines = [spec(f"m{i}", c, kind=MachineKind(f"t{rng.integers(2)}")) for i, c in enumerate(cores)]
    cluster = cluster_of(machines)
    classes = [
        a_class(
            f"c{i}",
            int(rng.choice([1, 1, 2])),
            float(rng.uniform(0.05, 0.8)),
            float(rng.uniform(0.2, 1.0)),
            slowness=(("t0", float(rng.uniform(0.0, 0.4))),),
        )
        for i in range(4)
    ]
    used = tasks = 0
    for _ in range(30):
        task_class = classes[int(rng.integers(4))]
        there = [f"m{i}" for i in range(3) if cluster.machines.free[cluster.row(f"m{i}"), 0] >= task_class.width_milli]
        if tasks == 7 or used + task_class.width_milli > use * 1000 * sum(cores) or not there:
            continue
        run(cluster, task_class, str(rng.choice(there)))
        used += task_class.width_milli
        tasks += 1
    return cluster


def least_cost(cluster: ClusterRows) -> float:
    """The best that any assignment of the running tasks costs."""
    tasks = np.flatnonzero(cluster.tasks.state == RUNNING)
    rows = np.flatnonzero(cluster.machines.alive).tolist()
    here = cluster.tasks.machine[tasks].copy()
    best = np.inf
    for places in itertools.product(rows, repeat=len(tasks)):
        load = cluster.machines.allocatable.copy()
        for task, row in zip(tasks.tolist(), places, strict=True):
            load[row] -= cluster.classes.demands[cluster.tasks.task_class[task]]
        if (load >= 0).all():
            cluster.tasks.machine[tasks] = places
            best = min(best, total_cost(cluster))
    cluster.tasks.machine[tasks] = here
    return best
