"""What is believed of jobs on nodes whose pods change, beside a machine for each node that is told every change."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.occupied_machines import Occupancy, OccupiedMachines, service_load
from flowsched.cluster.snapshot import MILLI, Machine, Running, Service, Task
from flowsched_k8s.rounds.neutral import DAY_SCALE, with_neutral
from flowsched_models.execution import Execution
from flowsched_models.neutral import NEUTRAL
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory, Resident

CATALOGUE = with_neutral(load_catalogue())
KIND = "e2-standard-4"
CACHE = Service("cache", "memcached", "", (0,), 1, 1000, 512, 20_000.0, 1000.0, "mcperf-sweep")
NODES = ("a", "b")
PROFILES = ("canneal", "dedup", "radix", NEUTRAL)


def running(uid: str, node: str, profile: str, start_s: float, width_milli: int = 1000) -> Running:
    endless = profile == NEUTRAL
    scale = DAY_SCALE if endless else 1.0
    task = Task(uid, uid, profile, scale, width_milli, (width_milli,), 256, start_s, endless=endless)
    return Running(task, node, width_milli, 1, (1, 2, 3), start_s, start_s)


@dataclass(frozen=True)
class Seen:
    """A node as it is seen."""

    name: str
    services: tuple[Service, ...]
    running: tuple[Running, ...]


def seen_on(node: str, there: dict[str, Running], services: tuple[Service, ...] = ()) -> Seen:
    return Seen(node, services, tuple([r for r in there.values() if r.machine == node]))


def nothing() -> OccupiedMachines:
    return OccupiedMachines(CATALOGUE, HostFactory(CATALOGUE))


def look(machines: OccupiedMachines, now_s: float, *nodes: Seen) -> Occupancy:
    machines.advance(now_s)
    for node in nodes:
        machines.see(Machine(node.name, KIND, 4000, 16_384, 4), node.services, node.running)
    return machines.look()


class Naive:
    """Each look makes every machine anew, with the jobs where the last look has left them."""

    def __init__(self) -> None:
        self.hosts = HostFactory(CATALOGUE)
        self.last: dict[str, tuple[float, dict[str, float]]] = {}

    def progress(self, view: Seen, now_s: float, before: Seen | None) -> dict[str, float]:
        """``before``: what was there, and the services, from the last look until now."""
        if before is not None:
            since_s, done = self.last[view.name]
            done = self.moved(before, {r.task.name: (since_s, done[r.task.name]) for r in before.running}, now_s)
        else:
            done = {}
        stays = done.keys() & {r.task.name for r in view.running}
        begins = {
            r.task.name: (now_s, done[r.task.name]) if r.task.name in stays else (now_s if stays else r.start_s, 0.0)
            for r in view.running
        }
        found = self.moved(view, begins, now_s)
        self.last[view.name] = now_s, found
        return found

    def moved(self, view: Seen, begins: dict[str, tuple[float, float]], to_s: float) -> dict[str, float]:
        host = self.hosts.host(KIND, [service_load(s) for s in view.services])
        jobs = {r.task.name: r for r in view.running}
        if not jobs:
            return {}
        machine: Execution[str] = Execution(host, min(start for start, _ in begins.values()), ends=False)

        def go_on(until_s: float) -> None:
            while machine.now_s < until_s:
                machine.advance(min(until_s, machine.next_event_s()))

        for uid, (start_s, done) in sorted(begins.items(), key=lambda item: (item[1][0], item[0])):
            r = jobs[uid]
            go_on(start_s)
            resident = Resident(r.task.profile, r.task.scale, 1, r.cores, r.width_milli / MILLI, r.task.memory_mib)
            machine.start(uid, replace(resident, progress=done))
        go_on(to_s)
        return {uid: machine.progress(uid) for uid in jobs}


STEPS = st.lists(
    st.tuples(
        st.floats(0.5, 40.0),
        st.sampled_from(("come", "come", "go", "wider", "service", "resume", "nothing")),
        st.sampled_from(NODES),
        st.sampled_from(PROFILES),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(PROFILES), st.floats(0.0, 90.0)), max_size=6), STEPS)
def test_jobs_are_believed_to_be_where_machines_told_of_every_change_have_them(
    first: list[tuple[str, str, float]], steps: list[tuple[float, str, str, str]]
) -> None:
    machines, told, naive, now_s = nothing(), nothing(), Naive(), 100.0
    known: dict[str, Seen] = {}
    there = {f"j{i}": running(f"j{i}", node, profile, start_s) for i, (node, profile, start_s) in enumerate(first)}
    services: dict[str, tuple[Service, ...]] = dict.fromkeys(NODES, ())
    before: dict[str, Seen] = {}
    for number, (step_s, what, node, profile) in enumerate([(0.0, "nothing", "a", NEUTRAL), *steps]):
        now_s += step_s
        mine = sorted(uid for uid, r in there.items() if r.machine == node)
        if what == "come":
            there[f"n{number}"] = running(f"n{number}", node, profile, now_s)
        elif what == "go" and mine:
            del there[mine[0]]
        elif what == "wider" and mine:
            r = there[mine[-1]]
            there[mine[-1]] = running(mine[-1], node, r.task.profile, r.start_s, r.width_milli + 500)
        elif what == "service":
            services[node] = () if services[node] else (replace(CACHE, machine=node),)
        views = [seen_on(name, there, services[name]) for name in NODES]
        look(machines, now_s, *views)
        # The same, where only tasks change, as those that do.
        told.advance(now_s)
        for view in views:
            here = {r.task.name: r for r in view.running}
            last = known.get(view.name)
            if last is None or last.services != view.services:
                look(told, now_s, view)
            else:
                was = {r.task.name: r for r in last.running}
                changed = {task: r for task, r in here.items() if was.get(task) is not r}
                told.change(view.name, changed, was.keys() - here.keys())
            known[view.name] = view
        if what == "resume" and machines.on("a").estimated:
            progress = {r.task.name: 0.25 for r in views[0].running}
            machines.resume("a", progress)
            told.resume("a", progress)
            naive.last["a"], before["a"] = (now_s, progress), views[0]
        shown = machines.look().running
        numbers = dict(zip((r.task.name for r in shown.entries), shown.columns.progress.tolist(), strict=True))
        assert {r.task.name: r.progress for r in shown} == numbers
        assert {r.task.name: r.progress for r in told.look().running} == numbers
        for view in views:
            ends = any(not r.task.endless for r in view.running)
            expected = naive.progress(view, now_s, before.get(view.name)) if ends else {}
            before.pop(view.name, None)
            if ends:
                before[view.name] = view
            found = {r.task.name: r.progress for r in shown.on([view.name])}
            assert found == pytest.approx({r.task.name: expected.get(r.task.name, 0.0) for r in view.running}, abs=1e-9)


def test_what_a_look_shows_stays_as_it_was() -> None:
    """A round that is decided in another thread asks for progress while events go on."""
    machines = nothing()
    there = {"j": running("j", "a", "canneal", 0.0)}
    early = look(machines, 10.0, seen_on("a", there)).running
    known = [r.progress for r in machines.look().running]
    there["k"] = running("k", "a", "radix", 20.0)
    look(machines, 20.0, seen_on("a", there))
    machines.advance(30.0)
    machines.remove("a")
    assert len(machines.look().running) == 0
    assert [r.progress for r in early] == known
    assert known[0] > 0.0


def test_a_pod_that_is_seen_on_another_node_is_not_on_the_first_any_more() -> None:
    machines = nothing()
    beside = running("k", "a", "radix", 0.0)
    look(machines, 60.0, seen_on("a", {"j": running("j", "a", "canneal", 0.0), "k": beside}))
    moved = running("j", "b", "canneal", 50.0)
    there = look(machines, 60.0, seen_on("b", {"j": moved})).running
    assert {r.task.name: r.machine for r in there} == {"j": "b", "k": "a"}
    (elsewhere,) = (r.progress for r in there if r.task.name == "j")
    (alone,) = look(nothing(), 60.0, seen_on("b", {"j": moved})).running
    assert elsewhere == alone.progress > 0.0
    after = look(machines, 70.0, seen_on("a", {"k": beside}), seen_on("b", {"j": moved})).running
    assert [r.machine for r in after] == ["a", "b"]


def test_the_tasks_of_a_look_beside_others_leave_it_as_it_was() -> None:
    """A round lists what it has placed itself, and leaves out what would move."""
    machines = nothing()
    there = {name: running(name, "a", "canneal", 0.0) for name in ("i", "j", "k")}
    shown = look(machines, 60.0, seen_on("a", there), seen_on("b", {})).running
    before = list(shown)
    richer = replace(there["j"], task=replace(there["j"].task, group="g"))
    nodes = machines.look().machines
    joined = running("n", "b", "dedup", 60.0)
    left = shown.beside(nodes, {}, without=[there["i"]], instead=[(there["j"], richer)])
    other = left.beside(nodes, {}, more=[joined])
    at_once = shown.beside(nodes, {}, without=[there["i"]], instead=[(there["j"], richer)], more=[joined])
    assert list(shown) == before
    assert list(at_once) == list(other)
    assert [(r.task.name, r.task.group) for r in other] == [("j", "g"), ("k", None), ("n", None)]
    progress = {r.task.name: r.progress for r in before} | {"n": 0.0}
    assert {r.task.name: r.progress for r in other} == {name: progress[name] for name in "jkn"}
    assert dict(zip((r.task.name for r in other.entries), other.columns.machine.tolist(), strict=True)) == {
        "j": 0,
        "k": 0,
        "n": 1,
    }
    look(machines, 70.0, seen_on("a", {}), seen_on("b", {"x": running("x", "b", "radix", 65.0)}))
    assert [r.task.name for r in other.on(["a", "b"])] == ["j", "k", "n"]
