"""What is believed of jobs on nodes whose pods change, beside a machine for each node that is told every change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.cluster_state import service_load
from flowsched.cluster.snapshot import MILLI, Running, Service, Task
from flowsched_k8s.rounds.neutral import DAY_SCALE, with_neutral
from flowsched_k8s.rounds.round_input import NodeView, World
from flowsched_k8s.rounds.world import ProgressEstimates
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


def view_of(node: str, there: dict[str, Running], services: tuple[Service, ...] = ()) -> NodeView:
    mine = tuple(sorted((r for r in there.values() if r.machine == node), key=lambda r: r.task.name))
    titles = {name: name for name in (*(s.name for s in services), *(r.task.name for r in mine))}
    needs: dict[str, dict[str, int]] = {r.task.name: {} for r in mine}
    return NodeView.of(node, KIND, 4, services, mine, needs=needs, titles=titles)


class Naive:
    """Each look makes every machine anew, with the jobs where the last look has left them."""

    def __init__(self) -> None:
        self.hosts = HostFactory(CATALOGUE)
        self.last: dict[str, tuple[float, dict[str, float]]] = {}

    def progress(self, view: NodeView, now_s: float, before: NodeView | None) -> dict[str, float]:
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

    def moved(self, view: NodeView, begins: dict[str, tuple[float, float]], to_s: float) -> dict[str, float]:
        host = self.hosts.host(view.type, [service_load(s) for s in view.services])
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
    estimates, naive, now_s = ProgressEstimates(CATALOGUE), Naive(), 100.0
    there = {f"j{i}": running(f"j{i}", node, profile, start_s) for i, (node, profile, start_s) in enumerate(first)}
    services: dict[str, tuple[Service, ...]] = dict.fromkeys(NODES, ())
    before: dict[str, NodeView] = {}
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
        views = [view_of(name, there, services[name]) for name in NODES]
        seen = [estimates.put(view, now_s) for view in views]
        if what == "resume" and seen[0].rows:
            progress = {r.task.name: 0.25 for r in seen[0].running}
            seen[0] = estimates.resume(seen[0], progress, now_s)
            naive.last[seen[0].name], before[seen[0].name] = (now_s, progress), views[0]
        world = World(nodes=tuple(seen), progress=estimates.progress(now_s))
        for view in views:
            ends = any(not r.task.endless for r in view.running)
            expected = naive.progress(view, now_s, before.get(view.name)) if ends else {}
            before.pop(view.name, None)
            if ends:
                before[view.name] = view
            found = {r.task.name: r.progress for r in world.running if r.machine == view.name}
            wanted = {r.task.name: 0.0 if r.task.endless else expected[r.task.name] for r in view.running}
            assert found == pytest.approx(wanted, abs=1e-9)


def test_what_a_world_shows_stays_as_it_was() -> None:
    """A round that is decided in another thread asks for progress while events go on."""
    estimates = ProgressEstimates(CATALOGUE)
    there = {"j": running("j", "a", "canneal", 0.0)}
    early = World(nodes=(estimates.put(view_of("a", there), 10.0),), progress=estimates.progress(10.0))
    same = World(nodes=early.nodes, progress=estimates.progress(10.0))
    known = [r.progress for r in same.running]
    there["k"] = running("k", "a", "radix", 20.0)
    estimates.put(view_of("a", there), 20.0)
    estimates.progress(30.0)
    estimates.forget("a")
    assert [r.progress for r in early.running] == known
    assert known[0] > 0.0


def test_a_pod_may_be_seen_on_two_nodes_for_a_while() -> None:
    estimates = ProgressEstimates(CATALOGUE)
    here, elsewhere = running("j", "a", "canneal", 0.0), running("j", "b", "canneal", 50.0)
    views = [estimates.put(view_of(r.machine, {"j": r}), 60.0) for r in (here, elsewhere)]
    world = World(nodes=tuple(views), progress=estimates.progress(60.0))
    first, second = (r.progress for r in world.running)
    assert first > second > 0.0
    estimates.forget("a")
    assert [r.progress for r in World(nodes=(views[1],), progress=estimates.progress(60.0)).running] == [second]
