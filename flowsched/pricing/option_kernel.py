"""The options of classes on the machines of a round, compiled: listed, forecast as far as they can matter, compared.

What a machine costs with one more task is forecast by :mod:`flowsched.pricing.forecast_kernel`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.pricing.forecast_arrays import (
    CORES,
    DELAY_NOW_S,
    IMPORTANCE,
    JOB_NUMBERS,
    LATEST_S,
    LEAST_ALONE_S,
    MEMORY_MIB,
    READY_S,
    STARTS_PER_CLASS,
    VARIANTS_PER_START,
    CheapestOptions,
    ClassArrays,
    ListedOptions,
    OneMachine,
    PlannedMachines,
    PriceSettings,
    PricingLimits,
    TrialMachine,
    TypeForecasts,
    VariantArrays,
)
from flowsched.pricing.forecast_kernel import NOTHING, answer, breaks_goal, machine_cost, machine_space, penalty_of
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.compiled import compiler
from flowsched_models.kernel import RunResult
from flowsched_models.pace import PaceMemory

_SOURCES = [Path(__file__).with_name(f"{name}.py") for name in ("option_kernel", "forecast_kernel", "forecast_arrays")]
compiled, borrowing = compiler(_SOURCES), compiler(_SOURCES, borrows=True)

_AT_ONCE = 1e-9
_FEW = 24
"""Forecasts between two looks at which options can still matter."""


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
    if breaks_goal(peak, slo_us, machines.settled[m], memory.service_count[host], settings.slo_margin):
        cost = np.inf
    return cost - machines.cost[m], result.ends[place]


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
