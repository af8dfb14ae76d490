"""What arriving tasks change on machines, compiled: forecasts and costs of many (machine, option) pairs in one call.

A machine's jobs are rows of numbers: the tasks that run there and those that this round has planned there. A forecast runs
the machine forward to its last completion (:func:`flowsched_models.kernel.run_once`) and sums the weighted penalties of the
completions and the price of the headroom that latency services use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.support.arrays import BoolArray, FloatArray, IntArray
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
    Cells,
)
from flowsched_models.compiled import compiler
from flowsched_models.kernel import RunResult, StartingJobs, StartLimits, run_once
from flowsched_models.pace import PaceMemory, recall

compiled = compiler([Path(__file__)])

# Columns of a job on a machine.
SCALE, DONE, READY_S, CORES, MEMORY_MIB, ELAPSED_S, GOAL_S, IMPORTANCE, LATEST_S, LONG_RUNNING = range(10)
JOB_NUMBERS = 10
"""SCALE work relative to its kind's; DONE progress in [0, 1]; READY_S when its program runs, seconds from now; CORES and
MEMORY_MIB what it requests; ELAPSED_S since its submission; GOAL_S tau; IMPORTANCE w; LATEST_S the last useful completion,
seconds from now (infinity: any). LONG_RUNNING 0: it ends; -1: a running task without an end; > 0: an arriving one, the
seconds that a reference job would run at this place."""

# Columns of a variant: a class at a width on machines of one shape. The first JOB_NUMBERS are those of a job.
DELAY_NOW_S, LEAST_ALONE_S = JOB_NUMBERS, JOB_NUMBERS + 1
VARIANT_NUMBERS = JOB_NUMBERS + 2
"""DELAY_NOW_S from binding now to the program's start; LEAST_ALONE_S run time of the whole task that is never undercut."""

VARIANTS_PER_START = 1 << 10
STARTS_PER_CLASS = 1 << 6
"""Keys sort the arrivals of a machine by class, start and variant: the order in which those of one start are bound."""

# Settings, as the kernels take them.
EPS, BETA, HEADROOM_WEIGHT, SLO_MARGIN, GOAL_FACTOR, START_DELAY_S = range(6)

MOST_USED = 0.99
"""Share of its p95 goal that a service is at most charged for: beyond it the price would have no end."""
FAR_S = 1e8
"""A start later than this waits for the end of a task that has none."""
_AT_ONCE = 1e-9
_FEW = 24
"""Forecasts between two looks at which options can still matter."""


@compiled
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


@compiled
def machine_cost(
    memory: PaceMemory,
    host: int,
    jobs: FloatArray,
    kinds: IntArray,
    start_after: IntArray,
    free_cores: float,
    free_memory: float,
    slo_us: FloatArray,
    settings: FloatArray,
    ends: FloatArray,
    bound: FloatArray,
    peak: FloatArray,
) -> float:
    """Cost of one machine with its ``jobs`` [n, JOB_NUMBERS]; infinity where a job never starts or ends too late.

    ``free_cores`` and ``free_memory`` are what is left beside all jobs with ``start_after`` 0. Into ``ends`` and ``bound``
    [n] seconds from now, ``peak`` [services] microseconds.
    """
    n = len(kinds)
    rows = np.empty((n, JOB_COLUMNS))
    factor = np.empty(n)
    at_a_completion = np.full(n, -1, np.int64)
    long_running = False
    for i in range(n):
        rows[i] = memory.rows[kinds[i]]
        rows[i, PROGRESS] = jobs[i, DONE]
        rows[i, READY] = jobs[i, READY_S]
        rows[i, MEMORY] = jobs[i, MEMORY_MIB]
        factor[i] = jobs[i, SCALE]
        long_running = long_running or jobs[i, LONG_RUNNING] != 0.0
    services = memory.services[host, : memory.service_count[host]]
    peak[:] = 0.0
    run_once(
        StartingJobs(rows, kinds, start_after, at_a_completion),
        factor,
        services,
        Cells(memory.can[:0], factor[:0], kinds[:0], factor[:0]),
        memory,
        host,
        StartLimits(free_cores, free_memory, settings[START_DELAY_S]),
        RunResult(ends, bound, peak),
    )
    total = 0.0
    for k in range(services.shape[0]):
        used = min(MOST_USED, peak[k] / slo_us[k])
        total += settings[HEADROOM_WEIGHT] * used / (1.0 - used)
    factors = factor
    if long_running:
        factors = np.ones(n)
        slow_downs(memory, host, kinds, jobs, factors)
    for i in range(n):
        if bound[i] > FAR_S:
            return np.inf
        if jobs[i, LONG_RUNNING] < 0.0:
            total += jobs[i, IMPORTANCE] * settings[EPS] * factors[i] / settings[GOAL_FACTOR]
            continue
        if jobs[i, LONG_RUNNING] > 0.0:
            begin = jobs[i, READY_S] if start_after[i] == 0 else bound[i] + settings[START_DELAY_S]
            ends[i] = begin + jobs[i, LONG_RUNNING] * factors[i]
        if ends[i] > jobs[i, LATEST_S]:
            return np.inf
        total += jobs[i, IMPORTANCE] * penalty_of(
            jobs[i, ELAPSED_S] + ends[i], jobs[i, GOAL_S], settings[EPS], settings[BETA]
        )
    return total


@compiled
def base_costs(
    memory: PaceMemory,
    machines: IntArray,
    hosts: IntArray,
    count: IntArray,
    jobs: FloatArray,
    kinds: IntArray,
    start_after: IntArray,
    free_cores: FloatArray,
    free_memory: FloatArray,
    slo_us: FloatArray,
    settings: FloatArray,
    cost: FloatArray,
    peak: FloatArray,
    ends: FloatArray,
    bound: FloatArray,
    completions: FloatArray,
) -> None:
    """Of each of ``machines``: its ``cost`` as it is planned so far, ``peak`` [machines, S], ``ends`` and ``bound``
    [machines, jobs], and ``completions`` [machines, most starts]: when the k-th job ends after now; infinity for fewer.
    Long-running jobs never complete.

    Arrays by machine: ``jobs`` [machines, most jobs, JOB_NUMBERS], ``slo_us`` [machines, S].
    """
    for m in machines:
        n = count[m]
        cost[m] = machine_cost(
            memory, hosts[m], jobs[m, :n], kinds[m, :n], start_after[m, :n].copy(), free_cores[m], free_memory[m],
            slo_us[m], settings, ends[m, :n], bound[m, :n], peak[m],
        )  # fmt: skip
        completions[m] = np.inf
        for i in range(n):
            if jobs[m, i, LONG_RUNNING] != 0.0 or ends[m, i] > FAR_S:
                continue
            at = ends[m, i]
            for k in range(completions.shape[1]):
                if at < completions[m, k]:
                    completions[m, k], at = at, completions[m, k]


@compiled
def nth_least(values: FloatArray, n: int) -> float:
    """The value at place n in ascending order; reorders ``values``. ``np.partition`` takes seconds to compile."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot, i, j = values[n], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        low, high = (i if j < n else low), (j if n < i else high)
    return float(values[n])


@compiled
def price_classes(
    memory: PaceMemory,
    classes: IntArray,
    types: IntArray,
    tasks: FloatArray,
    wishes: FloatArray,
    representative: IntArray,
    shape: IntArray,
    rows_of: IntArray,
    open_now: BoolArray,
    open_later: BoolArray,
    completions: FloatArray,
    wanted: int,
    least_budget: int,
    budget: int,
    sharers: int,
    hosts: IntArray,
    count: IntArray,
    jobs: FloatArray,
    kinds: IntArray,
    start_after: IntArray,
    keys: IntArray,
    free_cores: FloatArray,
    free_memory: FloatArray,
    slo_us: FloatArray,
    settings: FloatArray,
    base_cost: FloatArray,
    settled: FloatArray,
    variants: FloatArray,
    variant_kind: IntArray,
    variant_column: IntArray,
    known: BoolArray,
    others: FloatArray,
    own_end: FloatArray,
    price: FloatArray,
    chosen_after: IntArray,
    chosen_variant: IntArray,
) -> tuple[int, int]:
    """The cheapest option of each of some classes on every machine; forecasts made, and classes whose budget was too small.

    An option is a variant (``rows_of`` [types, shapes, columns], -1: none) on a machine, started now where ``open_now``
    [classes, machines] and there is room, or after one of the next completions where ``open_later``. It is priced on the
    machine's ``representative`` [machines]. Options are forecast in ascending order of a lower bound of their price: the own
    penalty alone from the start on.

    By class: ``types``, ``tasks`` [classes, ELAPSED_S to LATEST_S] and ``wishes`` [classes, machines], what a task pays on
    a machine beside all else, the same on all that one stands for. ``others`` (the exact change of what all else on the
    machine costs), and ``own_end`` [types, machines, columns, starts] are shared by all classes of one type,
    once it is ``known``; NaN where not forecast yet. Where other tasks are planned for later, the class itself says in which
    order they start, and nothing is shared.

    Into ``price`` [classes, machines] the sum of that change, the own penalty and the wish, infinity where there is no
    option or it was left out; into ``chosen_after`` and ``chosen_variant`` its option. Options are left
    out once their bound is above the price found on their machine, or above the prices of the ``wanted`` cheapest machines,
    or once the class has used its share of ``budget``, as one of ``sharers``, and one machine is priced; a share is
    ``least_budget`` at least. Of equal prices the earlier start counts, then the narrower width.
    """
    machines, columns, starts = len(representative), rows_of.shape[2], others.shape[3]
    now = np.empty(machines, np.bool_)
    later = np.empty(machines, np.bool_)
    machine = np.empty(machines * columns * starts, np.int64)
    variant = np.empty(len(machine), np.int64)
    after = np.empty(len(machine), np.int64)
    least = np.empty(len(machine))
    most = jobs.shape[1] + 1
    rows = np.empty((most, JOB_NUMBERS))
    own_kinds = np.empty(most, np.int64)
    after_all = np.empty(most, np.int64)
    ends = np.empty(most)
    bound = np.empty(most)
    peak = np.empty(settled.shape[1])
    touched = np.empty(machines, np.int64)
    found = np.empty(machines)
    made = 0
    short = 0
    for c in range(len(classes)):
        kind, task = types[c], tasks[c]
        if not known[kind]:
            known[kind] = True
            others[kind] = np.nan
        price[c] = np.inf
        chosen_after[c] = 0
        chosen_variant[c] = -1
        now[:] = False
        later[:] = False
        for m in range(machines):
            now[representative[m]] |= open_now[c, m]
            later[representative[m]] |= open_later[c, m]
        options = 0
        for m in range(machines):
            if not now[m] and not later[m]:
                continue
            for column in range(columns):
                v = rows_of[kind, shape[m], column]
                if v < 0:
                    continue
                for k in range(starts):
                    if k == 0:
                        if not now[m] or variants[v, CORES] > free_cores[m] + _AT_ONCE:
                            continue
                        if variants[v, MEMORY_MIB] > free_memory[m] + _AT_ONCE:
                            continue
                        begin = variants[v, DELAY_NOW_S]
                    elif later[m] and completions[m, k - 1] < np.inf:
                        # Where nothing runs that could complete, those of the earliest start begin at once.
                        runs = start_after[m, : count[m]].min() == 0
                        begin = (completions[m, k - 1] if runs else 0.0) + settings[START_DELAY_S]
                    else:
                        continue
                    machine[options], variant[options], after[options] = m, v, k
                    least[options] = task[2] * penalty_of(
                        task[0] + begin + variants[v, LEAST_ALONE_S], task[1], settings[EPS], settings[BETA]
                    )
                    least[options] += wishes[c, m]
                    options += 1
        order = np.argsort(least[:options], kind="mergesort")
        share = max(least_budget, (budget - made) // sharers)
        before = made
        seen = 0
        limit = np.inf
        for position in range(options):
            i = order[position]
            if position % _FEW == 0 and seen >= wanted:
                for a in range(seen):
                    found[a] = price[c, touched[a]]
                limit = nth_least(found[:seen], wanted - 1)
            if least[i] > limit:
                break
            m, v, k = machine[i], variant[i], after[i]
            if least[i] > price[c, m]:
                continue
            column = variant_column[v]
            n = count[m]
            ordered = k > 0 and n > 0 and start_after[m, :n].max() > 0
            if ordered or np.isnan(others[kind, m, column, k]):
                if made - before >= share and seen > 0:
                    continue
                cores, free = free_cores[m], free_memory[m]
                if k == 0:
                    cores -= variants[v, CORES]
                    free -= variants[v, MEMORY_MIB]
                key = (classes[c] * STARTS_PER_CLASS + k) * VARIANTS_PER_START + column
                place = n
                while place > 0 and keys[m, place - 1] > key:
                    place -= 1
                rows[:place] = jobs[m, :place]
                own_kinds[:place] = kinds[m, :place]
                after_all[:place] = start_after[m, :place]
                rows[place + 1 : n + 1] = jobs[m, place:n]
                own_kinds[place + 1 : n + 1] = kinds[m, place:n]
                after_all[place + 1 : n + 1] = start_after[m, place:n]
                rows[place] = variants[v, :JOB_NUMBERS]
                rows[place, READY_S] = variants[v, DELAY_NOW_S]
                rows[place, IMPORTANCE] = 0.0
                rows[place, LATEST_S] = np.inf
                own_kinds[place] = variant_kind[v]
                after_all[place] = k
                cost = machine_cost(
                    memory, hosts[m], rows[: n + 1], own_kinds[: n + 1], after_all[: n + 1], cores, free, slo_us[m],
                    settings, ends[: n + 1], bound[: n + 1], peak,
                )  # fmt: skip
                made += 1
                for s in range(memory.service_count[hosts[m]]):
                    if peak[s] > settings[SLO_MARGIN] * slo_us[m, s] and peak[s] > settled[m, s] + 1e-9:
                        cost = np.inf
                others[kind, m, column, k] = cost - base_cost[m]
                own_end[kind, m, column, k] = ends[place]
            own_end_s = own_end[kind, m, column, k]
            if others[kind, m, column, k] == np.inf or own_end_s > task[3]:
                continue
            total = others[kind, m, column, k] + task[2] * penalty_of(
                task[0] + own_end_s, task[1], settings[EPS], settings[BETA]
            )
            total += wishes[c, m]
            if price[c, m] == np.inf:
                touched[seen] = m
                seen += 1
            elif total > price[c, m] or (
                total == price[c, m]
                and (k > chosen_after[c, m] or (k == chosen_after[c, m] and v > chosen_variant[c, m]))
            ):
                continue
            price[c, m] = total
            chosen_after[c, m], chosen_variant[c, m] = k, v
        short += made - before >= share
        for m in range(machines):
            stands = representative[m]
            if stands != m and (open_now[c, m] or open_later[c, m]):
                price[c, m] = price[c, stands]
                chosen_after[c, m], chosen_variant[c, m] = chosen_after[c, stands], chosen_variant[c, stands]
        for m in range(machines):
            # A machine that is open for one kind of start only may differ from the one that stands for it.
            if not (open_now[c, m] if chosen_after[c, m] == 0 else open_later[c, m]):
                price[c, m] = np.inf
    return made, short


@compiled
def colocation_costs(
    memory: PaceMemory,
    host: int,
    base: FloatArray,
    base_kinds: IntArray,
    free_cores: float,
    free_memory: float,
    slo_us: FloatArray,
    settings: FloatArray,
    settled: FloatArray,
    first: IntArray,
    variant: IntArray,
    after: IntArray,
    task: FloatArray,
    variants: FloatArray,
    variant_kind: IntArray,
    cost: FloatArray,
    ends: FloatArray,
    bound: FloatArray,
    peak: FloatArray,
) -> None:
    """Cost of one machine for each of many sets of arrivals that may join the tasks that run there.

    Set b has the arrivals ``first[b]`` to ``first[b + 1]`` of ``variant``, ``after`` and ``task`` [arrivals, ELAPSED_S to
    LATEST_S]; ``settled`` [S] is the p95 beside the tasks alone that
    run without an end. Into ``cost`` [sets] (infinity: invalid), ``ends`` and
    ``bound`` [sets, running + most arrivals], ``peak`` [sets, S].
    """
    there = len(base_kinds)
    for b in range(len(first) - 1):
        n = there + first[b + 1] - first[b]
        rows = np.empty((n, JOB_NUMBERS))
        kinds = np.empty(n, np.int64)
        after_all = np.zeros(n, np.int64)
        rows[:there] = base
        kinds[:there] = base_kinds
        cores, free = free_cores, free_memory
        for a in range(first[b], first[b + 1]):
            i = there + a - first[b]
            v = variant[a]
            rows[i] = variants[v, :JOB_NUMBERS]
            rows[i, READY_S] = variants[v, DELAY_NOW_S]
            rows[i, ELAPSED_S : LATEST_S + 1] = task[a]
            kinds[i] = variant_kind[v]
            after_all[i] = after[a]
            if after[a] == 0:
                cores -= variants[v, CORES]
                free -= variants[v, MEMORY_MIB]
        if cores < -_AT_ONCE or free < -_AT_ONCE:
            cost[b] = np.inf
            bound[b] = np.inf
            ends[b] = np.inf
            continue
        cost[b] = machine_cost(
            memory, host, rows, kinds, after_all, cores, free, slo_us, settings, ends[b, :n], bound[b, :n], peak[b]
        )
        if n > there:
            for k in range(memory.service_count[host]):
                if peak[b, k] > settings[SLO_MARGIN] * slo_us[k] and peak[b, k] > settled[k] + 1e-9:
                    cost[b] = np.inf
