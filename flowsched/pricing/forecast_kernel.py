"""What arriving tasks change on machines, compiled: forecasts and costs of many (machine, option) pairs in one call.

A machine's jobs are rows of numbers: the tasks that run there and those that this round has planned there. A forecast runs
the machine forward to its last completion (:mod:`flowsched_models.kernel`) and sums the weighted penalties of the
completions and the price of the headroom that latency services use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.pricing.forecast_arrays import (
    CORES,
    DELAY_NOW_S,
    DONE,
    ELAPSED_S,
    FAR_S,
    GOAL_S,
    IMPORTANCE,
    JOB_NUMBERS,
    LATE_DONE,
    LATE_SCALE,
    LATEST_S,
    LONG_RUNNING,
    MEMORY_MIB,
    MOST_USED,
    READY_S,
    SCALE,
    ArrivalSets,
    MachineForecasts,
    MachineJobs,
    MachineSpace,
    OneMachine,
    PriceSettings,
    VariantArrays,
)
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.cell import (
    JOB_COLUMNS,
    MEMORY,
    MIXED,
    PARALLEL,
    PHI,
    PROGRESS,
    READY,
    SERIAL,
    SERIAL_FIRST,
    THREADS,
    WORK,
)
from flowsched_models.compiled import compiler
from flowsched_models.kernel import (
    ACTIVE,
    ITEMS,
    P95,
    PACE,
    STAGE,
    USERS,
    RunResult,
    StartingJobs,
    StartLimits,
    begin_run,
    go_on,
    run_space,
)
from flowsched_models.pace import PaceMemory, recall

_SOURCES = [Path(__file__), Path(__file__).with_name("forecast_arrays.py")]
compiled, borrowing = compiler(_SOURCES), compiler(_SOURCES, borrows=True)

NOTHING, PACES, LATE_PACES, SLOW_DOWNS, TOLD = range(5)
"""What :func:`machine_cost` asks for: nothing, as it has a cost; paces, also of the run in which all end late; or how far
jobs without an end slow each other down, which it has once it is TOLD."""

_AT_ONCE = 1e-9


@borrowing
def penalty_of(phi_s: float, tau_s: float, eps: float, beta: float) -> float:
    """``g``: see :func:`flowsched.pricing.utility.penalty`."""
    if phi_s <= tau_s:
        return eps * phi_s / tau_s
    return eps + beta * (phi_s - tau_s) / tau_s


@compiled
def slow_downs(memory: PaceMemory, host: int, kinds: IntArray, jobs: FloatArray, factors: FloatArray) -> None:
    """Into ``factors`` [jobs] how many times slower than alone each job is while all are there, in the longer of
    their phases.
    """
    count = len(kinds)
    stage = np.zeros(count, np.int64)
    for i in range(count):
        row = memory.rows[kinds[i]]
        if row[SERIAL_FIRST] > 0.0 and row[PHI] > 0.5:
            stage[i] = SERIAL
        else:
            stage[i] = PARALLEL if row[SERIAL_FIRST] > 0.0 or row[PHI] <= 0.0 else MIXED
    users = np.arange(count)
    items = np.zeros(count, np.int64)
    together = np.zeros(count)
    alone = np.zeros(count)
    p95 = np.zeros(memory.services.shape[1])
    recall(memory, host, kinds, stage, users, items, together, p95)
    for i in range(count):
        if jobs[i, LONG_RUNNING] != 0.0:
            one = np.full(1, i, np.int64)
            recall(memory, host, kinds, stage, one, items, alone, p95)
            factors[i] = alone[i] / together[i]
        else:
            factors[i] = 1.0


@borrowing
def _counts_on_an_end(
    rows: FloatArray, jobs: FloatArray, start_after: IntArray, start_delay_s: float, result: RunResult
) -> bool:
    """Whether a job begins, or may leave its serial phase, after another one has gone that may stay longer.

    One that is bound when nothing else is left follows ends as they come.
    """
    ends, bound = result.ends, result.bound
    gone = np.inf
    for i in range(len(jobs)):
        if jobs[i, LATE_SCALE] > jobs[i, SCALE]:
            gone = min(gone, ends[i])
    if gone == np.inf:
        return False
    for i in range(len(jobs)):
        loud = jobs[i, READY_S] if start_after[i] == 0 else bound[i] + start_delay_s
        if rows[i, SERIAL_FIRST] > 0.0 and jobs[i, DONE] < rows[i, PHI]:
            # What follows takes at least as long as with all threads at full speed.
            loud = ends[i] - (1.0 - rows[i, PHI]) * jobs[i, SCALE] * rows[i, WORK] / max(1.0, rows[i, THREADS])
        if start_after[i] == 0:
            if loud > gone + _AT_ONCE:
                return True
        elif loud > gone - _AT_ONCE:
            for j in range(len(jobs)):
                if bound[j] < bound[i] and ends[j] > bound[i] + _AT_ONCE:
                    return True
    return False


@borrowing
def machine_cost(
    memory: PaceMemory, machine: OneMachine, settings: PriceSettings, space: MachineSpace, result: RunResult
) -> float:
    """Cost of one machine with its jobs; infinity where a job never starts or ends too late.

    Into ``result`` what its run comes to; its ``peak`` starts anew. Where a job becomes loud after one that runs has gone,
    the peak is also that of a run in which all that run end late: until then both may be there.

    It is a cost only if ``space.asked[0]`` is NOTHING afterwards. Else it takes numbers that :func:`answer` works out before
    it is called again, with the same values: so arrays are made only then.
    """
    host, jobs, kinds, start_after = machine.host, machine.jobs, machine.kinds, machine.start_after
    ends, bound, peak, asked = result.ends, result.bound, result.peak, space.asked
    n, services = len(kinds), memory.service_count[host]
    rows, work, factors, run = space.rows[:n], space.numbers[0], space.numbers[1], space.run
    starting = StartingJobs(rows, kinds, start_after, space.at_a_completion[:n])
    limits = StartLimits(machine.free_cores, machine.free_memory, settings.start_delay_s)
    if asked[0] == NOTHING:
        asked[0] = PACES
        for i in range(n):
            of_kind = memory.rows[kinds[i]]
            for column in range(JOB_COLUMNS):
                rows[i, column] = of_kind[column]
            rows[i, PROGRESS] = jobs[i, DONE]
            rows[i, READY] = jobs[i, READY_S]
            rows[i, MEMORY] = jobs[i, MEMORY_MIB]
            work[i] = jobs[i, SCALE]
            factors[i] = 1.0
        peak[:] = 0.0
        begin_run(starting, limits, run, result)
    if asked[0] == PACES:
        if go_on(starting, work, services, memory, host, limits.delay_s, run, result):
            return np.inf
        asked[0] = SLOW_DOWNS
        if services > 0 and _counts_on_an_end(rows, jobs, start_after, settings.start_delay_s, result):
            asked[0] = LATE_PACES
            for i in range(n):
                work[i] = jobs[i, LATE_SCALE]
                rows[i, PROGRESS] = jobs[i, LATE_DONE]
            begin_run(starting, limits, run, RunResult(space.numbers[2], space.numbers[3], peak))
    if asked[0] == LATE_PACES:
        late = RunResult(space.numbers[2], space.numbers[3], peak)
        if go_on(starting, work, services, memory, host, limits.delay_s, run, late):
            return np.inf
        asked[0] = SLOW_DOWNS
    if asked[0] == SLOW_DOWNS:
        for i in range(n):
            if jobs[i, LONG_RUNNING] != 0.0:
                return np.inf
    asked[0] = NOTHING
    total = 0.0
    for k in range(services):
        used = min(MOST_USED, peak[k] / machine.slo_us[k])
        total += settings.headroom_weight * used / (1.0 - used)
    for i in range(n):
        if bound[i] > FAR_S:
            return np.inf
        if jobs[i, LONG_RUNNING] < 0.0:
            total += jobs[i, IMPORTANCE] * settings.eps * factors[i] / settings.goal_factor
            continue
        if jobs[i, LONG_RUNNING] > 0.0:
            begin = jobs[i, READY_S] if start_after[i] == 0 else bound[i] + settings.start_delay_s
            ends[i] = begin + jobs[i, LONG_RUNNING] * factors[i]
        if ends[i] > jobs[i, LATEST_S]:
            return np.inf
        total += jobs[i, IMPORTANCE] * penalty_of(
            jobs[i, ELAPSED_S] + ends[i], jobs[i, GOAL_S], settings.eps, settings.beta
        )
    return total


@compiled
def answer(memory: PaceMemory, host: int, kinds: IntArray, jobs: FloatArray, space: MachineSpace) -> None:
    """Work out what :func:`machine_cost` asks for, of jobs [n] of these ``kinds``."""
    run, n = space.run, len(kinds)
    if space.asked[0] == SLOW_DOWNS:
        slow_downs(memory, host, kinds, jobs, space.numbers[1, :n])
        space.asked[0] = TOLD
        return
    active = int(run.moment[ACTIVE])
    users = run.whole[USERS, :active]
    recall(memory, host, kinds, run.whole[STAGE], users, run.whole[ITEMS], run.parts[PACE], run.parts[P95])


@compiled
def machine_space(jobs: int, services: int) -> MachineSpace:
    """Room for forecasts of machines with no more jobs and services."""
    return MachineSpace(
        np.empty((jobs, JOB_COLUMNS)),
        np.empty((4, jobs)),
        np.full(jobs, -1, np.int64),
        run_space(jobs + services),
        np.zeros(1, np.int64),
    )


@compiled
def base_costs(
    memory: PaceMemory, machines: IntArray, there: MachineJobs, settings: PriceSettings, into: MachineForecasts
) -> None:
    """What is forecast of each of ``machines`` as it is planned so far, ``into`` their rows."""
    size, hosts, jobs, kinds, cost = there.size, there.hosts, there.jobs, there.kinds, into.cost
    space = machine_space(jobs.shape[1], memory.services.shape[1])
    for m in machines:
        cost[m] = _base_cost(memory, m, there, settings, space, into)
        while space.asked[0] != NOTHING:
            n = size[m]
            answer(memory, hosts[m], kinds[m, :n], jobs[m, :n], space)
            cost[m] = _base_cost(memory, m, there, settings, space, into)


@borrowing
def _base_cost(
    memory: PaceMemory, m: int, there: MachineJobs, settings: PriceSettings, space: MachineSpace, into: MachineForecasts
) -> float:
    """The cost of a machine as for :func:`machine_cost`, and all else that is forecast of it ``into`` its row."""
    n, completions = there.size[m], into.completions
    machine = OneMachine(
        there.hosts[m],
        there.jobs[m, :n],
        there.kinds[m, :n],
        there.start_after[m, :n],
        there.free_cores[m],
        there.free_memory[m],
        there.slo_us[m],
    )
    ends = into.ends[m, :n]
    cost = machine_cost(memory, machine, settings, space, RunResult(ends, into.bound[m, :n], into.peak[m]))
    if space.asked[0] != NOTHING:
        return cost
    completions[m] = np.inf
    for i in range(n):
        if there.jobs[m, i, LONG_RUNNING] != 0.0 or ends[i] > FAR_S:
            continue
        at = ends[i]
        for k in range(completions.shape[1]):
            if at < completions[m, k]:
                completions[m, k], at = at, completions[m, k]
    return cost


@borrowing
def breaks_goal(peak: FloatArray, slo_us: FloatArray, settled: FloatArray, services: int, margin: float) -> bool:
    """Whether a p95 is above its goal, and not for those tasks alone that run without an end. Arrays [S]."""
    breaks = False
    for s in range(services):
        breaks = breaks or (peak[s] > margin * slo_us[s] and peak[s] > settled[s] + 1e-9)
    return breaks


@compiled
def colocation_costs(
    memory: PaceMemory,
    machine: OneMachine,
    settled: FloatArray,
    sets: ArrivalSets,
    variants: VariantArrays,
    settings: PriceSettings,
    cost: FloatArray,
    results: RunResult,
) -> None:
    """Cost of one machine for each of many sets of arrivals that may join the tasks that run there.

    ``settled`` [S] is the p95 beside the tasks alone that run without an end. Into ``cost`` [sets] (infinity: invalid), and
    into ``results`` [sets, running + most arrivals] and [sets, S].
    """
    there, first, numbers, services = (
        len(machine.kinds),
        sets.first,
        variants.numbers,
        memory.service_count[machine.host],
    )
    space = machine_space(results.ends.shape[1], memory.services.shape[1])
    for b in range(len(first) - 1):
        n = there + first[b + 1] - first[b]
        jobs = np.empty((n, JOB_NUMBERS))
        kinds = np.empty(n, np.int64)
        start_after = np.empty(n, np.int64)
        jobs[:there] = machine.jobs
        kinds[:there] = machine.kinds
        start_after[:there] = machine.start_after
        cores, free = machine.free_cores, machine.free_memory
        for a in range(first[b], first[b + 1]):
            i = there + a - first[b]
            v = sets.variant[a]
            jobs[i] = numbers[v, :JOB_NUMBERS]
            jobs[i, READY_S] = numbers[v, DELAY_NOW_S]
            jobs[i, ELAPSED_S : LATEST_S + 1] = sets.task[a]
            kinds[i] = variants.kinds[v]
            start_after[i] = sets.after[a]
            if sets.after[a] == 0:
                cores -= numbers[v, CORES]
                free -= numbers[v, MEMORY_MIB]
        if cores < -_AT_ONCE or free < -_AT_ONCE:
            cost[b] = np.inf
            results.bound[b] = np.inf
            results.ends[b] = np.inf
            continue
        joined = OneMachine(machine.host, jobs, kinds, start_after, cores, free, machine.slo_us)
        result = RunResult(results.ends[b, :n], results.bound[b, :n], results.peak[b])
        cost[b] = machine_cost(memory, joined, settings, space, result)
        while space.asked[0] != NOTHING:
            answer(memory, machine.host, kinds, jobs, space)
            cost[b] = machine_cost(memory, joined, settings, space, result)
        if n > there and breaks_goal(result.peak, machine.slo_us, settled, services, settings.slo_margin):
            cost[b] = np.inf
