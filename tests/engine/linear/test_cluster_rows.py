"""State from events: whatever the order, sums are those of what is there, and changes are listed once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.machine_arrays import FIXED, HEADROOM, PRESSURE, UNLIMITED
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.cluster.task_rows import PENDING, RUNNING
from flowsched.errors import EventError
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.pricing.linear.policy import ClassPrices, Feature
from flowsched.round.linear.cluster_rows import ClusterRows

KINDS = (MachineKind("small", (("zone", "a"),)), MachineKind("large", (("zone", "b"),), 0.5))


def machine(name: str, kind: int = 0, cpu: int = 4000, **further: int) -> MachineSpec:
    return MachineSpec(name, KINDS[kind], {"cpu": cpu, "memory": 8192, **further})


def batch(width: int = 1000, **fields: object) -> TaskClass:
    values: dict[str, object] = {"needs": (("memory", 512),), "sensitivity": 0.5, "pressure": 0.1, **fields}
    return TaskClass(f"w{width}", width, **values)  # type: ignore[arg-type]


def one(cluster: ClusterRows, task_class: TaskClass, created_s: float = 0.0, name: str = "t") -> int:
    return int(cluster.submit(np.array([cluster.intern(task_class)]), np.array([created_s]), [name])[0])


def test_a_task_takes_what_it_asks_for_and_gives_it_back() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    (row,) = cluster.add_machines([machine("m")])
    task = one(cluster, batch())
    cluster.bind(np.array([task]), np.array([row]), np.array([9.0]))
    assert cluster.machines.free[row].tolist() == [3000, 8192 - 512]
    assert cluster.machines.readings[row].tolist() == [round(0.1 * FIXED), round(0.5 * FIXED), 0]
    assert cluster.tasks.end_s[task] == 9.0
    cluster.leave(np.array([task]))
    assert cluster.machines.free[row].tolist() == [4000, 8192]
    assert not cluster.machines.readings[row].any()
    assert cluster.tasks.count == 0


def test_a_machine_that_leaves_sends_its_tasks_back_as_old_as_they_were() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    rows = cluster.add_machines([machine("m"), machine("n")])
    task = one(cluster, batch(), created_s=7.0)
    cluster.bind(np.array([task]), rows[:1])
    assert cluster.remove_machines(["m"]).tolist() == [task]
    assert cluster.tasks.state[task] == PENDING
    assert cluster.tasks.created_s[task] == 7.0
    assert cluster.tasks.waiting().tolist() == [task]
    assert cluster.machines.machine_count == 1
    again = cluster.add_machines([machine("o", cpu=2000)])
    assert cluster.machines.free[again[0], 0] == 2000


def test_changes_are_listed_once_and_then_forgotten() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    rows = cluster.add_machines([machine("m"), machine("n")])
    changed, read = cluster.machines.changed_since(0)
    assert changed.tolist() == sorted(rows.tolist())
    tasks = [one(cluster, batch(), name=f"t{i}") for i in range(3)]
    cluster.bind(np.array(tasks), rows[[1, 1, 1]])
    changed, later = cluster.machines.changed_since(read)
    assert changed.tolist() == [rows[1]]
    assert not len(cluster.machines.changed_since(later)[0])
    assert cluster.machines.changed_since(read)[0].tolist() == [rows[1]]  # another reader


def test_who_waits_is_read_in_the_order_of_arrival() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    (row,) = cluster.add_machines([machine("m")])
    tasks = np.array([one(cluster, batch(), name=f"t{i}") for i in range(5)])
    cluster.leave(tasks[[0, 3]])
    late = one(cluster, batch(), name="late")
    cluster.bind(tasks[[1]], np.array([row]))
    cluster.unbind(tasks[[1]])
    assert cluster.tasks.waiting().tolist() == [*tasks[[1, 2, 4]].tolist(), late]
    assert [cluster.tasks.name(t) for t in cluster.tasks.waiting().tolist()] == ["t1", "t2", "t4", "late"]


def test_resources_kinds_and_classes_may_turn_up_later() -> None:
    cluster = ClusterRows.of(FlowCostModel(), resources=())
    cluster.add_machines([machine("m")])
    picky = cluster.intern(batch(selector=(("zone", "b"),)))
    gpu = cluster.intern(batch(needs=(("gpu", 1),)))
    before = cluster.classes.structure
    rows = cluster.add_machines([machine("n", 1, gpu=2)])
    assert cluster.classes.structure > before
    assert cluster.classes.table().base[picky].tolist() == [np.inf, 0.0]
    column = cluster.classes.resources.index("gpu")
    assert cluster.machines.free[rows[0], column] == 2
    assert cluster.classes.demands[gpu, column] == 1
    assert cluster.intern(batch(needs=(("gpu", 1),))) == gpu


def test_a_resize_keeps_what_runs() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    rows = cluster.add_machines([machine("m")])
    cluster.bind(np.array([one(cluster, batch(3000))]), rows)
    cluster.resize("m", {"cpu": 2000, "memory": 8192})
    assert cluster.machines.free[rows[0], 0] == -1000


def test_own_readings_and_limits_of_a_machine() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    spec = MachineSpec("m", KINDS[0], {"cpu": 4000}, {HEADROOM: 0.5}, {PRESSURE: 0.25})
    (row,) = cluster.add_machines([spec])
    assert cluster.machines.readings[row, 2] == FIXED // 2
    assert cluster.machines.limits[row].tolist() == [FIXED // 4, UNLIMITED, UNLIMITED]
    cluster.bind(np.array([one(cluster, batch())]), np.array([row]))
    cluster.read("m", PRESSURE, 0.5, limit=2.0)
    assert cluster.machines.readings[row, 0] == FIXED // 2 + round(0.1 * FIXED)
    assert cluster.machines.limits[row, 0] == 2 * FIXED


def test_tasks_that_are_none_of_the_cluster_s_count_as_its_own_would() -> None:
    ours, theirs = ClusterRows.of(FlowCostModel()), ClusterRows.of(FlowCostModel())
    for cluster in (ours, theirs):
        cluster.add_machines([machine("m"), machine("n", gpu=2)])
    task_class = batch(needs=(("gpu", 1), ("memory", 512)))
    tasks = np.array([one(ours, task_class, name=name) for name in "ab"])
    ours.bind(tasks, np.array([1, 1]))
    effects = ours.classes.effects[ours.tasks.task_class[tasks[0]]]
    needs = {**task_class.demand(), "what no machine has": 1}
    theirs.count(np.array([1]), np.array([2]), needs, effects)
    assert np.array_equal(ours.machines.free, theirs.machines.free)
    assert np.array_equal(ours.machines.readings, theirs.machines.readings)
    assert 1 in theirs.machines.changed_since(0)[0]
    theirs.count(np.array([1]), np.array([-2]), needs, effects)
    assert np.array_equal(theirs.machines.free, theirs.machines.allocatable)
    assert not theirs.machines.readings.any()


def test_a_task_of_another_class_keeps_its_place_among_those_that_wait() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    cluster.add_machines([machine("m")])
    first, second = (one(cluster, batch(), created_s=3.0, name=name) for name in "ab")
    cluster.change_class(np.array([first]), cluster.intern(batch(500)))
    assert cluster.tasks.waiting().tolist() == [first, second]
    assert cluster.tasks.created_s[first] == 3.0
    cluster.bind(np.array([first]), np.array([0]))
    assert cluster.machines.free[0, 0] == 3500


def test_members_of_a_group_count_wherever_they_run() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    cluster.add_machines([machine("m")])
    cluster.declare_group("gang", 3)
    cluster.members_elsewhere.update({"gang": 1, "another": 2})
    rows = [one(cluster, batch(group=group), name=group) for group in ("gang", "another")]
    cluster.bind(np.array(rows), np.array([0, 0]))
    assert cluster.running_members() == {"gang": 2}


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (lambda g, t: g.change_class(np.array([t + 1]), 0), "is not there"),
        (lambda g, t: g.add_machines([machine("m")]), "machine m is there already"),
        (lambda g, t: g.add_machines([machine("x"), machine("x")]), "machine x is there already"),
        (lambda g, t: g.remove_machines(["gone"]), "machine gone is not there"),
        (
            lambda g, t: g.add_machines([MachineSpec("x", KINDS[0], {}, {"heat": 1.0})]),
            "no feature heat; it has pressure",
        ),
        (lambda g, t: g.submit(np.array([0]), np.zeros(1), ["t"]), "task t is there already"),
        (lambda g, t: g.submit(np.array([0, 0]), np.zeros(2), ["u", "u"]), "task names repeat"),
        (lambda g, t: g.unbind(np.array([t])), "task t waits"),
        (lambda g, t: g.bind(np.array([t]), np.array([5])), "machine row 5 is empty"),
        (lambda g, t: g.tasks.row("missing"), "task missing is not there"),
    ],
)
def test_events_that_contradict_the_state_change_nothing(event: object, says: str) -> None:
    cluster = ClusterRows.of(FlowCostModel())
    cluster.add_machines([machine("m")])
    task = one(cluster, batch())
    state = (
        cluster.machines.free.copy(),
        cluster.tasks.state.copy(),
        cluster.machines.machine_count,
        cluster.tasks.count,
    )
    with pytest.raises(EventError, match=says):
        event(cluster, task)  # type: ignore[operator]
    assert np.array_equal(cluster.machines.free, state[0])
    assert np.array_equal(cluster.tasks.state, state[1])
    assert (cluster.machines.machine_count, cluster.tasks.count) == state[2:]


class Odd:
    """A policy that prices as it was told."""

    name = "odd"
    features: tuple[Feature, ...] = (Feature("load"),)

    def __init__(self, prices: ClassPrices) -> None:
        self.prices = prices

    def factors(self, kind: MachineKind) -> tuple[float, ...]:
        return (1.0,)

    def price(self, task_class: TaskClass, kinds: object) -> ClassPrices:
        return self.prices


@pytest.mark.parametrize(
    ("prices", "says"),
    [
        (
            ClassPrices(np.zeros(3), np.zeros(1), np.zeros(1), 1.0),
            r"shapes \(3,\), \(1,\), \(1,\); expected 1 kinds and 1 features",
        ),
        (ClassPrices(np.zeros(1), np.zeros(2), np.zeros(1), 1.0), "expected 1 kinds and"),
        (ClassPrices(np.full(1, -1.0), np.zeros(1), np.zeros(1), 1.0), "below 0 or no number"),
        (ClassPrices(np.full(1, np.nan), np.zeros(1), np.zeros(1), 1.0), "below 0 or no number"),
        (ClassPrices(np.zeros(1), np.full(1, np.inf), np.zeros(1), 1.0), "below 0 or no number"),
    ],
)
def test_prices_that_are_none_are_refused(prices: ClassPrices, says: str) -> None:
    cluster = ClusterRows.of(Odd(prices))
    cluster.add_machines([machine("m")])
    with pytest.raises(EventError, match=says):
        cluster.intern(batch())


EVENT = st.tuples(
    st.sampled_from(["submit", "bind", "leave", "unbind", "move", "add", "remove"]), st.integers(0, 10**6)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENT, max_size=60))
def test_sums_are_those_of_what_is_there(events: list[tuple[str, int]]) -> None:
    cluster = ClusterRows.of(FlowCostModel())
    classes = [cluster.intern(batch(w, pressure=w / 7e3)) for w in (500, 1000, 2000)]
    names = [f"m{i}" for i in range(3)]
    cluster.add_machines([machine(n, i % 2) for i, n in enumerate(names)])
    made = len(names)
    for what, draw in events:
        waiting = np.flatnonzero(cluster.tasks.state == PENDING)
        running = np.flatnonzero(cluster.tasks.state == RUNNING)
        rows = np.flatnonzero(cluster.machines.alive)
        if what == "submit":
            cluster.submit(np.array([classes[draw % 3]]), np.array([float(draw)]))
        elif what == "bind" and len(waiting) and len(rows):
            cluster.bind(waiting[[draw % len(waiting)]], rows[[draw % len(rows)]])
        elif what == "leave" and len(waiting) + len(running):
            both = np.concatenate([waiting, running])
            cluster.leave(both[[draw % len(both)]])
        elif what == "unbind" and len(running):
            cluster.unbind(running[[draw % len(running)]])
        elif what == "move" and len(running) and len(rows):
            cluster.move(running[[draw % len(running)]], rows[[draw % len(rows)]])
        elif what == "add":
            cluster.add_machines([machine(f"m{made}", draw % 2)])
            names.append(f"m{made}")
            made += 1
        elif what == "remove" and names:
            cluster.remove_machines([names.pop(draw % len(names))])
    free, readings = cluster.machines.allocatable.copy(), np.zeros_like(cluster.machines.readings)
    for task in np.flatnonzero(cluster.tasks.state == RUNNING).tolist():
        row, c = cluster.tasks.machine[task], cluster.tasks.task_class[task]
        free[row] -= cluster.classes.demands[c]
        readings[row] += cluster.classes.effects[c]
    assert np.array_equal(free, cluster.machines.free)
    assert np.array_equal(readings, cluster.machines.readings)
    pending = cluster.tasks.waiting()
    assert sorted(pending.tolist()) == np.flatnonzero(cluster.tasks.state == PENDING).tolist()
    came = list(zip(cluster.tasks.created_s[pending].tolist(), cluster.tasks.sequence[pending].tolist(), strict=True))
    assert came == sorted(came)
    assert list(cluster.machines.ordered_names) == sorted(names)
    assert cluster.machines.order().tolist() == np.flatnonzero(cluster.machines.alive).tolist()
    assert cluster.classes.kinds == cluster.machines.kinds
    kinds = cluster.machines.kind[cluster.machines.order()].tolist()
    assert list(dict.fromkeys(kinds)) == list(range(len(cluster.machines.kinds)))
