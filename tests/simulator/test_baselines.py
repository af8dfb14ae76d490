"""What each greedy scheduler is known for, and what all of them must never do."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    CATALOGUE,
    HUNGRY,
    LARGE,
    SERIAL,
    SMALL,
    machine,
    machines,
    running,
    service,
    snapshot,
    snapshots,
    task,
)
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.snapshot import MILLI, Snapshot
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.expectation import effective_cores, load_s, run_time_alone_s, spread
from flowsched_simulator.baselines.granting import VARIANTS
from flowsched_simulator.baselines.greedy_round import Round, cores_text
from flowsched_simulator.baselines.kube_default import KubeDefault, balanced_score
from flowsched_simulator.baselines.most_allocated import MostAllocated
from flowsched_simulator.baselines.registry import BASELINES, variants_of
from flowsched_simulator.baselines.room import RoomLayout, RoomsOfRows, pick_cores
from flowsched_simulator.policies import describe

OWN = Granting("declared", "own")
SHARED = Granting("declared", "shared")


def decide(name: str, view: Snapshot, granting: Granting = OWN, seed: int = 0) -> Decisions:
    scheduler: Scheduler = BASELINES[name](granting, seed)
    return scheduler.decide(view)


def where(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.machine for p in decisions.placements}


def why(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.reason for p in decisions.postponements}


# --- which task first, and who blocks whom ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "started"),
    [
        ("fcfs", set()),
        ("best-fit", {"small"}),
        ("lpt", {"small"}),
        ("random", {"small"}),
        ("all-at-once", {"wide", "small"}),
        ("kube-default", {"small"}),
        ("most-allocated", {"small"}),
        ("easy", {"small"}),
        ("conservative", {"small"}),
        ("sjf", {"small"}),
        ("srpt", {"small"}),
        ("las", {"small"}),
        ("tetris", {"small"}),
        ("wfs", {"small"}),
    ],
)
def test_only_strict_order_lets_a_wide_head_block_a_small_task(name: str, started: set[str]) -> None:
    # `small` ends before `busy` does, so that no reservation of `wide` is delayed; and `busy` has less left than `wide`.
    busy = running(task("busy", cores=2))
    view = snapshot(
        [task("wide", cores=4, scale=9.0), task("small", cores=1, submit_s=1, scale=0.1)], running=[busy], now_s=1.0
    )

    assert set(where(decide(name, view))) == started


def test_fcfs_names_the_task_that_blocks_the_queue() -> None:
    busy = running(task("busy", cores=1))
    view = snapshot([task("canneal-2", cores=4), task("next", cores=1, submit_s=2)], running=[busy], now_s=5.0)

    reasons = why(decide("fcfs", view))

    assert reasons["canneal-2"] == "needs 4 cores on one machine; m1 has 3 free"
    assert reasons["next"] == "waits behind canneal-2, which needs 4 cores (first come, first served)"
    assert {p.task: p.waited_s for p in decide("fcfs", view).postponements} == {"canneal-2": 5.0, "next": 3.0}


def test_fcfs_is_not_blocked_by_a_task_that_can_never_start() -> None:
    view = snapshot([task("hopeless", memory_mib=99_000), task("next", submit_s=1)], now_s=1.0)

    decisions = decide("fcfs", view)

    assert set(where(decisions)) == {"next"}
    assert why(decisions) == {
        "hopeless": "needs 99000 MiB on one machine; the largest of 1 offers 16000 MiB even when idle"
    }


@pytest.mark.parametrize("name", BASELINES)
def test_higher_priority_comes_first(name: str) -> None:
    memory = SMALL.memory_mib
    urgent = task("urgent", SERIAL, cores=4, priority=1, submit_s=1, memory_mib=memory)
    view = snapshot([task("long", HUNGRY, cores=4, memory_mib=memory), urgent], now_s=1.0)

    assert set(where(decide(name, view))) == {"urgent"}


def test_lpt_takes_the_longest_at_the_granted_width_first() -> None:
    # On one core `scaling` runs 100 s and `serial` 90 s; on four, 25 s and 56.25 s.
    waiting = [task("scaling"), task("serial", SERIAL, scale=1.5)]
    one = snapshot(waiting, [machine(cpu_milli=1000)])
    four = snapshot(waiting)

    assert set(where(decide("lpt", one, Granting(1, "own")))) == {"scaling"}
    assert set(where(decide("lpt", four, Granting(4, "own")))) == {"serial"}


def test_all_at_once_starts_more_than_could_be_requested() -> None:
    view = snapshot([task(f"t{k}", SERIAL, cores=4) for k in range(20)], machines(2))

    decisions = decide("all-at-once", view)

    assert len(decisions.placements) == 20
    assert {p.width_milli for p in decisions.placements} == {100}
    assert {p.cores for p in decisions.placements} == {(0, 1, 2, 3)}


def test_all_at_once_waits_for_memory() -> None:
    decisions = decide("all-at-once", snapshot([task(f"t{k}", HUNGRY) for k in range(3)]))

    assert len(decisions.placements) == 2
    assert list(why(decisions).values()) == ["needs 6000 MiB on one machine; m1 has 4000 MiB free"]


# --- which machine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("fcfs", "m1"),
        ("best-fit", "m2"),
        ("lpt", "m3"),
        ("kube-default", "m3"),
        ("most-allocated", "m2"),
        ("all-at-once", "m3"),
        ("easy", "m1"),
        ("conservative", "m1"),
        ("sjf", "m3"),
        ("srpt", "m3"),
        ("las", "m3"),
        ("tetris", "m3"),
        ("wfs", "m3"),
    ],
)
@pytest.mark.parametrize("granting", [OWN, SHARED], ids=lambda g: g.label)
def test_each_rule_has_its_machine(name: str, chosen: str, granting: Granting) -> None:
    there = [
        running(task("busy-1", cores=1, memory_mib=4000), "m1"),
        running(task("busy-2", cores=2, memory_mib=8000, scale=2.0), "m2"),
    ]
    view = snapshot([task(cores=1, memory_mib=4000)], machines(3), running=there)
    if granting is SHARED:
        view = replace(view, running=tuple(replace(r, cores=(0, 1, 2, 3)) for r in there))

    assert where(decide(name, view, granting)) == {"t1": chosen}


def test_best_fit_fills_a_machine_before_it_opens_another() -> None:
    view = snapshot([task(f"t{k}", cores=c, submit_s=k) for k, c in enumerate((2, 3, 2, 1))], machines(3))

    assert where(decide("best-fit", view)) == {"t0": "m1", "t1": "m2", "t2": "m1", "t3": "m2"}


def test_lpt_breaks_a_tie_of_free_cores_by_speed() -> None:
    view = snapshot([task()], [machine("m1"), machine("m2", LARGE, cpu_milli=4000)])

    assert where(decide("lpt", view)) == {"t1": "m2"}


def test_lpt_spreads_equal_tasks() -> None:
    view = snapshot([task(f"t{k}", cores=2) for k in range(6)], machines(3))

    assert Counter(where(decide("lpt", view)).values()) == {"m1": 2, "m2": 2, "m3": 2}


def test_all_at_once_counts_work_not_tasks_and_deals_out_the_most_work_first() -> None:
    waiting = [task("t1"), task("t2"), task("t3"), task("t4", scale=3.0)]

    assert where(decide("all-at-once", snapshot(waiting, machines(2)))) == {
        "t4": "m1",
        "t1": "m2",
        "t2": "m2",
        "t3": "m2",
    }


def test_all_at_once_counts_only_the_work_that_is_left() -> None:
    old = running(task("old", scale=3.0), "m1", (0, 1, 2, 3), progress=0.95)
    other = running(task("other"), "m2", (0, 1, 2, 3))

    assert where(decide("all-at-once", snapshot([task()], machines(2), running=[old, other]))) == {"t1": "m1"}


def test_random_differs_by_seed_and_by_round_but_not_by_repetition() -> None:
    view = snapshot([task(f"t{k}", cores=1) for k in range(8)], machines(4))

    assert decide("random", view, seed=1) == decide("random", view, seed=1)
    assert decide("random", view, seed=1) != decide("random", view, seed=2)
    assert decide("random", view, seed=1) != decide("random", replace(view, round=1), seed=1)


@pytest.mark.parametrize("name", BASELINES)
def test_the_order_of_equal_machines_does_not_matter(name: str) -> None:
    view = snapshot([task("t1", cores=1), task("t2", cores=1)], machines(3))

    assert decide(name, replace(view, machines=view.machines[::-1])) == decide(name, view)


def test_random_reaches_every_machine() -> None:
    view = snapshot([task(cores=1)], machines(3))

    assert {where(decide("random", view, seed=s))["t1"] for s in range(40)} == {"m1", "m2", "m3"}


@pytest.mark.parametrize(
    ("cores", "memory_mib", "least", "most", "balanced"),
    [
        (4, 16_000, 0, 100, 75),
        (2, 8000, 50, 50, 75),
        (1, 8000, 62, 37, 68),  # (75 + 50) // 2, (25 + 50) // 2, 87 after and 100 before: 50 + (50 - 13) // 2
        (3, 1000, 59, 40, 57),  # (25 + 93) // 2, (75 + 6) // 2, 65 after and 100 before: 50 + (50 - 35) // 2
        # Without a request for CPU 100m, without one for memory 200 MiB count, but not where balance is judged.
        (0, 8000, 73, 26, 62),  # (97 + 50) // 2, (2 + 50) // 2, 75 after: 50 + (50 - 25) // 2
        (2, 0, 74, 25, 62),  # (50 + 98) // 2, (50 + 1) // 2
        (0, 0, 97, 1, 0),  # (97 + 98) // 2, (2 + 1) // 2
    ],
)
def test_kubernetes_scores(cores: int, memory_mib: int, least: int, most: int, balanced: int) -> None:
    one = task(memory_mib=memory_mib)
    (room,) = Round(snapshot([one]), own_cores=False).rooms

    assert balanced_score(one, cores * MILLI, room) == balanced
    assert KubeDefault(SHARED).score(one, cores * MILLI, room) == least + balanced
    assert MostAllocated(SHARED).score(one, cores * MILLI, room) == most + balanced


def test_kubernetes_prefers_where_a_task_evens_the_shares_out() -> None:
    # 50 % of CPU and 0 of memory: 75 points; with half of the memory 100. An empty machine would fall to 75.
    there = running(task("busy", cores=2, memory_mib=0), cores=(0, 1, 2, 3))
    one = task("one", memory_mib=8000)
    uneven, even = Round(snapshot([one], machines(2), running=[there]), own_cores=False).rooms

    assert (balanced_score(one, 0, uneven), balanced_score(one, 0, even)) == (87, 62)


def test_kubernetes_counts_tasks_without_requests_as_something() -> None:
    quiet = [running(replace(task(f"quiet-{k}", memory_mib=0), request_milli=0), cores=(0, 1, 2, 3)) for k in range(4)]
    quiet = [replace(r, width_milli=0) for r in quiet]
    one = task("one", cores=1, memory_mib=4000)
    busy, idle = Round(snapshot([one], machines(2), running=quiet), own_cores=False).rooms

    # 4 x 100m are 10 % of the CPU, 4 x 200 MiB 5 % of the memory.
    scores = [KubeDefault(SHARED).plugin_scores(one, MILLI, room) for room in (busy, idle)]
    assert scores == [
        {"NodeResourcesFit": 67, "NodeResourcesBalancedAllocation": 75},
        {"NodeResourcesFit": 75, "NodeResourcesBalancedAllocation": 75},
    ]


def test_kubernetes_counts_services_as_requested() -> None:
    view = snapshot([task(cores=1)], machines(2), services=[service(machine="m1")])

    assert where(decide("kube-default", view)) == {"t1": "m2"}


# --- what a task is granted -------------------------------------------------------------------------------


def test_labels_tell_grantings_apart() -> None:
    assert Granting(4, "own").label == "request 4, own cores"
    assert Granting("declared", "shared").label == "declared request, shared cores"
    assert len({g.label for g in VARIANTS}) == len(VARIANTS) == 8


@pytest.mark.parametrize("wrong", [("declared", "some"), (0, "own"), (-1, "shared")])
def test_senseless_grantings_are_refused(wrong: tuple[object, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Granting(*wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("granting", "width", "threads", "cores"),
    [
        (Granting("declared", "own"), 1500, 2, (0, 1)),
        (Granting("declared", "shared"), 1500, 4, (0, 1, 2, 3)),
        (Granting(1, "own"), 1000, 1, (0,)),
        (Granting(4, "own"), 4000, 4, (0, 1, 2, 3)),
        (Granting(1, "shared"), 1000, 4, (0, 1, 2, 3)),
    ],
)
def test_granting_sets_width_threads_and_cores(
    granting: Granting, width: int, threads: int, cores: tuple[int, ...]
) -> None:
    (placed,) = decide("fcfs", snapshot([task(cores=1.5)]), granting).placements

    assert (placed.width_milli, placed.threads, placed.cores) == (width, threads, cores)


def test_shared_cores_leave_the_services_alone_and_threads_are_what_the_program_accepts() -> None:
    view = snapshot([task(profile=HUNGRY)], services=[service(cores=(1,))])

    (placed,) = decide("kube-default", view, SHARED).placements

    assert (placed.cores, placed.threads) == ((0, 2, 3), 2)


@pytest.mark.parametrize(
    ("request_cores", "of", "cluster", "granting", "width"),
    [
        (16, "scaling", {}, OWN, 4000),
        (16, "scaling", {"services": [service(cores=(0,))]}, OWN, 3000),
        (16, "scaling", {"services": [service(cores=(0,))]}, SHARED, 3000),
        (16, "hungry", {"services": [service(cores=(0,))]}, OWN, 2000),
        (16, "hungry", {"services": [service(cores=(0,))]}, SHARED, 3000),
        (4, "scaling", {"machines": [machine(cpu_milli=3900)]}, OWN, 3900),
        (16, "scaling", {"machines": [machine("m1"), machine("m2", LARGE)]}, OWN, 8000),
    ],
)
def test_a_request_that_fits_nowhere_is_lowered_to_the_widest_that_does(
    request_cores: int, of: str, cluster: dict[str, object], granting: Granting, width: int
) -> None:
    one = task(profile=CATALOGUE.jobs[of], cores=request_cores)

    (placed,) = decide("fcfs", snapshot([one], **cluster), granting).placements  # type: ignore[arg-type]

    assert placed.width_milli == width


def test_a_request_is_not_lowered_for_a_machine_that_is_only_busy() -> None:
    view = snapshot([task(cores=4)], running=[running(task("busy", cores=1))])

    assert not decide("best-fit", view).placements


def test_lowering_looks_only_at_machines_that_the_task_may_use_and_that_have_its_memory() -> None:
    both = [machine("m1"), machine("m2", LARGE), machine("m3", LARGE, memory_mib=100)]
    view = snapshot([task("here", cores=8, machines=("m1",)), task("there", cores=16, machines=("m1", "m3"))], both)

    widths = {t.name: Round(view, own_cores=True).width_milli(t, t.request_milli) for t in view.pending}

    assert widths == {"here": 4000, "there": 4000}


@pytest.mark.parametrize(
    ("services", "taken", "count", "picked"),
    [
        ((), (), 2, (0, 1)),
        ((), (), 4, (0, 1, 2, 3)),
        ((), (), 5, (0, 1, 2, 3, 4)),
        ((), (0, 1), 2, (2, 3)),
        ((), (0, 1), 3, (2, 3, 6)),  # its own sibling, rather than another task's
        ((), (0, 1), 5, (2, 3, 4, 6, 7)),
        ((0,), (1, 2, 3), 1, (5,)),  # another task's sibling, rather than the service's
        ((0,), (1, 2, 3), 4, (4, 5, 6, 7)),
    ],
)
def test_own_cores_avoid_siblings(
    services: tuple[int, ...], taken: tuple[int, ...], count: int, picked: tuple[int, ...]
) -> None:
    view = snapshot(
        machines=[machine(type=LARGE)],
        services=[service(cores=services)] if services else [],
        running=[running(task("busy", cores=len(taken)), cores=taken)] if taken else [],
    )
    (room,) = Round(view, own_cores=True).rooms

    assert pick_cores(room, count) == picked


# --- reasons ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (task(cores=4), "needs 4 cores on one machine; the emptiest of 3 has 3 free"),
        (task(cores=3.5), "needs 3.5 cores on one machine; the emptiest of 3 has 3 free"),
        (task(cores=4, machines=("m3",)), "needs 4 cores on one machine; m3 has 2 free"),
        (
            task(cores=1, memory_mib=14_000),
            "needs 14000 MiB on one machine; the emptiest of 3 has 12000 MiB free",
        ),
        (
            task(cores=3, memory_mib=8000),
            "needs 3 cores and 8000 MiB on the same machine; m1 has 3 and only 1000 MiB free",
        ),
        (task(machines=("m9",)), "may run on m9 only; none of the cluster's 3 machines is among these"),
        (
            task(memory_mib=20_000),
            "needs 20000 MiB on one machine; the largest of 3 offers 16000 MiB even when idle",
        ),
    ],
)
@pytest.mark.parametrize("granting", [OWN, SHARED], ids=lambda g: g.label)
def test_reasons_have_numbers(waiting, reason: str, granting: Granting) -> None:
    there = [
        running(task("a", cores=1, memory_mib=15_000), "m1"),
        running(task("b", cores=2, memory_mib=4000), "m2"),
        running(task("c", cores=2, memory_mib=4000), "m3"),
    ]
    view = snapshot([waiting], machines(3), running=there)

    assert why(decide("best-fit", view, granting)) == {"t1": reason}


def test_a_machine_that_services_have_to_themselves_takes_no_task() -> None:
    full = service(cores=(0, 1, 2, 3), width_milli=1000)
    for granting in (OWN, SHARED):
        decisions = decide("fcfs", snapshot([task(cores=2)], services=[full]), granting)
        assert why(decisions) == {
            "t1": "needs 2 cores and 1000 MiB on one machine; with that much memory "
            "the largest of 1 offers 0 even when idle"
        }


def test_fcfs_says_when_the_head_waits_for_memory() -> None:
    busy = running(task("busy", cores=1, memory_mib=12_000))
    view = snapshot([task("head", HUNGRY, cores=1), task("next", submit_s=1)], running=[busy], now_s=1.0)

    reason = why(decide("fcfs", view))["next"]
    assert reason == "waits behind head, which needs 1 core and 6000 MiB (first come, first served)"


def test_cores_are_written_as_people_do() -> None:
    assert [cores_text(w) for w in (100, 1000, 1500, 4000)] == ["0.1 cores", "1 core", "1.5 cores", "4 cores"]


# --- run times alone --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "threads", "expected"),
    [
        ((0,), 1, 1.0),
        ((0, 1), 2, 2.0),
        ((0, 4), 2, 1.5),
        ((0, 1, 4), 3, 2.5),
        (range(8), 8, 6.0),
        ((0, 4), 1, 1.0),
    ],
)
def test_a_second_hardware_thread_brings_the_gain_only(cores, threads: int, expected: float) -> None:
    assert effective_cores(CATALOGUE.jobs["scaling"], LARGE, tuple(cores), threads) == expected


def test_run_time_alone_is_amdahls() -> None:
    serial = task(profile=SERIAL, scale=2.0)

    assert run_time_alone_s(CATALOGUE, serial, SMALL, (0,)) == pytest.approx(120.0)
    assert run_time_alone_s(CATALOGUE, serial, SMALL, (0, 1)) == pytest.approx(90.0)
    assert run_time_alone_s(CATALOGUE, serial, LARGE, (0, 1)) == pytest.approx(90.0 / 1.25)


def test_a_program_with_two_threads_on_three_cores_is_as_fast_as_on_two() -> None:
    hungry = task(profile=HUNGRY)
    three, two = (run_time_alone_s(CATALOGUE, hungry, SMALL, tuple(range(n))) for n in (3, 2))

    assert three == two


def test_load_is_work_over_cores() -> None:
    assert load_s(CATALOGUE, task(), SMALL, (0, 1, 2, 3)) == pytest.approx(25.0)
    assert load_s(CATALOGUE, task(), LARGE, range(8)) == pytest.approx(100.0 / 1.25 / 6.0)


def test_spread_takes_siblings_last() -> None:
    assert spread(LARGE, (0, 4, 5, 6, 7), 4) == (0, 5, 6, 7)
    assert spread(LARGE, (0, 4, 5, 6, 7), 5) == (0, 5, 6, 7, 4)


# --- the offer --------------------------------------------------------------------------------------------


def test_baselines_know_their_names_and_say_what_they_do() -> None:
    assert {n: BASELINES[n](OWN).name for n in BASELINES} == {n: n for n in BASELINES}
    lines = {n: describe(n).summary for n in BASELINES}
    assert all(lines[n] == BASELINES[n].description and "\n" not in lines[n] for n in BASELINES)


def test_only_all_at_once_has_a_granting_of_its_own() -> None:
    assert {n for n in BASELINES if variants_of(n) != VARIANTS} == {"all-at-once"}
    assert len(variants_of("all-at-once")) == 1


# --- what none may ever do --------------------------------------------------------------------------------

ANY_SCHEDULER = st.tuples(st.sampled_from(sorted(BASELINES)), st.sampled_from(VARIANTS), st.integers(0, 3))
Chosen = tuple[str, Granting, int]


def outcome(chosen: Chosen, view: Snapshot) -> Decisions:
    name, granting, seed = chosen
    return decide(name, view, granting, seed)


@settings(max_examples=40, deadline=None)
@given(view=snapshots())
def test_each_task_once_and_nothing_overcommitted(view: Snapshot) -> None:
    """Every scheduler decides on each snapshot: to draw one takes longer than all of them to decide."""
    by_name = {t.name: t for t in view.pending}
    for name, granting in product(BASELINES, VARIANTS):
        decisions = decide(name, view, granting)
        whose = f"{name}, {granting.label}"
        answered = [p.task for p in decisions.placements] + [p.task for p in decisions.postponements]
        assert sorted(answered) == sorted(by_name), whose
        preempted = {p.task for p in decisions.preemptions or ()}
        after = replace(view, running=tuple(r for r in view.running if r.task.name not in preempted))
        milli, memory = after.free_milli(), after.free_memory_mib()
        for p in decisions.placements:
            milli[p.machine] -= p.width_milli
            memory[p.machine] -= by_name[p.task].memory_mib
        assert all(left >= 0 for left in (*milli.values(), *memory.values())), whose


@settings(max_examples=40, deadline=None)
@given(view=snapshots(), done=st.sampled_from((0.05, 20.0)))
def test_a_class_with_a_learnt_factor_is_told_as_a_longer_task(view: Snapshot, done: float) -> None:
    learnt = LearntRunTimes().with_end("night", SMALL.name, done).with_end("night", LARGE.name, done)
    found = learnt.of("night")
    assert found is not None and dict(learnt.factors("night")) == dict.fromkeys(
        ("", SMALL.name, LARGE.name), found.factor
    )
    begun = [replace(r, progress=0.0) for r in view.running]
    same = replace(
        view,
        running=tuple(replace(r, task=replace(r.task, run_class="night")) for r in begun),
        pending=tuple(replace(t, run_class="night") for t in view.pending),
        learnt_run_times=learnt,
    )
    longer = replace(
        view,
        running=tuple(replace(r, task=replace(r.task, scale=r.task.scale * found.factor)) for r in begun),
        pending=tuple(replace(t, scale=t.scale * found.factor) for t in view.pending),
    )
    for name, granting in product(BASELINES, VARIANTS):
        first, other = decide(name, same, granting), decide(name, longer, granting)
        assert first.placements == other.placements, f"{name}, {granting.label}"
        assert why(first) == why(other), f"{name}, {granting.label}"


@settings(max_examples=300, deadline=None)
@given(chosen=ANY_SCHEDULER, view=snapshots())
def test_cores_and_machines_are_lawful_and_postponements_say_why_and_how_long(chosen: Chosen, view: Snapshot) -> None:
    found = {m.name: m for m in view.machines}
    by_name = {t.name: t for t in view.pending}
    decisions = outcome(chosen, view)
    for p in decisions.placements:
        here = found[p.machine]
        assert by_name[p.task].machines is None or p.machine in by_name[p.task].machines
        assert p.cores and list(p.cores) == sorted(set(p.cores))
        assert set(p.cores) <= set(view.batch_cores(here))
        assert p.threads == view.catalogue.jobs[by_name[p.task].profile].threads_for(len(p.cores))
        assert p.width_milli >= 1
    for left in decisions.postponements:
        assert any(ch.isdigit() for ch in left.reason)
        assert left.waited_s == view.now_s - by_name[left.task].submit_s


@settings(max_examples=300, deadline=None)
@given(chosen=ANY_SCHEDULER.filter(lambda c: c[0] != "all-at-once" and c[1].cores == "own"), view=snapshots())
def test_own_cores_never_overlap(chosen: Chosen, view: Snapshot) -> None:
    decisions = outcome(chosen, view)

    owned = [(p.machine, c) for p in decisions.placements for c in p.cores]
    preempted = {p.task for p in decisions.preemptions or ()}
    running_there = {(r.machine, c) for r in view.running for c in r.cores if r.task.name not in preempted}
    assert len(owned) == len(set(owned))
    assert not running_there & set(owned)
    assert all(len(p.cores) == -(-p.width_milli // MILLI) for p in decisions.placements)


@settings(max_examples=200, deadline=None)
@given(chosen=ANY_SCHEDULER, view=snapshots(), data=st.data())
def test_same_snapshot_same_decisions_whatever_its_order(chosen: Chosen, view: Snapshot, data: st.DataObject) -> None:
    before = deepcopy(view)
    shuffled = replace(
        view,
        machines=tuple(data.draw(st.permutations(view.machines))),
        running=tuple(data.draw(st.permutations(view.running))),
        pending=tuple(data.draw(st.permutations(view.pending))),
    )

    first = outcome(chosen, view)

    assert view == before
    assert outcome(chosen, view) == outcome(chosen, shuffled) == first


@settings(max_examples=300, deadline=None)
@given(chosen=ANY_SCHEDULER.filter(lambda c: c[0] != "fcfs"), view=snapshots(max_running=0))
def test_an_idle_cluster_starts_a_task_that_can_start(chosen: Chosen, view: Snapshot) -> None:
    decisions = outcome(chosen, view)

    if not decisions.placements:
        assert all("even when idle" in p.reason for p in decisions.postponements)


def test_rooms_of_rows_are_a_sequence() -> None:
    view = snapshot(machines=machines(5))
    everything = RoomLayout(view, own_cores=True).rooms(view)
    some = RoomsOfRows(everything, np.array([1, 3, 4]))
    assert (len(some), list(some), some[-1]) == (3, [everything[1], everything[3], everything[4]], everything[4])
    assert list(some[1:]) == [everything[3], everything[4]]
    assert everything[3] in some
    assert everything[2] not in some
