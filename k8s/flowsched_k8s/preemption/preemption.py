"""Which pods of lower priority make room for one that fits nowhere: a plan, and nothing is done here.

Of the nodes where it helps, the one is chosen that breaks the fewest disruption budgets, then whose most important victim
matters least, then with the smallest sum of priorities, the fewest victims, and the victims that started last. On a node as
many pods as possible stay, the most important ones first.

All nodes are screened at once, over arrays; only the most promising are planned pod by pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched_k8s import names
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.notices.recorder import histogram
from flowsched_k8s.objects import Pod

SYSTEM_PRIORITY = 2_000_000_000
"""From here on up priorities are ``system-cluster-critical`` and ``system-node-critical``; users' classes end below."""
NEVER = "Never"
"""The ``preemptionPolicy`` of pods that are first in line and evict no pod."""
NOT_ELIGIBLE = "not eligible due to preemptionPolicy=Never."

_MIRROR = "kubernetes.io/config.mirror"
_KARPENTER = "karpenter.sh/do-not-disrupt"
_AUTOSCALER = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_NO_POD = np.iinfo(np.int64).min
"""Below every priority: no victim is needed."""
_UNREACHED = np.iinfo(np.int64).max
_PRIORITY_OFFSET = 2**31
"""Makes every priority count, so that a sum over fewer pods is smaller even where priorities are negative."""


def is_part_of_node(pod: Pod) -> bool:
    """Whether a node or a DaemonSet owns the pod."""
    if _MIRROR in (pod.metadata.annotations or {}):
        return True
    return any(o.controller and o.kind in ("DaemonSet", "Node") for o in pod.metadata.owner_references or ())


def is_movable(pod: Pod) -> bool:
    """Whether the pod may be taken off its node: not if a node or DaemonSet owns it, the system needs it, or it says so."""
    annotations = pod.metadata.annotations or {}
    return not (
        is_part_of_node(pod)
        or (pod.spec.priority or 0) >= SYSTEM_PRIORITY
        or annotations.get(_KARPENTER) == "true"
        or annotations.get(_AUTOSCALER) == "false"
    )


@dataclass(frozen=True)
class Occupant:
    """A pod on a node, as far as it matters whether it makes room."""

    pod: PodKey
    priority: int
    requests: Mapping[str, int]
    """What it frees; ``pods`` included."""
    started_s: float
    budgets: tuple[str, ...] = ()
    """The disruption budgets that count it."""
    movable: bool = True
    leaving: bool = False
    """It is being deleted already, so its room comes without a victim; not so where it should be gone by now."""


@dataclass(frozen=True)
class Preemptor:
    """The pod that needs room."""

    needs: Mapping[str, int]
    """``pods`` included."""
    priority: int
    policy: str = ""


@dataclass(frozen=True)
class PreemptionPlan:
    """Where the pod goes once the victims, if any, are gone."""

    node: str
    victims: tuple[PodKey, ...]
    """In the order of their importance, the most important one first."""
    violations: int = 0
    """Victims beyond what disruption budgets allow."""


_ROW = {"node": np.int64, "priority": np.int64, "movable": np.bool_, "leaving": np.bool_, "has_budget": np.bool_}
"""Columns of a table of pods."""


class Occupants:
    """Who is on which node: rows of arrays, kept up to date pod by pod in constant time."""

    def __init__(self) -> None:
        """No pods on any node."""
        self._rows: dict[PodKey, int] = {}
        self._pods: list[Occupant] = []
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._population: list[int] = []
        self._unused: list[int] = []
        self._table: dict[str, NDArray[Any]] = {column: np.zeros(64, kind) for column, kind in _ROW.items()}
        self._requests: dict[str, NDArray[np.int64]] = {}

    def __len__(self) -> int:
        """Pods on all nodes."""
        return len(self._pods)

    def put(self, occupant: Occupant, node: str) -> None:
        """A pod is on a node, or has changed there."""
        row = self._rows.get(occupant.pod)
        if row is None:
            row = self._rows[occupant.pod] = len(self._pods)
            self._pods.append(occupant)
            if row == len(self._table["node"]):
                self._table = {name: np.resize(column, 2 * row) for name, column in self._table.items()}
                self._requests = {name: np.resize(column, 2 * row) for name, column in self._requests.items()}
        else:
            self._pods[row] = occupant
            self._depart(int(self._table["node"][row]))
        values = self._arrive(node), occupant.priority, occupant.movable, occupant.leaving, bool(occupant.budgets)
        for column, value in zip(self._table.values(), values, strict=True):
            column[row] = value
        for column in self._requests.values():
            column[row] = 0
        for resource, amount in occupant.requests.items():
            if resource not in self._requests:
                self._requests[resource] = np.zeros_like(self._table["node"])
            self._requests[resource][row] = amount

    def remove(self, pod: PodKey) -> None:
        """A pod is on no node any more; the last row moves into its place."""
        row = self._rows.pop(pod, None)
        if row is None:
            return
        self._depart(int(self._table["node"][row]))
        last = len(self._pods) - 1
        moved = self._pods.pop()
        if row != last:
            self._pods[row] = moved
            self._rows[moved.pod] = row
            for column in (*self._table.values(), *self._requests.values()):
                column[row] = column[last]

    def _arrive(self, node: str) -> int:
        """The number of a node that has one pod more."""
        number = self._numbers.get(node)
        if number is None:
            if self._unused:
                number = self._unused.pop()
                self._names[number] = node
            else:
                number = len(self._names)
                self._names.append(node)
                self._population.append(0)
            self._numbers[node] = number
        self._population[number] += 1
        return number

    def _depart(self, number: int) -> None:
        """A node has one pod less; the number of an empty one is given to another."""
        self._population[number] -= 1
        if not self._population[number]:
            del self._numbers[self._names[number]]
            self._unused.append(number)

    def may_make_room(self, priority: int) -> bool:
        """Whether any pod at all leaves for one of this priority, or could be evicted for it."""
        there = {name: column[: len(self._pods)] for name, column in self._table.items()}
        return bool(((there["movable"] | there["leaving"]) & (there["priority"] < priority)).any())

    def select(self, nodes: Sequence[str], resources: Sequence[str]) -> Crowd:
        """Those on the given nodes, with what they hold of the given resources."""
        position = np.full(len(self._names), -1, dtype=np.int64)
        for place, node in enumerate(nodes):
            number = self._numbers.get(node)
            if number is not None:
                position[number] = place
        at = position[self._table["node"][: len(self._pods)]]
        rows = np.flatnonzero(at >= 0)
        none = np.zeros(len(rows), dtype=np.int64)
        requests = [self._requests[r][rows] if r in self._requests else none for r in resources]
        held = np.stack(requests, axis=1) if requests else np.zeros((len(rows), 0), dtype=np.int64)
        _, priority, movable, leaving, has_budget = (column[rows] for column in self._table.values())
        return Crowd(rows, at[rows], priority, movable, leaving, held, has_budget, self._pods)


@dataclass(frozen=True)
class Crowd:
    """The pods on some nodes, as columns: ``at`` is a node's position in what was asked for."""

    rows: NDArray[np.int64]
    at: NDArray[np.int64]
    priority: NDArray[np.int64]
    movable: NDArray[np.bool_]
    leaving: NDArray[np.bool_]
    requests: NDArray[np.int64]
    """Pods x resources."""
    has_budget: NDArray[np.bool_]
    pods: Sequence[Occupant] = field(repr=False)

    def below(self, priority: int) -> Crowd:
        """The pods of lower priority: others do not make room, whether they leave or not."""
        kept = self.priority < priority
        return Crowd(
            self.rows[kept],
            self.at[kept],
            self.priority[kept],
            self.movable[kept],
            self.leaving[kept],
            self.requests[kept],
            self.has_budget[kept],
            self.pods,
        )

    def total(self, chosen: NDArray[np.bool_], nodes: int) -> NDArray[np.int64]:
        """What the chosen pods hold, nodes x resources."""
        result = np.zeros((nodes, self.requests.shape[1]), dtype=np.int64)
        np.add.at(result, self.at[chosen], self.requests[chosen])
        return result

    def by_node(self, chosen: NDArray[np.bool_], nodes: int) -> Callable[[int], list[Occupant]]:
        """A function that gives the chosen pods of a node by its position."""
        members = np.flatnonzero(chosen)
        members = members[np.argsort(self.at[members], kind="stable")]
        ends = np.searchsorted(self.at[members], np.arange(nodes + 1))
        return lambda place: [self.pods[i] for i in self.rows[members[ends[place] : ends[place + 1]]].tolist()]


def plan_preemption(
    preemptor: Preemptor,
    nodes: Sequence[str],
    free: Mapping[str, NDArray[np.int64]],
    occupants: Occupants,
    allowed: Mapping[str, int],
    *,
    total: int,
    fits: Callable[[str, AbstractSet[PodKey]], bool] | None = None,
    closed: NDArray[np.bool_] | None = None,
    limit: int = 100,
) -> PreemptionPlan | str:
    """The best plan, or why there is none: the part of the message after "preemption:".

    ``nodes`` pass the filters that no eviction changes; ``total`` counts the others too. ``free`` has for each resource what
    is free on each of them (pods that are leaving, and pods nominated there, count as use; negative where overcommitted).
    Only pods of lower priority make room: those that leave already, and victims.
    ``allowed`` is how many more disruptions each budget allows. ``fits`` is asked for all that is not a sum, such as ports
    and anti-affinity, were the given pods gone. ``closed``: by node, whether it would refuse the pod were no pod gone. Once
    there is a plan, at most ``limit`` nodes are planned pod by pod, the most promising ones first.
    """
    if preemptor.policy == NEVER:
        return NOT_ELIGIBLE
    resources = [resource for resource, amount in preemptor.needs.items() if amount > 0]
    missing = np.zeros((len(nodes), len(resources)), dtype=np.int64)
    for column, resource in enumerate(resources):
        # A node without a resource has none of it.
        missing[:, column] = preemptor.needs[resource] - free.get(resource, 0)
    if not (nodes and occupants.may_make_room(preemptor.priority)) and not (missing <= 0).all(axis=1).any():
        reasons = {names.PREEMPTION_NOT_HELPFUL: total - len(nodes), names.NO_VICTIMS: len(nodes)}
        return histogram(total, reasons)
    crowd = occupants.select(nodes, resources).below(preemptor.priority)
    lower = crowd.movable & ~crowd.leaving
    missing -= crowd.total(crowd.leaving, len(nodes))
    enough: NDArray[np.bool_] = np.all(crowd.total(lower, len(nodes)) >= missing, axis=1)
    if closed is not None:
        occupied = np.zeros(len(nodes), dtype=np.bool_)
        occupied[crowd.at[lower | crowd.leaving]] = True
        enough &= ~closed | occupied
    bounds = _bounds(crowd, lower, missing, enough, closed, allowed)

    best: tuple[tuple[int, int, int, int, float, int], PreemptionPlan] | None = None
    refused = 0
    lower_on, leaving_on = crowd.by_node(lower, len(nodes)), crowd.by_node(crowd.leaving, len(nodes))
    for planned, (broken, highest, _, place) in enumerate(bounds):
        if best is not None and (planned >= limit or (broken, highest) > best[0][:2]):
            break
        plan = _plan_node(
            nodes[place],
            lower_on(place),
            {o.pod for o in leaving_on(place)},
            {resource: int(missing[place, r]) for r, resource in enumerate(resources)},
            allowed,
            fits,
        )
        if plan is None:
            refused += 1
        elif best is None or (*plan[0], place) < best[0]:
            best = ((*plan[0], place), plan[1])
    if best is not None:
        return best[1]
    return _explain(crowd, lower, missing, enough, resources, total, refused)


def _bounds(
    crowd: Crowd,
    lower: NDArray[np.bool_],
    missing: NDArray[np.int64],
    enough: NDArray[np.bool_],
    closed: NDArray[np.bool_] | None,
    allowed: Mapping[str, int],
) -> list[tuple[int, int, int, int]]:
    """For each node with enough: broken budgets, highest victim's priority, number of victims, all at least; and its place.

    The most promising ones first.

    Important pods stay first, so the highest victim's priority is the least level at which evicting all up to it makes
    room: a bound that is exact unless budgets interfere. Where something that is no sum refuses the pod as well, a victim
    is needed whatever is free: at least the least important one, if no pod is leaving already.
    """
    exhausted = np.zeros(len(lower), dtype=bool)
    for i in np.flatnonzero(lower & crowd.has_budget):
        exhausted[i] = any(allowed.get(budget, 0) <= 0 for budget in crowd.pods[crowd.rows[i]].budgets)
    gently = roughly = _least_level(crowd, lower, missing)
    if exhausted.any():
        gently = _least_level(crowd, lower & ~exhausted, missing)
    breaks = gently == _UNREACHED
    highest = np.where(breaks, roughly, gently)
    if closed is not None:
        least = np.full(len(missing), _UNREACHED)
        np.minimum.at(least, crowd.at[lower], crowd.priority[lower])
        least[crowd.at[crowd.leaving]] = _NO_POD
        highest = np.where(closed, np.maximum(highest, least), highest)
    largest = np.zeros_like(missing)
    np.maximum.at(largest, crowd.at[lower], crowd.requests[lower])
    short = np.maximum(missing, 0)
    fewest = (-(-short // np.maximum(largest, 1))).max(axis=1, initial=0)
    places = np.flatnonzero(enough)
    places = places[np.lexsort((places, fewest[places], highest[places], breaks[places]))]
    columns = (breaks[places].astype(np.int64), highest[places], fewest[places], places)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _least_level(crowd: Crowd, chosen: NDArray[np.bool_], missing: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each node the least priority such that the chosen pods up to it hold enough."""
    level = np.where((missing <= 0).all(axis=1), _NO_POD, _UNREACHED)
    members = np.flatnonzero(chosen)
    members = members[np.lexsort((crowd.priority[members], crowd.at[members]))]
    at = crowd.at[members]
    held = np.cumsum(crowd.requests[members], axis=0)
    first = np.searchsorted(at, np.arange(len(missing)))
    before = np.concatenate([np.zeros((1, missing.shape[1]), dtype=np.int64), held])[first]
    enough = (held - before[at] >= missing[at]).all(axis=1)
    np.minimum.at(level, at[enough], crowd.priority[members][enough])
    return level


def _plan_node(
    node: str,
    lower: Sequence[Occupant],
    leaving: AbstractSet[PodKey],
    missing: Mapping[str, int],
    allowed: Mapping[str, int],
    fits: Callable[[str, AbstractSet[PodKey]], bool] | None,
) -> tuple[tuple[int, int, int, int, float], PreemptionPlan] | None:
    """The smallest set of victims on a node and its rank, less is better; ``None`` if even all of them do not suffice."""
    important = sorted(lower, key=lambda o: (-o.priority, o.started_s, o.pod))
    gone = {o.pod for o in important}
    if fits is not None and not fits(node, gone | leaving):
        return None
    spare = {
        resource: sum(o.requests.get(resource, 0) for o in important) - amount for resource, amount in missing.items()
    }
    breaking = _breaking(important, allowed)
    # Those whose going breaks a budget are the first to stay.
    for occupant in sorted(important, key=lambda o: o.pod not in breaking):
        after = {resource: amount - occupant.requests.get(resource, 0) for resource, amount in spare.items()}
        if min(after.values(), default=0) < 0:
            continue
        if fits is not None and not fits(node, (gone - {occupant.pod}) | leaving):
            continue
        gone.discard(occupant.pod)
        spare = after
    victims = [o for o in important if o.pod in gone]
    violations = len(_breaking(victims, allowed))
    plan = PreemptionPlan(node, tuple(o.pod for o in victims), violations)
    if not victims:
        return (0, int(_NO_POD), 0, 0, float("-inf")), plan
    highest = victims[0].priority
    earliest = min(o.started_s for o in victims if o.priority == highest)
    offset_sum = sum(o.priority + _PRIORITY_OFFSET for o in victims)
    return (violations, highest, offset_sum, len(victims), -earliest), plan


def _breaking(important: Sequence[Occupant], allowed: Mapping[str, int]) -> set[PodKey]:
    """Those that go beyond what their budgets allow, if the least important ones go first."""
    left: dict[str, int] = {}
    breaking = set()
    for occupant in reversed(important):
        for budget in occupant.budgets:
            left[budget] = left.get(budget, allowed.get(budget, 0)) - 1
        if any(left[budget] < 0 for budget in occupant.budgets):
            breaking.add(occupant.pod)
    return breaking


def _explain(
    crowd: Crowd,
    lower: NDArray[np.bool_],
    missing: NDArray[np.int64],
    enough: NDArray[np.bool_],
    resources: Sequence[str],
    total: int,
    refused: int,
) -> str:
    """The histogram of why no node's pods can make room."""
    count = len(missing)
    candidates = np.zeros(count, dtype=bool)
    candidates[crowd.at[lower]] = True
    reasons = {
        names.PREEMPTION_NOT_HELPFUL: total - count + refused,
        names.NO_VICTIMS: int((~candidates & ~enough).sum()),
    }
    short = missing > crowd.total(lower, count)
    for column, resource in enumerate(resources):
        reasons[names.insufficient(resource)] = int((short[:, column] & candidates).sum())
    return histogram(total, reasons)
