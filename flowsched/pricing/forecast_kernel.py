"""What arriving tasks change on machines, compiled: forecasts and costs of many (machine, option) pairs in one call.

A machine's jobs are rows of numbers: the tasks that run there and those that this round has planned there. A forecast runs
the machine forward to its last completion (:func:`flowsched_models.kernel.run_once`) and sums the weighted penalties of the
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
    LEAST_ALONE_S,
    LONG_RUNNING,
    MEMORY_MIB,
    MOST_USED,
    READY_S,
    SCALE,
    STARTS_PER_CLASS,
    VARIANTS_PER_START,
    ArrivalSets,
    CheapestOptions,
    ClassArrays,
    ListedOptions,
    MachineForecasts,
    MachineJobs,
    MachineSpace,
    OneMachine,
    PlannedMachines,
    PriceSettings,
    PricingLimits,
    TrialMachine,
    TypeForecasts,
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
_FEW = 24
"""Forecasts between two looks at which options can still matter."""


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
def _list_options(
    at: int,
    classes: ClassArrays,
    machines: PlannedMachines,
    variants: VariantArrays,
    types: TypeForecasts,
    settings: PriceSettings,
    options: ListedOptions,
) -> int:
    """List the options of the class at ``at`` on the machines that stand for others; how many there are.

    The lower bound of a price is the own penalty of a task that runs
    undisturbed from its start on, and the wish.
    """
    # Arrays are looked up once, as each look-up counts references.
    there, task, numbers = machines.there, classes.tasks[at], variants.numbers
    representative, shape, completions = machines.representative, machines.shape, machines.completions
    size, start_after, free_cores, free_memory = there.size, there.start_after, there.free_cores, there.free_memory
    open_now, open_later, wishes = classes.open_now[at], classes.open_later[at], classes.wishes[at]
    machine, variant, after, least = options.machine, options.variant, options.after, options.least
    rows, starts, count = types.rows[classes.types[at]], types.others.shape[3], len(representative)
    eps, beta, start_delay_s = settings.eps, settings.beta, settings.start_delay_s
    # A machine is open where one is that it stands for.
    now = np.zeros(count, np.bool_)
    later = np.zeros(count, np.bool_)
    for m in range(count):
        now[representative[m]] |= open_now[m]
        later[representative[m]] |= open_later[m]
    listed = 0
    for m in range(count):
        if not now[m] and not later[m]:
            continue
        for column in range(rows.shape[1]):
            v = rows[shape[m], column]
            if v < 0:
                continue
            for k in range(starts):
                if k == 0:
                    if not now[m] or numbers[v, CORES] > free_cores[m] + _AT_ONCE:
                        continue
                    if numbers[v, MEMORY_MIB] > free_memory[m] + _AT_ONCE:
                        continue
                    begin = numbers[v, DELAY_NOW_S]
                elif later[m] and completions[m, k - 1] < np.inf:
                    # Where nothing runs that could complete, those of the earliest start begin at once.
                    runs = start_after[m, : size[m]].min() == 0
                    begin = (completions[m, k - 1] if runs else 0.0) + start_delay_s
                else:
                    continue
                machine[listed], variant[listed], after[listed] = m, v, k
                least[listed] = task[2] * penalty_of(task[0] + begin + numbers[v, LEAST_ALONE_S], task[1], eps, beta)
                least[listed] += wishes[m]
                listed += 1
    return listed


@borrowing
def _join(
    task_class: int,
    option: int,
    options: ListedOptions,
    machines: PlannedMachines,
    variants: VariantArrays,
    trial: TrialMachine,
) -> None:
    """Put a task of a class that takes an option beside what is on its machine, into ``trial``.

    It takes its place among the arrivals there: of one start they are bound in the order of their keys.
    """
    m, variant, after = options.machine[option], options.variant[option], options.after[option]
    there, numbers = machines.there, variants.numbers
    n = there.size[m]
    key = (task_class * STARTS_PER_CLASS + after) * VARIANTS_PER_START + variants.columns[variant]
    place = n
    while place > 0 and machines.keys[m, place - 1] > key:
        place -= 1
    jobs, kinds, start_after = trial.jobs, trial.kinds, trial.start_after
    for i in range(n):
        to = i if i < place else i + 1
        kinds[to], start_after[to] = there.kinds[m, i], there.start_after[m, i]
        for column in range(JOB_NUMBERS):
            jobs[to, column] = there.jobs[m, i, column]
    for column in range(JOB_NUMBERS):
        jobs[place, column] = numbers[variant, column]
    jobs[place, READY_S] = numbers[variant, DELAY_NOW_S]
    # Whatever its class: its own penalty is added to what is forecast here.
    jobs[place, IMPORTANCE] = 0.0
    jobs[place, LATEST_S] = np.inf
    kinds[place] = variants.kinds[variant]
    start_after[place] = after
    trial.place[0] = place


@borrowing
def _forecast_joined(
    memory: PaceMemory,
    option: int,
    options: ListedOptions,
    machines: PlannedMachines,
    variants: VariantArrays,
    settings: PriceSettings,
    trial: TrialMachine,
) -> tuple[float, float]:
    """(the change of what all else on the machine costs, the own completion) once a task takes an option that was joined.

    Its own penalty is no part of the cost. Infinity where it may not join: a job would end too late or never start, or a p95
    would break its goal. What ``trial.space`` asks for as for :func:`machine_cost`.
    """
    m, variant = options.machine[option], options.variant[option]
    there, numbers, place = machines.there, variants.numbers, trial.place[0]
    n = there.size[m] + 1
    cores, free = there.free_cores[m], there.free_memory[m]
    if options.after[option] == 0:
        cores -= numbers[variant, CORES]
        free -= numbers[variant, MEMORY_MIB]
    host, slo_us, peak = there.hosts[m], there.slo_us[m], trial.result.peak
    result = RunResult(trial.result.ends[:n], trial.result.bound[:n], peak)
    machine = OneMachine(host, trial.jobs[:n], trial.kinds[:n], trial.start_after[:n], cores, free, slo_us)
    cost = machine_cost(memory, machine, settings, trial.space, result)
    if _breaks_goal(peak, slo_us, machines.settled[m], memory.service_count[host], settings.slo_margin):
        cost = np.inf
    return cost - machines.cost[m], result.ends[place]


@borrowing
def _breaks_goal(peak: FloatArray, slo_us: FloatArray, settled: FloatArray, services: int, margin: float) -> bool:
    """Whether a p95 is above its goal, and not for those tasks alone that run without an end. Arrays [S]."""
    breaks = False
    for s in range(services):
        breaks = breaks or (peak[s] > margin * slo_us[s] and peak[s] > settled[s] + 1e-9)
    return breaks


@compiled
def _tell_represented(at: int, classes: ClassArrays, representative: IntArray, cheapest: CheapestOptions) -> None:
    """Give the machines that others stand for the options of these, each where it is open."""
    price, start_after, variant = cheapest.price[at], cheapest.start_after[at], cheapest.variant[at]
    open_now, open_later = classes.open_now[at], classes.open_later[at]
    for m in range(len(representative)):
        stands = representative[m]
        if stands != m and (open_now[m] or open_later[m]):
            price[m], start_after[m], variant[m] = price[stands], start_after[stands], variant[stands]
    for m in range(len(representative)):
        # A machine that is open for one kind of start only may differ from the one that stands for it.
        if not (open_now[m] if start_after[m] == 0 else open_later[m]):
            price[m] = np.inf


@compiled
def price_classes(
    memory: PaceMemory,
    classes: ClassArrays,
    machines: PlannedMachines,
    variants: VariantArrays,
    types: TypeForecasts,
    settings: PriceSettings,
    limits: PricingLimits,
    cheapest: CheapestOptions,
) -> tuple[int, int]:
    """The cheapest option of each of some classes on every machine; forecasts made, and classes whose budget was too small.

    An option is a variant on a machine, started now where that is open and has room, or after one of the next completions.
    Options are forecast in ascending order of a lower bound of their price: the own penalty alone from the start on. Their
    forecasts are shared by all classes of one type. Where other tasks are planned for later, the class itself says in which
    order they start, and nothing is shared.

    Into ``cheapest`` the sum of the change of what all else on the machine costs, the own penalty and the wish, and its
    option. Options are left out once their bound is above the price found on their machine, or above the prices of the
    ``limits.wanted`` cheapest machines, or once the class has used its share of the forecasts and one machine is priced. Of
    equal prices the earlier start counts, then the narrower width.

    Three phases for each class: its options are listed; the cheapest ones are forecast, most promising first; and what was
    found on a machine is told to those that it stands for.
    """
    # Arrays are looked up once, as each look-up counts references.
    size, start_after, columns, known = machines.there.size, machines.there.start_after, variants.columns, types.known
    count, others, own_end = len(machines.representative), types.others, types.own_end
    most = machines.there.jobs.shape[1] + 1
    space = count * types.rows.shape[2] * others.shape[3]
    machine, variant, after = np.empty(space, np.int64), np.empty(space, np.int64), np.empty(space, np.int64)
    least = np.empty(space)
    options = ListedOptions(machine, variant, after, least)
    eps, beta = settings.eps, settings.beta
    result = RunResult(np.empty(most), np.empty(most), np.empty(machines.settled.shape[1]))
    jobs, kinds, begins = np.empty((most, JOB_NUMBERS)), np.empty(most, np.int64), np.empty(most, np.int64)
    space_of_trial, hosts = machine_space(most, memory.services.shape[1]), machines.there.hosts
    asked = space_of_trial.asked
    trial = TrialMachine(jobs, kinds, begins, np.zeros(1, np.int64), result, space_of_trial)
    touched = np.empty(count, np.int64)
    found = np.empty(count)
    made = 0
    short = 0
    for c in range(len(classes.numbers)):
        kind, task, wishes, number = classes.types[c], classes.tasks[c], classes.wishes[c], classes.numbers[c]
        price, chosen_after, chosen_variant = cheapest.price[c], cheapest.start_after[c], cheapest.variant[c]
        if not known[kind]:
            known[kind] = True
            others[kind] = np.nan
        price[:] = np.inf
        chosen_after[:] = 0
        chosen_variant[:] = -1
        # List the options with their lower bounds.
        listed = _list_options(c, classes, machines, variants, types, settings, options)
        order = np.argsort(least[:listed], kind="mergesort")
        # Forecast them, the lowest bound first, until no other one can matter or the class's share is used up.
        share = max(limits.least, (limits.forecasts - made) // limits.sharers)
        before = made
        seen = 0
        dearest = np.inf
        for position in range(listed):
            i = order[position]
            if position % _FEW == 0 and seen >= limits.wanted:
                for a in range(seen):
                    found[a] = price[touched[a]]
                dearest = nth_least(found[:seen], limits.wanted - 1)
            if least[i] > dearest:
                break
            m, v, k = machine[i], variant[i], after[i]
            if least[i] > price[m]:
                continue
            column = columns[v]
            n = size[m]
            ordered = k > 0 and n > 0 and start_after[m, :n].max() > 0
            if ordered or np.isnan(others[kind, m, column, k]):
                if made - before >= share and seen > 0:
                    continue
                _join(number, i, options, machines, variants, trial)
                joined = _forecast_joined(memory, i, options, machines, variants, settings, trial)
                while asked[0] != NOTHING:
                    answer(memory, hosts[m], kinds[: n + 1], jobs[: n + 1], space_of_trial)
                    joined = _forecast_joined(memory, i, options, machines, variants, settings, trial)
                others[kind, m, column, k], own_end[kind, m, column, k] = joined
                made += 1
            own_end_s = own_end[kind, m, column, k]
            if others[kind, m, column, k] == np.inf or own_end_s > task[3]:
                continue
            total = others[kind, m, column, k] + task[2] * penalty_of(task[0] + own_end_s, task[1], eps, beta)
            total += wishes[m]
            if price[m] == np.inf:
                touched[seen] = m
                seen += 1
            elif total > price[m] or (
                total == price[m] and (k > chosen_after[m] or (k == chosen_after[m] and v > chosen_variant[m]))
            ):
                continue
            price[m] = total
            chosen_after[m], chosen_variant[m] = k, v
        short += made - before >= share
        # Tell it to the machines that others stand for.
        _tell_represented(c, classes, machines.representative, cheapest)
    return made, short


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
        if n > there and _breaks_goal(result.peak, machine.slo_us, settled, services, settings.slo_margin):
            cost[b] = np.inf
