"""Counts that events keep against a recount and a naive record, on any history, and on copies that went their own ways."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from bulk_world import NAMES, RELATION_NAMES, RELATIONS, Box, Kind, Naive, World, book, boxes, put
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched.relations.relation_store import RelationStore
from flowsched.relations.topology_filter import TopologyFilter

TASKS = 6


@dataclass
class Branch:
    """A fleet, and in plain dictionaries what should be in it."""

    fleet: BookedTasks
    there: dict[str, Box] = field(default_factory=dict)
    booked: dict[str, tuple[Kind, str]] = field(default_factory=dict)

    def copy(self) -> Branch:
        return Branch(self.fleet.copy(), dict(self.there), dict(self.booked))

    def naive(self, relations: tuple[Relation, ...], without: frozenset[str] = frozenset()) -> Naive:
        running = tuple(pair for task, pair in self.booked.items() if task not in without)
        return Naive(World(tuple(self.there.values()), relations, running))

    def eligible(self, kind: Kind) -> np.ndarray:
        return np.array([name not in kind.ineligible for name in self.fleet.machines.names], dtype=np.bool_)


TASK = st.integers(0, TASKS - 1)
MACHINES = st.sampled_from(NAMES[:5])
RELATION = st.integers(0, 2)
SPREAD_OR_ANY = st.tuples(
    RELATIONS,
    st.sampled_from((RelationKind.SPREAD, RelationKind.SPREAD, None)),
).map(lambda drawn: (replace(drawn[0][0], kind=drawn[1], key="zone"), *drawn[0][1:]) if drawn[1] else drawn[0])
"""The first is a spread over zones more often than not: only spreads count some machines apart from all."""
KINDS = st.builds(
    Kind,
    st.just("kind"),
    st.just(1),
    st.just({}),
    ineligible=st.one_of(st.just(frozenset()), st.frozensets(MACHINES, max_size=2)),
    holds=st.sampled_from(((), (RELATION_NAMES[0],), RELATION_NAMES[:2])),
    joins=st.sampled_from(((RELATION_NAMES[0],), RELATION_NAMES[:2], RELATION_NAMES)),
)
"""Nearly all of them meet in the first relations, so that short histories count something."""
KIND_LISTS = st.lists(KINDS, min_size=TASKS, max_size=TASKS).map(
    lambda found: [replace(kind, name=f"t{i}") for i, kind in enumerate(found)]
)
EVENT = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 4)),
    st.tuples(st.just("relabel"), MACHINES, st.sampled_from(("x", "y", "z", None))),
    st.tuples(st.just("remove"), MACHINES),
    st.tuples(st.just("book"), TASK, MACHINES),
    st.tuples(st.just("book"), TASK, MACHINES),
    st.tuples(st.just("release"), TASK),
    st.tuples(st.just("forget"), RELATION),
    st.tuples(st.just("enrol"), RELATION, TASK),
    st.tuples(st.just("ask"), TASK, MACHINES),
    st.tuples(st.just("copy")),
)
EVENTS = st.lists(st.tuples(st.integers(0, 2), EVENT), min_size=12, max_size=40)
ZONED = boxes(services=False).filter(lambda found: len(found) > 1)


def play(
    machines: tuple[Box, ...], relations: tuple[Relation, ...], tasks: list[Kind], events: list[tuple]
) -> list[Branch]:
    """The branches that a history ends in; it begins with all machines."""
    branches = [Branch(BookedTasks(), {box.name: box for box in machines})]
    for relation in relations:
        branches[0].fleet.machines.relation_store.declare(relation)
    for box in machines:
        put(branches[0].fleet, box)
    for which, event in events:
        branch = branches[which % len(branches)]
        fleet = branch.fleet
        match event:
            case ("put", i) if i < len(machines):
                put(fleet, machines[i])
                branch.there[machines[i].name] = machines[i]
            case ("relabel", name, zone) if name in branch.there:
                box = branch.there[name]
                labels = {key: value for key, value in box.labels.items() if key != "zone"}
                branch.there[name] = replace(box, labels=labels if zone is None else labels | {"zone": zone})
                put(fleet, branch.there[name])
            case ("remove", name):
                fleet.machines.remove_machine(name)
                branch.there.pop(name, None)
            case ("book", i, name):
                book(fleet, tasks[i].name, tasks[i], name)
                branch.booked[tasks[i].name] = tasks[i], name
            case ("release", i):
                fleet.release(tasks[i].name)
                branch.booked.pop(tasks[i].name, None)
            case ("forget", i):
                gone = relations[i].name
                fleet.machines.relation_store.retire(gone)
                fleet.machines.relation_store.declare(relations[i])
                branch.booked = {task: (without(kind, gone), at) for task, (kind, at) in branch.booked.items()}
            case ("enrol", i, t):
                name, task = relations[i].name, tasks[t].name
                fleet.enrol(name, [task])
                if task in branch.booked:
                    kind, at = branch.booked[task]
                    branch.booked[task] = replace(kind, joins=tuple({*kind.joins, name})), at
            case ("ask", i, name):
                # Counts over eligible machines are made by the first question and must be kept from then on.
                fleet.permits_on(tasks[i].holds, tasks[i].joins, name, branch.eligible(tasks[i]))
            case ("copy",) if len(branches) < 3:
                branches.append(branch.copy())
    return branches


def without(kind: Kind, relation: str) -> Kind:
    return replace(
        kind,
        holds=tuple(r for r in kind.holds if r != relation),
        joins=tuple(r for r in kind.joins if r != relation),
    )


def recounted(branch: Branch, relation: Relation) -> Iterator[tuple[str, int, int]]:
    """Members and holders on each machine, from the dictionaries alone."""
    for name in branch.there:
        here = [kind for kind, at in branch.booked.values() if at == name]
        yield name, sum(relation.name in k.joins for k in here), sum(relation.name in k.holds for k in here)


@settings(deadline=None, max_examples=120)
@given(ZONED, SPREAD_OR_ANY, KIND_LISTS, KINDS, EVENTS)
def test_counts_after_any_history_are_what_a_recount_finds(
    machines: tuple[Box, ...],
    relations: tuple[Relation, ...],
    tasks: list[Kind],
    asked: Kind,
    events: list[tuple],
) -> None:

    for branch in play(machines, relations, tasks, events):
        fleet = branch.fleet
        for relation in relations:
            counts = fleet.machines.relation_store.topology_counts(relation.name)
            for name, members, holders in recounted(branch, relation):
                assert counts.members[fleet.machines.row(name)] == members
                assert relation.kind is not RelationKind.APART or counts.holders[fleet.machines.row(name)] == holders
            around = counts.members_around()
            assert all(
                fleet.machines.relation_store.members_around(relation.name)[fleet.machines.row(n)]
                == around[fleet.machines.row(n)]
                for n in branch.there
            )
            for kind in (asked, *tasks[:3]):
                # The filter counts by domain anew; the fleet reads the counts that it has kept.
                holds, joins, eligible = relation.name in kind.holds, relation.name in kind.joins, branch.eligible(kind)
                open_ = TopologyFilter(counts, holds, joins, eligible).open_machines()
                kept = fleet.machines.permits([relation.name] * holds, [relation.name] * joins, eligible)
                rows = [fleet.machines.row(name) for name in branch.there] if holds or joins else []
                assert kept[rows].tolist() == open_[rows].tolist()


@settings(deadline=None, max_examples=120)
@given(ZONED, SPREAD_OR_ANY, KIND_LISTS, KINDS, EVENTS, st.frozensets(TASK, max_size=3))
def test_the_question_about_one_machine_is_the_vector_s_answer_and_the_definitions(
    machines: tuple[Box, ...],
    relations: tuple[Relation, ...],
    tasks: list[Kind],
    asked: Kind,
    events: list[tuple],
    leaving: frozenset[int],
) -> None:
    gone = frozenset(tasks[i].name for i in leaving) | {"unknown"}

    for branch in play(machines, relations, tasks, events):
        fleet = branch.fleet
        eligible = branch.eligible(asked)
        naive, left = branch.naive(relations), branch.naive(relations, gone)
        answers = fleet.machines.permits(asked.holds, asked.joins, eligible)
        for name in branch.there:
            answer = fleet.permits_on(asked.holds, asked.joins, name, eligible)
            assert answer == bool(answers[fleet.machines.row(name)]) == (not naive.refusals(asked, name))
            assert fleet.permits_on(asked.holds, asked.joins, name, eligible, gone) == (not left.refusals(asked, name))
        assert not fleet.permits_on(asked.holds, asked.joins, "nowhere", eligible)


def test_a_spread_over_eligible_machines_is_counted_once_for_each_set_and_kept() -> None:
    fleet = BookedTasks()
    for i in range(40):
        fleet.put_machine(f"n{i:02d}", {}, {"zone": f"z{i % 4}"})
    fleet.machines.relation_store.declare(Relation("even", RelationKind.SPREAD, "zone"))
    # More sets of eligible machines than are kept, each asked about again after tasks came.
    masks = [np.arange(fleet.machines.rows) % 12 != k for k in range(12)]
    for turn in range(3):
        for k, mask in enumerate(masks):
            rows = fleet.machines.permits(["even"], ["even"], mask)
            for name in ("n00", "n01", "n05", "n39"):
                assert fleet.permits_on(["even"], ["even"], name, mask) == rows[fleet.machines.row(name)]
            counts = fleet.machines.relation_store.topology_counts("even")
            again = TopologyFilter(counts, True, True, mask).open_machines()
            assert (rows == (again & fleet.machines.alive)).all()
            fleet.book(f"t{turn}-{k}", f"n{3 * k + turn:02d}", {}, joins=["even"])


def test_a_copy_and_its_original_count_apart() -> None:
    fleet = BookedTasks()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        fleet.put_machine(name, {}, {"zone": zone})
    fleet.machines.relation_store.declare(Relation("even", RelationKind.SPREAD, "zone"))
    fleet.machines.relation_store.declare(Relation("one", RelationKind.LIMIT))
    mask = np.ones(fleet.machines.rows, dtype=np.bool_)
    assert fleet.permits_on(["even"], ["even"], "n1", mask)
    twin = fleet.copy()
    fleet.book("t", "n1", {}, joins=["even", "one"])
    fleet.put_machine("n2", {}, {"zone": "c"})

    assert not fleet.permits_on(["even"], ["even"], "n1", mask) and fleet.permits_on(["even"], ["even"], "n2", mask)
    assert twin.permits_on(["even"], ["even"], "n1", mask) and twin.permits_on(["one"], ["one"], "n1")
    assert not fleet.permits_on(["one"], ["one"], "n1") and fleet.permits_on(["one"], ["one"], "n1", without=["t"])
    twin.book("t", "n3", {}, joins=["even"])
    assert not twin.permits_on(["even"], ["even"], "n3", mask) and fleet.permits_on(["even"], ["even"], "n3", mask)
    assert fleet.machines.labels("n2") == {"zone": "c"} and twin.machines.labels("n2") == {"zone": "a"}


def test_victims_of_a_spread_lower_the_domain_that_all_others_are_compared_with() -> None:
    fleet = BookedTasks()
    for name, zone in (("n1", "a"), ("n2", "b")):
        fleet.put_machine(name, {}, {"zone": zone})
        fleet.machines.relation_store.declare(Relation("even", RelationKind.SPREAD, "zone"))
        fleet.book(f"t-{name}", name, {}, joins=["even"])
    assert fleet.permits_on(["even"], ["even"], "n1")
    assert not fleet.permits_on(["even"], ["even"], "n1", without=["t-n2"])
    assert fleet.permits_on(["even"], ["even"], "n2", without=["t-n2"])


def test_the_last_member_that_leaves_lets_a_first_one_in_anywhere() -> None:
    fleet = BookedTasks()
    for name in ("n1", "n2"):
        fleet.put_machine(name, {}, {})
    fleet.machines.relation_store.declare(Relation("near", RelationKind.TOGETHER))
    fleet.book("t", "n1", {}, joins=["near"])
    assert not fleet.permits_on(["near"], ["near"], "n2")
    assert fleet.permits_on(["near"], ["near"], "n2", without=["t"])
    assert not fleet.permits_on(["near"], [], "n1", without=["t"])


def test_an_undeclared_relation_is_named_by_every_question() -> None:
    fleet = BookedTasks()
    fleet.put_machine("n1", {}, {})
    with pytest.raises(KeyError, match="relation lost was not declared"):
        fleet.permits_on(["lost"], [], "n1")
    with pytest.raises(KeyError, match="relation lost was not declared"):
        fleet.machines.permits(["lost"], [])
    with pytest.raises(KeyError, match="relation lost was not declared"):
        fleet.machines.refusals([], ["lost"])
    with pytest.raises(KeyError, match="relation lost was not declared"):
        fleet.machines.relation_store.members_around("lost")
    with pytest.raises(KeyError, match="relation lost was not declared"):
        fleet.machines.relation_store.topology_counts("lost")


def test_a_machine_is_its_own_domain_with_no_label() -> None:
    fleet = BookedTasks()
    fleet.machines.relation_store.declare(Relation("alone", RelationKind.APART, MACHINE))
    fleet.book("first", "n1", {}, holds=["alone"], joins=["alone"])
    # The task was booked before its machine was there.
    fleet.put_machine("n1", {}, {})
    fleet.put_machine("n2", {}, {})
    assert not fleet.permits_on(["alone"], ["alone"], "n1") and fleet.permits_on(["alone"], ["alone"], "n2")
    fleet.machines.remove_machine("n1")
    fleet.put_machine("n3", {}, {})
    assert fleet.machines.row("n1") is None and fleet.permits_on(["alone"], ["alone"], "n3")
    fleet.put_machine("n1", {}, {})
    assert not fleet.permits_on(["alone"], [], "n1") and not fleet.permits_on([], ["alone"], "n1")


ROLES = st.lists(st.tuples(st.sampled_from(RELATION_NAMES[:2]), st.booleans(), st.booleans()), max_size=4)
COMING = st.lists(st.tuples(ROLES, st.lists(st.integers(0, 5), max_size=5), st.sampled_from((1, -1))), max_size=6)


@given(RELATIONS, COMING, st.lists(st.booleans(), min_size=6, max_size=6), st.permutations(range(6)))
@settings(deadline=None)
def test_tasks_that_come_at_once_count_as_those_that_come_one_by_one(
    relations: tuple[Relation, ...], coming: list[tuple], eligible: list[bool], order: list[int]
) -> None:
    machines = np.array(eligible)
    single, many = RelationStore(), RelationStore()
    for store in (single, many):
        store.grow(6)
        for row in range(6):
            store.put_machine(row, {"zone": f"z{row % 3}"} if row < 5 else {})
        for relation in relations:
            store.declare(relation)
    for roles, rows, sign in coming:
        known = [role for role in roles if single.relation(role[0]) is not None]
        many.book(roles, np.array(rows, dtype=np.int64), sign)
        for (name, holds, joins), row in itertools.product(known, rows):
            held, joined = single.binding_ids([name] if holds else []), single.ids([name] if joins else [])
            single.count((row, held, joined), sign)
        for relation in relations:
            # What is compared for some machines only is counted from the first time that it is asked for.
            asked = [store.open_rows(relation.name, True, True, machines) for store in (single, many)]
            assert all(np.array_equal(*pair) for pair in zip(*asked, strict=True))
            assert single.members(relation.name) == many.members(relation.name)
    rows = np.array(order)
    taken = many.copy()
    taken.move(rows)
    for relation in relations:
        one, other = taken.topology_counts(relation.name), single.topology_counts(relation.name, rows)
        assert all(np.array_equal(getattr(one, of), getattr(other, of)) for of in ("domain", "members", "holders"))
        mine = [taken.open_rows(relation.name, True, True)[0], many.open_rows(relation.name, True, True)[0][rows]]
        assert np.array_equal(*mine)
