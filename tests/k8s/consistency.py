"""What must always hold of a scheduler's state."""

from __future__ import annotations

from dataclasses import replace

from flowsched_k8s.cache import Cache
from flowsched_k8s.pods.requests import pod_requests
from flowsched_k8s.rounds.occupied_nodes import OccupiedNodes
from flowsched_k8s.state import SchedulerState


def check_looks(state: SchedulerState, now: float) -> None:
    """Raise ``AssertionError`` if what has been kept of nodes is not what is found there without."""
    kept, fresh = (nodes.look(now) for nodes in (state.inputs.occupied, OccupiedNodes(state.cache)))
    state.inputs.occupied.between_rounds(now)
    state.cache.revisions.followers.pop()
    assert sorted(kept.services, key=lambda s: s.name) == sorted(fresh.services, key=lambda s: s.name)
    assert {m.name: m for m in kept.machines} == {m.name: m for m in fresh.machines}
    runs = [{r.task.name: replace(r, progress=0.0) for r in seen.running} for seen in (kept, fresh)]
    assert runs[0] == runs[1]


def check_state(state: SchedulerState) -> None:
    """Raise ``AssertionError`` if something that must always hold does not."""
    check_cache(state.cache)
    machines = state.cache.machines
    for key in state.queue:
        assert key.uid in state.cache.pods, f"{key} waits and is not there"
    for entry in state.cache.pods.values():
        assert state.cache.by_name[entry.key[:2]] == entry.key.uid, f"{entry.key} is there beside another of its name"
        if entry.place:
            assert entry.key not in state.queue, f"{entry.key} is on {entry.place} and waits"
    held = state.node_holds.held
    for uid, node in () if held is None else held.places:
        entry = state.cache.pods[uid]
        assert entry.ours and not entry.place, f"{node} is kept for {entry.key}, which waits no more"
        assert node in state.cache.nodes, f"{node} is kept for {entry.key} and is not there"
    for name in state.cache.nodes:
        row = machines.row(name)
        assert row is not None, f"{name} is not in the machines"


def check_cache(cache: Cache) -> None:
    """Raise ``AssertionError`` if the cache contradicts itself."""
    for name, node in cache.nodes.items():
        for uid in node.pods:
            assert cache.pods[uid].place == name, f"{cache.pods[uid].key} is listed on {name} but is elsewhere"
        services = {uid for uid in node.pods if cache.pods[uid].grant is not None}
        assert node.services == services, f"{name} has services {services}, and {node.services} are listed"
    for uid, entry in cache.pods.items():
        if entry.place in cache.nodes:
            assert uid in cache.nodes[entry.place].pods, f"{entry.key} is not listed on {entry.place}"
        if entry.ours and not entry.place:
            wants = cache.wants(entry)
            template, entry.wants, entry.template = entry.template, None, None
            assert wants == cache.wants(entry), f"{entry.key} wants something else than it is remembered to"
            assert entry.pod.spec.volumes or entry.needs == pod_requests(entry.pod), (
                f"{entry.key} asks for something else"
            )
            entry.wants, entry.template = wants, template
