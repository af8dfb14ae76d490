"""The rule of each kind of relation, written once: what a domain may count when one more task enters it."""

from __future__ import annotations

from dataclasses import dataclass

from flowsched.relations.relation import Relation, RelationKind
from flowsched.support.arrays import BoolArray, IntArray

UNBOUNDED = 1 << 62
"""Above every count."""


@dataclass(frozen=True)
class EntryBounds:
    """What a domain must count before one more task of a kind enters it; the defaults refuse nothing."""

    least_members: int = 0
    most_members: int = UNBOUNDED
    most_holders: int = UNBOUNDED
    needs_label: bool = False
    """Whether machines without the relation's label are closed; if not, they are open whatever is counted."""

    def admit(self, members: int, holders: int) -> bool:
        """Whether a domain that counts so many is open."""
        return self.least_members <= members <= self.most_members and holders <= self.most_holders

    def open_domains(self, members: IntArray, holders: IntArray) -> BoolArray:
        """The same for all domains at once: [domains] each."""
        found: BoolArray = members <= self.most_members
        if self.least_members:
            found = found & (members >= self.least_members)
        return found & (holders <= self.most_holders) if self.most_holders < UNBOUNDED else found


def entry_bounds(relation: Relation, holds: bool, joins: bool, total: int, floor: int) -> EntryBounds:
    """The bounds for one more task that holds or joins a relation.

    ``total``: members in all domains, for ``together``. ``floor``: members in the least filled domain, for ``spread``; 0
    where the relation has too few domains.
    """
    match relation.kind:
        case RelationKind.LIMIT if joins:
            return EntryBounds(most_members=relation.most - 1)
        case RelationKind.APART:
            return EntryBounds(most_members=0 if holds else UNBOUNDED, most_holders=0 if joins else UNBOUNDED)
        case RelationKind.SPREAD if holds:
            return EntryBounds(most_members=relation.skew + floor - int(joins), needs_label=True)
        case RelationKind.TOGETHER if holds:
            first = joins and total == 0
            return EntryBounds(least_members=0 if first else 1, needs_label=True)
        case _:
            return EntryBounds()


def roles(relation: Relation, holds: bool, joins: bool) -> list[tuple[str, bool, bool]]:
    """As which of the two a task may be refused, ``holds`` or ``joins``, with the holds and joins to ask about.

    Only ``apart`` refuses one for another reason than the other.
    """
    if relation.kind is RelationKind.APART:
        asked = (("holds", True, False), ("joins", False, True))
        return [(role, h, j) for role, h, j in asked if (holds and h) or (joins and j)]
    return [("holds" if holds else "joins", holds, joins)]
