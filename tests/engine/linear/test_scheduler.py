"""Rounds at linear prices on snapshots: nothing is overcommitted, and what is decided depends on the snapshot alone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import (
    CATALOGUE,
    HUNGRY,
    LARGE,
    SCALING,
    in_another_order,
    machine,
    machines,
    running,
    service,
    snapshot,
    snapshots,
    task,
)
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions
from flowsched.cluster.events import (
    Event,
    MachineAdded,
    MachineRemoved,
    RoundDecided,
    TaskBound,
    TaskFinished,
    TaskPreempted,
    TaskSubmitted,
    TaskWithdrawn,
)
from flowsched.cluster.snapshot import Machine, RelationCount, Reservation, Snapshot, Task
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.pricing.linear.policy import ClassPrices
from flowsched.records.record_file import read_record, record_json
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.round.linear.choice import chosen, names
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.network_scheduler import NetworkScheduler, solve_network_round
from flowsched.round.linear.snapshot_adapter import round_up
from flowsched.solvers import make_solver
from flowsched_models.document import InputError

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
OURS = ("flow-network", "quincy", "load-spreading", "coco", "shortest-job-first", "trivial")


def scheduler(policy: str = "flow-network", **further: object) -> NetworkScheduler:
    return NetworkScheduler(chosen(policy), make_solver("ortools"), **further)  # type: ignore[arg-type]


def alike(a: Decisions, b: Decisions) -> None:
    assert a.placements == b.placements
    assert a.postponements == b.postponements
    assert a.reservations == b.reservations
    assert a.certificate == b.certificate


def check(found: Snapshot, decided: Decisions) -> None:
    """Every task is decided on once, and no machine is given more than it has."""
    told = [p.task for p in decided.placements] + [p.task for p in decided.postponements]
    assert sorted(told) == sorted(t.name for t in found.pending)
    tasks = {t.name: t for t in found.pending}
    cpu, memory = found.free_milli(), found.free_memory_mib()
    for p in decided.placements:
        one = tasks[p.task]
        assert p.width_milli == one.widths_milli[0]
        assert one.machines is None or p.machine in one.machines
        assert p.cores and p.cores == found.batch_cores(next(m for m in found.machines if m.name == p.machine))
        assert sum(p.terms.values()) == pytest.approx(p.cost, abs=1e-9)
        cpu[p.machine] -= p.width_milli
        memory[p.machine] -= one.memory_mib
    used = {p.machine for p in decided.placements}
    assert all(cpu[m] >= 0 and memory[m] >= 0 for m in used)
    if decided.certificate is not None:
        assert decided.certificate.bound <= decided.certificate.primal + 1e-9
    assert all(p.reason for p in decided.postponements)


def test_our_policies_are_known_by_name() -> None:
    assert set(OURS) <= set(names())


@pytest.mark.parametrize("policy", OURS)
@given(found=snapshots())
@QUICK
def test_rounds_keep_to_what_there_is(policy: str, found: Snapshot) -> None:
    check(found, scheduler(policy).decide(found))


@given(found=snapshots(), order=st.randoms(use_true_random=False))
@QUICK
def test_the_order_of_a_snapshot_means_nothing(found: Snapshot, order: random.Random) -> None:
    alike(scheduler().decide(found), scheduler().decide(in_another_order(found, order)))


def carry_out(state: ClusterState, decided: Decisions, now_s: float) -> None:
    for p in decided.placements:
        state.apply(TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, now_s), now_s)
    state.apply(RoundDecided(decided.plan, decided.reservations), now_s)


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[str, int]]]:
    """What happens between rounds: kinds of events with a number that chooses among what is there."""
    event = st.tuples(
        st.sampled_from(("submit", "submit", "submit", "end", "machine", "remove", "withdraw", "preempt", "replace")),
        st.integers(0, 10_000),
    )
    return draw(st.lists(st.lists(event, max_size=5), min_size=2, max_size=6))


def happen(state: ClusterState, now_s: float, events: list[tuple[str, int]], names_used: Counter[str]) -> None:
    for kind, number in events:
        names_used[kind] += 1
        count = names_used[kind]
        found = state.snapshot(now_s)
        names = [r.task.name for r in found.running] if kind in ("end", "preempt") else [t.name for t in found.pending]
        name = names[number % len(names)] if names else ""
        match kind:
            case "submit":
                new = f"t{(number * 7919) % 1000:03d}-{count}"
                state.apply(TaskSubmitted(arriving(new, number, now_s)), now_s)
            case "withdraw" if name:
                state.apply(TaskWithdrawn(name), now_s)
            case "replace" if name:
                state.apply(TaskWithdrawn(name), now_s)
                state.apply(TaskSubmitted(arriving(name, number, now_s)), now_s)
            case "end" if name:
                state.apply(TaskFinished(name), now_s)
            case "preempt" if name:
                state.apply(TaskPreempted(name, number % 2 == 0), now_s)
            case "machine":
                state.apply(MachineAdded(machine(f"{'amz'[number % 3]}-new-{count}", LARGE)), now_s)
            case "remove" if len(found.machines) > 1:
                state.apply(MachineRemoved(found.machines[number % len(found.machines)].name), now_s)


def arriving(name: str, number: int, now_s: float) -> Task:
    return task(
        name,
        (SCALING, HUNGRY)[number % 2],
        widths_milli=((1000, 2000, 3000)[number % 3],),
        memory_mib=(500, 4000, 9000)[number // 3 % 3],
        submit_s=now_s - number % 5,
        priority=(0, 0, 5)[number % 3],
        machines=("m1", "m2") if number % 11 == 0 else None,
    )


@pytest.mark.parametrize("policy", ["flow-network", "load-spreading", "shortest-job-first"])
@given(history=histories(), start=st.integers(1, 4))
@QUICK
def test_one_that_has_seen_it_all_decides_like_one_that_has_seen_nothing(
    policy: str, history: list[list[tuple[str, int]]], start: int
) -> None:
    kept = scheduler(policy)
    state = ClusterState.of(snapshot([], machines(start), services=[service(qps=20_000.0)]))
    used: Counter[str] = Counter()
    for number, events in enumerate(history):
        now_s = 400.0 * number
        happen(state, now_s, events, used)
        decided, found = kept.decide_on(state, now_s), state.snapshot(now_s)
        check(found, decided)
        alike(decided, scheduler(policy).decide(found))
        carry_out(state, decided, now_s)


def test_what_did_not_change_is_not_looked_at() -> None:
    kept = scheduler()
    state = ClusterState.of(snapshot([task(f"t{k}", widths_milli=(1000,)) for k in range(3)], machines(20)))
    decided = kept.decide_on(state, 0.0)
    assert kept.upkeep()["rebuilt"]["first_round"] == 1
    carry_out(state, decided, 0.0)
    kept.decide_on(state, 10.0)
    assert kept.upkeep()["applied"]["tasks_started"] == 3
    assert not kept.upkeep()["rebuilt"]
    state.apply(TaskSubmitted(task("z", widths_milli=(1000,), submit_s=10.0)), 10.0)
    kept.decide_on(state, 10.0)
    applied = kept.upkeep()["applied"]
    assert applied["tasks_submitted"] == 1
    assert applied.get("groups.machines", 0) <= 4, "only machines that changed are counted again"
    assert not kept.upkeep()["rebuilt"]


def test_events_are_followed_without_a_look_at_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than logs keep for a reader that never looks."""
    state = ClusterState.of(snapshot([], machines(2)))
    kept = scheduler()
    kept.decide_on(state, 0.0)
    monkeypatch.setattr(ClusterState, "snapshot", None)
    for k in range(600):
        state.apply(TaskSubmitted(task(f"t{k}", widths_milli=(1000,), submit_s=float(k))), float(k))
        carry_out(state, kept.decide_on(state, float(k)), float(k))
        state.apply(TaskFinished(f"t{k}"), float(k))
    assert kept.upkeep()["applied"] == {"tasks_submitted": 1, "tasks_left": 1, "groups.machines": 1}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (MachineAdded(machine("m3")), ""),
        (MachineAdded(machine("a")), ""),
        (MachineAdded(machine("z", LARGE)), "machine_types"),
        (TaskSubmitted(task("s", machines=("m1",))), "machine_lists"),
        (TaskSubmitted(task("s", submit_s=-5.0)), ""),
        (TaskSubmitted(task("a")), ""),
        (TaskSubmitted(task("s", locality=(("rack", "a", 1.0),))), "locality"),
        (TaskSubmitted(task("s", resources=(("fpga", 1),))), "resources"),
    ],
)
def test_making_anew_has_a_reason(event: Event, reason: str) -> None:
    kept, state = scheduler(), ClusterState.of(snapshot([task("t0")], machines(2)))
    kept.decide_on(state, 0.0)
    state.apply(event, 0.0)
    kept.decide_on(state, 0.0)
    why = {one for one in kept.upkeep()["rebuilt"] if not one.startswith("groups.")}
    assert why == ({reason} if reason else set())


@pytest.mark.parametrize("ends", [(), ("z",), ("z", "a")])
def test_resources_that_came_and_went_leave_no_trace_in_records(ends: tuple[str, ...]) -> None:
    """Those of tasks and machines that are there count, in the order of their names and not of their arrival."""
    kept, state = scheduler(keep_records=True), ClusterState.of(snapshot([task("t")], machines(1)))
    kept.decide_on(state, 0.0)
    for name in ("z", "a"):
        state.apply(TaskSubmitted(task(name, resources=((name, 1),))), 0.0)
        state.apply(MachineAdded(machine(f"with-{name}", resources=((name, 2),))), 0.0)
        kept.decide_on(state, 0.0)
    for name in ends:
        state.apply(TaskWithdrawn(name), 0.0)
        state.apply(MachineRemoved(f"with-{name}"), 0.0)
    decided = kept.decide_on(state, 0.0)
    again = scheduler(keep_records=True).decide(state.snapshot(0.0))

    alike(decided, again)
    assert decided.record is not None
    assert again.record is not None
    names = ["cpu", "memory", *sorted({"a", "z"} - {*ends})]
    assert [part["fleet"]["resources"] for part in decided.record["parts"]] == [names]
    plain = [
        [{k: v for k, v in part.items() if k != "timings"} for part in d["parts"]]
        for d in (decided.record, again.record)
    ]
    assert record_json({"parts": plain[0]}) == record_json({"parts": plain[1]})


def test_another_state_is_laid_out_anew() -> None:
    kept = scheduler()
    for count in (1, 2):
        found = snapshot([task(f"t{count}")], machines(count))
        alike(kept.decide(found), scheduler().decide(found))
    assert kept.upkeep()["rebuilt"]["another_state"] == 1


def test_a_task_with_a_list_of_machines_goes_nowhere_else() -> None:
    found = snapshot([task("t", machines=("m2", "gone"))], machines(3))
    (placed,) = scheduler("trivial").decide(found).placements
    assert placed.machine == "m2"
    (left,) = scheduler("trivial").decide(snapshot([task("t", machines=("gone",))], machines(3))).postponements
    assert left.reason == "none of the 3 machines may take it"


def test_reasons_have_numbers() -> None:
    wide = task("wide", widths_milli=(3000,))
    found = snapshot(
        [wide, task("huge", widths_milli=(32_000,)), task("fat", memory_mib=10**6)],
        machines(2),
        running=[running(task(f"r{k}"), f"m{k}", (0, 1)) for k in (1, 2)],
    )
    reasons = {p.task: p.reason for p in scheduler().decide(found).postponements}
    assert reasons["wide"] == (
        f"needs 3 cores and {wide.memory_mib} MiB on one machine; the emptiest, m1, has 2 cores and 15000 MiB free"
    )
    assert reasons["huge"] == "needs 32 cores on one machine; no machine is that large: the most is 4 cores"
    assert "1000000 MiB on one machine" in reasons["fat"]


def test_waiting_may_be_cheaper() -> None:
    policy = chosen("flow-network", [("waiting", "0.001")])
    busy = [running(task(f"r{k}", HUNGRY, cores=1, memory_mib=100), "m1", (0, 1, 2, 3)) for k in range(2)]
    found = snapshot([task("t", HUNGRY, memory_mib=100)], machines(1), running=busy)
    (left,) = NetworkScheduler(policy, make_solver("ortools")).decide(found).postponements
    assert left.reason.startswith("waiting costs 0.001; starting now would cost ")
    assert left.cost == pytest.approx(0.001)


def test_a_service_keeps_its_goal() -> None:
    tight = service(cores=(0,), qps=44_000.0, slo_us=1000.0)
    hungry = [task(f"t{k}", HUNGRY, widths_milli=(1000,)) for k in range(3)]
    found = snapshot(hungry, (machine(), machine("m2")), services=[tight])
    decided = scheduler().decide(found)
    alone = scheduler("trivial").decide(found)
    assert sum(p.machine == "m1" for p in decided.placements) <= sum(p.machine == "m1" for p in alone.placements)
    only = snapshot(hungry, (machine(),), services=[replace(tight, slo_us=1.0)])
    told = {p.reason for p in scheduler().decide(only).postponements}
    assert len(told) == 1 and told.pop().endswith("whose p95 goal it would break")


def test_a_due_task_gets_a_machine_of_its_own() -> None:
    busy = [running(task(f"r{k}", widths_milli=(2000,)), "m1", (0, 1)) for k in range(1)]
    found = snapshot(
        [task("wide", widths_milli=(4000,), submit_s=-1000.0), task("late", widths_milli=(1000,), scale=50.0)],
        machines(1),
        running=busy,
    )
    kept = scheduler()
    decided = kept.decide(found)
    (held,) = decided.reservations
    assert (held.task, held.machine, held.width_milli) == ("wide", "m1", 4000)
    reasons = {p.task: p.reason for p in decided.postponements}
    assert reasons["wide"].startswith("is due, and m1 is reserved for it, predicted to be free in about ")
    assert reasons["late"] == "m1, the only machine with room for it, is reserved for a task that has waited longer"
    again = replace(found, now_s=5.0, reservations=decided.reservations)
    alike(kept.decide(again), scheduler().decide(again))
    forgotten = replace(again, reservations=(Reservation("gone", "m9", 1000, 3.0),))
    alike(kept.decide(forgotten), scheduler().decide(forgotten))


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_keeps_its_machine_whatever_else_a_round_of_flow_has_reserved(count: int) -> None:
    """Rounds of `flow` reserve for four tasks of a priority; a snapshot of them may be solved by any policy."""
    held = (Reservation("a", "m2", 4000, 1005.0), Reservation("b", "m1", 4000, 1006.0))
    found = snapshot(
        [task(name, widths_milli=(4000,), submit_s=float(k)) for k, name in enumerate("ab")],
        machines(2),
        running=[
            running(task("r1", widths_milli=(2000,)), "m1", (0, 1)),
            running(task("r2", widths_milli=(1000,), scale=9.0), "m2", (0, 1)),
        ],
        now_s=1000.0,
        reservations=held[:count],
    )
    assert scheduler().decide(found).reservations == held[:1]


def test_task_groups_start_whole_or_not_at_all() -> None:
    members = [task(f"g{k}", widths_milli=(3000,), group="g") for k in range(3)]
    groups = (TaskGroup("g", 3),)
    two = scheduler().decide(snapshot(members, machines(2), task_groups=groups))
    assert not two.placements
    assert {p.reason for p in two.postponements} == {"group g: 2 of 3 could be placed"}
    three = scheduler().decide(snapshot(members, machines(3), task_groups=groups))
    assert len(three.placements) == 3
    lacking = scheduler().decide(snapshot(members[:2], machines(3), task_groups=groups))
    assert {p.reason for p in lacking.postponements} == {"group g: 2 of 3 are here"}


APART = Relation("apart", RelationKind.APART)
TWO = Relation("two", RelationKind.LIMIT, most=2)
EVEN = Relation("even", RelationKind.SPREAD, "zone")
NEAR = Relation("near", RelationKind.TOGETHER, "zone")


def zoned(count: int) -> list[Machine]:
    return [replace(m, labels=(("zone", "xyz"[i % 3]),)) for i, m in enumerate(machines(count))]


def places(decided: Decisions) -> dict[str, str]:
    return {p.task: p.machine for p in decided.placements}


def both(name: str, relation: str, **further: object) -> Task:
    return task(name, holds=(relation,), joins=(relation,), widths_milli=(1000,), memory_mib=100, **further)


@pytest.mark.parametrize("policy", names())
def test_relations_are_kept(policy: str) -> None:
    one = scheduler(policy).decide(
        snapshot([both(f"t{k}", "apart") for k in range(4)], machines(3), relations=(APART,))
    )
    assert sorted(places(one).values()) == ["m1", "m2", "m3"]
    assert [p.reason for p in one.postponements] == [
        "every machine with room is closed to it by relation apart: no matching task in the same machine (anti-affinity)"
    ]

    two = scheduler(policy).decide(snapshot([both(f"t{k}", "two") for k in range(5)], machines(2), relations=(TWO,)))
    assert sorted(Counter(places(two).values()).values()) == [2, 2]

    even = scheduler(policy).decide(snapshot([both(f"t{k}", "even") for k in range(6)], zoned(3), relations=(EVEN,)))
    assert set(Counter(places(even).values()).values()) == {2}

    near = scheduler(policy).decide(snapshot([both(f"t{k}", "near") for k in range(4)], zoned(6), relations=(NEAR,)))
    assert len({int(m[1:]) % 3 for m in places(near).values()}) == 1


def test_what_runs_counts() -> None:
    there = running(both("old", "apart"), "m1", (0,))
    decided = scheduler("coco").decide(
        snapshot([both("new", "apart")], machines(2), running=[there], relations=(APART,))
    )
    assert places(decided) == {"new": "m2"}


def test_relations_and_task_groups_together_leave_nothing_half_done() -> None:
    members = [both(f"g{k}", "apart", group="g") for k in range(3)]
    groups = (TaskGroup("g", 3),)
    less = scheduler("coco").decide(snapshot(members, machines(2), task_groups=groups, relations=(APART,)))
    assert not less.placements
    assert {p.reason for p in less.postponements} == {"group g: 2 of 3 could be placed"}
    enough = scheduler("coco").decide(snapshot(members, machines(3), task_groups=groups, relations=(APART,)))
    assert len(set(places(enough).values())) == 3


def test_a_related_round_is_replayed() -> None:
    found = snapshot(
        [*(both(f"t{k}", "even") for k in range(5)), *(both(f"a{k}", "apart") for k in range(3))],
        zoned(4),
        running=[running(both("old", "apart"), "m1", (0,))],
        relations=(EVEN, APART),
    )
    record = solve_network_round(found, chosen("coco")).record
    assert record is not None
    trace = RecordView(read_record(record_json(record).encode(), "a record"), "a record")
    again = replay(trace)
    assert again.same, again.lines()


class _Broken:
    name = "broken"
    features = ()

    def factors(self, kind: object) -> tuple[float, ...]:
        return ()

    def price(self, task_class: object, kinds: list[object]) -> ClassPrices:
        raise ZeroDivisionError("division by zero")


class _Negative(_Broken):
    def price(self, task_class: object, kinds: list[object]) -> ClassPrices:
        return ClassPrices(np.full(len(kinds), -1.0), np.zeros(0), np.zeros(0), 1.0)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (_Broken(), "--policy: broken: fails to price class scaling (ZeroDivisionError: division by zero)"),
        (_Negative(), "--policy: broken: policy broken priced class scaling with a number below 0 or no number"),
    ],
)
def test_a_broken_policy_is_one_sentence(policy: object, message: str) -> None:
    with pytest.raises(InputError) as error:
        NetworkScheduler(policy, make_solver("ortools")).decide(snapshot([task()]))  # type: ignore[arg-type]
    assert str(error.value) == message


def test_nothing_pending_is_no_problem() -> None:
    decided = scheduler().decide(snapshot([], machines(2)))
    assert (decided.placements, decided.postponements, decided.certificate) == ((), (), None)


@given(found=snapshots(max_pending=4))
@QUICK
def test_exact_rounds_cost_no_more(found: Snapshot) -> None:
    usual = solve_network_round(found, chosen("flow-network"))
    exact = solve_network_round(found, chosen("flow-network"), exact=True)
    check(found, exact)
    if (
        usual.certificate is not None
        and exact.certificate is not None
        and len({t.priority for t in found.pending}) == 1
    ):
        assert exact.certificate.primal <= usual.certificate.primal + 1e-5
        assert exact.certificate.gap_absolute <= usual.certificate.gap_absolute + 1e-5


def test_run_times_are_rounded_up_to_two_digits() -> None:
    assert [round_up(x) for x in (0.0, 99.0, 101.0, 1234.0, 0.0123)] == pytest.approx([0.0, 99.0, 110.0, 1300.0, 0.013])
    assert round_up(float("inf")) == float("inf")


def test_settings_of_rounds_are_heeded() -> None:
    found = snapshot(
        [task("wide", widths_milli=(4000,), submit_s=-50.0)],
        machines(1),
        running=[running(task("r", widths_milli=(1000,)), "m1", (0,))],
    )
    assert not scheduler().decide(found).reservations
    assert scheduler(settings=RoundSettings(due_age_s=10.0)).decide(found).reservations


def test_the_catalogue_may_change() -> None:
    kept = scheduler()
    found = snapshot([task("t"), task("u")], machines(2))
    kept.decide(found)
    slower = replace(CATALOGUE, jobs={**CATALOGUE.jobs, SCALING.name: replace(SCALING, sensitivity=2.0)})
    other = replace(found, catalogue=slower)
    alike(kept.decide(other), scheduler().decide(other))


def test_tasks_of_the_same_name_are_not_the_same_task() -> None:
    kept = scheduler()
    first = snapshot([task("t", HUNGRY)], machines(2))
    kept.decide(first)
    bigger: Task = task("t", SCALING, widths_milli=(3000,))
    other = replace(first, pending=(bigger,))
    alike(kept.decide(other), scheduler().decide(other))


def test_wishes_spreads_and_counted_tasks_are_kept() -> None:
    """What an export of a running cluster has: costs of machines, machines that a spread compares, counts of relations."""
    wishes = (("m1", 1.0), ("m2", 2.0))
    (placed,) = scheduler("trivial").decide(snapshot([task("t", wishes=wishes)], machines(3))).placements
    assert placed.machine == "m3"
    assert placed.terms.keys() == {"place"}
    (placed,) = scheduler("trivial").decide(snapshot([task("t", wishes=wishes)], machines(2))).placements
    assert (placed.machine, placed.terms) == ("m1", {"place": 1.0, "preference": 1.0})

    apart = Relation("apart", RelationKind.APART)
    found = replace(
        snapshot([task("t", holds=("apart",), joins=("apart",))], machines(2)),
        relations=(apart,),
        relation_counts=(RelationCount("m1", "apart", 1, 0),),
    )
    kept = scheduler("trivial")
    (placed,) = kept.decide(found).placements
    assert placed.machine == "m2"
    moved = replace(found, relation_counts=(RelationCount("m2", "apart", 1, 0),))
    (placed,) = kept.decide(moved).placements
    assert placed.machine == "m1"

    even = Relation("even", RelationKind.SPREAD)
    spread = task("t", holds=("even",), joins=("even",), machines=("m1",))
    crowded = replace(
        snapshot([spread], machines(2)), relations=(even,), relation_counts=(RelationCount("m1", "even", 1, 0),)
    )
    assert scheduler("trivial").decide(crowded).placements, "nothing else is compared"
    compared = replace(crowded, pending=(replace(spread, spread_over=("m1", "m2")),))
    assert not scheduler("trivial").decide(compared).placements


def test_what_tasks_say_reaches_policies() -> None:
    here = tuple(replace(m, labels=(("rack", m.name),)) for m in machines(3))
    data = task("t", input_mb=10.0, locality=(("rack", "m2", 1.0),), submit_s=-60.0)
    (placed,) = scheduler("quincy").decide(snapshot([data], here)).placements
    assert placed.machine == "m2"
    beside = [
        running(task(f"r{k}", interference_class=kind), f"m{k}", (0,)) for k, kind in ((1, "devil"), (2, "turtle"))
    ]
    shy = task("t", interference_class="rabbit")
    (placed,) = scheduler("coco").decide(snapshot([shy], machines(2), running=beside)).placements
    assert placed.machine == "m2"
    room = snapshot(
        [task("long", widths_milli=(4000,), run_s=900.0), task("short", widths_milli=(4000,), run_s=9.0)], machines(1)
    )
    (placed,) = scheduler("shortest-job-first").decide(room).placements
    assert placed.task == "short"


@pytest.mark.parametrize("policy", ["trivial", "load-spreading", "flow-network"])
@pytest.mark.parametrize("first", [HUNGRY, SCALING])
@pytest.mark.parametrize("count", [1, 4])
def test_a_class_that_ran_only_so_far_is_served_as_in_rows_laid_out_anew(policy: str, first: str, count: int) -> None:
    """It was known after the class that waited, and comes before it by what it is, or the other way round."""
    second = SCALING if first == HUNGRY else HUNGRY
    waiting = task("z0", second, widths_milli=(1000,))
    there = running(task("r1", first, widths_milli=(2000,)), "m1", (0,))
    kept, state = scheduler(policy), ClusterState.of(snapshot([waiting], machines(3), running=[there]))
    kept.decide_on(state, 0.0)
    for i in range(count):
        for profile, name, width in ((second, "zz", 1000), (first, "aa", 2000)):
            state.apply(TaskSubmitted(task(f"{name}{i}", profile, widths_milli=(width,), submit_s=1.0)), 1.0)
    alike(kept.decide_on(state, 1.0), scheduler(policy).decide(state.snapshot(1.0)))
    names = [c.name for c in kept._rows.cluster.classes]
    assert names == sorted(names)


def test_rows_are_laid_out_anew_once_most_classes_are_those_of_tasks_that_are_gone() -> None:
    kept, state = scheduler(), ClusterState.of(snapshot([], machines(1)))
    reasons = set[str]()
    for k in range(1100):
        state.apply(TaskSubmitted(task(f"t{k}", memory_mib=k + 1, submit_s=float(k))), float(k))
        kept.decide_on(state, float(k))
        state.apply(TaskWithdrawn(f"t{k}"), float(k))
        reasons |= set(kept.upkeep()["rebuilt"])
    assert "classes" in reasons
    assert len(kept._rows.cluster.classes) < 1050
