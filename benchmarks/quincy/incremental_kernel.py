"""The compiled searches of the incremental flow: one shortest path for each unit that came, went or moved.

The residual network is searched in contracted form: nodes are hubs only (machines, aggregators, the sink), and a task
that is at hub ``h`` and may be at ``k`` is a residual arc from ``h`` to ``k`` of cost ``c(task, k) - c(task, h)``. A
task's own potential follows from its hub's price, so it is never stored and never touched.

``price[h]`` is the cost of one more unit at ``h`` on its way to the sink, so the reduced cost of a residual arc from
``u`` to ``v`` is ``cost + price[v] - price[u]``, never negative while the flow is optimal. Successive shortest paths
with potentials: R. K. Ahuja, T. L. Magnanti, J. B. Orlin, "Network Flows", section 9.7.

All functions sit in this file because they call each other (see ``flowsched_models.compiled``).
"""

from __future__ import annotations

from typing import NamedTuple

from flowsched.support.arrays import IntArray
from flowsched_models.compiled import borrowing

FAR = 1 << 60
"""Farther than any path."""

SHIFT = 6
WIDEST = 1 << SHIFT
"""Most choices of a task: a choice is kept as one number, task and column."""
_COLUMN = WIDEST - 1

STAMP, SCANNED, POOL_END, HEAP, STACK, LISTED, RUN = range(7)
"""Places in ``counters``: number of this search, choices scanned so far, end of the used pool, sizes of the heap, of the
stack and of the list of hubs scanned in this search, number of this run of searches in one direction."""


class Arrays(NamedTuple):
    """The state as arrays, all int64. H hubs, A arcs between hubs, T places for tasks of at most W choices."""

    tails: IntArray  # A
    heads: IntArray  # A
    capacities: IntArray  # A
    costs: IntArray  # A
    flow: IntArray  # A
    out_start: IntArray  # H + 1, into out_arcs
    out_arcs: IntArray  # A
    in_start: IntArray  # H + 1, into in_arcs
    in_arcs: IntArray  # A
    exits: IntArray  # H: the arc to the sink, -1 without
    lack: IntArray  # H: units that a hub has sent on and not got
    price: IntArray  # H
    hub: IntArray  # T x W: the hubs where a task may go, -1 behind the last
    cost: IntArray  # T x W
    at: IntArray  # T: the choice that has the task's unit, -1 without
    here: IntArray  # T: the hub of that choice, -1 without
    paid: IntArray  # T: its cost
    first: IntArray  # H: first of the tasks now at a hub, -1 without
    after: IntArray  # T: next task at the same hub
    before: IntArray  # T
    wish_start: IntArray  # H: where the hub's part of the pool begins
    wish_count: IntArray  # H: choices that name the hub
    wish_room: IntArray  # H
    pool: IntArray  # choices as task << SHIFT | column, part by part
    pool_cost: IntArray  # their costs
    wish_place: IntArray  # T x W: where a choice stands in the pool
    slack: IntArray  # H: lower bound on what a step by one of a hub's tasks (forwards) or wishes (backwards) costs
    slack_of: IntArray  # H: the run of like searches in which that bound was taken
    seen: IntArray  # 2 H: the last search that labelled a hub or, from H on, put off its tasks
    done: IntArray  # 2 H: the last search that scanned it
    distance: IntArray  # 2 H
    via: IntArray  # 2 H: how the search came: a choice, or -1 - (2 * arc + 1 if backwards)
    link: IntArray  # 2 H: from where
    heap: IntArray  # 2 H
    heap_place: IntArray  # 2 H
    stack: IntArray  # 2 H
    listed: IntArray  # H
    counters: IntArray


@borrowing
def _sift_up(heap: IntArray, place: IntArray, distance: IntArray, i: int) -> None:
    """Move the heap's entry up to where it belongs."""
    node = heap[i]
    key = distance[node]
    while i > 0:
        above = (i - 1) >> 1
        other = heap[above]
        if distance[other] <= key:
            break
        heap[i] = other
        place[other] = i
        i = above
    heap[i] = node
    place[node] = i


@borrowing
def _take_first(heap: IntArray, place: IntArray, distance: IntArray, counters: IntArray) -> int:
    """Remove and return the heap's nearest hub."""
    nearest: int = heap[0]
    place[nearest] = -1
    size = counters[HEAP] - 1
    counters[HEAP] = size
    if size > 0:
        node = heap[size]
        key = distance[node]
        i = 0
        while True:
            below = 2 * i + 1
            if below >= size:
                break
            if below + 1 < size and distance[heap[below + 1]] < distance[heap[below]]:
                below += 1
            other = heap[below]
            if distance[other] >= key:
                break
            heap[i] = other
            place[other] = i
            i = below
        heap[i] = node
        place[node] = i
    return nearest


@borrowing
def _label(
    seen: IntArray,
    distance: IntArray,
    via: IntArray,
    link: IntArray,
    heap: IntArray,
    place: IntArray,
    stack: IntArray,
    counters: IntArray,
    node: int,
    far: int,
    how: int,
    origin: int,
    now: int,
) -> None:
    """Note a shorter way to a hub. Ties with the present distance go on the stack: they are followed depth-first."""
    if seen[node] != counters[STAMP]:
        seen[node] = counters[STAMP]
        place[node] = -1
    distance[node] = far
    via[node] = how
    link[node] = origin
    if far == now and place[node] < 0:
        stack[counters[STACK]] = node
        counters[STACK] += 1
        return
    if place[node] < 0:
        place[node] = counters[HEAP]
        heap[counters[HEAP]] = node
        counters[HEAP] += 1
    _sift_up(heap, place, distance, place[node])


@borrowing
def _begin(counters: IntArray) -> None:
    """A new search: earlier labels count no more."""
    counters[STAMP] += 1
    counters[HEAP] = 0
    counters[STACK] = 0
    counters[LISTED] = 0


@borrowing
def _enter_hub(s: Arrays, task: int, choice: int) -> None:
    """Put a task's unit on one of its choices."""
    h = s.hub[task, choice]
    s.at[task] = choice
    s.here[task] = h
    s.paid[task] = s.cost[task, choice]
    head = s.first[h]
    s.after[task] = head
    s.before[task] = -1
    if head >= 0:
        s.before[head] = task
    s.first[h] = task


@borrowing
def _leave_hub(s: Arrays, task: int) -> None:
    """Take a task's unit off its choice."""
    h = s.here[task]
    if s.before[task] >= 0:
        s.after[s.before[task]] = s.after[task]
    else:
        s.first[h] = s.after[task]
    if s.after[task] >= 0:
        s.before[s.after[task]] = s.before[task]
    s.at[task] = -1
    s.here[task] = -1


@borrowing
def _tighten(s: Arrays, task: int) -> None:
    """A task that has come to a hub may leave it for less than those that were there."""
    u = s.here[task]
    if s.slack_of[u] != s.counters[RUN]:
        return
    for j in range(s.hub.shape[1]):
        v = s.hub[task, j]
        if v < 0:
            break
        if v != u:
            s.slack[u] = min(s.slack[u], s.cost[task, j] + s.price[v] - s.paid[task])


@borrowing
def _forward(s: Arrays, task: int, start: int, sink: int) -> int:
    """Bring one unit to the sink, from a new task or (task -1) from hub ``start``; 0, or -1 where no way leads on.

    From a hub, one that lacks a unit will do as well.
    """
    seen, done, distance, via, link = s.seen, s.done, s.distance, s.via, s.link
    heap, place, stack, listed = s.heap, s.heap_place, s.stack, s.listed
    tails, heads, flow, capacities, costs = s.tails, s.heads, s.flow, s.capacities, s.costs
    counters, price, exits, slack, slack_of = s.counters, s.price, s.exits, s.slack, s.slack_of
    hub, cost, paid, after = s.hub, s.cost, s.paid, s.after
    hubs = len(price)
    _begin(counters)
    stamp = counters[STAMP]
    width = hub.shape[1]
    bound = FAR
    goal = sink
    lack = s.lack
    now = -1
    if task >= 0:
        least = FAR
        for j in range(width):
            v = hub[task, j]
            if v < 0:
                break
            least = min(least, cost[task, j] + price[v])
        for j in range(width):
            v = hub[task, j]
            if v < 0:
                break
            far = cost[task, j] + price[v] - least
            if v == sink:
                if far < bound:
                    bound, via[sink], link[sink] = far, task << SHIFT | j, -1
                    goal = sink
            elif far < bound and (seen[v] != stamp or far < distance[v]):
                _label(seen, distance, via, link, heap, place, stack, counters, v, far, task << SHIFT | j, -1, now)
                a2 = exits[v]
                if lack[v] > 0 and task < 0 and far < bound:
                    bound, goal = far, v
                if a2 >= 0 and flow[a2] < capacities[a2] and far + costs[a2] - price[v] < bound:
                    bound, via[sink], link[sink] = far + costs[a2] - price[v], -1 - 2 * a2, v
                    goal = sink
    elif lack[start] > 0:
        lack[start] -= 1
        return 0
    else:
        _label(seen, distance, via, link, heap, place, stack, counters, start, 0, -1, -1, now)
    while counters[STACK] > 0 or counters[HEAP] > 0:
        if bound <= now:
            break
        if counters[STACK] > 0:
            counters[STACK] -= 1
            u = stack[counters[STACK]]
        else:
            u = _take_first(heap, place, distance, counters)
        if done[u] == stamp:
            continue
        if distance[u] >= bound:
            break
        now = distance[u]
        done[u] = stamp
        if u >= hubs:
            u -= hubs
            low = FAR
            t = s.first[u]
            while t >= 0:
                counters[SCANNED] += 1
                base = paid[t]
                reach = distance[u] - price[u] - base
                for j in range(width):
                    v = hub[t, j]
                    if v < 0:
                        break
                    if v == u:
                        continue
                    step = cost[t, j] + price[v]
                    low = min(low, step - base)
                    far = reach + step
                    if v == sink:
                        if far < bound:
                            bound, via[sink], link[sink] = far, t << SHIFT | j, u
                            goal = sink
                    elif far < bound and (seen[v] != stamp or far < distance[v]):
                        _label(seen, distance, via, link, heap, place, stack, counters, v, far, t << SHIFT | j, u, now)
                        a2 = exits[v]
                        if lack[v] > 0 and task < 0 and far < bound:
                            bound, goal = far, v
                        if a2 >= 0 and flow[a2] < capacities[a2] and far + costs[a2] - price[v] < bound:
                            bound, via[sink], link[sink] = far + costs[a2] - price[v], -1 - 2 * a2, v
                            goal = sink
                if bound <= now:
                    break
                t = after[t]
            if t < 0:
                slack[u] = low
                slack_of[u] = counters[RUN]
            continue
        listed[counters[LISTED]] = u
        counters[LISTED] += 1
        if s.first[u] >= 0:
            far = now
            if slack_of[u] == counters[RUN]:
                far += max(0, slack[u] - price[u])
            if far < bound:
                _label(seen, distance, via, link, heap, place, stack, counters, u + hubs, far, -1, u, now)
        for i in range(s.out_start[u], s.out_start[u + 1]):
            a = s.out_arcs[i]
            if flow[a] < capacities[a]:
                v = heads[a]
                far = now + costs[a] + price[v] - price[u]
                if v == sink:
                    if far < bound:
                        bound, via[sink], link[sink] = far, -1 - 2 * a, u
                        goal = sink
                elif far < bound and (seen[v] != stamp or far < distance[v]):
                    _label(seen, distance, via, link, heap, place, stack, counters, v, far, -1 - 2 * a, u, now)
                    a2 = exits[v]
                    if lack[v] > 0 and task < 0 and far < bound:
                        bound, goal = far, v
                    if a2 >= 0 and flow[a2] < capacities[a2] and far + costs[a2] - price[v] < bound:
                        bound, via[sink], link[sink] = far + costs[a2] - price[v], -1 - 2 * a2, v
                        goal = sink
        for i in range(s.in_start[u], s.in_start[u + 1]):
            a = s.in_arcs[i]
            if flow[a] > 0:
                v = tails[a]
                far = now - costs[a] + price[v] - price[u]
                if v == sink:
                    if far < bound:
                        bound, via[sink], link[sink] = far, -2 - 2 * a, u
                        goal = sink
                elif far < bound and (seen[v] != stamp or far < distance[v]):
                    _label(seen, distance, via, link, heap, place, stack, counters, v, far, -2 - 2 * a, u, now)
                    a2 = exits[v]
                    if lack[v] > 0 and task < 0 and far < bound:
                        bound, goal = far, v
                    if a2 >= 0 and flow[a2] < capacities[a2] and far + costs[a2] - price[v] < bound:
                        bound, via[sink], link[sink] = far + costs[a2] - price[v], -1 - 2 * a2, v
                        goal = sink
    counters[SCANNED] += counters[LISTED]
    if bound >= FAR:
        return -1
    for i in range(counters[LISTED]):
        u = listed[i]
        if distance[u] < bound:
            price[u] += bound - distance[u]
    if goal != sink:
        lack[goal] -= 1
    node = goal
    while True:
        how = via[node]
        origin = link[node]
        if origin < 0 and task < 0:
            break
        if how >= 0:
            if origin >= 0:
                _leave_hub(s, how >> SHIFT)
            _enter_hub(s, how >> SHIFT, how & _COLUMN)
            _tighten(s, how >> SHIFT)
        else:
            arc = (-1 - how) >> 1
            flow[arc] += 1 - 2 * ((-1 - how) & 1)
        if origin < 0:
            break
        node = origin
    return 0


@borrowing
def _backward(s: Arrays, start: int, sink: int) -> int:
    """Bring one unit from the sink to hub ``start``, that lacks one; 0, or -1 where no way leads there."""
    seen, done, distance, via, link = s.seen, s.done, s.distance, s.via, s.link
    heap, place, stack, listed = s.heap, s.heap_place, s.stack, s.listed
    tails, heads, flow, capacities, costs = s.tails, s.heads, s.flow, s.capacities, s.costs
    counters, price, exits, slack, slack_of = s.counters, s.price, s.exits, s.slack, s.slack_of
    pool, pool_cost, here, paid = s.pool, s.pool_cost, s.here, s.paid
    hubs = len(price)
    _begin(counters)
    stamp = counters[STAMP]
    bound = FAR
    now = -1
    _label(seen, distance, via, link, heap, place, stack, counters, start, 0, -1, -1, now)
    while counters[STACK] > 0 or counters[HEAP] > 0:
        if bound <= now:
            break
        if counters[STACK] > 0:
            counters[STACK] -= 1
            u = stack[counters[STACK]]
        else:
            u = _take_first(heap, place, distance, counters)
        if done[u] == stamp:
            continue
        if distance[u] >= bound:
            break
        now = distance[u]
        done[u] = stamp
        if u >= hubs:
            u -= hubs
            low = FAR
            reach = distance[u] + price[u]
            for i in range(s.wish_start[u], s.wish_start[u] + s.wish_count[u]):
                counters[SCANNED] += 1
                slot = pool[i]
                t = slot >> SHIFT
                v = here[t]
                if v < 0 or v == u:
                    continue
                step = pool_cost[i] - paid[t] - price[v]
                low = min(low, step)
                far = reach + step
                if v == sink:
                    if far < bound:
                        bound, via[sink], link[sink] = far, slot, u
                elif far < bound and (seen[v] != stamp or far < distance[v]):
                    _label(seen, distance, via, link, heap, place, stack, counters, v, far, slot, u, now)
                    a2 = exits[v]
                    if a2 >= 0 and flow[a2] > 0 and far - costs[a2] + price[v] < bound:
                        bound, via[sink], link[sink] = far - costs[a2] + price[v], -2 - 2 * a2, v
            if bound > now:
                slack[u] = low
                slack_of[u] = counters[RUN]
            continue
        listed[counters[LISTED]] = u
        counters[LISTED] += 1
        if s.wish_count[u] > 0:
            far = now
            if slack_of[u] == counters[RUN]:
                far += max(0, slack[u] + price[u])
            if far < bound:
                _label(seen, distance, via, link, heap, place, stack, counters, u + hubs, far, -1, u, now)
        for i in range(s.out_start[u], s.out_start[u + 1]):
            a = s.out_arcs[i]
            if flow[a] > 0:
                v = heads[a]
                far = now - costs[a] + price[u] - price[v]
                if v == sink:
                    if far < bound:
                        bound, via[sink], link[sink] = far, -2 - 2 * a, u
                elif far < bound and (seen[v] != stamp or far < distance[v]):
                    _label(seen, distance, via, link, heap, place, stack, counters, v, far, -2 - 2 * a, u, now)
                    a2 = exits[v]
                    if a2 >= 0 and flow[a2] > 0 and far - costs[a2] + price[v] < bound:
                        bound, via[sink], link[sink] = far - costs[a2] + price[v], -2 - 2 * a2, v
        for i in range(s.in_start[u], s.in_start[u + 1]):
            a = s.in_arcs[i]
            if flow[a] < capacities[a]:
                v = tails[a]
                far = now + costs[a] + price[u] - price[v]
                if v == sink:
                    if far < bound:
                        bound, via[sink], link[sink] = far, -1 - 2 * a, u
                elif far < bound and (seen[v] != stamp or far < distance[v]):
                    _label(seen, distance, via, link, heap, place, stack, counters, v, far, -1 - 2 * a, u, now)
                    a2 = exits[v]
                    if a2 >= 0 and flow[a2] > 0 and far - costs[a2] + price[v] < bound:
                        bound, via[sink], link[sink] = far - costs[a2] + price[v], -2 - 2 * a2, v
    counters[SCANNED] += counters[LISTED]
    if bound >= FAR:
        return -1
    for i in range(counters[LISTED]):
        u = listed[i]
        if distance[u] < bound:
            price[u] -= bound - distance[u]
    node = sink
    while node != start:
        how = via[node]
        if how >= 0:
            t = how >> SHIFT
            was = paid[t]
            _leave_hub(s, t)
            _enter_hub(s, t, how & _COLUMN)
            if slack_of[node] == counters[RUN]:  # a task that has left a hub may come back
                slack[node] = min(slack[node], was - paid[t] - price[here[t]])
        else:
            arc = (-1 - how) >> 1
            flow[arc] += 1 - 2 * ((-1 - how) & 1)
        node = link[node]
    return 0


@borrowing
def note_wishes(s: Arrays, tasks: IntArray, sink: int) -> int:
    """List new tasks' choices under their hubs; -1 when the pool is too small (the caller packs it anew)."""
    width = s.hub.shape[1]
    for i in range(len(tasks)):
        t = tasks[i]
        for j in range(width):
            h = s.hub[t, j]
            if h < 0:
                break
            if h == sink:
                continue  # nothing is ever sought backwards from the sink
            if s.wish_count[h] == s.wish_room[h]:
                room = 2 * s.wish_room[h] + 8
                begin = s.counters[POOL_END]
                if begin + room > len(s.pool):
                    return -1
                old = s.wish_start[h]
                for k in range(s.wish_count[h]):
                    slot = s.pool[old + k]
                    s.pool[begin + k] = slot
                    s.pool_cost[begin + k] = s.pool_cost[old + k]
                    s.wish_place[slot >> SHIFT, slot & _COLUMN] = begin + k
                s.wish_start[h] = begin
                s.wish_room[h] = room
                s.counters[POOL_END] = begin + room
            place = s.wish_start[h] + s.wish_count[h]
            s.pool[place] = t << SHIFT | j
            s.pool_cost[place] = s.cost[t, j]
            s.wish_place[t, j] = place
            s.wish_count[h] += 1
    return 0


@borrowing
def take_out(s: Arrays, tasks: IntArray, sink: int) -> None:
    """Remove tasks with their choices; the hubs where their units were lack them."""
    width = s.hub.shape[1]
    for i in range(len(tasks)):
        t = tasks[i]
        if s.at[t] >= 0:
            if s.here[t] != sink:
                s.lack[s.here[t]] += 1
            _leave_hub(s, t)
        for j in range(width):
            h = s.hub[t, j]
            if h < 0:
                break
            s.hub[t, j] = -1
            if h == sink:
                continue
            place = s.wish_place[t, j]
            last = s.wish_start[h] + s.wish_count[h] - 1
            slot = s.pool[last]
            s.pool[place] = slot
            s.pool_cost[place] = s.pool_cost[last]
            s.wish_place[slot >> SHIFT, slot & _COLUMN] = place
            s.wish_count[h] -= 1


@borrowing
def fill(s: Arrays, lacking: IntArray, sink: int, budget: int) -> int:
    """Bring hubs the units that they lack.

    Number of hubs done: fewer than asked when the budget of scanned tasks and hubs is spent, or -1 when there is no way.
    """
    s.counters[RUN] += 1
    for i in range(len(lacking)):
        h = lacking[i]
        while s.lack[h] > 0:
            if _backward(s, h, sink) < 0:
                return -1
            s.lack[h] -= 1
            if s.counters[SCANNED] > budget:
                return i
    return len(lacking)


@borrowing
def place(s: Arrays, tasks: IntArray, sink: int, budget: int) -> int:
    """Bring each new task's unit to the sink; the answer is as that of ``fill``."""
    s.counters[RUN] += 1
    for i in range(len(tasks)):
        if _forward(s, tasks[i], -1, sink) < 0:
            return -1
        if s.counters[SCANNED] > budget:
            return i + 1
    return len(tasks)


@borrowing
def drain(s: Arrays, crowded: IntArray, sink: int, budget: int) -> int:
    """Bring a unit too many from each hub to the sink; the answer is as that of ``fill``."""
    s.counters[RUN] += 1
    for i in range(len(crowded)):
        if crowded[i] != sink and _forward(s, -1, crowded[i], sink) < 0:
            return -1
        if s.counters[SCANNED] > budget:
            return i + 1
    return len(crowded)


@borrowing
def lift(s: Arrays, tasks: IntArray, sink: int) -> None:
    """Take up the units of tasks that a change of their costs has made unhappy; their hubs lack them then."""
    for i in range(len(tasks)):
        t = tasks[i]
        h = s.here[t]
        if h < 0:
            continue
        paid = s.paid[t] + s.price[h]
        for j in range(s.hub.shape[1]):
            v = s.hub[t, j]
            if v < 0:
                break
            if s.cost[t, j] + s.price[v] < paid:
                _leave_hub(s, t)
                if h != sink:
                    s.lack[h] += 1
                break


@borrowing
def seat(s: Arrays, tasks: IntArray, choices: IntArray) -> None:
    """Put tasks' units where a flow from elsewhere has them."""
    for i in range(len(tasks)):
        _enter_hub(s, tasks[i], choices[i])


@borrowing
def refine(s: Arrays, sink: int, sweeps: int) -> int:
    """Lower prices until no residual arc has a negative reduced cost (Bellman-Ford in sweeps of changing direction);
    the number of sweeps, or -1 if that many did not do: then the flow is not optimal.
    """
    hubs = len(s.price)
    width = s.hub.shape[1]
    for sweep in range(sweeps):
        changed = False
        for step in range(hubs):
            u = step if sweep % 2 == 0 else hubs - 1 - step
            low = s.price[u]
            for i in range(s.out_start[u], s.out_start[u + 1]):
                a = s.out_arcs[i]
                if s.flow[a] < s.capacities[a]:
                    low = min(low, s.costs[a] + s.price[s.heads[a]])
            for i in range(s.in_start[u], s.in_start[u + 1]):
                a = s.in_arcs[i]
                if s.flow[a] > 0:
                    low = min(low, s.price[s.tails[a]] - s.costs[a])
            t = s.first[u]
            while t >= 0:
                paid = s.paid[t]
                for j in range(width):
                    v = s.hub[t, j]
                    if v < 0:
                        break
                    low = min(low, s.cost[t, j] - paid + s.price[v])
                t = s.after[t]
            if low < s.price[u]:
                s.price[u] = low
                changed = True
        if not changed:
            level = s.price[sink]
            for u in range(hubs):
                s.price[u] -= level
            return sweep + 1
    return -1
