"""Bounded waiting against an adversary that sees everything and feeds tasks to keep another one out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from builders import HUNGRY, SINGLE, catalogue, flow_scheduler, machine, machines, running, service, snapshot, task
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.events import MachineAdded, RoundDecided, TaskBound, TaskFinished, TaskSubmitted
from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, Reservation, Service, Snapshot, Task
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched_models.execution import Execution
from flowsched_models.runtime import HostFactory, Resident

CATALOGUE = catalogue((SINGLE, HUNGRY))
DUE_S = 60.0
QUICK = {"due_age_s": DUE_S, "exact_limit": 0, "slots": 1}

Feed = Callable[[Snapshot], list[Task]]


def narrow(name: str, at: float, scale: float = 1.0) -> Task:
    return task(name, SINGLE, scale=scale, widths_milli=(1000,), submit_s=at)


def wide(name: str, at: float, scale: float = 1.0) -> Task:
    return task(name, SINGLE, scale=scale, widths_milli=(4000,), submit_s=at)


@dataclass
class History:
    started_s: dict[str, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    rounds: list[tuple[Snapshot, Decisions]] = field(default_factory=list)

    @property
    def longest_run_s(self) -> float:
        return max(self.ended_s[t] - self.started_s[t] for t in self.ended_s)

    @property
    def longest_pause_s(self) -> float:
        times = [s.now_s for s, _ in self.rounds]
        return max(b - a for a, b in pairwise(times))


def drive(
    scheduler: Scheduler,
    cluster: tuple[Machine, ...],
    feed: Feed,
    until_s: float,
    services: tuple[Service, ...] = (),
    stop: str = "",
) -> History:
    """A round whenever anything ends, and every second while nothing runs; ``feed`` sees the state before each."""
    hosts = HostFactory(CATALOGUE)
    state = ClusterState(CATALOGUE, hosts=hosts)
    truth: dict[str, Execution[str]] = {}
    for m in cluster:
        here = tuple(s for s in services if s.machine == m.name)
        state.apply(MachineAdded(m, here), 0.0)
        truth[m.name] = Execution(hosts.host(m.type, [service_load(s) for s in here]))
    history, now = History(), 0.0
    while now < until_s and stop not in history.started_s:
        for new in feed(state.snapshot(now)):
            state.apply(TaskSubmitted(new), now)
        seen = state.snapshot(now)
        decisions = scheduler.decide(seen)
        history.rounds.append((seen, decisions))
        tasks = {t.name: t for t in seen.pending}
        for p in decisions.placements:
            t = tasks[p.task]
            state.apply(TaskBound(t.name, p.machine, p.width_milli, p.threads, p.cores, now), now)
            resident = Resident(t.profile, t.scale, p.threads, p.cores, p.width_milli / 1000, t.memory_mib, 0.0, now)
            truth[p.machine].start(t.name, resident)
            history.started_s[t.name] = now
        state.apply(
            RoundDecided(
                tuple(p.planned for p in decisions.postponements if p.planned is not None), decisions.reservations
            ),
            now,
        )
        ended: list[str] = []
        while not ended:
            at = min(e.next_event_s() for e in truth.values())
            now = at if at < float("inf") else now + 1.0
            ended = [t for e in truth.values() for t in e.advance(now)]
            if at == float("inf"):
                break
        for t in ended:
            state.apply(TaskFinished(t), now)
            history.ended_s[t] = now
    return history


class Flood:
    """Keeps so many tasks pending, each a little different in length, so that the machine never drains by itself."""

    def __init__(self, make: Callable[[str, float, float], Task], pending: int, victims: list[Task]) -> None:
        self._make, self._pending, self._victims, self._made = make, pending, victims, 0

    def __call__(self, seen: Snapshot) -> list[Task]:
        new = [v for v in self._victims if v.submit_s <= seen.now_s]
        self._victims = [v for v in self._victims if v.submit_s > seen.now_s]
        names = {v.name for v in new}
        count = self._pending - sum(t.name.startswith("flood") for t in seen.pending)
        for _ in range(max(0, count)):
            self._made += 1
            new.append(self._make(f"flood-{self._made}", seen.now_s, 0.3 + 0.7 * (self._made * 37 % 100) / 100))
        return [replace(t, submit_s=seen.now_s) if t.name in names else t for t in new]


def submitted(history: History, name: str) -> float:
    return next(t.submit_s for s, _ in history.rounds for t in s.pending if t.name == name)


def most_s(scale: float, before: int, history: History, due_runs: float) -> float:
    """The bound: overdue age + (B + 5) (T + one round), rounds being as far apart as two pauses."""
    overdue_s = Settings(due_age_s=DUE_S, due_runs=due_runs).overdue_age_s(scale * SINGLE.work_s)
    return overdue_s + (before + 5) * (history.longest_run_s + 2 * history.longest_pause_s)


@pytest.mark.parametrize("due_runs", [0.0, 3.0])
@pytest.mark.parametrize("objective", ["completion", "makespan"])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_wide_task_starts_however_many_narrow_ones_come(objective: str, slots: int, due_runs: float) -> None:
    scheduler = flow_scheduler(**(QUICK | {"objective": objective, "slots": slots, "due_runs": due_runs}))
    history = drive(scheduler, (machine(),), Flood(narrow, 4, [wide("victim", 5.0, 0.5)]), 600.0, stop="victim")

    assert "victim" in history.started_s
    waited = history.started_s["victim"] - submitted(history, "victim")
    assert waited <= most_s(0.5, 0, history, due_runs)


@pytest.mark.parametrize("due_runs", [0.0, 3.0])
@pytest.mark.parametrize("slots", [1, 3])
def test_several_wide_tasks_start_one_after_the_other(slots: int, due_runs: float) -> None:
    victims = [wide(f"victim-{k}", 5.0 + 3 * k, 0.5) for k in range(3)]
    scheduler = flow_scheduler(**(QUICK | {"slots": slots, "due_runs": due_runs}))
    history = drive(scheduler, (machine(),), Flood(narrow, 4, victims), 600.0, stop="victim-2")

    for before, victim in enumerate(victims):
        assert victim.name in history.started_s
        waited = history.started_s[victim.name] - submitted(history, victim.name)
        assert waited <= most_s(0.5, before, history, due_runs)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_narrow_task_starts_however_many_wide_ones_come(slots: int) -> None:
    scheduler = flow_scheduler(**(QUICK | {"slots": slots}))
    history = drive(scheduler, (machine(),), Flood(wide, 3, [narrow("victim", 5.0, 1.0)]), 600.0, stop="victim")

    assert "victim" in history.started_s
    # those that arrived earlier: at most three of the flood
    waited = history.started_s["victim"] - submitted(history, "victim")
    assert waited <= most_s(1.0, 3, history, Settings().due_runs)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_reservation_is_kept_and_only_filled_by_those_who_are_gone_in_time(slots: int) -> None:
    scheduler = flow_scheduler(**(QUICK | {"slots": slots}))
    feed = Flood(narrow, 6, [wide("victim", 5.0, 0.5)])
    history = drive(scheduler, machines(2), feed, 600.0, stop="victim")

    held: Reservation | None = None
    for _, decisions in history.rounds:
        starts = {p.task for p in decisions.placements}
        if held is not None and "victim" not in starts:
            assert [(r.task, r.machine) for r in decisions.reservations] == [(held.task, held.machine)]
            assert decisions.reservations[0].start_s <= held.start_s
        held = decisions.reservations[0] if decisions.reservations else None
        if held is None:
            continue
        for p in decisions.placements:
            if p.machine == held.machine:
                ended = history.ended_s.get(p.task)
                assert ended is None or ended <= held.start_s + 1e-6
    assert "victim" in history.started_s


def test_no_task_joins_a_machine_whose_reserved_start_has_passed() -> None:
    busy = running(task("busy", SINGLE, scale=5.0), "m1", (0,), width_milli=1000, threads=1)
    now = snapshot(
        [wide("due", 0.0), narrow("new", 999.0, 0.01)],
        running=[busy],
        now_s=1000.0,
        catalogue=CATALOGUE,
        reservations=(Reservation("due", "m1", 4000, 990.0),),
    )

    decisions = flow_scheduler(slots=1).decide(now)

    assert decisions.placements == ()
    assert decisions.reservations == now.reservations


def test_a_due_task_that_can_never_run_holds_nothing() -> None:
    giant = task("giant", SINGLE, widths_milli=(9000,))
    now = snapshot([giant, narrow("new", 999.0)], now_s=1000.0, catalogue=CATALOGUE)

    decisions = flow_scheduler().decide(now)

    assert decisions.reservations == ()
    assert [p.task for p in decisions.placements] == ["new"]


def test_no_machine_is_held_for_a_task_that_would_break_its_services_goal() -> None:
    """It will be no more welcome once the machine has drained, and an idle machine would never open again."""
    near = service(qps=47_000.0)
    loud = task("loud", HUNGRY, widths_milli=(3000,))
    now = snapshot([loud, narrow("quiet", 999.0)], services=[near], now_s=1000.0, catalogue=CATALOGUE)

    decisions = flow_scheduler().decide(now)

    assert [p.task for p in decisions.placements] == ["quiet"]
    assert decisions.reservations == ()


def test_a_due_task_is_held_a_place_where_it_will_be_welcome() -> None:
    near = service(qps=47_000.0)
    loud = task("loud", HUNGRY, widths_milli=(3000,))
    busy = running(task("busy", SINGLE, scale=5.0), "m2", (0,), width_milli=2000, threads=1)
    now = snapshot([loud], machines(2), services=[near], running=[busy], now_s=1000.0, catalogue=CATALOGUE)

    (reservation,) = flow_scheduler().decide(now).reservations

    assert reservation.machine == "m2"


def test_the_highest_priority_is_served_first_among_the_due_then_the_earliest() -> None:
    due = [wide("early", 0.0), wide("late", 1.0), replace(wide("urgent", 2.0), priority=5)]
    for expected, pending in (("urgent", due), ("early", due[:2])):
        decisions = flow_scheduler().decide(snapshot(pending, now_s=1000.0, catalogue=CATALOGUE))
        assert [p.task for p in decisions.placements] == [expected]


def test_aging_may_cross_priorities() -> None:
    pending = [wide("early", 0.0), replace(wide("urgent", 2.0), priority=5)]
    for crosses, expected in ((False, "urgent"), (True, "early")):
        scheduler = flow_scheduler(aging_crosses_priority=crosses)
        decisions = scheduler.decide(snapshot(pending, now_s=1000.0, catalogue=CATALOGUE))
        assert [p.task for p in decisions.placements] == [expected]


def test_reserved_machines_that_no_longer_share_a_switch_are_given_up() -> None:
    one_switch = Relation("one-switch", RelationKind.TOGETHER, "sw")
    bound = {"group": "ring", "holds": ("one-switch",), "joins": ("one-switch",)}
    gang = [replace(wide(f"g{i}", 0.0), **bound) for i in range(2)]

    first = tuple(Reservation(f"g{i}", f"m{i}", 4000, 9000.0) for i in range(2))

    def now(switches: str) -> Snapshot:
        names = [f"m{k}" for k in range(len(switches))]
        return snapshot(
            gang,
            [machine(name, labels=(("sw", switch),)) for name, switch in zip(names, switches, strict=True)],
            running=[running(wide(f"on-{name}", 0.0, 100.0 - k), name) for k, name in enumerate(names)],
            now_s=1000.0,
            catalogue=CATALOGUE,
            relations=(one_switch,),
            task_groups=(TaskGroup("ring", 2),),
            reservations=first,
        )

    assert flow_scheduler().decide(now("aabb")).reservations == first
    assert {r.machine for r in flow_scheduler().decide(now("acbb")).reservations} == {"m2", "m3"}
