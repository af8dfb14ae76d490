"""The arrays of an incremental flow: made, made larger, packed."""

from __future__ import annotations

import numpy as np

from benchmarks.quincy.hub_graph import HubGraph
from benchmarks.quincy.incremental_kernel import POOL_END, SHIFT, Arrays
from flowsched.solvers.incremental import by_hub
from flowsched.support.arrays import IntArray

_COUNTERS = 8
_UNREACHED = 1 << 50
"""Price of a hub from which no way leads to the sink."""


def empty_state(graph: HubGraph, width: int, room: int) -> Arrays:
    """No tasks, room for ``room`` of at most ``width`` choices each; prices still to be refined."""
    hubs = graph.hubs
    out_start, out_arcs = by_hub(graph.tails, hubs)
    in_start, in_arcs = by_hub(graph.heads, hubs)
    price = np.full(hubs, _UNREACHED, dtype=np.int64)
    price[graph.sink] = 0
    exits = _none(hubs)
    to_sink = np.flatnonzero(graph.heads == graph.sink)
    exits[graph.tails[to_sink]] = to_sink
    return Arrays(
        tails=graph.tails.astype(np.int64),
        heads=graph.heads.astype(np.int64),
        capacities=graph.capacities.astype(np.int64),
        costs=graph.costs.astype(np.int64),
        flow=_zeros(len(graph.tails)),
        out_start=out_start,
        out_arcs=out_arcs,
        in_start=in_start,
        in_arcs=in_arcs,
        exits=exits,
        lack=_zeros(hubs),
        price=price,
        hub=_none(room * width).reshape(room, width),
        cost=_zeros(room * width).reshape(room, width),
        at=_none(room),
        here=_none(room),
        paid=_zeros(room),
        first=_none(hubs),
        after=_none(room),
        before=_none(room),
        wish_start=_zeros(hubs),
        wish_count=_zeros(hubs),
        wish_room=_zeros(hubs),
        pool=_zeros(room * width + 8 * hubs),
        pool_cost=_zeros(room * width + 8 * hubs),
        wish_place=_none(room * width).reshape(room, width),
        slack=_zeros(hubs),
        slack_of=_zeros(hubs),
        seen=_zeros(2 * hubs),
        done=_zeros(2 * hubs),
        distance=_zeros(2 * hubs),
        via=_zeros(2 * hubs),
        link=_zeros(2 * hubs),
        heap=_zeros(2 * hubs),
        heap_place=_none(2 * hubs),
        stack=_zeros(2 * hubs),
        listed=_zeros(hubs),
        counters=_zeros(_COUNTERS),
    )


def with_room(s: Arrays, room: int) -> Arrays:
    """The same with room for more tasks, lists to be packed."""
    old, width = s.hub.shape
    hub = _none(room * width).reshape(room, width)
    cost = _zeros(room * width).reshape(room, width)
    hub[:old], cost[:old] = s.hub, s.cost
    longer = {name: _none(room) for name in ("at", "here", "paid", "after", "before")}
    for name, column in longer.items():
        column[:old] = getattr(s, name)
    return s._replace(hub=hub, cost=cost, wish_place=_none(room * width).reshape(room, width), **longer)


def with_graph(s: Arrays, graph: HubGraph) -> Arrays:
    """The same with further hubs and arcs behind the old ones, capacities and costs as given; new arcs carry nothing."""
    fresh = empty_state(graph, 1, 0)
    old = len(s.price)
    flow = fresh.flow
    flow[: len(s.flow)] = s.flow
    fresh.price[:old] = s.price
    fresh.first[:old] = s.first
    fresh.lack[:old] = s.lack
    kept = {
        name: getattr(s, name)
        for name in (
            "hub",
            "cost",
            "at",
            "here",
            "paid",
            "after",
            "before",
            "pool",
            "pool_cost",
            "wish_place",
        )
    }
    for name in ("wish_start", "wish_count", "wish_room"):
        getattr(fresh, name)[:old] = getattr(s, name)
    fresh.counters[:] = s.counters
    return fresh._replace(**kept)


def packed(s: Arrays, sink: int) -> Arrays:
    """The same with the lists of choices by hub packed anew, a quarter of room to spare."""
    slots = np.flatnonzero((s.hub.ravel() >= 0) & (s.hub.ravel() != sink))
    named = s.hub.ravel()[slots]
    count = np.bincount(named, minlength=len(s.price)).astype(np.int64)
    room = count + count // 4 + 8
    start = np.cumsum(room) - room
    order = np.argsort(named, kind="stable")
    ranks = np.arange(len(slots)) - np.repeat(np.cumsum(count) - count, count)
    places = np.repeat(start, count) + ranks
    end = int(room.sum())
    slots = slots[order]
    pool, pool_cost = _zeros(end + end // 4), _zeros(end + end // 4)
    width = s.hub.shape[1]
    pool[places] = (slots // width << SHIFT) | slots % width
    pool_cost[places] = s.cost.ravel()[slots]
    wish_place = _none(s.hub.size)
    wish_place[slots] = places
    s.counters[POOL_END] = end
    return s._replace(
        pool=pool,
        pool_cost=pool_cost,
        wish_place=wish_place.reshape(s.hub.shape),
        wish_start=start,
        wish_count=count,
        wish_room=room,
    )


def _zeros(count: int) -> IntArray:
    return np.zeros(count, dtype=np.int64)


def _none(count: int) -> IntArray:
    return np.full(count, -1, dtype=np.int64)
