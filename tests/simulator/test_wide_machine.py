"""A machine with thousands of virtual CPUs costs what it has of them, not their number for every task that shares them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import machines, snapshot
from flowsched_models.cell import Bools, Ints, cells_of
from flowsched_models.core_set import CoreSet, cores_but
from flowsched_models.pace_table import PaceTable
from flowsched_models.runtime import Host, HostFactory
from flowsched_simulator import make_scenario
from flowsched_simulator.baselines import room as rooms
from flowsched_simulator.baselines.expectation import sibling_map
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.registry import make_baseline
from flowsched_simulator.policies import EngineOptions, schedulers
from flowsched_simulator.run import Run
from flowsched_simulator.simulation import Simulation

CPUS, JOBS = 512, 12


def run(monkeypatch: pytest.MonkeyPatch, policy: str) -> tuple[Run, HostFactory, list[int], int]:
    """Jobs on one wide machine; how many sets of virtual CPUs were looked at each time, and the tasks counted by core."""
    jobs = [{"name": f"j{n:02}", "request": 1 + n % 4, "runtime_s": 100, "submit_s": n} for n in range(JOBS)]
    scenario = make_scenario([{"name": "m", "cores": CPUS, "memory": "1Ti"}], jobs)
    hosts, looked, counted = HostFactory(scenario.catalogue), [], 0
    mask, share = Host._mask, rooms._share_cores

    def watched_mask(self: Host, cores: tuple[tuple[int, ...], ...]) -> Bools:
        looked.append(len(cores))
        return mask(self, cores)

    def watched_share(*args: object) -> None:
        nonlocal counted
        counted += 1
        share(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Host, "_mask", watched_mask)
    monkeypatch.setattr(rooms, "_share_cores", watched_share)
    if policy == "flow":
        ((_, scheduler),) = schedulers("flow", scenario, 0, EngineOptions(), hosts)
    else:
        scheduler = make_baseline(policy, Granting("declared", "shared"), 0)
    return Simulation(scenario, scheduler, hosts=hosts).run(), hosts, looked, counted


@pytest.mark.parametrize("policy", ["flow", "fcfs", "all-at-once"])
def test_virtual_cpus_that_all_tasks_share_are_looked_at_once(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    found, hosts, looked, counted = run(monkeypatch, policy)
    assert [job.start_s for job in found.jobs] == list(range(JOBS))
    assert max(looked, default=0) <= 1, "one set, however many tasks have it"
    assert counted == 0, "nothing is counted core by core where no task owns one"
    table = hosts.attached(PaceTable)
    assert len(table._sets) <= 1
    assert table.memory.can.shape[0] <= 2


def test_the_cores_of_a_machine_are_one_object_that_is_hashed_once() -> None:
    cores = cores_but(CPUS, {3})
    assert cores is cores_but(CPUS, [3])
    plain = tuple(core for core in range(CPUS) if core != 3)
    assert isinstance(cores, CoreSet) and cores == plain and hash(cores) == hash(plain)
    copied = pickle.loads(pickle.dumps(cores))
    assert copied == cores and {plain: 1}[copied] == 1
    assert cores_but(4, {1}) == (0, 2, 3)


@st.composite
def sharing(draw: st.DrawFn) -> tuple[Bools, Ints]:
    rows, cpus = draw(st.integers(0, 4)), draw(st.integers(1, 12))
    can = np.array(draw(st.lists(st.booleans(), min_size=rows * cpus, max_size=rows * cpus)), np.bool_)
    order, sibling = draw(st.permutations(range(cpus))), np.full(cpus, -1, np.int64)
    for pair in range(draw(st.integers(0, cpus // 2))):
        one, other = order[2 * pair : 2 * pair + 2]
        sibling[one], sibling[other] = other, one
    return can.reshape(rows, cpus), sibling


@settings(max_examples=60, deadline=None)
@given(sharing())
def test_cells_are_the_virtual_cpus_that_nothing_tells_apart(case: tuple[Bools, Ints]) -> None:
    can, sibling = case
    members, size, sibling_cell, own = cells_of(can, sibling)
    alike: dict[tuple[object, ...], list[int]] = {}
    for k, other in enumerate(sibling.tolist()):
        if can[:, k].any():
            beside = None if other < 0 else tuple(can[:, other].tolist())
            alike.setdefault((tuple(can[:, k].tolist()), beside), []).append(k)
    assert size.tolist() == [len(cpus) for cpus in alike.values()]
    assert members.T.tolist() == [list(mine) for mine, _ in alike]
    assert own.tolist() == can.sum(axis=1).tolist()
    cell_of = {k: cell for cell, cpus in enumerate(alike.values()) for k in cpus}
    assert sibling_cell.tolist() == [cell_of.get(int(sibling[cpus[0]]), -1) for cpus in alike.values()]


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 7)), st.data())
def test_cores_are_picked_as_if_one_after_the_other(busy: set[int], data: st.DataObject) -> None:
    (room,) = Round(snapshot([], machines(1)), own_cores=True).rooms
    room = replace(room, busy=busy)
    count = data.draw(st.integers(0, len(room.unowned)))
    sibling, free, picked = sibling_map(room.type), [*room.unowned], []
    for _ in range(count):
        best = min(free, key=lambda core: (2 * (sibling.get(core) in busy) + (sibling.get(core) in picked), core))
        free.remove(best)
        picked.append(best)
    assert rooms.pick_cores(room, count) == tuple(sorted(picked))
