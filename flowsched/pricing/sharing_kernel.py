"""What an arriving task would cost on machines, roughly and compiled: processor sharing instead of a forecast.

While tasks share a machine's processors, one delays another at most by all of its own work, and at most by its share of the
other's time (the bounds of discriminatory processor sharing); by less where both together leave cores idle. Pressure on
caches and memory is charged as long as both are there. Only the order of the prices matters: the best are forecast.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.pricing.forecast_kernel import BETA, EPS, START_DELAY_S, penalty_of
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.compiled import compiler

compiled = compiler([Path(__file__)])

# Columns of a task that runs: seconds of work left on its machine alone, of them first on one core, cores and MiB that it
# requests, cores that it keeps busy alone (on average, and after its serial part), cost of a second of delay, pressure on
# others by a busy core, sensitivity to theirs.
LEFT_S, SERIAL_S, WIDTH, MEMORY_MIB, DEMAND, PARALLEL_DEMAND, SLOPE, PRESSURE, SENSITIVITY = range(9)
RUNNING_NUMBERS = 9
# An arriving task: its numbers that no machine changes.
ELAPSED_S, GOAL_S, IMPORTANCE, DELAY_NOW_S, NEEDED_MIB, OWN_PRESSURE, OWN_SENSITIVITY = range(7)
ARRIVAL_NUMBERS = 7


@compiled
def sharing_prices(
    machines: IntArray,
    count: IntArray,
    running: FloatArray,
    free_cores: FloatArray,
    free_memory: FloatArray,
    cores: FloatArray,
    alone_s: FloatArray,
    demand: FloatArray,
    task: FloatArray,
    widths: FloatArray,
    starts: int,
    settings: FloatArray,
    price: FloatArray,
    price_now: FloatArray,
) -> None:
    """Into ``price`` [len(machines)] the least rough price of a task on each of some machines, into ``price_now`` that of
    a start now; infinity where it does not fit.

    Arrays by machine of the cluster: ``running`` [machines, most, RUNNING_NUMBERS] by work left, the least first;
    ``free_cores``, ``free_memory``, ``cores`` (batch cores), ``alone_s`` (run time of the task alone) and ``demand`` (cores
    that it keeps busy). ``task`` [ARRIVAL_NUMBERS], ``widths`` [widths] in cores, ascending. It starts now or after one of
    the next ``starts - 1`` completions.
    """
    most = running.shape[1]
    ends = np.empty(most)
    left = np.empty(most)
    use = np.empty(most)
    for at in range(len(machines)):
        m = machines[at]
        n = count[m]
        price[at] = price_now[at] = np.inf
        if cores[m] <= 0.0 or alone_s[m] == np.inf:
            continue
        busy = 0.0
        for j in range(n):
            busy += running[m, j, DEMAND]
        until, before, still = 0.0, 0.0, busy
        for j in range(n):
            if running[m, j, LEFT_S] == np.inf:
                ends[j] = np.inf
            else:
                until += (running[m, j, LEFT_S] - before) * max(1.0, still / cores[m])
                before = running[m, j, LEFT_S]
                ends[j] = until
            still -= running[m, j, DEMAND]
        room, memory = free_cores[m], free_memory[m]
        for k in range(min(starts, n + 1)):
            begin = task[DELAY_NOW_S]
            begun = 0.0
            if k > 0:
                begun = ends[k - 1]
                if begun == np.inf:
                    break
                begin = begun + settings[START_DELAY_S]
                room += running[m, k - 1, WIDTH]
                memory += running[m, k - 1, MEMORY_MIB]
            if memory < task[NEEDED_MIB]:
                continue
            # What each keeps busy while the arriving task runs: one core during its serial part.
            in_use = demand[m]
            for j in range(k, n):
                left[j], serial = running[m, j, LEFT_S], running[m, j, SERIAL_S]
                if ends[j] < np.inf and ends[j] > 0.0:
                    gone = left[j] * min(1.0, begun / ends[j])
                    left[j] -= gone
                    serial = max(0.0, serial - gone)
                together = min(left[j], alone_s[m])
                use[j] = 0.0
                if together > 0.0:
                    alone = min(serial, together)
                    use[j] = (alone + (together - alone) * running[m, j, PARALLEL_DEMAND]) / together
                in_use += use[j]
            crowded = min(1.0, max(0.0, in_use / cores[m] - 1.0))
            for w in range(len(widths)):
                width = widths[w]
                if width > room + 1e-9:
                    break
                own, caused = alone_s[m], 0.0
                for j in range(k, n):
                    other = running[m, j, WIDTH]
                    together = min(left[j], alone_s[m])
                    own += crowded * min(left[j], alone_s[m] * other / width)
                    own += task[OWN_SENSITIVITY] * running[m, j, PRESSURE] * use[j] * together
                    delayed = crowded * min(alone_s[m], left[j] * width / other)
                    delayed += running[m, j, SENSITIVITY] * task[OWN_PRESSURE] * demand[m] * together
                    caused += running[m, j, SLOPE] * delayed
                cost = caused + task[IMPORTANCE] * penalty_of(
                    task[ELAPSED_S] + begin + own, task[GOAL_S], settings[EPS], settings[BETA]
                )
                price[at] = min(price[at], cost)
                if k == 0:
                    price_now[at] = min(price_now[at], cost)
