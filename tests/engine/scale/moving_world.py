"""What a cluster's running tasks cost and take, worked out once more in plain Python, one task at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.scale.full_round import Proposal, propose
from flowsched.scale.ledger import RUNNING, UNLIMITED, Ledger
from flowsched.scale.machine_arrays import FIXED
from flowsched.scale.migration import Moves, carry_out
from flowsched.scale.policies.flow import FlowCostModel
from flowsched.scale.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.solvers import make_solver

KIND = MachineKind("plain")
FREE_MOVES = Settings(migration_price=0.0, migration_pause_s=0.0, migration_moves=1000)


def spec(name: str, cores: int, headroom: float = 0.0, kind: MachineKind = KIND, **rest: object) -> MachineSpec:
    readings = {"headroom": headroom} if headroom else {}
    return MachineSpec(name, kind, {"cpu": 1000 * cores, "memory": 1 << 20}, readings, **rest)  # type: ignore[arg-type]


def a_class(name: str, cores: int = 1, pressure: float = 0.5, sensitivity: float = 0.5, **rest: object) -> TaskClass:
    return TaskClass(name, 1000 * cores, (), sensitivity, pressure, **{"run_s": 100.0, **rest})  # type: ignore[arg-type]


def cluster(machines: Sequence[MachineSpec], waiting: float = 4.0, growth: float = 4.0) -> Ledger:
    ledger = Ledger(FlowCostModel(waiting=waiting, growth=growth))
    ledger.add_machines(machines)
    return ledger


def run(ledger: Ledger, task_class: TaskClass, machine: str, count: int = 1, end_s: float = np.inf) -> np.ndarray:
    """Tasks that came at 0 and run."""
    tasks = wait(ledger, task_class, count)
    ledger.bind(tasks, np.full(count, ledger.row(machine)), np.full(count, end_s))
    return tasks


def wait(ledger: Ledger, task_class: TaskClass, count: int = 1, created_s: float = 0.0) -> np.ndarray:
    return ledger.submit(np.full(count, ledger.intern(task_class)), np.full(count, created_s))


class Mover:
    """Full rounds on one ledger; it knows which tasks moved when."""

    def __init__(self, ledger: Ledger, settings: Settings = FREE_MOVES) -> None:
        self.ledger, self.settings = ledger, settings
        self._moved_s: dict[int, float] = {}

    def proposal(self, now_s: float = 0.0, barred: np.ndarray | None = None) -> Proposal:
        moved_s = np.full(len(self.ledger.state), -np.inf)
        moved_s[list(self._moved_s)] = list(self._moved_s.values())
        return propose(self.ledger, make_solver("ortools"), self.settings, now_s, moved_s, barred=barred)

    def propose(self, now_s: float = 0.0, barred: np.ndarray | None = None) -> Moves:
        return self.proposal(now_s, barred).moves

    def turn(self, now_s: float = 0.0) -> Moves:
        """One full round, carried out."""
        moves = self.propose(now_s)
        carry_out(moves, self.ledger)
        self._moved_s |= dict.fromkeys(moves.tasks[~moves.starts].tolist(), now_s)
        return moves


def total_cost(ledger: Ledger) -> float:
    """Sum over machines of what its tasks cost as they come, from the policy's own numbers."""
    total = 0.0
    felt = {row: (ledger._own[row] / FIXED).tolist() for row in range(ledger.rows)}
    for task in np.flatnonzero(ledger.state == RUNNING).tolist():
        row = int(ledger.machine[task])
        kind = ledger.kinds[ledger.kind[row]]
        prices = ledger.policy.price(ledger.classes[ledger.task_class[task]], [kind])
        factors = ledger.policy.factors(kind)
        total += float(prices.base[0])
        for f, factor in enumerate(factors):
            total += float(prices.coefficients[f]) * factor * felt[row][f]
        for f in range(len(factors)):
            felt[row][f] += float(prices.effects[f])
    return total


def overcommitted(ledger: Ledger, came: Sequence[int] = ()) -> list[str]:
    """Machines on which more is asked for than there is; of rows in ``came`` also those beyond a limit."""
    wrong = []
    asked: dict[tuple[int, str], int] = {}
    brought: dict[tuple[int, int], float] = {}
    for task in np.flatnonzero(ledger.state == RUNNING).tolist():
        row, task_class = int(ledger.machine[task]), ledger.classes[ledger.task_class[task]]
        for resource, amount in task_class.demand().items():
            asked[row, resource] = asked.get((row, resource), 0) + amount
        prices = ledger.policy.price(task_class, [ledger.kinds[ledger.kind[row]]])
        for f, effect in enumerate(prices.effects):
            brought[row, f] = brought.get((row, f), 0.0) + float(effect)
    for (row, resource), amount in asked.items():
        there = int(ledger.allocatable[row, ledger.resources.index(resource)])
        if amount > there:
            wrong.append(f"{ledger.machine_name(row)}: {amount} of {there} {resource}")
    for row in came:
        for f in range(ledger.limits.shape[1]):
            limit, reading = ledger.limits[row, f], ledger._own[row, f] / FIXED + brought.get((row, f), 0.0)
            if limit < UNLIMITED and brought.get((row, f), 0.0) > 0.0 and reading > limit / FIXED + 1e-5:
                wrong.append(f"{ledger.machine_name(row)}: {reading} above {limit / FIXED}")
    return wrong


def tiny(seed: int, use: float) -> Ledger:
    """Three machines and up to seven tasks, at random where they fit."""
    rng = np.random.default_rng([seed, 5])
    cores = [int(rng.choice([2, 4])) for _ in range(3)]
    machines = [spec(f"m{i}", c, kind=MachineKind(f"t{rng.integers(2)}")) for i, c in enumerate(cores)]
    ledger = cluster(machines)
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
        there = [f"m{i}" for i in range(3) if ledger.free[ledger.row(f"m{i}"), 0] >= task_class.width_milli]
        if tasks == 7 or used + task_class.width_milli > use * 1000 * sum(cores) or not there:
            continue
        run(ledger, task_class, str(rng.choice(there)))
        used += task_class.width_milli
        tasks += 1
    return ledger


def least_cost(ledger: Ledger) -> float:
    """The best that any assignment of the running tasks costs."""
    tasks = np.flatnonzero(ledger.state == RUNNING)
    rows = np.flatnonzero(ledger.alive).tolist()
    here = ledger.machine[tasks].copy()
    best = np.inf
    for places in itertools.product(rows, repeat=len(tasks)):
        load = ledger.allocatable.copy()
        for task, row in zip(tasks.tolist(), places, strict=True):
            load[row] -= ledger.demands[ledger.task_class[task]]
        if (load >= 0).all():
            ledger.machine[tasks] = places
            best = min(best, total_cost(ledger))
    ledger.machine[tasks] = here
    return best
