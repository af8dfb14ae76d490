"""The value of a machine and the price of a place: against brute force, and as properties of drawn machines."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.openb_place_kernels import place
from flowsched.gpu.device_arrays import DeviceArrays, device_arrays
from flowsched.gpu.device_value import for_shapes, value_state, value_tables
from flowsched.gpu.fit_kernels import fits
from flowsched.gpu.shapes import GpuShape, shape_arrays
from flowsched.gpu.tie_order import tie_order
from flowsched.gpu.value_kernels import ValueTables, place_together, price_everywhere
from flowsched.support.arrays import FloatArray, IntArray
from gpu_cases import MODELS, sample_prices, sized_shapes, used_machines


def prices_of(machines: DeviceArrays, shapes: Sequence[GpuShape], tables: ValueTables) -> FloatArray:
    """[shapes, machines] what each machine loses."""
    found = np.zeros((len(shapes), len(machines.cpu)))
    price_everywhere(machines, shape_arrays(shapes, MODELS), tables, value_state(machines, tables), found)
    return found


def tables_of(
    prices: FloatArray, shapes: Sequence[GpuShape], machines: DeviceArrays, step: float = 0.04
) -> ValueTables:
    return value_tables(prices, shape_arrays(shapes, MODELS), machines.devices.shape[1], step)


def best_filling(machines: DeviceArrays, m: int, shapes: Sequence[GpuShape], prices: Sequence[float]) -> float:
    """The dearest set of tasks that machine m holds, by trying all."""

    @functools.cache
    def fill(cpu: int, memory: int, devices: tuple[int, ...], first: int) -> float:
        best = 0.0
        for t in range(first, len(shapes)):
            shape = shapes[t]
            wrong = shape.count and shape.models and MODELS[machines.model[m]] not in shape.models
            if wrong or cpu < shape.cpu_milli or memory < shape.memory_mib:
                continue
            left = (cpu - shape.cpu_milli, memory - shape.memory_mib)
            if not shape.count:
                best = max(best, prices[t] + fill(*left, devices, t))
            elif shape.share_milli == 1000:
                rest = [h for h in devices if h < 1000]
                whole = len(devices) - len(rest) - shape.count
                if whole >= 0:
                    best = max(best, prices[t] + fill(*left, tuple(rest + [1000] * whole), t))
            else:
                for h in {h for h in devices if h >= shape.share_milli}:
                    after = list(devices)
                    after[after.index(h)] = h - shape.share_milli
                    best = max(best, prices[t] + fill(*left, tuple(sorted(after)), t))
        return best

    present = sorted(h for h in machines.devices[m].tolist() if h >= 0)
    return fill(int(machines.cpu[m]), int(machines.memory[m]), tuple(present), 0)


@given(data=st.data())
def test_a_place_costs_at_least_what_its_task_is_worth(data: st.DataObject) -> None:
    """For shares in multiples of 10 milli. What is above is waste."""
    shapes = data.draw(st.lists(sized_shapes(), min_size=1, max_size=6))
    machines, prices = data.draw(used_machines()), data.draw(sample_prices(len(shapes)))

    costs = prices_of(machines, shapes, tables_of(prices, shapes, machines))

    asked = shape_arrays(shapes, MODELS)
    nowhere = (
        (asked.count == 0) & (asked.cpu == 0) & (asked.memory == 0)
    )  # such tasks take nothing, so they cost nothing
    for s, m in np.argwhere(~nowhere[:, None] | (costs == np.inf)):
        if fits(m, s, machines, asked):
            assert costs[s, m] >= prices[:, s].mean() - 1e-9
        else:
            assert costs[s, m] == np.inf


@given(data=st.data())
def test_the_value_of_a_machine_is_no_less_than_its_best_filling(data: st.DataObject) -> None:
    large = st.builds(
        GpuShape,
        st.integers(4, 16).map(lambda n: n * 500),
        st.integers(4, 16).map(lambda n: n * 1024),
        st.just(1),
        st.sampled_from((300, 470, 500, 810, 1000)),
        st.sampled_from(((), ("G2",))),
    )
    pair = st.just(GpuShape(2000, 2048, 2, 1000))
    lone = st.just(GpuShape(8000, 4096, 0, 0))
    shapes = data.draw(st.lists(large | pair | lone, min_size=1, max_size=3))
    machines = data.draw(used_machines(2))
    prices = data.draw(sample_prices(len(shapes)))

    tables = tables_of(prices, shapes, machines)
    state = value_state(machines, tables)

    for m in range(len(machines.cpu)):
        for sample, row in enumerate(prices.tolist()):
            assert state.value[state.row[m], sample] >= best_filling(machines, m, shapes, row) - 1e-9


@pytest.mark.parametrize(
    ("devices", "value"),
    [
        ([1000], 0.96),
        ([810], 0.96),
        ([800], 0.64),  # 650, and what is left takes none
        ([460], 0.32),
        ([640, 640], 1.28),  # two of 320 each
        ([1000, 1000, 810], 2.88 + 0.1),  # a pair is dearer than two single ones
    ],
)
def test_the_value_of_devices_by_hand(devices: list[int], value: float) -> None:
    """With CPU and memory in plenty, only devices count."""
    sizes = {1000: 0.96, 810: 0.96, 650: 0.64, 320: 0.32}
    shapes = [GpuShape(1, 1, 1, size) for size in sizes] + [GpuShape(1, 1, 2, 1000)]
    machines = device_arrays([10**9], [10**9], [len(devices)], [0])
    machines.devices[0] = devices
    tables = tables_of(np.array([[*sizes.values(), 2 * 0.96 + 0.1]]), shapes, machines)
    state = value_state(machines, tables)
    assert state.value[state.row[0], 0] == pytest.approx(value, abs=1e-4)


def test_a_hole_that_no_task_fills_is_waste() -> None:
    """190 beside 810: a share of 190 costs nothing there, and what 810 is worth on an empty device."""
    shapes = [GpuShape(1, 1, 1, 810), GpuShape(1, 1, 1, 190), GpuShape(1, 1, 1, 1000)]
    machines = device_arrays([10**9] * 2, [10**9] * 2, [1, 1], [0, 0])
    machines.devices[0, 0] = 190
    costs = prices_of(machines, shapes, tables_of(np.array([[0.96, 0.0, 0.96]]), shapes, machines))
    assert costs[1].tolist() == pytest.approx([0.0, 0.0], abs=1e-4)
    machines.devices[1, 0] = 990
    assert prices_of(machines, shapes, tables_of(np.array([[0.96, 0.0, 0.96]]), shapes, machines))[1].tolist() == (
        pytest.approx([0.0, 0.96], abs=1e-4)
    )


@given(data=st.data())
def test_the_cheapest_place_is_taken_and_the_first_of_equals(data: st.DataObject) -> None:
    """Though not every price is worked out, and kept ones are used again."""
    shapes = data.draw(st.lists(sized_shapes(), min_size=1, max_size=4))
    machines, prices = data.draw(used_machines(6)), data.draw(sample_prices(len(shapes)))
    arrivals = data.draw(st.lists(st.integers(0, len(shapes) - 1), max_size=12))
    tables, asked = tables_of(prices, shapes, machines), shape_arrays(shapes, MODELS)
    state = value_state(machines, tables)

    for s in arrivals:
        costs = prices_of(machines, shapes, tables)[s]
        rounded = np.floor(costs / tables.step + 0.5)
        m, device = place(s, machines, asked, tables, state)
        if np.isinf(costs).all():
            assert (m, device) == (-1, -1)
        else:
            # Sums in another order differ in the last digits, so that a price on an edge may round either way.
            edges = costs[np.isfinite(costs)] / tables.step + 0.5
            if not (np.abs(edges - np.round(edges)) < 1e-6).any():
                assert m == int(rounded.argmin())
            assert costs[m] <= costs.min() + tables.step + 1e-6


@given(data=st.data())
def test_the_same_seed_gives_the_same_places_however_machines_are_listed(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(sized_shapes(), min_size=1, max_size=4))
    machines, prices = data.draw(used_machines(6)), data.draw(sample_prices(len(shapes)))
    arrivals = np.array(data.draw(st.lists(st.integers(0, len(shapes) - 1), max_size=12)), dtype=np.int64)
    listed = np.array(data.draw(st.permutations(range(len(machines.cpu)))))
    names = [f"n-{m}" for m in range(len(machines.cpu))]

    def places(order: IntArray) -> list[str]:
        order = order[tie_order([names[m] for m in order])]
        now, asked = machines.permuted(order).copy(), shape_arrays(shapes, MODELS)
        tables = tables_of(prices, shapes, now)
        state = value_state(now, tables)
        where = [place(s, now, asked, tables, state)[0] for s in arrivals]
        return [names[order[m]] if m >= 0 else "" for m in where]

    assert places(listed) == places(np.arange(len(names)))


@given(data=st.data())
def test_tasks_together_cost_what_the_machine_loses(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(sized_shapes(), min_size=1, max_size=4))
    machines, prices = data.draw(used_machines(1)), data.draw(sample_prices(len(shapes)))
    together = np.array(data.draw(st.lists(st.integers(0, len(shapes) - 1), max_size=4)), dtype=np.int64)
    tables = tables_of(prices, shapes, machines)
    state, device = value_state(machines, tables), np.zeros(len(together), dtype=np.int64)
    before = state.value[state.row[0]].mean()

    lost = place_together(0, together, machines, shape_arrays(shapes, MODELS), tables, state, device)

    if lost < np.inf:
        after = value_state(machines, tables)
        assert lost == pytest.approx(before - after.value[after.row[0]].mean(), abs=1e-6)


@given(data=st.data())
def test_values_serve_other_shapes_than_those_of_the_demand(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(sized_shapes(), min_size=1, max_size=4))
    machines, prices = data.draw(used_machines()), data.draw(sample_prices(len(shapes)))
    tables = tables_of(prices, shapes, machines)
    again = for_shapes(tables, shape_arrays(shapes[::-1], MODELS))
    assert np.array_equal(prices_of(machines, shapes[::-1], again)[::-1], prices_of(machines, shapes, tables))


def test_the_order_of_ties_is_that_of_names_alone() -> None:
    names = [f"openb-node-{i:04d}" for i in range(50)]
    order = [names[i] for i in tie_order(names)]
    assert [names[::-1][i] for i in tie_order(names[::-1])] == order
    assert order != sorted(order)
    assert [name for name in order if name != names[7]] == [
        (names[:7] + names[8:])[i] for i in tie_order(names[:7] + names[8:])
    ]
