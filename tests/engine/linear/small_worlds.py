"""Small random clusters for rounds at linear prices, drawn with a seed: labels, selectors, slower types, interference,
limits of services, memory and a further resource, requests that nothing divides."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.machine_arrays import HEADROOM, PRESSURE
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.pricing.linear.policy import CostModel
from flowsched.round.linear.cluster_rows import ClusterRows

DIVIDING = (1000, 2000, 4000, 8000)
ODD = (150, 700, 1930, 2500, 3100)
WHOLE_SIZES = (4000, 8000, 16000)
REAL_SIZES = (1930, 3920, 7910)
MEMORY_PER_CORE = 4096


@dataclass(frozen=True)
class Draw:
    """What kind of cluster is drawn. Memory in MiB, CPU in milli-CPU."""

    machines: int = 4
    classes: int = 4
    tasks: int = 12
    """Tasks that wait."""
    use: float = 0.4
    """Share of the CPU that running tasks take at most, machine by machine."""
    widths: tuple[int, ...] = DIVIDING
    sizes: tuple[int, ...] = WHOLE_SIZES
    labels: bool = True
    """Zones, and classes that ask for one."""
    memory: bool = True
    """Memory may be what a machine runs out of; otherwise no class asks for any."""
    gpus: bool = True
    """Some machines have some, some classes ask for one."""
    services: bool = True
    """Some machines hold a service: headroom costs, and a limit of pressure."""
    same_rooms: bool = False
    """Machines of one type are equally large and nothing runs there: readings differ, room does not."""
    interference: bool = True
    priorities: int = 1
    bucket: float = 0.0
    waiting: float = 4.0
    growth: float = 4.0
    oldest_s: float = 570.0
    """No task is due yet: due tasks are served before others, which costs what it costs."""


@dataclass
class World:
    """A cluster with what waits and what runs; the moment is 1000 s."""

    draw: Draw
    machines: list[MachineSpec]
    classes: list[TaskClass]
    running: list[tuple[int, int]]
    """Class and machine."""
    waiting: list[tuple[int, float]]
    """Class and moment of arrival."""
    barred: np.ndarray
    """By machine."""
    now_s: float = 1000.0

    def policy(self) -> CostModel:
        """The flow policy, with this world's buckets."""
        draw = self.draw
        return FlowCostModel(draw.bucket, draw.bucket * 4.0, waiting=draw.waiting, growth=draw.growth)

    def cluster(self, policy: CostModel | None = None) -> ClusterRows:
        """Its state, fed in one go."""
        cluster = ClusterRows.of(policy or self.policy(), ("cpu", "memory"))
        rows = cluster.add_machines(self.machines)
        numbers = np.array([cluster.intern(c) for c in self.classes], dtype=np.int64)
        there = np.array(self.running, dtype=np.int64).reshape(-1, 2)
        tasks = cluster.submit(numbers[there[:, 0]], np.zeros(len(there)))
        cluster.bind(tasks, rows[there[:, 1]])
        which = np.array([c for c, _ in self.waiting], dtype=np.int64)
        cluster.submit(numbers[which], np.array([t for _, t in self.waiting]))
        return cluster

    def barred_rows(self, cluster: ClusterRows) -> np.ndarray:
        """``barred`` by machine row."""
        mask = np.zeros(cluster.machines.rows, dtype=np.bool_)
        mask[[cluster.row(spec.name) for spec, b in zip(self.machines, self.barred, strict=True) if b]] = True
        return mask


def draw_world(seed: int, draw: Draw) -> World:
    """A world; the same for the same arguments."""
    rng = np.random.default_rng([seed, draw.machines, draw.classes, draw.tasks])
    kinds = _kinds(rng, draw)
    machines = [_machine(rng, draw, i, kinds) for i in range(draw.machines)]
    classes = [_task_class(rng, draw, i) for i in range(draw.classes)]
    running = [] if draw.same_rooms else _running(rng, draw, machines, classes)
    weights = rng.dirichlet(np.full(draw.classes, 1.5))
    which = rng.choice(draw.classes, size=draw.tasks, p=weights)
    born = np.sort(1000.0 - rng.integers(0, 31, size=draw.tasks) / 30.0 * draw.oldest_s)
    barred = rng.random(draw.machines) < (0.1 if draw.machines > 2 else 0.0)
    return World(draw, machines, classes, running, list(zip(which.tolist(), born.tolist(), strict=True)), barred)


def _kinds(rng: np.random.Generator, draw: Draw) -> list[tuple[MachineKind, int]]:
    kinds = []
    for i in range(min(3, draw.machines)):
        size = int(rng.choice(draw.sizes))
        for zone in ("east", "west") if draw.labels else ("",):
            labels = (("zone", zone),) if zone else ()
            kinds.append((MachineKind(f"type-{i}", labels, (0.8, 1.0, 1.3)[i] if draw.interference else 1.0), size))
    return kinds


def _machine(rng: np.random.Generator, draw: Draw, number: int, kinds: list[tuple[MachineKind, int]]) -> MachineSpec:
    kind, size = kinds[int(rng.integers(len(kinds)))]
    if not draw.same_rooms:
        size = int(rng.choice(draw.sizes))
    allocatable = {"cpu": size, "memory": size * MEMORY_PER_CORE // 1000}
    if draw.gpus:
        allocatable["gpu"] = 2 if draw.same_rooms else int(rng.choice((0, 0, 2)))
    readings: dict[str, float] = {}
    limits: dict[str, float] = {}
    if draw.services and rng.random() < 0.3:
        readings = {HEADROOM: float(rng.uniform(0.5, 4.0)), PRESSURE: 0.125 * int(rng.integers(0, 3))}
        if not draw.same_rooms:
            limits = {PRESSURE: float(rng.uniform(0.3, 1.2))}
    elif draw.same_rooms and draw.interference:
        readings = {PRESSURE: 0.125 * int(rng.integers(0, 4))}
    return MachineSpec(f"node-{number:03d}", kind, allocatable, readings, limits)


def _task_class(rng: np.random.Generator, draw: Draw, number: int) -> TaskClass:
    width = int(rng.choice(draw.widths))
    cores = width / 1000.0
    needs = [("memory", int(cores * float(rng.choice((0.5, 1.0, 2.0, 6.0))) * 1024))] if draw.memory else []
    if draw.gpus and rng.random() < 0.2:
        needs.append(("gpu", 1))
    slow = [float(rng.uniform(0.0, 0.5)) for _ in range(3)]
    return TaskClass(
        f"class-{number}",
        width,
        tuple(needs),
        float(rng.uniform(0.2, 1.0)) if draw.interference else 0.0,
        float(rng.uniform(0.01, 0.09)) * cores if draw.interference else 0.0,
        float(rng.uniform(60.0, 600.0)),
        int(rng.integers(draw.priorities)),
        (("zone", str(rng.choice(("east", "west")))),) if draw.labels and rng.random() < 0.25 else (),
        tuple((f"type-{i}", s - min(slow)) for i, s in enumerate(slow)),
    )


def _running(
    rng: np.random.Generator, draw: Draw, machines: list[MachineSpec], classes: list[TaskClass]
) -> list[tuple[int, int]]:
    """What runs already: random classes while a random share of the machine is not taken."""
    running = []
    for m, spec in enumerate(machines):
        free = dict(spec.allocatable)
        floor = free["cpu"] * (1.0 - draw.use * float(rng.uniform(0.0, 2.0)))
        for _ in range(12):
            c = int(rng.integers(len(classes)))
            demand = classes[c].demand()
            if not spec.kind.has(classes[c].selector) or any(free.get(r, 0) < n for r, n in demand.items()):
                continue
            if free["cpu"] - demand.get("cpu", 0) < floor:
                break
            for r, n in demand.items():
                free[r] -= n
            running.append((c, m))
    return running


def varied(seed: int) -> World:
    """Small rounds of every kind: 2 to 10 machines, 3 to 20 tasks that wait, from idle to more than there is room for."""
    rng = np.random.default_rng([seed, 77])
    odd = bool(rng.random() < 0.5)
    draw = Draw(
        machines=int(rng.integers(2, 11)),
        classes=int(rng.integers(1, 7)),
        tasks=int(rng.integers(3, 21)),
        use=float(rng.choice((0.0, 0.3, 0.6, 0.9))),
        widths=ODD if odd else DIVIDING,
        sizes=REAL_SIZES if rng.random() < 0.5 else WHOLE_SIZES,
        memory=bool(rng.random() < 0.7),
    )
    return draw_world(seed, replace(draw, gpus=bool(rng.random() < 0.3), services=bool(rng.random() < 0.5)))
