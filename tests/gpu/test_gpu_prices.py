"""The price program: prices of small cases by hand, all patterns enumerated, and what no placement exceeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from benchmarks.openb_place_kernels import place
from flowsched.gpu.demand import GpuDemand, demand_of, gpus_of
from flowsched.gpu.demand_prices import SAMPLES, PriceProgram
from flowsched.gpu.device_arrays import DeviceArrays, device_arrays
from flowsched.gpu.device_patterns import best_pattern
from flowsched.gpu.device_value import value_state, value_tables
from flowsched.gpu.shapes import GpuShape, shape_arrays
from gpu_cases import MODELS, sample_prices, sized_shapes, used_machines

PLENTY = 10**9


def machines_of(count: int, gpus: int, cpu_milli: int = PLENTY, memory_mib: int = PLENTY) -> DeviceArrays:
    return device_arrays([cpu_milli] * count, [memory_mib] * count, [gpus] * count, [0] * count)


def prices_of(machines: DeviceArrays, shares: dict[GpuShape, float]) -> list[float]:
    """In the order of the mapping."""
    demand = GpuDemand(tuple(shares), np.array(list(shares.values())))
    return PriceProgram(machines, MODELS, demand.shapes).prices(demand).tolist()


@pytest.mark.parametrize(("share", "on_one"), [(810, 1), (470, 2), (320, 3), (230, 4), (501, 1), (250, 4)])
def test_a_share_costs_what_it_takes_of_a_device_where_only_its_own_kind_fits_beside_it(
    share: int, on_one: int
) -> None:
    own, whole = prices_of(machines_of(10, 4), {GpuShape(1, 1, 1, share): 0.5, GpuShape(1, 1, 1, 1000): 0.5})
    assert own * on_one == pytest.approx(whole, rel=1e-6)
    assert 0.5 * own + 0.5 * whole == pytest.approx(0.5 * share / 1000 + 0.5, rel=1e-6)


def test_two_shares_that_fill_a_device_cost_as_much_as_one_together() -> None:
    """More 400s than 600s come: a pair of 400s has a device too, so that 400, and with it 600, costs half a device."""
    large, small, whole = prices_of(
        machines_of(10, 4),
        {GpuShape(1, 1, 1, 600): 0.2, GpuShape(1, 1, 1, 400): 0.6, GpuShape(1, 1, 1, 1000): 0.2},
    )
    assert large + small == pytest.approx(whole, rel=1e-6)
    assert 2 * small == pytest.approx(whole, rel=1e-6)


def test_what_stays_over_costs_nothing() -> None:
    """190 fits beside each 810, and there are fewer of them."""
    large, small = prices_of(machines_of(10, 4), {GpuShape(1, 1, 1, 810): 0.8, GpuShape(1, 1, 1, 190): 0.2})
    assert small == pytest.approx(0.0, abs=1e-6)
    assert large > 0.81


def test_scarce_cpu_has_a_price_and_devices_then_have_none() -> None:
    light, heavy = prices_of(
        machines_of(10, 4, cpu_milli=4000), {GpuShape(2000, 1, 1, 1000): 0.5, GpuShape(4000, 1, 1, 1000): 0.5}
    )
    assert heavy == pytest.approx(2 * light, rel=1e-6)


def test_a_scarce_model_makes_the_tasks_dear_that_need_it() -> None:
    machines = device_arrays([PLENTY] * 10, [PLENTY] * 10, [4] * 10, [0] * 9 + [1])
    bound, free = prices_of(machines, {GpuShape(1, 1, 1, 1000, ("T4",)): 0.5, GpuShape(1, 1, 1, 1000): 0.5})
    assert bound > 1.5 * free


def test_large_tasks_cost_more_than_their_devices_where_large_machines_are_few() -> None:
    machines = device_arrays([PLENTY] * 10, [PLENTY] * 10, [1] * 8 + [8] * 2, [0] * 10)
    eight, one = prices_of(machines, {GpuShape(1, 1, 8, 1000): 0.25, GpuShape(1, 1, 1, 1000): 0.75})
    assert eight > 8 * one


def test_what_can_never_run_has_no_price() -> None:
    never, one = prices_of(machines_of(4, 2), {GpuShape(1, 1, 4, 1000): 0.5, GpuShape(1, 1, 1, 1000): 0.5})
    assert (never, one) == (0.0, pytest.approx(1.0))  # all that is asked for of the others is one GPU each


@given(sizes=st.sets(st.integers(12, 100), min_size=1, max_size=5), data=st.data())
def test_the_best_pattern_is_the_best_of_all(sizes: set[int], data: st.DataObject) -> None:
    cells = np.array(sorted(sizes))
    prices = np.array(data.draw(st.lists(st.floats(0.0, 2.0), min_size=len(cells), max_size=len(cells))))
    value, counts = best_pattern(cells, prices)
    assert counts @ cells <= 100
    assert value == pytest.approx(counts @ prices)
    every = itertools.product(*(range(100 // int(size) + 1) for size in cells))
    assert value == pytest.approx(max(float(np.array(p) @ prices) for p in every if np.array(p) @ cells <= 100))


def enumerated_bound(machines: int, gpus: int, cpu: int, shapes: Sequence[GpuShape], counts: Sequence[int]) -> float:
    """Most GPUs allocated on machines of one kind, with every pattern there is as a variable."""
    sizes = sorted({shape.share_milli // 10 for shape in shapes})
    every = itertools.product(*(range(100 // size + 1) for size in sizes))
    patterns = [p for p in every if 0 < sum(n * s for n, s in zip(p, sizes, strict=True)) <= 100]
    tasks = len(shapes)
    rows = [
        [float(shape.cpu_milli) for shape in shapes] + [0.0] * len(patterns),
        [0.0] * tasks + [1.0] * len(patterns),
    ]
    for i, size in enumerate(sizes):
        rows.append([float(shape.share_milli == size * 10) for shape in shapes] + [-float(p[i]) for p in patterns])
    limits = [float(machines * cpu), float(machines * gpus)] + [0.0] * len(sizes)
    value = np.concatenate([-gpus_of(shapes), np.zeros(len(patterns))])
    found = linprog(value, rows, limits, bounds=[(0, n) for n in counts] + [(0, None)] * len(patterns))
    return -float(found.fun)


@given(
    drawn=st.lists(
        st.tuples(st.integers(15, 100), st.integers(0, 8), st.integers(0, 30)),
        min_size=1,
        max_size=4,
        unique_by=lambda row: row[:2],
    ),
    machines=st.integers(1, 4),
    gpus=st.integers(1, 4),
    cpu=st.integers(1, 16),
)
def test_column_generation_finds_what_all_patterns_together_do(
    drawn: list[tuple[int, int, int]], machines: int, gpus: int, cpu: int
) -> None:
    shapes = [GpuShape(cores * 1000, 0, 1, cells * 10) for cells, cores, _ in drawn if cores <= cpu]
    counts = [count for _, cores, count in drawn if cores <= cpu]
    if shapes:
        program = PriceProgram(machines_of(machines, gpus, cpu * 1000, 0), MODELS, shapes)
        expected = enumerated_bound(machines, gpus, cpu * 1000, shapes, counts)
        assert program.bound(np.array(counts)) == pytest.approx(expected, abs=1e-5)


@given(data=st.data())
def test_no_placement_exceeds_the_bound(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(sized_shapes(), min_size=1, max_size=4, unique=True))
    used = data.draw(used_machines(6))
    machines = device_arrays(used.cpu, used.memory, used.gpus(), np.maximum(used.model, 0))
    if not machines.gpus().any():
        return
    machines = machines.permuted(np.flatnonzero(machines.gpus()))
    prices = data.draw(sample_prices(len(shapes)))
    arrivals = np.array(data.draw(st.lists(st.integers(0, len(shapes) - 1), max_size=30)), dtype=np.int64)
    asked, now = shape_arrays(shapes, MODELS), machines.copy()
    tables = value_tables(prices, asked, machines.devices.shape[1])
    state = value_state(now, tables)
    where = np.array([place(s, now, asked, tables, state)[0] for s in arrivals], dtype=np.int64)

    program = PriceProgram(machines, MODELS, shapes)
    bound = program.bound(np.bincount(arrivals, minlength=len(shapes)))

    assert gpus_of(shapes)[arrivals[where >= 0]].sum() <= bound + 1e-6
    assert bound <= min(gpus_of(shapes)[arrivals].sum(), program.capacity) + 1e-6
    # Solving for prices afterwards is not disturbed by it.
    demand = GpuDemand(tuple(shapes), np.full(len(shapes), 1.0 / len(shapes)))
    again = PriceProgram(machines, MODELS, shapes)
    assert demand.shares @ program.prices(demand) == pytest.approx(demand.shares @ again.prices(demand), abs=1e-6)


def test_a_bound_needs_shares_in_cells() -> None:
    with pytest.raises(ValueError, match="multiples of 10 milli"):
        PriceProgram(machines_of(1, 1), MODELS, [GpuShape(1, 1, 1, 505)]).bound(np.array([1]))


def test_prices_are_found_though_the_usual_way_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simplex method loses its way now and then; the program is then solved anew in another way."""
    shares = {GpuShape(1, 1, 1, 600): 0.2, GpuShape(1, 1, 1, 400): 0.6, GpuShape(1, 1, 1, 1000): 0.2}
    demand = GpuDemand(tuple(shares), np.array(list(shares.values())))
    usual = PriceProgram(machines_of(10, 4), MODELS, demand.shapes).prices(demand)

    program = PriceProgram(machines_of(10, 4), MODELS, demand.shapes)
    solver, calls = program._solver, list[bool]()

    class Failing:
        """Solves only from the beginning."""

        def __getattr__(self, name: str) -> object:
            return getattr(solver, name)

        def Solve(self, parameters: object) -> int:  # noqa: N802  # the solver's own name
            calls.append(parameters is program._onwards)
            return int(solver.ABNORMAL) if calls[-1] else int(solver.Solve(parameters))

    monkeypatch.setattr(program, "_solver", Failing())
    assert program.prices(demand) == pytest.approx(usual, rel=1e-6)
    assert True in calls and False in calls


def test_futures_are_drawn_by_their_seed_and_hold_only_what_comes_soon() -> None:
    shares = {GpuShape(1, 1, 1, 600): 0.3, GpuShape(1, 1, 1, 1000): 0.6999, GpuShape(1, 1, 1, 300): 0.0001}
    demand = GpuDemand(tuple(shares), np.array(list(shares.values())))

    def drawn(seed: int) -> list[list[float]]:
        program = PriceProgram(machines_of(30, 4), MODELS, demand.shapes)
        return program.expected_prices(demand, None, np.random.default_rng(seed)).tolist()

    assert drawn(1) == drawn(1) != drawn(2)
    prices = np.array(drawn(1))
    assert len(prices) == SAMPLES
    assert (prices[:, :2] > 0).all()
    assert (prices[:, 2] == 0).all()


def test_demand_is_learnt_from_what_came() -> None:
    small, large = GpuShape(1, 1, 1, 300), GpuShape(1, 1, 2, 1000)
    demand = demand_of({large: 1, small: 3})
    assert (demand.shapes, demand.shares.tolist(), demand.mean_gpus) == ((small, large), [0.75, 0.25], 0.725)
    with pytest.raises(ValueError, match="there are none"):
        demand_of({small: 0})
