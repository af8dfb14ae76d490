"""Gangs under relations: each domain is tried, for starting and for reserving, held against brute force."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import any_of, lasting, machine, machines, running, snapshot
from flowsched.cluster.decision import Decisions
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Running, Snapshot, Task
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_simulator import EngineOptions
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.policies import network_scheduler

OWN = Granting("declared", "own")
TOGETHER = Relation("one-switch", RelationKind.TOGETHER, "switch")
SWITCHES = tuple(machine(name, labels=(("switch", name[0]),)) for name in ("a1", "a2", "b1", "b2"))
BOUND = {"holds": ("one-switch",), "joins": ("one-switch",)}


def decide(name: str, view: Snapshot) -> Decisions:
    return BASELINES[name](OWN, 0).decide(view)


def started(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.machine for p in decisions.placements}


def why(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.reason for p in decisions.postponements}


def pair(seconds: float = 100.0, cores: int = 4, at: float = 0.0) -> list[Task]:
    return [lasting(f"w-{k}", cores, seconds, at, group="pair", **BOUND) for k in (1, 2)]


def switches(waiting: Sequence[Task], busy: Mapping[str, float], **changes: object) -> Snapshot:
    """A gang of two whole machines under one of two switches; ``busy``: machines that are taken, until when."""
    there = [running(lasting(f"on-{m}", 4, seconds), m) for m, seconds in busy.items()]
    given = {"running": there, "relations": (TOGETHER,), "task_groups": (TaskGroup("pair", 2),)} | changes
    return snapshot(waiting, SWITCHES, **given)


@pytest.mark.parametrize("name", sorted(set(BASELINES) - {"all-at-once"}))
def test_a_gang_of_two_machines_starts_under_the_switch_that_is_idle(name: str) -> None:
    assert set(started(decide(name, switches(pair(), {"a1": 900.0}))).values()) == {"b1", "b2"}
    waits = why(decide(name, switches(pair(), {"a1": 900.0, "b2": 900.0})))
    assert all(reason.startswith("group pair: 1 of 2 could be placed") for reason in waits.values())


@pytest.mark.parametrize("name", ["quincy", "coco", "trivial", "load-spreading", "shortest-job-first"])
@pytest.mark.parametrize("age_s", [0.0, 1.0])
@pytest.mark.parametrize("taken", ["a1", "b2"])
def test_a_tie_between_waiting_and_a_free_switch_goes_to_the_switch(name: str, age_s: float, taken: str) -> None:
    # With quincy a task without input that came now costs nothing where it waits, as on every machine.
    gang = [replace(t, widths_milli=(4000,)) for t in pair()]
    scheduler = network_scheduler(name, Settings(), EngineOptions(), None)
    view = switches(gang, {}, running=[running(lasting("x", 1, 900.0), taken)], now_s=age_s)
    free = {"b1", "b2"} if taken == "a1" else {"a1", "a2"}
    assert set(started(scheduler.decide(view)).values()) == free


def test_of_switches_with_room_the_one_is_taken_whose_machine_the_rule_likes_best() -> None:
    there = [running(lasting("x", 1, 90.0), "b2"), running(lasting("y", 2, 90.0), "a2")]
    view = switches(pair(cores=2), {}, running=there)
    assert started(decide("best-fit", view)) == {"w-1": "a2", "w-2": "a1"}
    assert started(decide("lpt", replace(view, running=(running(lasting("z", 1, 90.0), "a1"),)))) == {
        "w-1": "a2",
        "w-2": "a1",
    }


@pytest.mark.parametrize("name", ["easy", "conservative"])
def test_a_gang_has_its_reservation_under_one_switch(name: str) -> None:
    # Two machines are free at 50 s, and two under one switch at 70 s.
    behind = [lasting("short", 4, 60.0, 1), lasting("long", 4, 600.0, 2)]
    view = switches([*pair(), *behind], {"a1": 50.0, "a2": 500.0, "b1": 70.0}, now_s=0.0)
    reasons = why(decide(name, view))
    assert [reasons[f"w-{k}"].rpartition("; ")[2] for k in (1, 2)] == [
        "reserved on b1 at 70.0 s",
        "reserved on b2 at 70.0 s",
    ]
    assert started(decide(name, view)) == {"short": "b2"}


def test_a_gang_goes_where_its_members_run() -> None:
    there = [
        running(replace(pair()[0], name="w-0", request_milli=1000), "b1"),
        running(lasting("x", 4, 90.0), "a1"),
    ]
    for name in ("fcfs", "best-fit", "srpt"):
        view = switches(pair(cores=3), {}, running=there, task_groups=(TaskGroup("pair", 3),))
        assert set(started(decide(name, view)).values()) == {"b1", "b2"}


def test_affinity_to_a_task_of_the_same_gang_chooses_its_domain() -> None:
    # `near` must be where `far` is, and fits only beside b1: the first machine for `far` is a1.
    near = lasting("near", 4, 9.0, group="pair", holds=("one-switch",), machines=("b2",))
    far = lasting("far", 1, 9.0, 1, group="pair", joins=("one-switch",))
    for name in ("fcfs", "best-fit", "tetris", "easy"):
        assert started(decide(name, switches([near, far], {}, now_s=1.0))) == {"near": "b2", "far": "b1"}
        alone = switches([replace(near, group=None)], {}, task_groups=())
        assert started(decide(name, alone)) == {}


def test_members_of_different_sizes_change_places_until_all_fit() -> None:
    gang = [lasting(f"g{k}", cores, 9.0, group="pair") for k, cores in enumerate((2, 2, 3))]
    there = [running(lasting("x", 1, 90.0), "m1")]
    view = snapshot(gang, machines(2), running=there, task_groups=(TaskGroup("pair", 3),))
    for name in BASELINES:
        assert len(started(decide(name, view))) == 3, name


def test_shares_of_gpus_change_places_until_all_fit() -> None:
    def shares(*milli: int) -> list[Task]:
        return [
            lasting(f"g{k}", 1, 9.0, group="pair", memory_mib=10, gpus=TaskGpus(1, share))
            for k, share in enumerate(milli)
        ]

    there = running(replace(lasting("x", 1, 90.0, gpus=TaskGpus(1, 200)), memory_mib=10), devices=(0,))
    cluster = [machine(gpus=MachineGpus("V100", 2))]
    for name in BASELINES:
        view = snapshot(shares(500, 500, 800), cluster, running=[there], task_groups=(TaskGroup("pair", 3),))
        assert len(started(decide(name, view))) == 3, name
        view = snapshot(shares(500, 600, 800), cluster, running=[there], task_groups=(TaskGroup("pair", 3),))
        reasons = set(why(decide(name, view)).values())
        assert all(reason.startswith("group pair: 2 of 3 could be placed") for reason in reasons), name


def test_a_search_that_ends_early_says_so() -> None:
    # The cores of 24 machines are enough, and no assignment is: three of four cores leave one that no member takes.
    gang = [lasting(f"g{k:02}", k % 3 + 2, 9.0, group="pair", memory_mib=10 + k) for k in range(30)]
    view = snapshot(gang, machines(24), task_groups=(TaskGroup("pair", 30),))
    (reason,) = set(why(decide("fcfs", view)).values())
    assert re.fullmatch(
        r"group pair: 2\d of 30 could be placed \(not all assignments were searched; more may fit\)",
        reason,
    )


# --- brute force ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Tasks that join each relation by domain, as the reference counts them."""

    relations: Mapping[str, Relation]
    labels: Mapping[str, Mapping[str, str]]
    there: tuple[tuple[Task, str], ...]

    def allows(self, task: Task, name: str) -> bool:
        for relation in self.relations.values():
            holds, joins = relation.name in task.holds, relation.name in task.joins
            domain = self.domain(relation, name)
            members = [self.domain(relation, m) for t, m in self.there if relation.name in t.joins]
            here = sum(d == domain for d in members) if domain is not None else 0
            match relation.kind:
                case RelationKind.LIMIT if joins and domain is not None and here >= relation.most:
                    return False
                case RelationKind.TOGETHER if holds:
                    if domain is None or not (here or (joins and not [d for d in members if d is not None])):
                        return False
                case RelationKind.SPREAD if holds:
                    domains = {self.domain(relation, m) for m in self.labels} - {None}
                    floor = min((members.count(d) for d in domains), default=0)
                    if domain is None or here + joins > relation.skew + floor:
                        return False
        return True

    def domain(self, relation: Relation, name: str) -> str | None:
        return name if relation.key == MACHINE else self.labels[name].get(relation.key)


def most_together(members: Sequence[tuple[Task, int]], free: dict[str, int], counts: Counts) -> Iterator[int]:
    """How many of the members, which need so many cores, any order and any assignment place: all numbers that occur."""
    seen: set[object] = set()

    def go(
        left: frozenset[int], free: dict[str, int], counts: Counts, done: frozenset[tuple[int, str]]
    ) -> Iterator[int]:
        if done in seen:
            return
        seen.add(done)
        yield len(done)
        for k in sorted(left):
            task, cores = members[k]
            for name, left_here in free.items():
                if left_here >= cores and counts.allows(task, name):
                    more = replace(counts, there=(*counts.there, (task, name)))
                    yield from go(left - {k}, {**free, name: left_here - cores}, more, done | {(k, name)})

    yield from go(frozenset(range(len(members))), free, counts, frozenset())


RELATIONS = (
    TOGETHER,
    Relation("one-zone", RelationKind.TOGETHER, "zone"),
    Relation("few-per-switch", RelationKind.LIMIT, "switch", most=2),
    Relation("even", RelationKind.SPREAD, "zone"),
    Relation("few-here", RelationKind.LIMIT, MACHINE, most=1),
)


@st.composite
def gangs(draw: st.DrawFn, count: int = 1) -> Snapshot:
    """Up to five machines under switches in zones, what runs there, and gangs of up to four members."""
    cluster = []
    for k in range(draw(st.integers(2, 5))):
        labels = {key: draw(any_of("a", "a", "b", "b", None)) for key in ("switch", "zone")}
        cluster.append(machine(f"m{k}", labels=tuple((key, v) for key, v in labels.items() if v)))
    chosen = draw(st.lists(st.sampled_from(RELATIONS), min_size=1, max_size=3, unique_by=lambda r: r.name))
    there = []
    for m in cluster:
        cores = draw(st.integers(0, 4))
        if cores:
            joins = tuple(r.name for r in chosen) if draw(st.integers(0, 5)) == 0 else ()
            one = lasting(f"on-{m.name}", cores, draw(any_of(30.0, 60.0, 60.0, 90.0)), joins=joins)
            there.append(running(replace(one, memory_mib=10), m.name))
    waiting, groups = [], []
    for g in range(count):
        alike = draw(st.booleans())
        members = draw(st.integers(2, 4))
        sizes = [draw(st.integers(1, 4))] * members if alike else [draw(st.integers(1, 4)) for _ in range(members)]
        roles = [draw(any_of("both", "both", "both", "holds", "joins")) for _ in range(members)]
        for k, cores in enumerate(sizes):
            names = tuple(r.name for r in chosen)
            role = "both" if alike else roles[k]
            waiting.append(
                lasting(
                    f"g{g}-{k}",
                    cores,
                    10.0 * (1 + g),
                    float(g),
                    group=f"g{g}",
                    holds=names if role != "joins" else (),
                    joins=names if role != "holds" else (),
                    memory_mib=10,
                )
            )
        groups.append(TaskGroup(f"g{g}", draw(st.integers(2, members))))
    return snapshot(
        waiting, cluster, running=there, relations=tuple(chosen), task_groups=tuple(groups), now_s=float(count - 1)
    )


def counts_of(view: Snapshot) -> Counts:
    labels = {m.name: dict(m.labels) for m in view.machines}
    return Counts({r.name: r for r in view.relations}, labels, tuple((r.task, r.machine) for r in view.running))


def free_at(view: Snapshot, seconds: float, taken: Sequence[tuple[str, float, float, int]] = ()) -> dict[str, int]:
    """Free cores of each machine at a time, beside reservations from, until."""
    free = {m.name: 4 for m in view.machines}
    for r in view.running:
        if end_of(r) > seconds:
            free[r.machine] -= r.width_milli // 1000
    for name, start_s, end_s, cores in taken:
        if start_s <= seconds < end_s:
            free[name] -= cores
    return free


def end_of(r: Running) -> float:
    return round(r.start_s + r.task.scale * 100.0 / (r.width_milli // 1000), 6)


@settings(max_examples=45, deadline=None)
@given(gangs())
def test_every_rule_starts_a_gang_if_and_only_if_some_assignment_fits(view: Snapshot) -> None:
    (group,) = view.task_groups
    members = [(t, t.request_milli // 1000) for t in view.pending]
    most = max(most_together(members, free_at(view, view.now_s), counts_of(view)))
    for name in sorted(set(BASELINES) - {"all-at-once"}):
        decisions = decide(name, view)
        found = started(decisions)
        if most < group.minimum:
            assert not found, name
            said = f"group g0: {most} of {group.minimum} could be placed"
            assert {w.partition("; reserved")[0] for w in why(decisions).values()} == {said}, name
        else:
            assert len(found) >= group.minimum, name
            free, counts = free_at(view, view.now_s), counts_of(view)
            for task in (p.task for p in decisions.placements):
                (one,) = (t for t in view.pending if t.name == task)
                assert counts.allows(one, found[task]), name
                counts = replace(counts, there=(*counts.there, (one, found[task])))
                free[found[task]] -= one.request_milli // 1000
            assert min(free.values()) >= 0, name


def reserved(decisions: Decisions) -> dict[str, tuple[str, float]]:
    found = {}
    for task, reason in why(decisions).items():
        if at := re.search(r"; reserved on (\S+) at ([0-9.]+) s$", reason):
            found[task] = at[1], float(at[2])
    return found


@settings(max_examples=45, deadline=None)
@given(gangs(count=2))
def test_gangs_are_reserved_at_the_earliest_time_at_which_some_assignment_fits(view: Snapshot) -> None:
    """The head under both rules; with conservative backfilling the second gang beside the first one's reservation."""
    times = sorted({view.now_s, *(end_of(r) for r in view.running)})
    for name in ("easy", "conservative"):
        decisions = decide(name, view)
        promised = reserved(decisions)
        if started(decisions):
            continue  # what starts is the matter of the other test
        taken: list[tuple[str, float, float, int]] = []
        for group in view.task_groups if name == "conservative" else view.task_groups[:1]:
            members = [(t, t.request_milli // 1000) for t in view.pending if t.group == group.name]
            length_s = 10.0 if group.name == "g0" else 20.0
            moments = sorted({*times, *(moment for _, start, end, _ in taken for moment in (start, end))})
            expected = None
            for start_s in moments:
                inside = [start_s, *(t for t in moments if start_s < t < start_s + length_s)]
                levels = [free_at(view, t, taken) for t in inside]
                free = {m.name: min(level[m.name] for level in levels) for m in view.machines}
                if max(most_together(members, free, counts_of(view))) >= group.minimum:
                    expected = start_s
                    break
            mine = {t.name: promised[t.name] for t, _ in members if t.name in promised}
            assert {at for _, at in mine.values()} == (set() if expected is None else {expected}), (name, group.name)
            assert expected is None or len(mine) >= group.minimum
            taken += [
                (mine[t.name][0], mine[t.name][1], mine[t.name][1] + length_s, n) for t, n in members if t.name in mine
            ]
