"""The loops over machines that draw and rank candidates, compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.compiled import compiler

compiled = compiler([Path(__file__)])

_BITS = 11
_SAMPLE = 128


@compiled
def mixed(values: IntArray, seed: int, found: IntArray) -> None:
    """Into ``found`` [values] numbers that look random, from unsigned values and a seed (the finalizer of SplitMix64)."""
    start = np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
    for i in range(len(values)):
        one = values[i] * np.uint64(0x9E3779B97F4A7C15) + start
        one = (one ^ (one >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        one = (one ^ (one >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found[i] = one ^ (one >> np.uint64(31))


@compiled
def with_room(
    milli: IntArray,
    memory_mib: IntArray,
    units: IntArray,
    width: int,
    needed_mib: int,
    asked: IntArray,
    room: BoolArray,
) -> None:
    """Into ``room`` [machines] where there are ``width`` thousandths of a core, ``needed_mib`` and ``asked`` [further
    resources] units. Amounts of machines: [machines], and ``units`` [machines, further resources].
    """
    for m in range(len(milli)):
        room[m] = milli[m] >= width and memory_mib[m] >= needed_mib
        for r in range(len(asked)):
            if asked[r] > 0 and units[m, r] < asked[r]:
                room[m] = False


@compiled
def lowest(rows: IntArray, rank: IntArray, most: int, found: IntArray) -> int:
    """Into ``found`` those of some rows, in their order, with the ``most`` lowest unsigned ranks; how many there are.

    Ranks that look random are told apart by their first bits: what is sorted are the few that share those of the last one.
    """
    if len(rows) <= most:
        found[:] = rows
        return len(rows)
    shift = np.uint64(64 - _BITS)
    counts = np.zeros(1 << _BITS, np.int64)
    for m in rows:
        counts[np.int64(rank[m] >> shift)] += 1
    bucket, below = 0, 0
    while below + counts[bucket] < most:
        below += counts[bucket]
        bucket += 1
    among, filled = np.empty(counts[bucket], rank.dtype), 0
    for m in rows:
        if np.int64(rank[m] >> shift) == bucket:
            among[filled] = rank[m]
            filled += 1
    bound = np.sort(among)[most - 1 - below]
    count = 0
    for m in rows:
        if rank[m] <= bound and count < most:
            found[count] = m
            count += 1
    return count


@compiled
def cheapest_first(
    price: FloatArray,
    milli: IntArray,
    memory_mib: IntArray,
    rank: IntArray,
    rows: IntArray,
    sign: int,
    alike: int,
    found: IntArray,
) -> int:
    """Into ``found`` the cheapest of some machines, the cheapest first, as many as it has room for; how many there are.

    ``price`` [len(rows)]. Arrays by machine of the cluster: free CPU and memory, of which less (``sign`` 1) or more (-1)
    comes first where prices are equal, then ``rank``, lower first. Of machines of one price there are no more than ``alike``
    + 1.
    """
    # Only some of the cheapest are sorted at first, those below a price that a sample says: mostly they are enough.
    some = 2 * len(found)
    sample = np.sort(price[:: max(1, len(price) // _SAMPLE)])
    while some < len(price):
        bound = sample[some * len(sample) // len(price)]
        count = _in_order(np.flatnonzero(price <= bound), price, milli, memory_mib, rank, rows, sign, alike, found)
        if count == len(found):
            return count
        some *= 2
    return _in_order(np.arange(len(price)), price, milli, memory_mib, rank, rows, sign, alike, found)


@compiled
def _in_order(
    some: IntArray,
    price: FloatArray,
    milli: IntArray,
    memory_mib: IntArray,
    rank: IntArray,
    rows: IntArray,
    sign: int,
    alike: int,
    found: IntArray,
) -> int:
    """The same of ``some`` of the rows, by index."""
    order = some[np.argsort(price[some])]
    count = begin = 0
    while begin < len(order) and count < len(found):
        end = begin + 1
        while end < len(order) and price[order[end]] == price[order[begin]]:
            end += 1
        # Of one price: those that come first are kept in order, and a later one is mostly compared with the last of them.
        most = min(alike + 1, len(found) - count)
        kept = 0
        for at in range(begin, end):
            new = rows[order[at]]
            place = kept
            while place > 0:
                known = found[count + place - 1]
                if milli[known] != milli[new]:
                    behind = sign * milli[known] < sign * milli[new]
                elif memory_mib[known] != memory_mib[new]:
                    behind = sign * memory_mib[known] < sign * memory_mib[new]
                else:
                    behind = rank[known] < rank[new]
                if behind:
                    break
                place -= 1
            if place >= most:
                continue
            for moved in range(min(kept, most - 1), place, -1):
                found[count + moved] = found[count + moved - 1]
            found[count + place] = new
            kept = min(kept + 1, most)
        count += kept
        begin = end
    return count
