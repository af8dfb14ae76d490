"""What an arriving task would cost on machines, roughly and compiled: processor sharing instead of a forecast.

While tasks share a machine's processors, one delays another at most by all of its own work, and at most by its share of the
other's time (the bounds of discriminatory processor sharing); by less where both together leave cores idle. Pressure on
caches and memory is charged as long as both are there. Only the order of the prices matters: the best are forecast.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

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
# After these: when it ends if nothing comes; then the seconds that it has left after each of the first ends on its machine,
# none first; then those of them on one core.
END_S = RUNNING_NUMBERS
COURSES = END_S + 1


def columns_with_courses(starts: int) -> int:
    """Columns of a task that runs, where an arriving one may start now or after one of the first ``starts`` - 1 ends."""
    return COURSES + 2 * starts


# A machine: cores and MiB that nothing has, and its batch cores.
FREE_CORES, FREE_MIB, CORES = range(3)
# An arriving task: its numbers that no machine changes.
ELAPSED_S, GOAL_S, IMPORTANCE, DELAY_NOW_S, NEEDED_MIB, OWN_PRESSURE, OWN_SENSITIVITY = range(7)
ARRIVAL_NUMBERS = 7
_BLOCK = 256
"""Machines whose tasks stay in a core's cache."""


@compiled
def put_in_order(machine: IntArray, numbers: FloatArray, first: IntArray, running: FloatArray) -> None:
    """Tasks that run, ``numbers`` [tasks, RUNNING_NUMBERS] on ``machine`` [tasks], into ``running`` [tasks, columns]: from
    ``first`` [machines + 1] on those of each machine, in the order of their numbers.
    """
    count = np.zeros(len(first) - 1, np.int64)
    for t in range(len(machine)):
        m = machine[t]
        place = first[m] + count[m]
        while place > first[m]:
            column = 0
            while column < RUNNING_NUMBERS and running[place - 1, column] == numbers[t, column]:
                column += 1
            if column == RUNNING_NUMBERS or running[place - 1, column] < numbers[t, column]:
                break
            running[place] = running[place - 1]
            place -= 1
        running[place, :RUNNING_NUMBERS] = numbers[t]
        count[m] += 1


@compiled
def add_courses(first: IntArray, cores: FloatArray, running: FloatArray) -> None:
    """Into the last columns of ``running`` [tasks, columns] when each task ends, and what is left of it before, if nothing
    comes.

    ``first`` [machines + 1]: those of each machine, the least work left first; ``cores`` [machines].
    """
    starts = (running.shape[1] - COURSES) // 2
    for m in range(len(cores)):
        begin, end = first[m], first[m + 1]
        if cores[m] <= 0.0:
            continue
        busy = 0.0
        for j in range(begin, end):
            busy += running[j, DEMAND]
        until, before, still = 0.0, 0.0, busy
        for j in range(begin, end):
            if running[j, LEFT_S] == np.inf:
                running[j, END_S] = np.inf
            else:
                until += (running[j, LEFT_S] - before) * max(1.0, still / cores[m])
                before = running[j, LEFT_S]
                running[j, END_S] = until
            still -= running[j, DEMAND]
        for k in range(min(starts, end - begin + 1)):
            begun = 0.0
            if k > 0:
                begun = running[begin + k - 1, END_S]
                if begun == np.inf:
                    break
            for j in range(begin + k, end):
                left, serial = running[j, LEFT_S], running[j, SERIAL_S]
                if running[j, END_S] < np.inf and running[j, END_S] > 0.0:
                    gone = left * min(1.0, begun / running[j, END_S])
                    left -= gone
                    serial = max(0.0, serial - gone)
                running[j, COURSES + k], running[j, COURSES + starts + k] = left, serial


class SharedMachines(NamedTuple):
    """All machines with what runs there."""

    first: IntArray
    """[machines + 1] the first task of each in ``running``."""
    running: FloatArray
    """[tasks, columns] machine by machine, by work left, the least first, with courses."""
    places: FloatArray
    """[machines, 3] FREE_CORES, FREE_MIB, CORES."""
    shape: IntArray
    """[machines]"""


class ArrivingKinds(NamedTuple):
    """Kinds of tasks that may come."""

    numbers: FloatArray
    """[kinds, ARRIVAL_NUMBERS]"""
    alone_s: FloatArray
    """[kinds, shapes] run time alone; infinity where it cannot run."""
    demand: FloatArray
    """[kinds, shapes] cores that it then keeps busy."""
    widths: FloatArray
    """[kinds, most widths] in cores, ascending; infinity where there is none."""


class RankedMachines(NamedTuple):
    """Machines on which kinds are priced, in parts of one kind each."""

    rows: IntArray
    """[ranked] ascending within each part."""
    first: IntArray
    """[parts + 1]"""
    kind: IntArray
    """[parts]"""


@compiled
def sharing_prices(
    machines: SharedMachines,
    kinds: ArrivingKinds,
    ranked: RankedMachines,
    settings: PriceSettings,
    price: FloatArray,
    price_now: FloatArray,
) -> None:
    """Into ``price`` [ranked] the least rough price of a task on each machine, into ``price_now`` that of a start now;
    infinity where it does not fit. It starts now or after one of the ends that courses have.

    All kinds are priced on some machines before the next ones: what runs there is read from memory once.
    """
    first, running, places, shape = machines.first, machines.running, machines.places, machines.shape
    rows, part_first = ranked.rows, ranked.first
    starts = (running.shape[1] - COURSES) // 2
    use = np.empty((first[1:] - first[:-1]).max() if len(first) > 1 else 0)
    position = part_first.copy()
    for block in range(0, len(shape), _BLOCK):
        for part in range(len(ranked.kind)):
            kind = ranked.kind[part]
            task, widths = kinds.numbers[kind], kinds.widths[kind]
            alone_of_shape_s, demand_of_shape = kinds.alone_s[kind], kinds.demand[kind]
            at = position[part] - 1
            while at + 1 < part_first[part + 1] and rows[at + 1] < block + _BLOCK:
                at += 1
                m = rows[at]
                there, n = first[m], first[m + 1] - first[m]
                cores = places[m, CORES]
                price[at] = price_now[at] = np.inf
                alone_s, demand = alone_of_shape_s[shape[m]], demand_of_shape[shape[m]]
                if cores <= 0.0 or alone_s == np.inf:
                    continue
                room, memory = places[m, FREE_CORES], places[m, FREE_MIB]
                for k in range(min(starts, n + 1)):
                    begin = task[DELAY_NOW_S]
                    if k > 0:
                        begun = running[there + k - 1, END_S]
                        if begun == np.inf:
                            break
                        begin = begun + settings.start_delay_s
                        room += running[there + k - 1, WIDTH]
                        memory += running[there + k - 1, MEMORY_MIB]
                    if memory < task[NEEDED_MIB] or widths[0] > room + 1e-9:
                        continue
                    # What each keeps busy while the arriving task runs: one core during its serial part.
                    in_use = demand
                    for j in range(k, n):
                        together = min(running[there + j, COURSES + k], alone_s)
                        use[j] = 0.0
                        if together > 0.0:
                            alone = min(running[there + j, COURSES + starts + k], together)
                            use[j] = (alone + (together - alone) * running[there + j, PARALLEL_DEMAND]) / together
                        in_use += use[j]
                    crowded = min(1.0, max(0.0, in_use / cores - 1.0))
                    for w in range(len(widths)):
                        width = widths[w]
                        if width > room + 1e-9:
                            break
                        own, caused = alone_s, 0.0
                        for j in range(k, n):
                            other, left_s = running[there + j, WIDTH], running[there + j, COURSES + k]
                            together = min(left_s, alone_s)
                            own += crowded * min(left_s, alone_s * other / width)
                            own += task[OWN_SENSITIVITY] * running[there + j, PRESSURE] * use[j] * together
                            delayed = crowded * min(alone_s, left_s * width / other)
                            delayed += running[there + j, SENSITIVITY] * task[OWN_PRESSURE] * demand * together
                            caused += running[there + j, SLOPE] * delayed
                        cost = caused + task[IMPORTANCE] * penalty_of(
                            task[ELAPSED_S] + begin + own, task[GOAL_S], settings.eps, settings.beta
                        )
                        price[at] = min(price[at], cost)
                        if k == 0:
                            price_now[at] = min(price_now[at], cost)
            position[part] = at + 1
