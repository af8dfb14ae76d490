"""Published rules for shared GPUs: scores by hand, and what must hold of every one of them."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.openb_checks import faults
from benchmarks.openb_playing import play_arrivals
from flowsched.gpu.device_arrays import DeviceArrays, device_arrays
from flowsched.gpu.fit_kernels import fits, take
from flowsched.gpu.shapes import GpuShape, shape_arrays
from flowsched_simulator.baselines.gpu.registry import GPU_RULES
from flowsched_simulator.baselines.gpu.rule import GpuOutlook
from flowsched_simulator.baselines.gpu.starts import typical_shapes

MODELS = ("G2", "T4")
NAMES = list(GPU_RULES)


def outlook(
    machines: DeviceArrays, shapes: list[GpuShape], frequency: list[int] | None = None, seed: int = 1
) -> GpuOutlook:
    times = np.array(frequency or [1] * len(shapes), dtype=np.int64)
    return GpuOutlook(machines, MODELS, tuple(shapes), times, seed)


def score_of(name: str, machines: DeviceArrays, shape: GpuShape, hosted: list[GpuShape] | None = None) -> list[int]:
    """What a rule scores each machine with; ``hosted``: placed on machine 0 before."""
    shapes = [shape, *(hosted or [])]
    rule, asked = GPU_RULES[name], shape_arrays(shapes, MODELS)
    state = rule.start(outlook(machines, shapes))
    for s in range(1, len(shapes)):
        take(0, s, 0, machines, asked)
        rule.placed(0, s, machines, asked, state)
    scores: list[int] = state.score[state.group[0]].tolist()
    return scores


def two_machines() -> DeviceArrays:
    """One with two GPUs of 460 and 1000 milli left, one with four idle ones; 64 and 32 cores left."""
    machines = device_arrays([64_000, 32_000], [1000, 1000], [2, 4], [0, 1])
    machines.devices[0, 0] = 460
    return machines


@pytest.mark.parametrize(
    ("name", "shape", "scores"),
    [
        # 100 (1 - 0.5 * 60/128 - 0.5 * 1.06/8) = 69.9 and 100 (1 - 0.5 * 28/128 - 0.5 * 3.6/8) = 66.6
        ("BestFit", GpuShape(4000, 1, 1, 400), [69, 66]),
        # 100 (1 - (64/128 * 4/128 + 1.46/8 * 0.4/8) / 2) = 98.8 and 100 (1 - (32/128 * 4/128 + 4/8 * 0.4/8) / 2) = 98.4
        ("DotProd", GpuShape(4000, 1, 1, 400), [98, 98]),
        ("DotProd", GpuShape(16_000, 1, 1, 1000), [95, 95]),
        # The used device has 46 % left: 100 - 46 / 10 = 96. The other machine is idle: 33 - 4.
        ("GpuPacking", GpuShape(4000, 1, 1, 400), [96, 29]),
        # Only the free device takes 500; one whole GPU; and four, which only the idle machine has.
        ("GpuPacking", GpuShape(4000, 1, 1, 500), [49, 29]),
        ("GpuPacking", GpuShape(4000, 1, 1, 1000), [49, 29]),
        ("GpuPacking", GpuShape(4000, 1, 4, 1000), [-1, 29]),
        ("GpuPacking", GpuShape(4000, 1, 0, 0), [0, 0]),
        # Nothing hosted: 25, and 25 (8 - 1.46) / 8 = 20 or 25 (8 - 4) / 8 = 12.
        ("GpuClustering", GpuShape(4000, 1, 1, 400), [45, 37]),
        ("GpuClustering", GpuShape(4000, 1, 0, 0), [0, 0]),
        # Too much CPU for the second.
        ("BestFit", GpuShape(40_000, 1, 0, 0), [81, -1]),
    ],
)
def test_scores_by_hand(name: str, shape: GpuShape, scores: list[int]) -> None:
    assert score_of(name, two_machines(), shape) == scores


def test_clustering_likes_its_own_kind_best_and_others_least() -> None:
    def score(*hosted: GpuShape) -> int:
        machines = device_arrays([100], [100], [8], [0])
        full = 25 * sum(shape.gpu_milli for shape in hosted) // 8000
        return score_of("GpuClustering", machines, GpuShape(1, 1, 1, 500), list(hosted))[0] - full

    share, one, two, cpu = (
        GpuShape(1, 1, 1, 100),
        GpuShape(1, 1, 1, 1000),
        GpuShape(1, 1, 2, 1000),
        GpuShape(1, 1, 0, 0),
    )
    assert score(cpu) == 25
    assert score(share, cpu, share) == 75
    assert score(share, one) == 50
    assert score(one, two) == 0


def fragmentation(m: int, machines: DeviceArrays, typical: list[tuple[GpuShape, float]]) -> float:
    """F of a machine by its definition, GPU milli."""
    left = [h for h in machines.devices[m].tolist() if h >= 0]
    asked = shape_arrays([shape for shape, _ in typical], MODELS)
    total = 0.0
    for t, (shape, popularity) in enumerate(typical):
        usable = shape.count > 0 and fits(m, t, machines, asked)
        total += popularity * (sum(h for h in left if h < shape.share_milli) if usable else sum(left))
    return total


def fgd_scores(m: int, shape: GpuShape, machines: DeviceArrays, typical: list[tuple[GpuShape, float]]) -> list[float]:
    """By device for a share, else one; before truncation."""
    before = fragmentation(m, machines, typical)
    found = []
    share = 0 < shape.share_milli < 1000
    for device in range(machines.devices.shape[1]) if share else [-1]:
        if share and machines.devices[m, device] < shape.share_milli:
            continue
        after = machines.copy()
        take(m, 0, device, after, shape_arrays([shape], MODELS))
        found.append(100.0 / (1.0 + math.exp((fragmentation(m, after, typical) - before) / 1000.0)))
    return found


@st.composite
def worlds(draw: st.DrawFn) -> tuple[DeviceArrays, list[GpuShape], list[int]]:
    """Machines, shapes, arrivals."""
    kinds = st.tuples(st.integers(1, 20), st.integers(1, 20), st.sampled_from((0, 1, 2, 4)), st.integers(0, 1))
    rows = draw(st.lists(kinds, min_size=1, max_size=5))
    gpus = st.sampled_from(((0, 0), (1, 190), (1, 460), (1, 810), (1, 1000), (2, 1000), (4, 1000)))
    models = st.sampled_from(((), (), ("G2",), ("G2", "T4")))
    drawn = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), gpus, models), min_size=1, max_size=8))
    shapes = sorted({GpuShape(cpu, mib, *gpu, models=named if gpu[0] else ()) for cpu, mib, gpu, named in drawn})
    machines = device_arrays(*(list(column) for column in zip(*rows, strict=True)))
    return machines, shapes, draw(st.lists(st.integers(0, len(shapes) - 1), max_size=30))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(world=worlds(), seed=st.integers(0, 3))
def test_no_rule_overcommits_or_drops_what_fits(name: str, world: tuple[Any, ...], seed: int) -> None:
    machines, shapes, drawn = world
    arrivals = np.array(drawn, dtype=np.int64)
    before = machines.copy()
    placements = play_arrivals(GPU_RULES[name], outlook(machines, shapes, seed=seed), arrivals)

    assert faults(machines, MODELS, shapes, arrivals, placements.machine, placements.device) == []
    assert all(np.array_equal(a, b) for a, b in zip(before, machines, strict=True))  # it plays on a copy
    again = play_arrivals(GPU_RULES[name], outlook(machines, shapes, seed=seed), arrivals)
    assert np.array_equal(again.machine, placements.machine)
    assert np.array_equal(again.device, placements.device)


@settings(max_examples=60)
@given(world=worlds())
def test_the_scores_of_fgd_are_those_of_its_definition(world: tuple[Any, ...]) -> None:
    machines, shapes, drawn = world
    asked, rule = shape_arrays(shapes, MODELS), GPU_RULES["FGD"]
    seen = outlook(machines, shapes, np.bincount(drawn, minlength=len(shapes)).tolist() if drawn else None)
    typical, state = typical_shapes(seen), rule.start(seen)
    for s in drawn:
        m, device = rule.choose(s, machines, asked, state)
        if m >= 0:
            take(m, s, device, machines, asked)
            rule.placed(m, s, machines, asked, state)
    for s, shape in enumerate(shapes):
        for m in range(len(machines.cpu)):
            if not fits(m, s, machines, asked):
                continue
            exact = fgd_scores(m, shape, machines, typical)
            kept = state.score[state.group[s], m]
            # Sums in another order differ in their last digits: a whole number may come out as the one below.
            assert max(exact) - 1 - 1e-9 <= kept <= max(exact) + 1e-9
            if 0 < shape.share_milli < 1000:
                on = [d for d, left in enumerate(machines.devices[m]) if left >= shape.share_milli]
                chosen = exact[on.index(state.device[state.group[s], m])]
                assert math.floor(chosen + 1e-9) >= math.floor(max(exact) - 1e-9)


def test_the_fragmentation_of_an_example_by_hand() -> None:
    """Devices of 300 and 1000; half of the tasks ask for 500, half for none: F = 0.5 * 300 + 0.5 * 1300 = 800."""
    machines = device_arrays([100], [100], [2], [0])
    machines.devices[0, 0] = 300
    half = [(GpuShape(1, 0, 1, 500), 0.5), (GpuShape(1, 0, 0, 0), 0.5)]
    assert fragmentation(0, machines, half) == pytest.approx(800.0)

    # 300 on the first device leaves F = 500, on the second 0.5 * 300 + 0.5 * 1000 = 650. 100 / (1 + exp(-0.3)) = 57.4
    shapes = [GpuShape(1, 0, 0, 0), GpuShape(1, 0, 1, 300), GpuShape(1, 0, 1, 500)]
    state = GPU_RULES["FGD"].start(outlook(machines, shapes, [1, 0, 1]))
    assert (state.score[1, 0], state.device[1, 0]) == (57, 0)


def test_ties_go_to_one_order_of_the_machines_for_the_whole_run() -> None:
    machines = device_arrays([10] * 20, [10] * 20, [1] * 20, [0] * 20)
    # Without GPUs everywhere alike for GpuPacking: each machine is filled before the next.
    arrivals = np.zeros(40, dtype=np.int64)
    runs = [
        play_arrivals(GPU_RULES["GpuPacking"], outlook(machines, [GpuShape(5, 5, 0, 0)], seed=seed), arrivals)
        for seed in (1, 2)
    ]
    for run in runs:
        assert run.machine[::2].tolist() == run.machine[1::2].tolist()
        assert sorted(set(run.machine.tolist())) == list(range(20))
    assert runs[0].machine.tolist() != runs[1].machine.tolist()


def test_random_takes_every_machine_and_device_where_a_task_fits() -> None:
    machines = device_arrays([1000] * 4, [1000] * 4, [1, 2, 0, 4], [0, 1, 0, 0])
    arrivals = np.zeros(300, dtype=np.int64)
    run = play_arrivals(GPU_RULES["Random"], outlook(machines, [GpuShape(1, 1, 1, 10, ("G2",))]), arrivals)
    places = set(zip(run.machine.tolist(), run.device.tolist(), strict=True))
    assert places == {(0, 0), (3, 0), (3, 1), (3, 2), (3, 3)}


def test_typical_shapes_cover_95_per_cent_and_forget_memory() -> None:
    shapes = [GpuShape(1, 1, 1, 500), GpuShape(1, 2, 1, 500), GpuShape(2, 1, 0, 0), GpuShape(3, 1, 1, 300)]
    assert typical_shapes(outlook(device_arrays([1], [1], [1], [0]), shapes, [30, 30, 36, 4])) == [
        (GpuShape(1, 0, 1, 500), 60 / 96),
        (GpuShape(2, 0, 0, 0), 36 / 96),
    ]
