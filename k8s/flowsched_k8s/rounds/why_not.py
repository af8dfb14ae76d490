"""Why a pod has no place: what each filter says of every node, as the standard message counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowsched.support.arrays import BoolArray
from flowsched_k8s.causes import Cause, causes_of
from flowsched_k8s.names import SERVICE_GOAL, insufficient
from flowsched_k8s.notices.recorder import histogram
from flowsched_k8s.pods.affinity import reason_of
from flowsched_k8s.records.round_trace import GOAL_MISSED
from flowsched_k8s.rounds.round_input import ClassInput, Fate, Held, RoundInput
from flowsched_k8s.services.keepers import KeptRows

_NAMED = 3
"""Nodes that a message names."""


def room(given: RoundInput, c: ClassInput) -> BoolArray:
    """Nodes that pass everything for one more pod of a class."""
    machines = given.machines
    return c.allowed & machines.fits(c.needs) & machines.permits(c.holds, c.joins, c.eligible)


def held_nodes(given: RoundInput, c: ClassInput) -> tuple[str, ...]:
    """Nodes that drain for pods that have waited longer than those of a class."""
    held = given.held_nodes
    return held.nodes if held is not None and held.bar(c.uids, c.group, c.priority) else ()


def no_room(given: RoundInput, c: ClassInput, uids: tuple[str, ...], kept: BoolArray | None = None) -> Held:
    """The standard message: how many nodes each filter refuses, the first one that does, resources all of them.

    ``kept``: nodes with room where services keep them off.
    """
    machines = given.machines
    counts: dict[str, int] = {}
    more: set[Cause] = set()
    open_ = machines.alive.copy()
    total = int(open_.sum())

    def count(text: str, refused: BoolArray) -> None:
        if number := int((open_ & refused).sum()):
            counts[text] = counts.get(text, 0) + number

    for i, reason in enumerate(c.reasons[1:], 1):
        count(reason, c.verdict == i)
    open_ &= c.verdict == 0
    relations = machines.refusals(c.holds, c.joins, c.eligible)
    for refusal in sorted(relations, key=lambda r: not r.relation.name.startswith("port")):
        for missing in (True, False):
            text = reason_of(refusal.relation.name, refusal.role, missing_label=missing)
            count(text, refusal.refused & (refusal.missing_label == missing))
        open_ &= ~refusal.refused
    lacking = machines.lacking(c.needs)
    for resource, mask in lacking.items():
        count(insufficient(resource), mask)
    for mask in lacking.values():
        open_ &= ~mask
    closed = open_ & ~c.allowed
    if closed.any():
        counts[GOAL_MISSED] = int(closed.sum())
        more |= {Cause.PROFILE, Cause.RESOURCES}
    if kept is not None:
        count(SERVICE_GOAL, kept)
    message = histogram(total, counts)
    drains = [name for name in held_nodes(given, c) if (row := machines.row(name)) is not None and open_[row]]
    if drains:
        unit = "pod" if given.held_nodes is None or given.held_nodes.group is None else "group"
        message += f" {_listed(drains)} for a {unit} that has waited longer."
        more.add(Cause.RESOURCES)
    causes = causes_of(text for text in counts if text != GOAL_MISSED) | more
    return Held(uids, Fate.UNSCHEDULABLE, message, causes or frozenset({Cause.OTHER}), counts)


def _listed(nodes: Sequence[str]) -> str:
    """The nodes that drain, in words."""
    if len(nodes) == 1:
        return f"{nodes[0]} drains"
    rest = len(nodes) - _NAMED
    if rest > 0:
        return f"{', '.join(nodes[:_NAMED])} and {rest} other node(s) drain"
    return f"{', '.join(nodes[:-1])} and {nodes[-1]} drain"


def kept_off(given: RoundInput, c: ClassInput, held: Held, rows: BoolArray, kept: KeptRows) -> Held:
    """The same with the services' names, for pods that services keep off the nodes with room for them: ``rows``."""
    services = kept.named(rows)
    waits = f"It waits for {services}."
    if held.fate is not Fate.POSTPONED:
        message = f"{held.message} {waits}"
        return replace(held, message=message, behind_services=message)
    alone = no_room(given, c, held.uids, rows)
    return replace(held, message=f"{held.message}; waits for {services}", behind_services=f"{alone.message} {waits}")


def group_waits(given: RoundInput, c: ClassInput, uids: tuple[str, ...], why: str) -> Held:
    """The same for members of a group that does not start, with what the engine says of it."""
    alone = no_room(given, c, uids)
    return replace(alone, message=f"{alone.message} {why}".strip(), causes=alone.causes | {Cause.GROUP})
