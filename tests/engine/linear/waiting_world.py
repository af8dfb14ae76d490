"""A small cluster at scale's engine, round by round, with what every task went through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.cluster.task_rows import FREE, RUNNING
from flowsched.pricing.linear.policy import ClassPrices, Feature
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundOutcome, Rounds, RoundSettings
from flowsched.solvers.ortools import OrtoolsSolver

KIND = MachineKind("plain")
PERIOD_S = 1.0
DUE_S = 20.0
SETTINGS = RoundSettings(due_age_s=DUE_S)


@dataclass(frozen=True)
class ByWidth:
    """Waiting costs by the core, so two narrow tasks are worth as much as one that is twice as wide; or by the task."""

    place: float = 1.0
    by_core: bool = True
    name: str = "by-width"
    features: tuple[Feature, ...] = ()

    def factors(self, kind: MachineKind) -> Sequence[float]:
        return ()

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        cores = max(1.0, task_class.width_milli / 1000) if self.by_core else 1.0
        return ClassPrices(np.full(len(kinds), self.place), np.zeros(0), np.zeros(0), 10.0 * cores, 10.0 * cores)


def spec(name: str, cores: int, memory: int = 64, kind: MachineKind = KIND) -> MachineSpec:
    return MachineSpec(name, kind, {"cpu": 1000 * cores, "memory": memory})


def of_width(cores: int, run_s: float, **more: object) -> TaskClass:
    task_class = TaskClass(f"w{cores}-{run_s:g}", 1000 * cores, run_s=run_s)
    return replace(task_class, **more)


class World:
    """Time passes in rounds; tasks end when they were predicted to."""

    def __init__(
        self, machines: Sequence[MachineSpec], settings: RoundSettings = SETTINGS, policy: object | None = None
    ) -> None:
        self.settings = settings
        self.policy = policy or ByWidth()
        self.cluster = ClusterRows.of(self.policy)
        self.cluster.add_machines(machines)
        self.rounds = Rounds(self.cluster, OrtoolsSolver(), settings)
        self.now_s = 0.0
        self.longest_run_s = 0.0
        self.created: list[float] = []
        self.before: list[int] = []
        """By task, as numbered here: how many of no lower priority had come earlier and still waited when it came."""
        self.before_in_all: list[int] = []
        """The same, of any priority."""
        self.classes: list[TaskClass] = []
        self.started: list[float] = []
        self.ended = 0
        self._number: dict[int, int] = {}
        """By task row, its number here."""
        self.last: RoundOutcome | None = None

    def submit(self, task_class: TaskClass, count: int = 1) -> list[int]:
        """Tasks of a class come now; their numbers here."""
        if not count:
            return []
        cluster = self.cluster
        c = cluster.intern(task_class)
        waiting, in_all = self.waiting(task_class.priority), self.waiting()
        rows = cluster.submit(np.full(count, c), np.full(count, self.now_s))
        first = len(self.created)
        for i, row in enumerate(rows.tolist()):
            self._number[row] = first + i
            self.before.append(waiting + i)
            self.before_in_all.append(in_all + i)
        self.created += [self.now_s] * count
        self.classes += [task_class] * count
        self.started += [np.inf] * count
        return list(range(first, first + count))

    def waiting(self, priority: int | None = None) -> int:
        """How many wait, of no lower priority than this."""
        cluster = self.cluster
        pending = cluster.tasks._pending[: int(cluster.tasks._pending_count[0])]
        if priority is None or not len(pending):
            return len(pending)
        return int((cluster.classes.table().priority[cluster.tasks.task_class[pending]] >= priority).sum())

    def run(self, task_class: TaskClass, machine: str, ends_s: float) -> int:
        """A task that runs already."""
        (number,) = self.submit(task_class)
        row = self.row_of(number)
        self.cluster.bind(np.array([row]), np.array([self.cluster.row(machine)]), np.array([ends_s]))
        self.started[number] = self.now_s
        self.longest_run_s = max(self.longest_run_s, ends_s - self.now_s if np.isfinite(ends_s) else 0.0)
        return number

    def row_of(self, number: int) -> int:
        return next(row for row, n in self._number.items() if n == number)

    def number_of(self, row: int) -> int:
        return self._number[row]

    def where(self, number: int) -> str:
        """The machine that a running task is on."""
        return self.cluster.machines.name(int(self.cluster.tasks.machine[self.row_of(number)]))

    def end_tasks(self) -> None:
        cluster = self.cluster
        gone = np.flatnonzero((cluster.tasks.state == RUNNING) & (cluster.tasks.end_s <= self.now_s))
        if len(gone):
            cluster.leave(gone)
            self.ended += len(gone)
            for row in gone.tolist():
                del self._number[row]

    def round(self, barred: np.ndarray | None = None) -> RoundOutcome:
        """Decide, check that nothing is promised twice, and do it."""
        cluster = self.cluster
        outcome = self.last = self.rounds.decide(self.now_s, barred)
        if len(outcome.tasks):
            ends = cluster.predicted_end(outcome.tasks, outcome.machines, self.now_s)
            finite = ends[np.isfinite(ends)]
            self.longest_run_s = max(self.longest_run_s, float((finite - self.now_s).max(initial=0.0)))
            cluster.bind(outcome.tasks, outcome.machines, ends)
            for row in outcome.tasks.tolist():
                self.started[self._number[row]] = self.now_s
            assert (cluster.machines.free[cluster.machines.alive] >= 0).all(), "overcommitted"
        return outcome

    def step(self, feed: Callable[[World], None] | None = None) -> RoundOutcome:
        """A round period passes: tasks end, the adversary feeds tasks, and a round is decided."""
        self.now_s += PERIOD_S
        self.end_tasks()
        if feed is not None:
            feed(self)
        return self.round()

    def restart(self) -> None:
        """A new process reads the same cluster: what runs where, until when, what waits since when; nothing else."""
        old = self.cluster
        self.cluster = ClusterRows.of(self.policy)
        self.cluster.groups.update(old.groups)
        self.cluster.add_machines([self._spec(old, row) for row in np.flatnonzero(old.machines.alive).tolist()])
        rows = np.flatnonzero(old.tasks.state != FREE)
        # Its own order: that of a listing by name, not that of arrival.
        rows = rows[np.argsort([str(self._number[r]) for r in rows.tolist()])]
        new = self.cluster.submit(
            np.array(
                [self.cluster.intern(old.classes[c]) for c in old.tasks.task_class[rows].tolist()], dtype=np.int64
            ),
            old.tasks.created_s[rows],
        )
        self._number = {n: self._number[r] for r, n in zip(rows.tolist(), new.tolist(), strict=True)}
        running = np.flatnonzero(old.tasks.state[rows] == RUNNING)
        machines = [self.cluster.row(old.machines.name(m)) for m in old.tasks.machine[rows[running]].tolist()]
        self.cluster.bind(new[running], np.array(machines, dtype=np.int64), old.tasks.end_s[rows[running]])
        self.rounds = Rounds(self.cluster, OrtoolsSolver(), self.settings)

    @staticmethod
    def _spec(cluster: ClusterRows, row: int) -> MachineSpec:
        amounts = dict(zip(cluster.classes.resources, cluster.machines.allocatable[row].tolist(), strict=True))
        return MachineSpec(cluster.machines.name(row), cluster.machines.kinds[int(cluster.machines.kind[row])], amounts)

    def waits(self) -> np.ndarray:
        """How long every task has waited so far, by its number here."""
        return np.minimum(np.array(self.started), self.now_s) - np.array(self.created)

    def bounds(self, across: bool = False) -> np.ndarray:
        """What the architecture promises every task; ``across``: priorities."""
        before = np.array(self.before_in_all if across else self.before)
        return DUE_S + (before + 1) * (self.longest_run_s + PERIOD_S)

    def of(self, keep: Callable[[TaskClass], bool]) -> np.ndarray:
        """Numbers of the tasks of some classes."""
        return np.array([i for i, c in enumerate(self.classes) if keep(c)], dtype=np.int64)
