"""How tasks relate through the domains they are placed in: limits, apart, spread, together.

A *domain* is a value of a machine label (a zone, a rack) or the machine itself. A task *holds* a relation that it demands
and *joins* one that counts it; a limit of web servers per zone is held and joined by all of them, while a task that wants
to be near a cache holds a relation that only caches join.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MACHINE = "machine"
"""The key of relations whose domains are single machines."""


class RelationKind(StrEnum):
    """What a relation demands."""

    LIMIT = "limit"
    """At most ``most`` of the tasks that join in any domain. Machines without the label are no domain and unlimited."""
    APART = "apart"
    """No holder in a domain with a task that joins, itself left out; it binds both, whichever comes first."""
    SPREAD = "spread"
    """A holder joins only where the domain would exceed the least filled eligible domain by at most ``skew``. Machines
    without the label take no holder."""
    TOGETHER = "together"
    """A holder goes only where a task that joins is; the first of a set that joins what it holds may go to any domain.
    Machines without the label take no holder."""
    COUNT = "count"
    """Demands nothing: members are counted by domain, for prices."""


@dataclass(frozen=True)
class Relation:
    """One relation between tasks. Its name identifies it: equal names mean equal relations."""

    name: str
    kind: RelationKind
    key: str = MACHINE
    """The machine label whose values are the domains, or ``machine``."""
    most: int = 1
    """For limits."""
    skew: int = 1
    """For spreads."""
    min_domains: int = 0
    """For spreads: with fewer eligible domains, the least filled one counts as empty."""


Role = tuple[str, bool, bool]
"""A relation by name, whether a task holds it, and whether it joins it."""


def roles_of(holds: tuple[str, ...], joins: tuple[str, ...]) -> tuple[Role, ...]:
    """The relations of a task, each once."""
    held, joined = set(holds), set(joins)
    return tuple((name, name in held, name in joined) for name in dict.fromkeys((*holds, *joins)))


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that are placed all or none: at least ``minimum`` of them run, or none starts."""

    name: str
    minimum: int
    deadline_s: float | None = None
    """When it gives up, in the snapshot's seconds; until then its tasks wait together."""
