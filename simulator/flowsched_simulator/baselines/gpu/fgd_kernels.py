"""FGD: where the expected fragmentation of GPUs grows least.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
ATC 2023, with the integer scores of its artifact: truncation makes ties, and ties go to the first machine.

The fragmentation of a machine is what is left on its devices less what typical tasks could use of it, by their popularity p:

    F = left - sum over typical t that fit of p_t * (left on devices that have at least what t asks of one)

For tasks of one GPU the inner sum is zero on its own where no device fits. So with P(h) = sum of p_t over those that ask at
most h of one GPU and whose CPU and model fit, and Q(n) the same over those that ask for 2 to n whole ones, n devices free,

    F = left - sum over devices of h * P(h) - 1000 * n * Q(n)

and a score takes a look into a table for each device instead of one at each typical task. Scores are kept by shape and
machine; of a machine where something was placed they are counted again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.fit_kernels import devices_fit, free_devices
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_simulator.baselines.gpu.compiled import borrowing, compiled
from flowsched_simulator.baselines.gpu.play_kernels import SmallArray, highest


class FragmentationTables(NamedTuple):
    """What typical tasks can use, and the scores that follow. K models, C different CPU sizes of typical tasks, L shares."""

    cpu_steps: IntArray
    """[C] CPU milli of typical tasks with GPUs, rising. A machine has rank c when it has enough for the first c of them."""
    level: IntArray
    """[1001] of so many milli left on a device: how many of the L shares that typical tasks ask for are at most that."""
    single: FloatArray
    """[K, C + 1, L + 1] P: popularity of typical tasks of one GPU that fit model, CPU rank and level."""
    several: FloatArray
    """[K, C + 1, D + 1] Q: popularity of typical tasks of several GPUs that fit model, CPU rank and free devices."""
    group: IntArray
    """[S] shapes with the same CPU and GPUs have the same scores."""
    cpu: IntArray
    """[groups] milli."""
    count: IntArray  # type: ignore[assignment]  # it hides the method of tuples, which is not called here
    """[groups] GPUs."""
    share: IntArray
    """[groups] milli of each."""
    score: SmallArray
    """[groups, M] 0 to 100; -1 where CPU or devices do not suffice. Memory and model are not looked at."""
    device: SmallArray
    """[groups, M] the device for a share; -1 for others."""


@borrowing
def cpu_rank(cpu: int, steps: IntArray) -> int:
    """How many of the rising steps are at most ``cpu``."""
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if steps[middle] <= cpu:
            low = middle + 1
        else:
            high = middle
    return low


@borrowing
def usable(row: IntArray, model: int, rank: int, tables: FragmentationTables) -> float:
    """What typical tasks can use of a machine, in expectation: GPU milli."""
    total = 0.0
    free = 0
    for d in range(len(row)):
        if row[d] > 0:
            total += row[d] * tables.single[model, rank, tables.level[row[d]]]
        if row[d] == WHOLE_MILLI:
            free += 1
    return float(total + WHOLE_MILLI * free * tables.several[model, rank, free])


@borrowing
def fragmentation(m: int, machines: DeviceArrays, tables: FragmentationTables) -> float:
    """F of a machine as it is now: GPU milli that are left on its devices and of no use to typical tasks, in expectation."""
    row, model = machines.devices[m], machines.model[m]
    if model < 0:
        return 0.0
    left = 0.0
    for d in range(len(row)):
        left += max(row[d], 0)
    return left - usable(row, model, cpu_rank(machines.cpu[m], tables.cpu_steps), tables)


@borrowing
def sigmoid_score(less_fragmented_milli: float) -> int:
    """100 times the logistic function of whole GPUs, truncated."""
    return int(100.0 / (1.0 + math.exp(-less_fragmented_milli / 1000.0)))


@compiled
def rescore_fgd(m: int, machines: DeviceArrays, tables: FragmentationTables) -> None:
    """Count the scores of a machine again, of all shapes."""
    row = machines.devices[m]
    model = machines.model[m]
    after = row.copy()
    before = 0.0
    if model >= 0:
        before = usable(row, model, cpu_rank(machines.cpu[m], tables.cpu_steps), tables)
    free = free_devices(row)
    for g in range(len(tables.cpu)):
        cpu = machines.cpu[m] - tables.cpu[g]
        count, share = tables.count[g], tables.share[g]
        tables.device[g, m] = -1
        if cpu < 0 or not devices_fit(m, count, share, machines):
            tables.score[g, m] = -1
            continue
        if model < 0:
            tables.score[g, m] = sigmoid_score(0.0)
            continue
        rank = cpu_rank(cpu, tables.cpu_steps)
        if share < WHOLE_MILLI and count > 0:
            best, chosen, saw_free = -1, -1, False
            rest = usable(row, model, rank, tables)
            for d in range(len(row)):
                h = row[d]
                if h < share or (h == WHOLE_MILLI and saw_free):  # free devices are all alike, and the first one wins
                    continue
                now = rest - h * tables.single[model, rank, tables.level[h]]
                now += (h - share) * tables.single[model, rank, tables.level[h - share]]
                if h == WHOLE_MILLI:
                    saw_free = True
                    now -= WHOLE_MILLI * free * tables.several[model, rank, free]
                    now += WHOLE_MILLI * (free - 1) * tables.several[model, rank, free - 1]
                value = sigmoid_score(share - before + now)
                if value > best:
                    best, chosen = value, d
            tables.score[g, m] = best
            tables.device[g, m] = chosen
            continue
        taken = 0
        for d in range(len(row)):
            after[d] = row[d]
            if taken < count and row[d] == WHOLE_MILLI:
                after[d] = 0
                taken += 1
        # F before less F after: what was left shrinks by what is taken.
        tables.score[g, m] = sigmoid_score(WHOLE_MILLI * count - before + usable(after, model, rank, tables))


@compiled
def rescore_all_fgd(machines: DeviceArrays, tables: FragmentationTables) -> None:
    """Count all scores."""
    for m in range(len(machines.cpu)):
        rescore_fgd(m, machines, tables)


@compiled
def placed_fgd(
    m: int,
    s: int,  # noqa: ARG001
    machines: DeviceArrays,
    shapes: ShapeArrays,  # noqa: ARG001
    state: FragmentationTables,
) -> None:
    """A task came to the machine."""
    rescore_fgd(m, machines, state)


@borrowing
def choose_fgd(s: int, machines: DeviceArrays, shapes: ShapeArrays, state: FragmentationTables) -> tuple[int, int]:
    """The first machine with the highest score, and the device that the score counts with."""
    g = state.group[s]
    found = highest(s, state.score[g], machines, shapes)
    return found, state.device[g, found] if found >= 0 else -1
