"""Machines are put in order, and told apart, as if all that is known of each were written down and compared."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from builders import SCALING, SERIAL, in_another_order, machine, running, service, snapshot, task
from flowsched.cluster import served_machines
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.compaction import View, compact
from flowsched.cluster.snapshot import Snapshot, by_machine
from flowsched.cluster.tasks_there import order_of
from flowsched_models.runtime import HostFactory


def alike_cluster(seed: int) -> Snapshot:
    """Machines of which many are alike up to the first task, its progress, or the last one."""
    draw = random.Random(seed)
    cluster = [machine(f"m{i:02d}", resources=(("disk", draw.choice((1, 2))),)) for i in range(30)]
    runs = []
    for m in cluster:
        for k in range(draw.choice((0, 1, 2, 2))):
            endless = draw.random() < 0.3
            one = task(
                f"{m.name}-{k}", draw.choice((SCALING, SERIAL)), endless=endless, scale=draw.choice((1.0, 1.0, 2.0))
            )
            progress = 0.0 if endless else draw.choice((0.1, 0.2))
            runs.append(running(one, m.name, progress=progress, start_s=draw.choice((0.0, 0.0, 9.0))))
    lists = [task("w0", machines=tuple(m.name for m in cluster[:12])), task("w1", wishes=(("m03", 1.0),))]
    services = [service(f"s-{m.name}", m.name, (3,)) for m in cluster if draw.random() < 0.3]
    return replace(snapshot(lists, cluster, running=runs), services=tuple(services), now_s=5.0)


def groups_of(view: View) -> list[list[str]]:
    return [sorted([*(view.machines[i].name for i in g.members), *g.spares]) for g in view.groups]


def by_whole_keys(now: Snapshot) -> list[list[str]]:
    """The same from whole keys of all machines."""
    runs, services = by_machine(now.running), by_machine(now.services)
    listed, (wished,) = set(now.pending[0].machines or ()), now.pending[1].wishes
    keys: dict[tuple[object, ...], list[str]] = {}
    for m in now.machines:
        orders = sorted([order_of(r, r.progress, now.now_s) for r in runs[m.name]])
        served = tuple((s.cores, s.qps, s.slo_us) for s in services[m.name])
        key = (m.type, served, tuple(orders), m.name in listed, m.name == wished[0], m.resources)
        keys.setdefault(key, []).append(m.name)
    return [sorted(keys[key]) for key in sorted(keys)]  # type: ignore[type-var]


@pytest.mark.parametrize("seed", range(12))
def test_groups_are_those_of_whole_keys_in_their_order(seed: int) -> None:
    now = alike_cluster(seed)
    expected = by_whole_keys(now)
    assert 1 < len(expected) < len(now.machines)
    assert groups_of(compact(now, HostFactory(now.catalogue))) == expected
    mixed = in_another_order(now, random.Random(seed))
    assert groups_of(compact(mixed, HostFactory(now.catalogue))) == expected


@pytest.mark.parametrize("seed", range(6))
def test_residents_are_in_the_order_of_what_they_are(seed: int) -> None:
    now = alike_cluster(seed)
    for seen in (now, ClusterState.of(now).snapshot(now.now_s)):
        view = compact(seen, HostFactory(now.catalogue))
        runs = by_machine(seen.running)
        for group in view.groups:
            orders = [order_of(r, r.progress, now.now_s) for r in group.running]
            assert orders == sorted(orders)
            assert sorted(r.task.name for r in group.running) == sorted(r.task.name for r in runs[group.machine.name])
            assert [(r.weight, r.memory_mib) for r in group.residents] == [
                (r.width_milli / 1000, r.task.memory_mib) for r in group.running
            ]


def test_machines_that_are_kept_from_round_to_round_are_told_apart_like_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served_machines, "_SPARE", 0)
    now, draw = alike_cluster(1), random.Random(1)
    hosts, kept = HostFactory(now.catalogue), 0
    for turn in range(200):
        machines, services = list(now.machines), list(now.services)
        at = draw.randrange(len(machines))
        match draw.choice((0, 0, 1, 1, 1, 2, 3)):
            case 0:
                machines[at] = replace(machines[at], memory_mib=machines[at].memory_mib + draw.choice((0, turn)))
            case 1:
                services[0] = replace(services[0], qps=services[0].qps + draw.random())
            case 2:
                services = [s for s in services if s.machine != machines[at].name]
                services.append(service(f"s-{turn}", machines[at].name, (draw.choice((2, 3)),)))
            case 3:
                machines[at] = replace(machines[at], name=f"n{turn:03d}")
                services = [s for s in services if s.machine in {m.name for m in machines}]
        there = {m.name for m in machines}
        runs = tuple(r for r in now.running if r.machine in there)
        now = replace(now, machines=tuple(machines), services=tuple(services), running=runs)
        view, fresh = compact(now, hosts), compact(now, HostFactory(now.catalogue))
        assert groups_of(view) == groups_of(fresh)
        for one, other in zip(view.groups, fresh.groups, strict=True):
            assert (one.machine, one.services, one.batch_cores) == (other.machine, other.services, other.batch_cores)
            assert (one.free_milli, one.free_memory_mib) == (other.free_milli, other.free_memory_mib)
            assert one.host is hosts.host(other.machine.type, other.host.services)
        kept = max(kept, len(hosts.attached(served_machines.ServedMachines).contents))
    # All that is kept is let go once it is twice as much as there are machines.
    assert 2 * len(now.machines) < kept <= 3 * len(now.machines)
