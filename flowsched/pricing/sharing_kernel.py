"""What an arriving task would cost on machines, roughly and compiled: processor sharing instead of a forecast.

While tasks share a machine's processors, one delays another at most by all of its own work, and at most by its share of the
other's time (the bounds of discriminatory processor sharing); by less where both together leave cores idle. Pressure on
caches and memory is charged as long as both are there. Only the order of the prices matters: the best are forecast.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.pricing.forecast_arrays import PriceSettings
from flowsched.pricing.forecast_kernel import penalty_of
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.compiled import compiler

_SOURCES = ("sharing_kernel.py", "forecast_kernel.py", "forecast_arrays.py")
compiled = compiler([Path(__file__).with_name(name) for name in _SOURCES])

# Columns of a task that runs: seconds of work left on its machine alone, of them first on one core, cores and MiB that it
# requests, cores that it keeps busy alone (on average, and after its serial part), cost of a second of delay, pressure on
# others by a busy core, sensitivity to theirs.
LEFT_S, SERIAL_S, WIDTH, MEMORY_MIB, DEMAND, PARALLEL_DEMAND, SLOPE, PRESSURE, SENSITIVITY = range(9)
RUNNING_NUMBERS = 9
# An arriving task: its numbers that no machine changes.
ELAPSED_S, GOAL_S, IMPORTANCE, DELAY_NOW_S, NEEDED_MIB, OWN_PRESSURE, OWN_SENSITIVITY = range(7)
ARRIVAL_NUMBERS = 7


@compiled
def put_in_order(machine: IntArray, numbers: FloatArray, running: FloatArray, count: IntArray) -> None:
    """Tasks that run, ``numbers`` [tasks, RUNNING_NUMBERS] on ``machine`` [tasks], into ``running`` [machines, most,
    RUNNING_NUMBERS], of each machine in the order of their numbers; how many there are into ``count`` [machines].
    """
    for t in range(len(machine)):
        m = machine[t]
        place = count[m]
        while place > 0:
            column = 0
            while column < RUNNING_NUMBERS and running[m, place - 1, column] == numbers[t, column]:
                column += 1
            if column == RUNNING_NUMBERS or running[m, place - 1, column] < numbers[t, column]:
                break
            running[m, place] = running[m, place - 1]
            place -= 1
        running[m, place] = numbers[t]
        count[m] += 1


@compiled
def courses(
    count: IntArray,
    running: FloatArray,
    cores: FloatArray,
    ends_s: FloatArray,
    left_s: FloatArray,
    serial_s: FloatArray,
) -> None:
    """When what runs on each machine ends, and what is left of it then, if nothing comes.

    ``count`` [machines], ``running`` [machines, most, RUNNING_NUMBERS] by work left, the least first, ``cores`` [machines].
    Into ``ends_s`` [machines, most] the ends; into ``left_s`` and ``serial_s`` [machines, starts, most] the work that the
    j-th task has left after the k-th end, and of it on one core; after no end at k = 0.
    """
    for m in range(len(count)):
        n = count[m]
        if cores[m] <= 0.0:
            continue
        busy = 0.0
        for j in range(n):
            busy += running[m, j, DEMAND]
        until, before, still = 0.0, 0.0, busy
        for j in range(n):
            if running[m, j, LEFT_S] == np.inf:
                ends_s[m, j] = np.inf
            else:
                until += (running[m, j, LEFT_S] - before) * max(1.0, still / cores[m])
                before = running[m, j, LEFT_S]
                ends_s[m, j] = until
            still -= running[m, j, DEMAND]
        for k in range(min(left_s.shape[1], n + 1)):
            begun = 0.0
            if k > 0:
                begun = ends_s[m, k - 1]
                if begun == np.inf:
                    break
            for j in range(k, n):
                left, serial = running[m, j, LEFT_S], running[m, j, SERIAL_S]
                if ends_s[m, j] < np.inf and ends_s[m, j] > 0.0:
                    gone = left * min(1.0, begun / ends_s[m, j])
                    left -= gone
                    serial = max(0.0, serial - gone)
                left_s[m, k, j], serial_s[m, k, j] = left, serial


@compiled
def sharing_prices(
    machines: IntArray,
    count: IntArray,
    running: FloatArray,
    free_cores: FloatArray,
    free_memory: FloatArray,
    cores: FloatArray,
    shape: IntArray,
    alone_of_shape_s: FloatArray,
    demand_of_shape: FloatArray,
    task: FloatArray,
    widths: FloatArray,
    ends_s: FloatArray,
    left_s: FloatArray,
    serial_s: FloatArray,
    settings: PriceSettings,
    price: FloatArray,
    price_now: FloatArray,
) -> None:
    """Into ``price`` [len(machines)] the least rough price of a task on each of some machines, into ``price_now`` that of
    a start now; infinity where it does not fit.

    Arrays by machine of the cluster: ``running`` [machines, most, RUNNING_NUMBERS] by work left, the least first;
    ``free_cores``, ``free_memory``, ``cores`` (batch cores), ``shape``. By shape of machine: the task's run time alone, and
    the cores that it keeps busy. ``task`` [ARRIVAL_NUMBERS], ``widths`` [widths] in cores, ascending. ``ends_s``, ``left_s``
    and ``serial_s``: :func:`courses`; it starts now or after one of the ends that these have.
    """
    most = running.shape[1]
    use = np.empty(most)
    for at in range(len(machines)):
        m = machines[at]
        n = count[m]
        price[at] = price_now[at] = np.inf
        alone_s, demand = alone_of_shape_s[shape[m]], demand_of_shape[shape[m]]
        if cores[m] <= 0.0 or alone_s == np.inf:
            continue
        room, memory = free_cores[m], free_memory[m]
        for k in range(min(left_s.shape[1], n + 1)):
            begin = task[DELAY_NOW_S]
            if k > 0:
                begun = ends_s[m, k - 1]
                if begun == np.inf:
                    break
                begin = begun + settings.start_delay_s
                room += running[m, k - 1, WIDTH]
                memory += running[m, k - 1, MEMORY_MIB]
            if memory < task[NEEDED_MIB] or widths[0] > room + 1e-9:
                continue
            # What each keeps busy while the arriving task runs: one core during its serial part.
            in_use = demand
            for j in range(k, n):
                together = min(left_s[m, k, j], alone_s)
                use[j] = 0.0
                if together > 0.0:
                    alone = min(serial_s[m, k, j], together)
                    use[j] = (alone + (together - alone) * running[m, j, PARALLEL_DEMAND]) / together
                in_use += use[j]
            crowded = min(1.0, max(0.0, in_use / cores[m] - 1.0))
            for w in range(len(widths)):
                width = widths[w]
                if width > room + 1e-9:
                    break
                own, caused = alone_s, 0.0
                for j in range(k, n):
                    other = running[m, j, WIDTH]
                    together = min(left_s[m, k, j], alone_s)
                    own += crowded * min(left_s[m, k, j], alone_s * other / width)
                    own += task[OWN_SENSITIVITY] * running[m, j, PRESSURE] * use[j] * together
                    delayed = crowded * min(alone_s, left_s[m, k, j] * width / other)
                    delayed += running[m, j, SENSITIVITY] * task[OWN_PRESSURE] * demand * together
                    caused += running[m, j, SLOPE] * delayed
                cost = caused + task[IMPORTANCE] * penalty_of(
                    task[ELAPSED_S] + begin + own, task[GOAL_S], settings.eps, settings.beta
                )
                price[at] = min(price[at], cost)
                if k == 0:
                    price_now[at] = min(price_now[at], cost)
