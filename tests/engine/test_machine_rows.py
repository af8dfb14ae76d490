"""Rows of machines: settled they are in the order of names, whatever happened before, with all that each machine has."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.machine_arrays import HEADROOM, PRESSURE, SENSITIVITY
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.task_class import MachineKind
from flowsched.relations.relation import MACHINE, Relation, RelationKind

NAMES = tuple("abcdefgh")
RELATIONS = Relation("alone", RelationKind.APART, MACHINE), Relation("even", RelationKind.SPREAD, "zone")
EVENTS = st.lists(
    st.tuples(st.sampled_from(("put", "put", "remove", "use", "join", "settle", "read")), st.sampled_from(NAMES)),
    max_size=40,
)


def empty() -> MachineRows:
    machines = MachineRows((PRESSURE, SENSITIVITY, HEADROOM), ("cpu",))
    for relation in RELATIONS:
        machines.relation_store.declare(relation)
    return machines


def put(machines: MachineRows, name: str) -> None:
    number = ord(name[0]) - ord("a")
    kind = MachineKind("machine", bandwidth=1.0 + number % 3)
    machines.put_machine(name, kind, {"cpu": 100 + number, "disk": number}, {"zone": "xy"[number % 2]})


def told(machines: MachineRows) -> dict[str, object]:
    """All that is known of each machine, in the order of names."""
    store, rows = machines.relation_store, machines.order()
    counts = [store.topology_counts(relation.name, rows) for relation in RELATIONS]
    return {
        "names": [machines.name(row) for row in rows.tolist()],
        "kinds": [machines.kinds[k] for k in machines.kind[rows].tolist()],
        "labels": [dict(store.labels(row)) for row in rows.tolist()],
        "counts": [[getattr(c, of).tolist() for of in ("domain", "members", "holders")] for c in counts],
        "open": [store.open_rows(r.name, True, True)[0][rows].tolist() for r in RELATIONS],
        "members": [store.members(r.name) for r in RELATIONS],
        **{of: getattr(machines, of)[rows].tolist() for of in ("allocatable", "free", "readings", "limits")},
    }


@settings(deadline=None)
@given(EVENTS)
def test_settled_rows_are_those_of_machines_that_joined_in_order(events: list[tuple[str, str]]) -> None:
    machines = empty()
    used: dict[str, int] = {}
    joined: dict[str, int] = {}
    for what, name in events:
        row = machines.row(name)
        if what == "put":
            put(machines, name)
            used.setdefault(name, 0)
            joined.setdefault(name, 0)
        elif what == "remove":
            machines.remove_machine(name)
            used.pop(name, None)
            joined.pop(name, None)
        elif what == "settle":
            before = told(machines)
            was = {name: machines.row(name) for name in used}
            moved = machines.settle()
            assert told(machines) == before
            if moved is not None:
                assert [was[machines.name(row)] for row in machines.order().tolist()] == moved[moved >= 0].tolist()
            assert machines.settle() is None
        elif row is not None and what == "use":
            machines.use(row, {"cpu": 1}, 1)
            used[name] += 1
        elif row is not None and what == "join":
            for relation in RELATIONS:
                machines.relation_store.count_all(relation.name, np.array([row]), 1, 1)
            joined[name] += 1
        elif row is not None:
            machines.set_service(name, 2.0, 0.5)
            machines.set_service(name, float("inf"), 0.0)
    machines.settle()
    other = empty()
    for name in sorted(used):
        put(other, name)
        row = int(other.rows_of([name])[0])
        other.use(row, {"cpu": used[name]}, 1)
        for relation in RELATIONS:
            other.relation_store.count_all(relation.name, np.array([row]), joined[name], joined[name])
    other.settle()
    assert machines.kinds == other.kinds or not used
    assert machines.kind[machines.order()].tolist() == other.kind[other.order()].tolist()
    assert machines.order().tolist() == np.flatnonzero(machines.alive).tolist()
    assert told(machines) == told(other)
    assert [name for name in machines.names if name is not None] == sorted(used)


@settings(deadline=None)
@given(EVENTS, st.sets(st.integers(0, 39)))
def test_a_copy_that_catches_up_is_the_same_and_each_reader_sees_each_change(
    events: list[tuple[str, str]], looks: set[int]
) -> None:
    machines, mirror = empty(), empty()
    read, read_mirror, changed = 0, 0, set[str]()
    for i, (what, name) in enumerate(events):
        row = machines.row(name)
        if what == "put":
            put(machines, name)
            changed.add(name)
        elif what == "remove":
            machines.remove_machine(name)
            changed.discard(name)
        elif what == "settle":
            machines.settle()
        elif row is not None:
            machines.use(row, {"cpu": 1}, 1)
            changed.add(name)
        if i in looks:
            rows, read = machines.changed_since(read)
            assert changed <= {machines.name(row) for row in rows.tolist()}
            mirror.catch_up(machines)
            rows, read_mirror = mirror.changed_since(read_mirror)
            assert changed <= {mirror.name(row) for row in rows.tolist()}
            changed = set()
            assert (mirror.names, mirror.kinds, told(mirror)) == (machines.names, machines.kinds, told(machines))
            if mirror.machine_count:  # a round may write into its own copy
                mirror.use(int(mirror.order()[0]), {"cpu": 7}, 1)
                assert told(mirror) != told(machines)
    mirror.catch_up(machines)
    assert told(mirror) == told(machines)


def test_a_machine_that_comes_back_moves_no_other() -> None:
    machines = empty()
    for name in NAMES:
        put(machines, name)
    machines.settle()
    machines.remove_machine("c")
    put(machines, "c")
    assert machines.settle() is None and machines.row("c") == 2
    machines.remove_machine("e")
    put(machines, "dd")
    assert machines.settle() is None and machines.row("dd") == 4
    put(machines, "aa")
    assert machines.settle() is not None and machines.row("aa") == 1


def test_rows_do_not_grow_where_names_only_rise() -> None:
    machines = MachineRows((), ("cpu",))
    for i in range(200):
        machines.put_machine(f"m{i:03}", MachineKind("machine"), {"cpu": 1}, {})
        if i >= 4:
            machines.remove_machine(f"m{i - 4:03}")
        machines.settle()
        assert machines.order().tolist() == np.flatnonzero(machines.alive).tolist()
    assert machines.rows == 16
