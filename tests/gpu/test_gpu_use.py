"""How GPUs were used, and how a report draws it: curves and lanes against a recount from where the tasks of a run were."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu_rules import fragmentation
from test_gpus_in_rounds import JOBS, scenario

from flowsched.gpu.device_arrays import device_arrays
from flowsched.gpu.shapes import GpuShape
from flowsched_simulator import Options, compare, make_scenario, simulate
from flowsched_simulator.baselines.gpu.fgd_kernels import fragmentation as counted_fragmentation
from flowsched_simulator.baselines.gpu.rule import GpuOutlook
from flowsched_simulator.baselines.gpu.starts import fragmentation_tables, typical_shapes
from flowsched_simulator.comparison import result
from flowsched_simulator.gpu_use import GpuUse
from flowsched_simulator.report.page import render_report
from flowsched_simulator.run import Run

POLICIES = ("flow", "best-fit", "gpu-fgd", "srpt", "las")
"""Two that preempt among them."""


def drawn(page: str) -> dict[str, Any]:
    """What the page's scripts draw from."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    found: dict[str, Any] = json.loads(data)
    return found


def held(run: Run) -> Iterator[tuple[str, str, int, float, float, int]]:
    """Every time that a task had a device: task, machine, device, start, end and its share."""
    for job in run.jobs:
        for stay in job.earlier:
            for device in stay.devices:
                if stay.start_s < stay.left_s:
                    yield job.name, stay.machine, device, stay.start_s, stay.left_s, job.gpu_share_milli
        if job.start_s is not None and job.end_s is not None:
            for device in job.devices:
                yield job.name, str(job.machine), device, job.start_s, job.end_s, job.gpu_share_milli


def test_the_curves_of_a_small_scenario_by_hand() -> None:
    """One GPU: 600m from 0 to 10 s, 300m from 5 to 25 s. Two tasks are typical, one asks for 600m and one for 300m."""
    machines = [{"name": "m", "type": "e2-standard-8", "gpus": {"model": "T4", "count": 1}}]
    jobs = [
        {"name": "a", "request": 1, "runtime_s": 10, "memory": "1Gi", "gpus": {"share": "600m"}},
        {"name": "b", "request": 1, "runtime_s": 20, "memory": "1Gi", "submit_s": 5, "gpus": {"share": "300m"}},
    ]
    use = simulate(make_scenario(machines, jobs), "best-fit", variant="1-own").gpu_use
    assert use is not None
    assert use.capacity_milli == 1000
    assert use.t_s == pytest.approx((0, 5, 10))
    assert use.allocated_milli == (600, 900, 300)
    # 400 are left for the one of 300 alone, 100 for none, 700 for both.
    assert use.fragmented_milli == pytest.approx((200, 100, 0))
    assert use.end_s == pytest.approx(25)
    assert use.mean_allocation == pytest.approx((600 * 5 + 900 * 5 + 300 * 15) / 25_000)
    assert use.mean_fragmentation == pytest.approx((200 * 5 + 100 * 5) / 25_000)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_curves_are_a_recount_of_where_tasks_were(policy: str) -> None:
    """Fragmentation too, by its definition instead of the kernel's tables."""
    world = scenario(JOBS)
    run = simulate(world, policy, options=Options(seed=1))
    use = run.gpu_use
    assert use is not None and use.capacity_milli == 10_000
    stays = [
        (s.machine, s.start_s, s.left_s, s.width_milli, s.devices, j.gpu_share_milli)
        for j in run.jobs
        for s in j.earlier
        if s.start_s < s.left_s
    ] + [(j.machine, j.start_s, j.end_s, j.width_milli, j.devices, j.gpu_share_milli) for j in run.jobs]
    counts: dict[GpuShape, int] = {}
    for task in world.tasks:
        counts[task.gpu_shape] = counts.get(task.gpu_shape, 0) + 1
    shapes, models = tuple(counts), ("G2", "T4", "V100")
    for n, t in enumerate(use.t_s):
        now = [stay for stay in stays if stay[1] <= t < stay[2]]
        assert use.allocated_milli[n] == sum(share * len(devices) for *_, devices, share in now)
        total = 0.0
        for m in (m for m in world.machines if m.gpus is not None):
            here = [stay for stay in now if stay[0] == m.name]
            cpu = m.cpu_milli - sum(width for _, _, _, width, _, _ in here)
            arrays = device_arrays([cpu], [m.memory_mib], [m.gpus.count], [0])
            for *_, devices, share in here:
                for device in devices:
                    arrays.devices[0, device] -= share
            outlook = GpuOutlook(arrays, models, shapes, np.array([counts[s] for s in shapes]), 0)
            # The recount knows no models: what a machine does not suit is of no use there like a task without GPUs.
            typical = [
                (s if not s.models or m.gpus.model in s.models else GpuShape(s.cpu_milli, 0, 0, 0), p)
                for s, p in typical_shapes(outlook)
            ]
            bare = [(GpuShape(s.cpu_milli, 0, s.count, s.share_milli), p) for s, p in typical]
            total += fragmentation(0, arrays, bare)
        assert use.fragmented_milli[n] == pytest.approx(total)
        assert use.allocated_milli[n] + use.fragmented_milli[n] <= use.capacity_milli + 1e-6


def test_the_kernel_and_the_definition_agree_on_an_example() -> None:
    """Devices of 300 and 1000; half of the tasks ask for 500, half for none: F = 0.5 * 300 + 0.5 * 1300 = 800."""
    machines = device_arrays([100], [100], [2], [0])
    machines.devices[0, 0] = 300
    shapes = (GpuShape(1, 0, 1, 500), GpuShape(1, 0, 0, 0))
    tables = fragmentation_tables(GpuOutlook(machines, ("T4",), shapes, np.array([1, 1]), 0))
    assert counted_fragmentation(0, machines, tables) == pytest.approx(800.0)


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 2000)), min_size=1, max_size=6))
def test_a_mean_is_that_of_its_steps(steps: list[tuple[float, int]]) -> None:
    """However its steps are cut."""
    ends = list(itertools.accumulate(length for length, _ in steps))
    values = tuple(value for _, value in steps)
    use = GpuUse(2000, (0.0, *ends[:-1]), values, values, ends[-1])
    mean = sum(length * value for length, value in steps) / (2000 * ends[-1])
    assert use.mean_allocation == pytest.approx(mean)
    cut = GpuUse(2000, (0.0, ends[0] / 2, *ends[:-1]), (values[0], *values), (values[0], *values), ends[-1])
    assert cut.mean_allocation == pytest.approx(mean)


def lanes(data: dict[str, Any], run: int = 0) -> list[tuple[str, str, int, float, float, float, float]]:
    """Pieces of GPU lanes: task, machine, device, start, end, and low and high within the device."""
    of = data["runs"][run]
    pieces, stays = of["gpus"]["pieces"], of["stays"]
    found = []
    for stay, start, end, low, high in zip(*(pieces[k] for k in ("stay", "start", "end", "low", "high")), strict=True):
        name = data["jobs"]["name"][of["jobs"]["job"][stays["job"][stay]]]
        device = int(low + 1e-6)
        machine = data["machines"]["name"][stays["machine"][stay]]
        found.append((name, machine, device, start, end, low - device, high - device))
    return found


def check_lanes(run: Run, data: dict[str, Any]) -> None:
    """Lanes say who had which device and how much of it, and never more than there is."""
    pieces = lanes(data)
    for name, machine, device, start, end, share in held(run):
        mine = sorted(p for p in pieces if p[:3] == (name, machine, device) and start - 1e-3 <= p[3] < end - 1e-3)
        assert all(high - low == pytest.approx(share / 1000, abs=1e-6) for *_, low, high in mine)
        assert mine[0][3] == pytest.approx(start, abs=1e-3) and mine[-1][4] == pytest.approx(end, abs=1e-3)
        assert all(left[4] == right[3] for left, right in itertools.pairwise(mine))
    area = sum((end - start) * (high - low) for *_, start, end, low, high in pieces)
    assert area == pytest.approx(sum((end - start) * share / 1000 for *_, start, end, share in held(run)), rel=1e-3)
    for one, other in itertools.combinations(pieces, 2):
        same_lane = one[1:3] == other[1:3] and one[3] < other[4] and other[3] < one[4]
        assert not same_lane or one[6] <= other[5] + 1e-6 or other[6] <= one[5] + 1e-6, (one, other)
    assert all(-1e-6 <= low < high <= 1 + 1e-6 for *_, low, high in pieces)


@pytest.mark.parametrize("policy", POLICIES)
def test_lanes_replay_the_placements(policy: str) -> None:
    world = scenario(JOBS)
    run = simulate(world, policy, options=Options(seed=1))
    check_lanes(run, drawn(render_report(result(world, [run]))))


def test_a_preempted_task_has_a_lane_for_each_time_that_it_ran() -> None:
    machines = [{"name": "m", "type": "e2-standard-8", "gpus": {"model": "T4", "count": 2}}]
    jobs = [
        {"name": "long", "request": 1, "runtime_s": 100, "memory": "1Gi", "gpus": {"count": 2}},
        {"name": "short", "request": 1, "runtime_s": 10, "memory": "1Gi", "submit_s": 20, "gpus": {"share": "500m"}},
    ]
    world = make_scenario(machines, jobs)
    run = simulate(world, "srpt", variant="1-own")
    (stay,) = run.jobs[0].earlier
    assert stay.devices == run.jobs[0].devices == (0, 1)
    data = drawn(render_report(result(world, [run])))
    check_lanes(run, data)
    assert len(lanes(data)) == 5
    assert run.gpu_use is not None and run.gpu_use.allocated_milli == (2000, 500, 2000)


JOB = st.fixed_dictionaries(
    {
        "request": st.sampled_from(("500m", 1, 2)),
        "runtime_s": st.integers(5, 60),
        "submit_s": st.integers(0, 60),
        "copies": st.integers(1, 4),
        "gpus": st.sampled_from(
            (*({"share": f"{milli}m"} for milli in (200, 333, 470, 500, 810)), {"count": 1}, {"count": 2})
        ),
    }
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=6), st.sampled_from(("best-fit", "gpu-fgd", "srpt")))
def test_a_stack_is_never_above_one_device(jobs: list[dict[str, Any]], policy: str) -> None:
    world = scenario([{**job, "name": f"j{n}", "memory": "1Gi"} for n, job in enumerate(jobs)])
    run = simulate(world, policy, variant="declared-shared")
    check_lanes(run, drawn(render_report(result(world, [run]))))


def test_the_same_runs_give_the_same_bytes() -> None:
    world = scenario(JOBS)
    first, second = (result(world, compare(world, ["best-fit", "gpu-fgd"])) for _ in range(2))
    for one in (first, second):
        for part in (*one["table"], *one["runs"]):
            del part["timings"]
    assert json.dumps(first) == json.dumps(second)
    assert render_report(first) == render_report(second)


def test_figures_of_gpus_stand_where_there_are_gpus_alone() -> None:
    world = scenario(JOBS)
    run = simulate(world, "best-fit")
    page = render_report(result(world, [run]))
    assert "GPUs, mean" in page and "GPU fragmentation</em>" in page
    summary, told = run.summary(), run.to_json()["gpus"]
    assert summary["mean_gpu_allocation"] == told["mean_gpu_allocation"] > 0
    assert {"devices", "gpu_share_milli"} <= set(run.to_json()["jobs"][0])
    assert run.to_frame()["devices"].map(len).sum() == sum(len(job.devices) for job in run.jobs)

    machines = [{"name": "c", "type": "e2-standard-4"}]
    plain = make_scenario(machines, [{"name": "j", "request": 1, "runtime_s": 5, "memory": "1Gi"}])
    run = simulate(plain, "best-fit")
    assert run.gpu_use is None
    assert not [key for key in (*run.summary(), *run.to_json(), *run.to_json()["jobs"][0]) if "gpu" in key]
    assert "gpus" not in result(plain, [run])["cluster"]["machines"][0]
    text = render_report(result(plain, [run]))
    text = text[: text.index("<script>\n")]  # The scripts draw GPUs where there are any.
    assert "GPU" not in text and "gpu" not in text
