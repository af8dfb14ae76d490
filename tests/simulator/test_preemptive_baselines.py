"""Rules that choose by what is left, served, aligned or shared; and those that stop what runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, LARGE, SERIAL, SMALL, any_of, lasting, machine, machines, running, snapshot, task
from flowsched.cluster.decision import Decisions
from flowsched.cluster.snapshot import Snapshot, StartDelay
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.granting import VARIANTS
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import Simulation

OWN = Granting("declared", "own")


def decide(name: str, view: Snapshot) -> Decisions:
    return BASELINES[name](OWN, 0).decide(view)


def placed(decisions: Decisions) -> list[str]:
    return [p.task for p in decisions.placements]


def stopped(decisions: Decisions) -> list[str]:
    return [p.task for p in decisions.preemptions or ()]


def test_sjf_starts_the_shortest_and_stops_nothing() -> None:
    view = snapshot([lasting("long", 4, 90.0), lasting("short", 4, 10.0, 1)], now_s=1.0)
    assert placed(decide("sjf", view)) == ["short"]

    busy = replace(view, running=(running(lasting("busy", 4, 500.0)),))
    decisions = decide("sjf", busy)
    assert (placed(decisions), decisions.preemptions) == ([], None)


def test_srpt_stops_the_task_with_most_left_and_only_for_one_with_less() -> None:
    there = [running(lasting("a", 2, 50.0), "m1", (0, 1)), running(lasting("b", 2, 80.0), "m1", (2, 3))]
    for seconds, expected in ((40.0, ["b"]), (70.0, ["b"]), (80.0, []), (90.0, [])):
        decisions = decide("srpt", snapshot([lasting("new", 2, seconds)], running=there))
        assert stopped(decisions) == expected, seconds
        assert placed(decisions) == ["new"] * len(expected)
    assert all(
        p.keeps_work for p in decide("srpt", snapshot([lasting("new", 2, 1.0)], running=there)).preemptions or ()
    )


def test_srpt_counts_what_is_left_and_stops_no_more_than_it_must() -> None:
    # At 60 s `a` has 40 s left of 100, and the new one needs 50 s and the cores of one other task.
    there = [
        running(lasting("a", 2, 100.0), "m1", (0, 1)),
        running(lasting("b", 1, 200.0), "m1", (2,)),
        running(lasting("c", 1, 300.0), "m1", (3,)),
    ]
    decisions = decide("srpt", snapshot([lasting("new", 1, 50.0, 60.0)], running=there, now_s=60.0))
    assert stopped(decisions) == ["c"]
    wide = decide("srpt", snapshot([lasting("new", 4, 30.0, 60.0)], running=there, now_s=60.0))
    assert sorted(stopped(wide)) == ["a", "b", "c"] and placed(wide) == ["new"]


def test_priority_comes_before_what_is_left() -> None:
    there = running(lasting("a", 4, 10.0, priority=1))
    assert stopped(decide("srpt", snapshot([lasting("new", 4, 1.0)], running=[there]))) == []
    low = running(lasting("a", 4, 1.0))
    assert stopped(decide("srpt", snapshot([lasting("new", 4, 90.0, priority=1)], running=[low]))) == ["a"]


@pytest.mark.parametrize("name", ["srpt", "las"])
@pytest.mark.parametrize("why", ["relation", "group", "endless"])
def test_what_a_relation_or_group_holds_or_has_no_end_is_not_stopped(name: str, why: str) -> None:
    bound = {"relation": {"joins": ("r",)}, "group": {"group": "g"}, "endless": {"endless": True}}[why]
    there = running(replace(lasting("a", 4, 5000.0), **bound), start_s=-1000.0, bound_s=-1000.0)
    view = snapshot(
        [lasting("new", 4, 1.0)],
        running=[there],
        relations=(Relation("r", RelationKind.APART, MACHINE),),
        task_groups=(TaskGroup("g", 1),),
    )
    assert stopped(decide(name, view)) == []
    assert stopped(decide(name, replace(view, running=(replace(there, task=lasting("a", 4, 5000.0)),)))) == ["a"]


def test_las_stops_what_was_served_longer_by_queues_of_core_seconds() -> None:
    there = running(lasting("old", 4, 5000.0))
    for now_s, expected in ((25.0, []), (25.1, ["old"])):  # 4 cores: 100 core-seconds after 25 s
        view = snapshot([lasting("new", 4, 9000.0, now_s)], running=[there], now_s=now_s)
        assert stopped(decide("las", view)) == expected


def test_las_remembers_what_was_served_before_a_task_was_stopped() -> None:
    rule = BASELINES["las"](OWN, 0)
    old = lasting("old", 4, 5000.0)
    rule.decide(snapshot([lasting("new", 4, 9000.0, 40.0)], running=[running(old)], now_s=40.0))
    # `old` waits with 160 core-seconds: behind one that was never served, though it came first.
    after = snapshot([old, lasting("third", 4, 9.0, 41.0)], now_s=41.0)
    assert placed(rule.decide(after)) == ["third"]


def test_tetris_matches_demands_to_what_is_free() -> None:
    # m1 has cores left and little memory, m2 memory and few cores.
    there = [running(task("x", cores=1, memory_mib=14_000), "m1"), running(task("y", cores=3, memory_mib=1000), "m2")]
    waiting = [lasting("cores", 1, 10.0, memory_mib=100), replace(lasting("memory", 1, 10.0), memory_mib=12_000)]
    where = {p.task: p.machine for p in decide("tetris", snapshot(waiting, machines(2), running=there)).placements}
    assert where == {"cores": "m1", "memory": "m2"}


def test_tetris_prefers_little_work_where_demands_are_alike() -> None:
    view = snapshot([lasting("long", 3, 900.0), lasting("short", 3, 9.0, 1)], now_s=1.0)
    assert placed(decide("tetris", view)) == ["short"]


def test_tetris_takes_the_larger_of_two_that_are_equally_long() -> None:
    # Each alone fills most of the machine; the work of both is little beside the alignment.
    waiting = [lasting("narrow", 2, 1.0), lasting("wide", 3, 1.0, 1), lasting("huge", 1, 5000.0, 2)]
    assert placed(decide("tetris", snapshot(waiting, now_s=2.0)))[0] == "wide"


def test_wfs_gives_each_job_its_share_by_weight() -> None:
    def tasks(job: str, weight: float) -> list:
        return [replace(lasting(f"{job}-{k}", 1, 10.0), job=job, weight=weight) for k in range(12)]

    view = snapshot([*tasks("heavy", 3.0), *tasks("light", 1.0)], machines(3))
    names = placed(decide("wfs", view))
    assert (sum(n.startswith("heavy") for n in names), len(names)) == (9, 12)


def test_wfs_counts_what_runs_and_the_dominant_resource() -> None:
    there = running(replace(lasting("rich-0", 1, 90.0), job="rich", memory_mib=8000))
    waiting = [replace(lasting(f"{job}-1", 2, 9.0), job=job, memory_mib=100) for job in ("rich", "poor")]
    assert placed(decide("wfs", snapshot(waiting, running=[there])))[0] == "poor-1"


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_wfs_does_not_let_rounding_decide_between_equal_shares(weight: float) -> None:
    # Three tenths of the cluster either way: in floats 0.1 + 0.1 + 0.1 > 0.3.
    ten = [machine(f"m{k}", cpu_milli=5000, vcpus=5) for k in (1, 2)]
    many = [replace(lasting(f"a-{k}", 1, 9.0), job="a", memory_mib=0, weight=weight) for k in range(3)]
    wide = replace(lasting("b", 3, 9.0), memory_mib=0, weight=weight)
    types = {**CATALOGUE.machine_types, "small": replace(SMALL, vcpus=5)}
    view = snapshot([*many, wide], ten, catalogue=replace(CATALOGUE, machine_types=types))
    assert placed(decide("wfs", view)) == ["a-0", "a-1", "a-2", "b"]
    # 0.9 of a weight of 3 is 0.3 of one of 1; 0.3 / 0.1 is not 0.9 / 0.3 in floats.
    pair = [replace(lasting("a", 9, 9.0), weight=3 * weight), replace(lasting("b", 3, 9.0, 1), weight=weight)]
    pair = [replace(t, memory_mib=0, weight=round(t.weight, 1)) for t in pair]
    wide_machines = [machine("m1", cpu_milli=10_000, vcpus=10), machine("m2", cpu_milli=10_000, vcpus=10)]
    types = {**CATALOGUE.machine_types, "small": replace(SMALL, vcpus=10)}
    view = snapshot(pair, wide_machines, catalogue=replace(CATALOGUE, machine_types=types), now_s=1.0)
    assert placed(decide("wfs", view)) == ["a", "b"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_wfs_equals_a_loop_over_integers(data: st.DataObject) -> None:
    cores, count = data.draw(st.sampled_from([3, 5, 7, 10, 12])), data.draw(st.integers(1, 3))
    types = {**CATALOGUE.machine_types, "small": replace(SMALL, vcpus=cores)}
    cluster = [machine(f"m{k}", cpu_milli=1000 * cores, vcpus=cores, memory_mib=900) for k in range(count)]
    waiting = [
        replace(
            lasting(f"t{k}", data.draw(st.integers(1, 3)), 9.0),
            job=data.draw(any_of("a", "b", "c")),
            memory_mib=data.draw(any_of(0, 30, 70, 210)),
            submit_s=float(k),
        )
        for k in range(data.draw(st.integers(2, 12)))
    ]
    weight = {"a": 1, "b": 2, "c": 7}
    waiting = [replace(t, weight=weight[t.job] / 10) for t in waiting]
    view = snapshot(waiting, cluster, catalogue=replace(CATALOGUE, machine_types=types), now_s=12.0)

    free = {m.name: [cores, 900] for m in cluster}
    held = {job: [0, 0] for job in weight}
    total = cores * count, 900 * count
    queues = {job: [t for t in waiting if t.job == job] for job in weight}
    expected = []
    while any(queues.values()):

        def share(job: str) -> int:
            head = queues[job][0]
            asked = held[job][0] + head.request_milli // 1000, held[job][1] + head.memory_mib
            return max(asked[0] * total[1], asked[1] * total[0]) * (14 // weight[job])

        job = min((j for j in queues if queues[j]), key=lambda j: (share(j), queues[j][0].submit_s))
        head = queues[job].pop(0)
        width = head.request_milli // 1000
        fitting = [m for m, left in free.items() if left[0] >= width and left[1] >= head.memory_mib]
        if fitting:
            there = min(fitting, key=lambda m: (-free[m][0], m))
            free[there][0] -= width
            free[there][1] -= head.memory_mib
            held[job][0] += width
            held[job][1] += head.memory_mib
            expected.append((head.name, there))
    assert [(p.task, p.machine) for p in decide("wfs", view).placements] == expected


def test_other_rules_do_not_let_rounding_break_ties_either() -> None:
    # tetris: what is free adds up to 26 tenths on both machines; in floats the order of the resources matters.
    types = {**CATALOGUE.machine_types, "small": replace(SMALL, vcpus=10)}
    odd = replace(CATALOGUE, machine_types=types)
    pair = [machine(m, cpu_milli=10_000, vcpus=10, memory_mib=1000, resources=(("r", 10),)) for m in ("m1", "m2")]
    new = replace(lasting("new", 1, 30.0), memory_mib=100, resources=(("r", 1),))
    one, two = (
        replace(lasting(name, cores, 30.0), memory_mib=100 * tenths, resources=(("r", units),))
        for name, cores, tenths, units in (("one", 1, 1, 2), ("two", 1, 2, 1))
    )
    there = [running(one, "m1"), running(two, "m2")]
    chosen = decide("tetris", snapshot([new], pair, running=there, catalogue=odd)).placements
    assert [p.machine for p in chosen] == ["m1"]
    # all-at-once: the work of 0.1, 0.2 and 1.1 s on m1 is that of 1.4 s on m2; in floats it is more.
    work = {"m1": (0.1, 0.2, 1.1), "m2": (1.4,)}
    busy = [running(lasting(f"{m}-{k}", 1, s), m) for m, each in work.items() for k, s in enumerate(each)]
    busy = [replace(r, width_milli=100) for r in busy]
    chosen = decide("all-at-once", snapshot([lasting("new", 1, 1.0)], machines(2), running=busy)).placements
    assert [p.machine for p in chosen] == ["m1"]
    # las: six sixths of what the first queue holds do not reach into the second.
    rule = BASELINES["las"](OWN, 0)
    rule._served = {"old": dict.fromkeys(map(float, range(6)), ((0.0, 0), 100.0 / 6))}
    order = rule.order(rule.round_of(snapshot([lasting("old", 1, 9.0), lasting("new", 1, 9.0, 1)], now_s=1.0)))
    assert [t.name for t in order] == ["old", "new"]


@st.composite
def streams(draw: st.DrawFn) -> Scenario:
    """Jobs that share machines of two speeds, so that what is left looks different on each of them."""
    at, found = 0.0, []
    for k in range(draw(st.integers(2, 10))):
        at += draw(any_of(0.0, 3.0, 20.0))
        profile = draw(st.sampled_from((SERIAL, CATALOGUE.jobs["scaling"])))
        scale = draw(any_of(0.2, 1.0, 3.0))
        one = task(f"job-{k}", profile, cores=draw(any_of(1, 2, 4)), scale=scale, submit_s=at)
        found.append(replace(one, priority=draw(any_of(0, 0, 1))))
    cluster = (machine("m1", SMALL), machine("m2", LARGE))[: draw(st.integers(1, 2))]
    delay = draw(any_of(StartDelay(), StartDelay(1.0, 4.0)))
    return Scenario("drawn", "", CATALOGUE, cluster, (), tuple(found), start_delay=delay)


class Counting:
    """A scheduler whose rounds end: it is not asked without limit at one instant."""

    def __init__(self, inner: object) -> None:
        self.inner, self.name, self.at = inner, "counting", (-1.0, 0)

    def decide(self, snapshot: Snapshot) -> Decisions:
        now, count = self.at
        self.at = (snapshot.now_s, count + 1 if snapshot.now_s == now else 1)
        assert self.at[1] < 50, "tasks stop each other in turn"
        return self.inner.decide(snapshot)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["srpt", "las"])
@settings(max_examples=60)
@given(of=streams(), granting=st.sampled_from(VARIANTS))
def test_every_job_ends_however_often_it_is_stopped(name: str, of: Scenario, granting: Granting) -> None:
    run = Simulation(of, Counting(BASELINES[name](granting, 0))).run()
    assert all(j.end_s is not None for j in run.jobs)
    stays = [s for j in run.jobs for s in j.earlier]
    assert sum(r.preempted or 0 for r in run.rounds) == len(stays)


@settings(max_examples=40)
@given(st.data())
def test_srpt_has_the_least_mean_completion_on_one_machine_of_one_task(data: st.DataObject) -> None:
    """Schrage's theorem: with exact run times, no order of these rules ends jobs sooner on average."""
    at, found = 0.0, []
    for k in range(data.draw(st.integers(2, 7))):
        at += data.draw(any_of(0.0, 5.0, 25.0))
        found.append(lasting(f"job-{k}", 4, float(data.draw(st.integers(1, 60))), at))
    of = Scenario("one", "", CATALOGUE, machines(1), (), tuple(found))
    mean = {
        name: np.mean([j.completion_s for j in Simulation(of, BASELINES[name](OWN, 0)).run().jobs])
        for name in ("srpt", "sjf", "fcfs", "las", "wfs")
    }
    assert mean["srpt"] <= min(mean.values()) + 1e-6
