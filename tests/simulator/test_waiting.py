"""What a round costs that leaves many tasks waiting, and that nothing but its cost changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, SCALING, any_of, few_idle_rounds, lasting, machine, some_of, task
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.events import MachineAdded, RoundDecided, TaskBound, TaskSubmitted
from flowsched.cluster.snapshot import Running, Snapshot, Task
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched_models.given_run_time import fixed_profile
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.availability import Availability
from flowsched_simulator.baselines.gpu.rule import GpuOutlook
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.preemptive import Preemptive
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.baselines.room import RoomLayout
from flowsched_simulator.baselines.tetris import Tetris
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import Simulation

OWN, SHARED = Granting("declared", "own"), Granting("declared", "shared")
QUEUES = ("fcfs", "best-fit", "sjf", "lpt", "kube-default", "all-at-once", "easy", "conservative", "topo-best-fit")
QUEUES += ("topo-bipartition", "random", "tetris", "wfs", "srpt", "las")
"""Rules that keep their queue from round to round."""
QUICK = tuple(name for name in QUEUES if name not in ("lpt", "all-at-once", "topo-best-fit"))
"""Those of which a round looks at few tasks, each in a way of its own."""
FIXED = fixed_profile(CATALOGUE, None)

idle_rounds = few_idle_rounds(3)


class Watched:
    """A baseline, and all that it decided."""

    def __init__(self, baseline: Scheduler) -> None:
        self.name = baseline.name
        self.baseline = baseline
        self.decided: list[tuple[Any, ...]] = []

    def decide(self, snapshot: Snapshot) -> Decisions:
        decisions = self.baseline.decide(snapshot)
        assert len(decisions.postponements) == len(snapshot.pending) - len(decisions.placements)
        self.decided.append((snapshot.now_s, decisions.placements, tuple(decisions.postponements)))
        return decisions


def turn_for_each(name: str, granting: Granting) -> Scheduler:
    """The same rule as a plug-in with an order of its own: each waiting task has its turn in each round."""
    base: Any = BASELINES[name]

    def order(self: Any, this: Round) -> Sequence[Task]:  # not marked as one with which the queue is kept
        return [*base.order(self, this)]

    scheduler: Scheduler = type(base.__name__, (base,), {"order": order})(granting, 0)
    return scheduler


def scenario(tasks: Sequence[Task], **changes: Any) -> Scenario:
    catalogue = replace(CATALOGUE, jobs={**CATALOGUE.jobs, FIXED.name: FIXED})
    large = machine("b", cpu_milli=8000, vcpus=8, resources=(("licence", 2),), labels=(("rack", "r"),))
    machines = (machine("a", labels=(("rack", "q"),)), large)
    return Scenario("queue", "", catalogue, machines, (), tuple(tasks), **changes)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Queues of tasks with few or many demands, some impossible, bound by relations or in groups."""
    tasks = []
    for i in range(draw(st.integers(5, 18))):
        cpu = draw(st.sampled_from((0, 500, 1000, 2000, 4000, 8000, 9000)))
        changes: dict[str, Any] = {
            "memory_mib": draw(any_of(100, 101, 9000)),
            "priority": draw(any_of(0, 0, 3)),
            "machines": draw(any_of(None, None, ("a",), ())),
            "resources": draw(any_of((), (), (("licence", 1),), (("licence", 3),))),
            "group": draw(any_of(None, None, None, "g")),
            "holds": draw(some_of(("apart",), most=1)),
            "joins": draw(some_of(("apart",), most=1)),
            "run_class": draw(any_of("", "night", "day")),
        }
        if changes["group"] is None:
            changes |= {"job": draw(any_of(f"t{i}", "j", "k")), "weight": draw(any_of(1.0, 1.0, 2.0))}
        seconds, at = draw(st.integers(1, 40)), draw(st.integers(0, 30))
        tasks.append(
            replace(
                task(f"t{i}", SCALING, scale=float(seconds), submit_s=float(at), **changes),
                profile=FIXED.name,
                request_milli=cpu,
                widths_milli=(max(1, cpu),),
            )
        )
    apart = Relation("apart", RelationKind.APART, "rack")
    group = TaskGroup("g", draw(st.integers(1, 3)))
    off = {t.name: draw(any_of(1.0, 1.7, 0.4)) for t in tasks}
    return scenario(tasks, relations=(apart,), task_groups=(group,), run_time_factors=off)


@settings(max_examples=12, deadline=None)
@given(scenarios(), st.sampled_from(QUEUES), st.sampled_from((OWN, SHARED)))
def test_a_kept_queue_decides_and_explains_as_a_turn_for_each_task_does(
    given_: Scenario, name: str, granting: Granting
) -> None:
    kept, each = Watched(BASELINES[name](granting, 0)), Watched(turn_for_each(name, granting))
    assert Simulation(given_, kept).run().jobs == Simulation(given_, each).run().jobs
    assert kept.decided == each.decided


def test_a_kept_queue_is_in_another_order_once_more_is_learnt_of_run_times() -> None:
    """Of two that wait the shorter by its forecast is the longer by what the end of one of its class has taught."""

    def plain(name: str, seconds: float, at: float, run_class: str) -> Task:
        made = task(name, FIXED, scale=seconds, submit_s=at, machines=("a",), memory_mib=100, run_class=run_class)
        return replace(made, request_milli=4000, widths_milli=(4000,))

    tasks = [plain("first", 10.0, 0.0, "night"), plain("long", 10.0, 1.0, "night"), plain("short", 15.0, 2.0, "day")]
    for factor, order in ((1.0, ["first", "long", "short"]), (4.0, ["first", "short", "long"])):
        found = Simulation(scenario(tasks, run_time_factors={"first": factor}), BASELINES["sjf"](OWN, 0)).run()
        assert [job.job for job in sorted(found.jobs, key=lambda job: job.start_s or 0.0)] == order


@st.composite
def plain_queues(draw: st.DrawFn) -> Scenario:
    """Jobs with given run times, estimated rightly or not, that come while others wait, with or without urgent ones."""
    rng = random.Random(draw(st.integers(0, 10**6)))
    digits, factors = draw(st.sampled_from((0, 3))), draw(st.sampled_from(((1.0,), (1.0, 1.0, 1.5, 3.0, 0.6))))
    priorities = draw(st.sampled_from(((0,), (0, 0, 0, 2))))
    tasks = []
    for i in range(draw(st.integers(10, 25))):
        cpu = rng.choice((500, 1000, 2000, 4000, 6000))
        seconds = round(rng.uniform(1.0, 20.0), digits)
        plain = task(
            f"t{i}",
            FIXED,
            request_milli=cpu,
            widths_milli=(cpu,),
            scale=seconds,
            memory_mib=rng.choice((100, 5000)),
        )
        tasks.append(
            replace(
                plain,
                submit_s=round(rng.uniform(0.0, 30.0), digits),
                run_s=round(seconds * rng.choice(factors), digits),
                priority=rng.choice(priorities),
            )
        )
    return scenario(tasks)


@settings(max_examples=5, deadline=None)
@given(plain_queues())
def test_kept_reservations_are_those_that_each_round_would_make(given_: Scenario) -> None:
    kept, each = Watched(BASELINES["conservative"](OWN, 0)), Watched(turn_for_each("conservative", OWN))
    assert Simulation(given_, kept).run().jobs == Simulation(given_, each).run().jobs
    assert kept.decided == each.decided


@settings(max_examples=12, deadline=None)
@given(scenarios(), st.sampled_from(("srpt", "fcfs")), st.sampled_from((OWN, SHARED)))
def test_kept_rooms_are_what_running_tasks_leave(given_: Scenario, name: str, granting: Granting) -> None:
    class Compared(BASELINES[name]):  # type: ignore[misc]
        def round_of(self, snapshot: Snapshot) -> Round:
            this: Round = super().round_of(snapshot)
            assert this.rooms == RoomLayout(snapshot, own_cores=self.has_own_cores()).rooms(snapshot)
            return this

    assert Simulation(given_, Compared(granting, 0)).run().rounds


@pytest.mark.parametrize("name", ["srpt", "las"])
@pytest.mark.parametrize("seed", range(2))
def test_machines_are_looked_at_only_where_a_task_may_be_less_urgent(name: str, seed: int) -> None:
    asked: dict[bool, int] = {True: 0, False: 0}

    def rule(looks_always: bool) -> Scheduler:
        class Counting(BASELINES[name]):  # type: ignore[misc]
            def urgency(self, task: Task, running: Running | None, this: Round) -> Any:
                asked[looks_always] += running is not None
                return super().urgency(task, running, this)

            urgency.keeps_queue = True  # type: ignore[attr-defined]
            if looks_always:
                less_urgent_s = Preemptive.less_urgent_s

        return Counting(OWN, 0)

    draw = random.Random(seed)
    tasks = [replace(lasting(f"t{i}", draw.choice((1, 2, 4, 8)), 1.0, at=draw.random() * 60.0)) for i in range(60)]
    tasks = [replace(t, profile=FIXED.name, scale=draw.choice((5.0, 20.0, draw.expovariate(0.03)))) for t in tasks]
    kept, always = (Simulation(scenario(tasks), rule(looks)).run() for looks in (False, True))

    assert kept.jobs == always.jobs
    assert any(job.earlier for job in kept.jobs)
    assert asked[False] < 0.8 * asked[True]


def test_srpt_takes_a_task_that_is_estimated_to_last_no_time_as_done() -> None:
    instant = replace(lasting("instant", 8, 5.0), profile=FIXED.name, scale=5.0, run_s=0.0)
    later = replace(lasting("later", 8, 5.0, at=1.0), profile=FIXED.name, scale=5.0, run_s=5.0)
    jobs = {job.job: job for job in Simulation(scenario([instant, later]), BASELINES["srpt"](OWN, 0)).run().jobs}
    assert (jobs["instant"].end_s, jobs["later"].start_s) == (5.0, 5.0)


@pytest.mark.parametrize("name", ["srpt", "las"])
def test_what_a_task_is_stopped_for_does_not_depend_on_what_is_kept_of_earlier_rounds(name: str) -> None:
    class Anew(BASELINES[name]):  # type: ignore[misc]
        def round_of(self, snapshot: Snapshot) -> Round:
            self.layout = None
            this: Round = super().round_of(snapshot)
            return this

    draw, asked = random.Random(3), (500, 1000, 2000, 3000, 4000, 8000)
    stopped = 0
    for _ in range(3):
        tasks = []
        for i in range(50):
            cpu, at = draw.choice(asked), round(draw.uniform(0.0, 60.0), 3)
            plain = lasting(
                f"t{i}", 1, 1.0, at=at, priority=draw.choice((0, 0, 0, 2)), memory_mib=draw.choice((1, 6000))
            )
            seconds = draw.choice((2.0, 20.0, 110.0, 400.0))
            tasks.append(
                replace(plain, profile=FIXED.name, scale=seconds, run_s=seconds, request_milli=cpu, widths_milli=(cpu,))
            )
        kept, anew = (Simulation(scenario(tasks), kind(OWN, 0)).run().jobs for kind in (BASELINES[name], Anew))
        assert kept == anew
        stopped += sum(len(job.earlier) for job in kept)
    assert stopped > 50


def sized_jobs(count: int, seed: int) -> list[Task]:
    """Jobs with given run times that come twice as fast as six machines of eight cores are done with them."""
    draw, at, tasks = random.Random(seed), 0.0, []
    for i in range(count):
        at += draw.expovariate(1.6)
        cores, seconds = draw.choice((1, 1, 2, 2, 4, 8)), draw.expovariate(1 / 20.0)
        tasks.append(replace(lasting(f"t{i}", cores, 1.0, at=round(at, 3)), profile=FIXED.name, scale=seconds))
    return tasks


@pytest.mark.parametrize(
    ("name", "owner", "method", "most"),
    [
        ("all-at-once", Round, "added_s", 8),
        ("easy", Availability, "__init__", 1),
        ("tetris", Tetris, "share", 0.2),
        ("las", Preemptive, "_bound", 1.5),
        ("srpt", Round, "started_s", 3),
        ("gpu-fgd", GpuOutlook, "__init__", 0.5),
    ],
)
def test_work_for_what_a_round_decides_is_done_where_something_depends_on_it(
    name: str, owner: type, method: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, counted = 0, getattr(owner, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return counted(*args, **kwargs)

    monkeypatch.setattr(owner, method, call)
    six = tuple(machine(f"b{k}", cpu_milli=8000, vcpus=8) for k in range(6))
    world = replace(scenario(sized_jobs(100, 1)), machines=six)
    run = Simulation(world, BASELINES[name](OWN, 0)).run()
    assert all(job.end_s is not None for job in run.jobs)
    assert calls < most * 100


def calls_of(count: int, name: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Calls that a run of so many tasks makes of what is done for a task, or for a machine, of a round."""
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for owner, method in (
            (Task, "waiting_for"),
            (Round, "candidates"),
            (Round, "width_milli"),
            (Round, "postpone"),
            (RoomLayout, "_note"),
            (Preemptive, "_urgency"),
        ):
            patch.setattr(owner, method, counted(getattr(owner, method)))
        tasks = [replace(lasting(f"t{i}", 1 + i % 3, 5.0 + i % 7, at=i / 2), scale=5.0 + i % 7) for i in range(count)]
        tasks = [replace(t, profile=FIXED.name) for t in tasks]
        run = Simulation(scenario(tasks), BASELINES[name](OWN, 0)).run()
    assert all(job.end_s is not None for job in run.jobs)
    assert max(r.pending for r in run.rounds) > count / 4
    return calls


@pytest.mark.parametrize("name", [*QUICK, "gpu-best-fit"])
def test_a_run_costs_what_happens_and_not_that_times_what_waits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once, twice = calls_of(60, name, monkeypatch), calls_of(120, name, monkeypatch)
    assert twice < 2.3 * once


def test_rounds_that_a_task_waited_are_counted_from_its_first_and_a_snapshot_keeps_its_own() -> None:
    state = ClusterState(CATALOGUE)
    state.apply(MachineAdded(machine("m")), 0.0)
    state.apply(TaskSubmitted(task("old", rounds_waited=5)), 0.0)
    views = []
    for number in range(3):
        state.apply(TaskSubmitted(task(f"new-{number}")), float(number))
        views.append(state.snapshot(float(number)))
        state.apply(RoundDecided((), (), frozenset({"new-0"})), float(number))
    state.apply(TaskBound("old", "m", 1000, 1, (0,), 3.0), 3.0)
    views.append(state.snapshot(3.0))
    waited = [{t.name: (t.rounds_waited, t.postponements) for t in view.pending} for view in views]
    assert waited == [
        {"old": (5, 0), "new-0": (0, 0)},
        {"old": (6, 0), "new-0": (1, 1), "new-1": (0, 0)},
        {"old": (7, 0), "new-0": (2, 2), "new-1": (1, 0), "new-2": (0, 0)},
        {"new-0": (3, 3), "new-1": (2, 0), "new-2": (1, 0)},
    ]
    assert [r.task.rounds_waited for r in views[-1].running] == [8]
    assert views[1].pending == tuple(views[1].pending)
