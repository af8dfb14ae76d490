"""What fits where, and booking it: by hand, and as properties of drawn machines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import any_of
from flowsched.gpu.device_arrays import DeviceArrays, device_arrays
from flowsched.gpu.fit_kernels import fits, free_devices, fullest_device, take
from flowsched.gpu.shapes import GpuShape, shape_arrays

MODELS = ("G2", "T4")


@st.composite
def shapes(draw: st.DrawFn) -> GpuShape:
    count = draw(any_of(0, 1, 1, 1, 2, 4))
    share = 1000 if count > 1 else 0 if count == 0 else draw(any_of(1, 190, 460, 810, 999, 1000))
    models = draw(any_of((), ("G2",), ("T4",), ("G2", "T4"), ("H100",)))
    return GpuShape(draw(st.integers(0, 5)), draw(st.integers(0, 5)), count, share, models if count else ())


@st.composite
def machines(draw: st.DrawFn) -> DeviceArrays:
    """Up to four, partly used."""
    rows = draw(
        st.lists(st.tuples(*[st.integers(0, 6)] * 2, st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=4)
    )
    found = device_arrays(*(list(column) for column in zip(*rows, strict=True)))
    for m, d in np.argwhere(found.devices >= 0):
        found.devices[m, d] = draw(any_of(0, 190, 460, 540, 810, 1000, 1000))
    return found


def possible(m: int, shape: GpuShape, state: DeviceArrays) -> bool:
    """By trying every choice of devices."""
    here = state.devices[m][state.devices[m] >= 0].tolist()
    if shape.count and shape.models and (not here or MODELS[state.model[m]] not in shape.models):
        return False
    if state.cpu[m] < shape.cpu_milli or state.memory[m] < shape.memory_mib:
        return False
    return any(
        all(left >= shape.share_milli for left in chosen) for chosen in itertools.combinations(here, shape.count)
    )


@given(state=machines(), shape=shapes())
def test_a_task_fits_where_some_choice_of_devices_takes_it(state: DeviceArrays, shape: GpuShape) -> None:
    asked = shape_arrays([shape], MODELS)
    for m in range(len(state.cpu)):
        assert bool(fits(m, 0, state, asked)) == possible(m, shape, state)


@given(state=machines(), shape=shapes())
def test_booking_takes_what_was_asked_and_nothing_else(state: DeviceArrays, shape: GpuShape) -> None:
    asked = shape_arrays([shape], MODELS)
    for m in range(len(state.cpu)):
        if not fits(m, 0, state, asked):
            continue
        before = state.copy()
        device = int(fullest_device(state.devices[m], shape.share_milli)) if 0 < shape.share_milli < 1000 else -1
        take(m, 0, device, state, asked)

        assert before.cpu[m] - state.cpu[m] == shape.cpu_milli
        assert before.memory[m] - state.memory[m] == shape.memory_mib
        taken = before.devices[m] - state.devices[m]
        assert sorted(taken[taken != 0].tolist()) == [shape.share_milli] * shape.count
        assert state.devices[m][before.devices[m] >= 0].min(initial=0) >= 0
        others = [row for row in range(len(state.cpu)) if row != m]
        assert all(np.array_equal(a[others], b[others]) for a, b in zip(before, state, strict=True))


@given(row=st.lists(st.sampled_from((-1, 0, 190, 460, 810, 1000)), max_size=6), share=st.integers(1, 1000))
def test_the_fullest_device_leaves_least(row: list[int], share: int) -> None:
    enough = [left for left in row if left >= share]
    expected = row.index(min(enough)) if enough else -1
    assert fullest_device(np.array(row, dtype=np.int64), share) == expected


def test_shares_of_two_devices_make_no_larger_one() -> None:
    state = device_arrays([10], [10], [2], [0])
    state.devices[0] = [460, 380]
    asked = shape_arrays([GpuShape(1, 1, 1, 810), GpuShape(1, 1, 1, 460)], MODELS)
    assert [bool(fits(0, s, state, asked)) for s in range(2)] == [False, True]


def test_whole_gpus_are_the_first_free_ones() -> None:
    state = device_arrays([10], [10], [4], [1])
    asked = shape_arrays([GpuShape(1, 1, 1, 300), GpuShape(2, 3, 2, 1000)], MODELS)
    take(0, 0, 1, state, asked)
    take(0, 1, -1, state, asked)
    assert state.devices.tolist() == [[0, 700, 0, 1000]]
    assert (state.cpu.tolist(), state.memory.tolist()) == ([7], [6])
    assert free_devices(state.devices[0]) == 1


def test_machines_know_their_gpus() -> None:
    state = device_arrays([10, 20, 30], [1, 2, 3], [2, 0, 4], [0, 1, 1])
    assert state.devices.tolist() == [[1000, 1000, -1, -1], [-1] * 4, [1000] * 4]
    assert state.model.tolist() == [0, -1, 1]
    assert (state.gpus().tolist(), state.gpu_capacity_milli()) == ([2, 0, 4], 6000)
    assert state.permuted(np.array([2, 0, 1])).cpu.tolist() == [30, 10, 20]
    taken = state.copy()
    taken.devices[0, 0] = 0
    left = [np.maximum(arrays.devices, 0).sum(axis=1).tolist() for arrays in (taken, state)]
    assert left == [[1000, 0, 4000], [2000, 0, 4000]]


def test_a_shape_without_gpus_may_run_anywhere_and_a_missing_gpu_model_nowhere() -> None:
    asked = shape_arrays([GpuShape(1, 1, 0, 0), GpuShape(1, 1, 1, 500, ("H100",)), GpuShape(1, 1, 1, 500)], MODELS)
    assert asked.allowed.tolist() == [[True, True], [False, False], [True, True]]
    assert GpuShape(1, 1, 4, 1000).gpu_milli == 4000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1, 0, 0, 0), "must not be negative"),
        ((1, 1, 0, 500), "without a GPU the share must be 0, got 500"),
        ((1, 1, 1, 0), "the share of a GPU must be 1 to 1000 milli, got 0"),
        ((1, 1, 1, 1001), "the share of a GPU must be 1 to 1000 milli, got 1001"),
        ((1, 1, 2, 500), "2 GPUs must be whole ones, got 500 milli of each"),
    ],
)
def test_what_no_task_can_ask_for_is_refused(values: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GpuShape(*values)
