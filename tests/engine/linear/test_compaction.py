"""Upkeep from events against a rebuild after every one of them, and what upkeep says about itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from canonical import canonical_network
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale_world import DUE_AGE_S, Draw, draw_world, flow_policy

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import Rounds
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.network import build_network
from flowsched.round.linear.waiting import survey
from flowsched.solvers import make_solver

NOW_S = 1000.0
REASONS = {"widths", "larger_machines", "shapes", "machine_order", "limits", "resources"}


@dataclass
class Item:
    """A task as the shadow knows it."""

    task_class: TaskClass
    created_s: float
    machine: str | None = None
    row: int = -1


@dataclass
class Shadow:
    """The state beside the cluster, as plain objects; events go to both."""

    cluster: ClusterRows
    machines: dict[str, MachineSpec] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    born: int = 0

    def fresh(self) -> ClusterRows:
        """A cluster fed with the final state in one go."""
        other = ClusterRows.of(self.cluster.classes.policy, self.cluster.classes.resources)
        specs = sorted(self.machines.values(), key=lambda s: s.name)
        other.add_machines(specs)
        for task_class in self.cluster.classes:
            other.intern(task_class)
        classes = np.array([other.intern(i.task_class) for i in self.items], dtype=np.int64)
        rows = other.submit(classes, np.array([i.created_s for i in self.items]))
        running = np.array([i.machine is not None for i in self.items], dtype=np.bool_)
        places = [other.row(i.machine) for i in self.items if i.machine is not None]
        other.bind(rows[running], np.array(places, dtype=np.int64))
        return other

    def room(self, name: str, task_class: TaskClass) -> bool:
        spec = self.machines[name]
        load = dict(spec.allocatable)
        for item in self.items:
            if item.machine == name:
                for r, n in item.task_class.demand().items():
                    load[r] = load.get(r, 0) - n
        return all(load.get(r, 0) >= n for r, n in task_class.demand().items()) and spec.kind.has(task_class.selector)


def join(shadow: Shadow, rng: random.Random) -> None:
    specs = []
    for _ in range(rng.randint(1, 3)):
        kind = MachineKind(rng.choice("ab"), (("zone", rng.choice(("east", "west"))),), rng.choice((0.8, 1.0)))
        size = rng.choice((1930, 3920, 8000, 16000))
        specs.append(MachineSpec(f"m{shadow.born}", kind, {"cpu": size, "memory": size * 2}))
        shadow.born += 1
    shadow.cluster.add_machines(specs)
    shadow.machines.update({s.name: s for s in specs})


def go(shadow: Shadow, rng: random.Random) -> None:
    if not shadow.machines:
        return
    gone = rng.sample(sorted(shadow.machines), rng.randint(1, min(2, len(shadow.machines))))
    shadow.cluster.remove_machines(gone)
    for name in gone:
        del shadow.machines[name]
    for item in shadow.items:
        if item.machine in gone:
            item.machine = None


def resize(shadow: Shadow, rng: random.Random) -> None:
    if shadow.machines:
        name = rng.choice(sorted(shadow.machines))
        allocatable = {"cpu": rng.choice((500, 3920, 7910, 24000)), "memory": rng.choice((100, 9000))}
        shadow.cluster.resize(name, allocatable)
        shadow.machines[name] = replace(shadow.machines[name], allocatable=allocatable)


def read(shadow: Shadow, rng: random.Random) -> None:
    if shadow.machines:
        name = rng.choice(sorted(shadow.machines))
        feature, value = rng.choice(("pressure", "headroom")), rng.choice((0.0, 0.1, 1.7))
        limit = rng.choice((float("inf"), float("inf"), 0.6))
        shadow.cluster.read(name, feature, value, limit)
        spec = shadow.machines[name]
        limits = {k: v for k, v in spec.limits.items() if k != feature}
        if limit < float("inf"):
            limits[feature] = limit
        shadow.machines[name] = replace(spec, readings={**spec.readings, feature: value}, limits=limits)


def submit(shadow: Shadow, rng: random.Random) -> None:
    known = shadow.cluster.classes
    count = rng.randint(1, 6)
    if not known:
        return
    chosen = [rng.choice(known) for _ in range(count)]
    ages = sorted(rng.choice((0.0, 100.0, 700.0)) for _ in range(count))
    rows = shadow.cluster.submit(
        np.array([shadow.cluster.intern(c) for c in chosen]), np.array([NOW_S - a for a in reversed(ages)])
    )
    for c, age, row in zip(chosen, reversed(ages), rows.tolist(), strict=True):
        shadow.items.append(Item(c, NOW_S - age, None, row))


def start(shadow: Shadow, rng: random.Random) -> None:
    for item in rng.sample(shadow.items, min(4, len(shadow.items))):
        fitting = [n for n in sorted(shadow.machines) if shadow.room(n, item.task_class)]
        if item.machine is None and fitting:
            item.machine = rng.choice(fitting)
            shadow.cluster.bind(np.array([item.row]), np.array([shadow.cluster.row(item.machine)]))


def move(shadow: Shadow, rng: random.Random) -> None:
    for item in [i for i in shadow.items if i.machine is not None][:3]:
        fitting = [n for n in sorted(shadow.machines) if shadow.room(n, item.task_class)]
        if fitting:
            item.machine = rng.choice(fitting)
            shadow.cluster.move(np.array([item.row]), np.array([shadow.cluster.row(item.machine)]))


def stop(shadow: Shadow, rng: random.Random) -> None:
    running = [i for i in shadow.items if i.machine is not None]
    if running:
        item = rng.choice(running)
        item.machine = None
        shadow.cluster.unbind(np.array([item.row]))


def leave(shadow: Shadow, rng: random.Random) -> None:
    for item in rng.sample(shadow.items, min(3, len(shadow.items))):
        shadow.cluster.leave(np.array([item.row]))
        shadow.items.remove(item)


def new_class(shadow: Shadow, rng: random.Random) -> None:
    width = rng.choice((0, 150, 700, 1000, 1930, 2000, 4000, 8000))
    needs = tuple((r, n) for r, n in (("memory", 700), ("gpu", 1), ("disk", 3)) if rng.random() < 0.3)
    selector = (("zone", "east"),) if rng.random() < 0.3 else ()
    task_class = TaskClass(
        f"c{len(shadow.cluster.classes)}",
        width,
        needs,
        rng.choice((0.0, 0.3, 0.9)),
        rng.choice((0.0, 0.04, 0.2)),
        selector=selector,
        slowness=(("a", 0.25),),
    )
    shadow.cluster.intern(task_class)
    submit(shadow, rng)


EVENTS: tuple[Callable[[Shadow, random.Random], None], ...] = (
    join,
    go,
    resize,
    read,
    submit,
    start,
    move,
    stop,
    leave,
    new_class,
)
FREQUENT = (new_class, join, submit, start)
HISTORIES = st.lists(st.tuples(st.sampled_from(EVENTS + FREQUENT), st.integers(0, 2**16)), max_size=25)


def counted(cluster: ClusterRows, compaction: Compaction) -> dict[tuple[object, ...], object]:
    """What groups with machines count, by what is in their keys, and what fits into them, by what was asked for."""
    shapes = [s for _, s in sorted(compaction._shapes.items())]
    slots = compaction.slots[shapes].T
    arrays = (compaction.members, compaction.open_members, compaction.tiers, compaction.rungs, slots)
    return {
        (cluster.machines.kinds[kind], *others): [array[g].tolist() for array in arrays]
        for g, (kind, *others) in enumerate(compaction.keys)
        if compaction.members[g]
    }


def both_ways(events: list[tuple[Callable[..., None], int]], bucket: float) -> None:
    shadow = Shadow(ClusterRows.of(flow_policy(bucket)))
    kept = Compaction(shadow.cluster)
    read = 0
    for event, seed in [(new_class, 1), (join, 2), *events]:
        event(shadow, random.Random(seed))
        pending = shadow.cluster.tasks.waiting()
        changed, read = shadow.cluster.machines.changed_since(read)
        kept.catch_up(changed, np.unique(shadow.cluster.tasks.task_class[pending]))
        kept.renumber()
        other = shadow.fresh()
        anew = Compaction(other)
        other_pending = other.tasks.waiting()
        anew.catch_up(np.flatnonzero(other.machines.alive), np.unique(other.tasks.task_class[other_pending]))
        anew.renumber()
        if not len(pending):
            continue
        assert kept.widths == anew.widths
        assert counted(shadow.cluster, kept) == counted(other, anew)
        networks = []
        for cluster, compaction, waits in ((shadow.cluster, kept, pending), (other, anew, other_pending)):
            waiting = survey(cluster, waits, NOW_S, DUE_AGE_S)
            built = build_network(cluster, compaction, waiting)
            networks.append(canonical_network(cluster, compaction, waiting, built))
        assert networks[0] == networks[1]


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(HISTORIES, st.sampled_from((0.0, 0.125)))
def test_a_rebuild_after_every_event_gives_the_identical_network(
    events: list[tuple[Callable[..., None], int]], bucket: float
) -> None:
    both_ways(events, bucket)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(HISTORIES)
def test_every_rebuild_has_a_reason_with_a_name(events: list[tuple[Callable[..., None], int]]) -> None:
    shadow = Shadow(ClusterRows.of(flow_policy(0.125)))
    rounds = Rounds(shadow.cluster, make_solver("ortools"))
    for event, seed in [(new_class, 1), (join, 2), *events]:
        event(shadow, random.Random(seed))
        rounds.decide(NOW_S)
        outcome = rounds.decide(NOW_S)
        # The second round sees no event. What the first one tried on machines, and did not do, is taken back, with the
        # groups that it emptied, nothing else.
        assert not outcome.upkeep["rebuilt"] or set(outcome.upkeep["rebuilt"]) <= REASONS
        assert set(outcome.upkeep["applied"]) <= {"machines", "groups", "prices"}


def test_tasks_without_cpu_alone_need_no_tiers() -> None:
    def only_idle(shadow: Shadow, rng: random.Random) -> None:
        for item in shadow.items:
            shadow.cluster.leave(np.array([item.row]))
        shadow.items.clear()
        idle = TaskClass("idle", 0, (("memory", 10),))
        shadow.items.append(Item(idle, 0.0))
        shadow.items[0].row = int(shadow.cluster.submit(np.array([shadow.cluster.intern(idle)]), np.zeros(1))[0])

    both_ways([(submit, 1), (only_idle, 0), (submit, 3), (only_idle, 0)], 0.0)


def test_a_round_without_events_applies_and_rebuilds_nothing() -> None:
    world = draw_world(5, Draw(machines=20, tasks=30, classes=5))
    cluster = world.cluster()
    rounds = Rounds(cluster, make_solver("ortools"))
    outcome = rounds.decide(world.now_s)
    assert outcome.upkeep["applied"]["machines"] >= 20
    cluster.bind(outcome.tasks, outcome.machines)
    rounds.decide(world.now_s)
    for _ in range(3):
        outcome = rounds.decide(world.now_s)
        assert outcome.upkeep == {"applied": {}, "rebuilt": {}}


def test_upkeep_grows_with_what_changed_and_not_with_what_is_there() -> None:
    world = draw_world(6, Draw(machines=200, tasks=3, classes=3, services=False))
    cluster = world.cluster()
    rounds = Rounds(cluster, make_solver("ortools"))
    outcome = rounds.decide(world.now_s)
    cluster.bind(outcome.tasks, outcome.machines)
    outcome = rounds.decide(world.now_s)
    assert 0 < outcome.upkeep["applied"]["machines"] <= 3
    assert not outcome.upkeep["rebuilt"]


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("resources", lambda cluster: cluster.resize("node-000", {"cpu": 4000, "memory": 9999, "tape": 2})),
        ("limits", lambda cluster: cluster.read("node-000", "pressure", 0.1, 0.9)),
        ("larger_machines", lambda cluster: cluster.resize("node-000", {"cpu": 96000, "memory": 9999})),
        ("widths", lambda cluster: cluster.submit(np.array([cluster.intern(TaskClass("odd", 333))]), np.zeros(1))),
    ],
)
def test_reasons(reason: str, change: Callable[[ClusterRows], object]) -> None:
    world = draw_world(7, Draw(machines=5, tasks=5, classes=3, services=False, gpus=False))
    cluster = world.cluster()
    rounds = Rounds(cluster, make_solver("ortools"))
    rounds.decide(world.now_s)
    change(cluster)
    outcome = rounds.decide(world.now_s)
    assert outcome.upkeep["rebuilt"][reason] == 1
