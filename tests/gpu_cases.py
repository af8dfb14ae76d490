"""Machines, shapes and prices as tests of shared GPUs draw them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from builders import any_of
from flowsched.gpu.device_arrays import DeviceArrays, device_arrays
from flowsched.gpu.shapes import GpuShape
from flowsched.support.arrays import FloatArray

MODELS = ("G2", "T4")


@st.composite
def sized_shapes(draw: st.DrawFn) -> GpuShape:
    """Shares in multiples of 10 milli."""
    count = draw(any_of(0, 1, 1, 1, 1, 2, 4))
    share = 1000 if count > 1 else 10 * draw(st.integers(1, 100)) if count else 0
    models = draw(any_of((), (), ("G2",), ("T4",))) if count else ()
    cpu, memory = draw(st.integers(0, 16)) * 500, draw(st.integers(0, 16)) * 1024
    return GpuShape(cpu, memory, count, share, models)


@st.composite
def used_machines(draw: st.DrawFn, most: int = 4) -> DeviceArrays:
    """Up to so many, partly used in steps of 10 milli; some without a GPU."""
    one = st.tuples(st.integers(0, 64), st.integers(0, 64), st.integers(0, 4), st.integers(0, 1))
    rows = draw(st.lists(one, min_size=1, max_size=most))
    cpu, memory, gpus, model = (np.array(column) for column in zip(*rows, strict=True))
    found = device_arrays(cpu * 500, memory * 1024, gpus, model)
    for m, d in np.argwhere(found.devices >= 0):
        found.devices[m, d] = 10 * draw(any_of(0, 19, 46, 54, 81, 100, 100) | st.integers(0, 100))
    return found


def sample_prices(shapes: int) -> st.SearchStrategy[FloatArray]:
    """[1 to 3 samples, shapes] prices in devices, some 0."""
    row = st.lists(st.just(0.0) | st.floats(0.0, 4.0), min_size=shapes, max_size=shapes)
    return st.lists(row, min_size=1, max_size=3).map(np.array)
