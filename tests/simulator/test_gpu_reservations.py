"""Reservations of GPUs look at devices: pieces of different ones do not add up, held against brute force."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, SMALL, any_of, lasting, machine, running, snapshot
from flowsched.cluster.decision import Decisions
from flowsched.cluster.snapshot import Running, Snapshot, Task
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.relations.relation import TaskGroup
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.registry import BASELINES

WIDE = replace(SMALL, vcpus=32)
WITH_WIDE = replace(CATALOGUE, machine_types={**CATALOGUE.machine_types, "small": WIDE})
RULES = ("easy", "conservative")


def decide(name: str, view: Snapshot) -> Decisions:
    return BASELINES[name](Granting("declared", "own"), 0).decide(view)


def asking(name: str, gpus: TaskGpus, seconds: float, at: float = 0.0, **changes: object) -> Task:
    return replace(lasting(name, 1, seconds, at, gpus=gpus, **changes), memory_mib=10)


def share(name: str, milli: int, seconds: float, at: float = 0.0, **changes: object) -> Task:
    return asking(name, TaskGpus(1, milli), seconds, at, **changes)


def on(task: Task, core: int, *devices: int) -> Running:
    return running(task, cores=(core,), devices=devices)


def gpus_of(count: int, waiting: Sequence[Task], there: Sequence[Running], **changes: object) -> Snapshot:
    cluster = [machine("m1", WIDE, gpus=MachineGpus("V100", count))]
    return snapshot(waiting, cluster, running=there, catalogue=WITH_WIDE, **changes)


def started(decisions: Decisions) -> dict[str, tuple[int, ...]]:
    return {p.task: p.devices for p in decisions.placements}


def promised(decisions: Decisions) -> dict[str, float]:
    found = {p.task: re.search(r"reserved on m1 at ([0-9.]+) s$", p.reason) for p in decisions.postponements}
    return {task: float(at[1]) for task, at in found.items() if at}


@pytest.mark.parametrize("name", RULES)
def test_pieces_of_different_gpus_are_no_place_for_the_head(name: str) -> None:
    there = [on(share("a1", 540, 100.0), 0, 0), on(share("a2", 520, 900.0), 1, 1), on(share("a3", 530, 900.0), 2, 2)]
    waiting = [share("head", 800, 50.0), share("back", 400, 3000.0, 1)]
    decisions = decide(name, gpus_of(3, waiting, there))
    assert promised(decisions) == {"head": 100.0}
    (reason,) = (p.reason for p in decisions.postponements)
    assert reason.endswith("m1 has 480m, 470m, 460m of its GPUs left; reserved on m1 at 100.0 s")
    # Beside the head's device; 490m would fit on none of the others.
    assert started(decisions) == {"back": (2,)}
    tight = [replace(r, task=replace(r.task, gpus=TaskGpus(1, 560))) if r.task.name != "a1" else r for r in there]
    waiting = [share("head", 800, 50.0), share("back", 450, 3000.0, 1), share("short", 450, 90.0, 2)]
    decisions = decide(name, gpus_of(3, waiting, tight))
    assert started(decisions) == {"short": (0,)}
    assert (
        "delay a reservation there: first of all head (reserved on m1 at 100.0 s)" in decisions.postponements[1].reason
    )


@pytest.mark.parametrize("name", RULES)
def test_what_leaves_whole_gpus_to_the_head_starts(name: str) -> None:
    # The head needs two whole devices, free at 100 s; a share on the third is harmless, though the sum would be short.
    there = [on(asking("a", TaskGpus(2), 100.0), 0, 0, 1), on(share("b", 700, 500.0), 1, 2)]
    decisions = decide(name, gpus_of(3, [asking("head", TaskGpus(2), 50.0), share("back", 300, 400.0, 1)], there))
    assert (started(decisions), promised(decisions)) == ({"back": (2,)}, {"head": 100.0})


@pytest.mark.parametrize("name", RULES)
def test_a_reservation_moves_to_another_device_for_what_fits_on_one_only(name: str) -> None:
    # At 100 s both devices take the head; `back` fits on that with more left, whichever was reserved first.
    for left in ((300, 500), (500, 300)):
        there = [on(share(f"a{d}", 1000 - left[d], 100.0), d, d) for d in (0, 1)]
        decisions = decide(name, gpus_of(2, [share("head", 800, 50.0), share("back", 400, 900.0, 1)], there))
        assert (started(decisions), promised(decisions)) == ({"back": (left.index(500),)}, {"head": 100.0})


def test_members_of_a_gang_are_reserved_on_devices() -> None:
    there = [on(share("a", 400, 100.0), 0, 0), on(share("b", 400, 300.0), 1, 1)]
    gang = [share(f"g{k}", milli, 50.0, group="g") for k, milli in enumerate((500, 500, 600))]
    view = gpus_of(2, gang, there, task_groups=(TaskGroup("g", 3),))
    assert set(promised(decide("easy", view)).values()) == {100.0}


# --- brute force ------------------------------------------------------------------------------------------

Use = tuple[tuple[int, ...], int, float, float]
"""Devices, thousandths of each, from and until when."""


def fits(uses: Sequence[Use], count: int) -> bool:
    moments = {start for _, _, start, _ in uses}
    return all(
        sum(milli for devices, milli, start, end in uses if device in devices and start <= t < end) <= 1000
        for t, device in product(moments, range(count))
    )


def arrangeable(fixed: Sequence[Use], free: Sequence[tuple[TaskGpus, float, float]], count: int) -> bool:
    sets = [combinations(range(count), gpus.count) for gpus, _, _ in free]
    return any(
        fits([*fixed, *((d, g.share_milli, s, e) for d, (g, s, e) in zip(chosen, free, strict=True))], count)
        for chosen in product(*sets)
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """A machine of two or three GPUs, what runs on them, and tasks that wait."""
    count = draw(st.integers(2, 3))
    asked = st.sampled_from(
        [TaskGpus(1, milli) for milli in (200, 300, 400, 500, 600, 800)] + [TaskGpus(1), TaskGpus(2)]
    )
    there: list[Running] = []
    left = [1000] * count
    for k in range(draw(st.integers(1, 5))):
        gpus = draw(asked)
        able = [d for d in range(count) if left[d] >= gpus.share_milli]
        if len(able) < gpus.count:
            continue
        devices = tuple(sorted(draw(st.permutations(able))[: gpus.count]))
        for d in devices:
            left[d] -= gpus.share_milli
        there.append(on(asking(f"r{k}", gpus, draw(any_of(30.0, 60.0, 90.0))), k, *devices))
    waiting = [asking(f"w{k}", draw(asked), draw(any_of(20.0, 40.0, 100.0)), k) for k in range(draw(st.integers(2, 5)))]
    return gpus_of(count, waiting, there, now_s=0.0)


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_reservations_and_what_starts_beside_them_equal_brute_force(view: Snapshot) -> None:
    gpus = view.machines[0].gpus
    assert gpus is not None
    for name in RULES:
        decisions = decide(name, view)
        begun, starts = started(decisions), promised(decisions)
        fixed: list[Use] = [
            (r.devices, r.task.gpus.share_milli, 0.0, r.task.scale * 100) for r in view.running if r.task.gpus
        ]
        reserved: list[tuple[TaskGpus, float, float]] = []
        for task in view.pending:
            assert task.gpus is not None
            length_s = task.scale * 100
            now = arrangeable(fixed, [*reserved, (task.gpus, 0.0, length_s)], gpus.count)
            assert (task.name in begun) == now, (name, task.name)
            if now:
                fixed.append((begun[task.name], task.gpus.share_milli, 0.0, length_s))
                assert arrangeable(fixed, reserved, gpus.count), (name, task.name)
            elif name == "conservative" or not reserved:
                moments = sorted({end for *_, end in (*fixed, *reserved)} | {start for _, start, _ in reserved})
                able = (t for t in moments if arrangeable(fixed, [*reserved, (task.gpus, t, t + length_s)], gpus.count))
                assert starts[task.name] == pytest.approx(next(able)), (name, task.name)
                reserved.append((task.gpus, starts[task.name], starts[task.name] + length_s))
