"""What the pods of a group that start together carry of that, so that a later leader can tell a start that never ended.

Bindings are sent one by one, and the scheduler may end between two of them. A pod that is on its node says with how many
the group was to run, and names the pods that came after it in the ring of those that were to start with it. If one of these
still waits, it never ran: a pod that was bound once is never unbound. The replacement of a pod that failed is named nowhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flowsched_k8s.names import PLACEMENT
from flowsched_k8s.objects import Pod

_NAMED = 8
"""Pods that each one names: where the ones that it names first are gone, others tell."""


@dataclass(frozen=True)
class GangStart:
    """One pod of several that start together."""

    pods: int
    """Pods that the group has once all of them have started: those on nodes before, and those that have succeeded, too."""
    minimum: int
    """How many of these the group needs, as it was then."""
    others: tuple[str, ...] = ()
    """Digests of uids."""


class _Start(msgspec.Struct):
    pods: int
    minimum: int
    others: list[str] = msgspec.field(name="with", default_factory=list)


class _Note(msgspec.Struct):
    round: int
    start: _Start | None = None


def gang_starts(uids: Sequence[str], pods: int, minimum: int) -> dict[str, GangStart]:
    """For each of some pods that start together, what it carries."""
    ring = sorted(uids)
    digests = [digest(uid) for uid in ring]
    twice = digests + digests
    named = min(_NAMED, len(ring) - 1)
    return {uid: GangStart(pods, minimum, tuple(twice[i + 1 : i + 1 + named])) for i, uid in enumerate(ring)}


def digest(uid: str) -> str:
    """Short enough that several fit into an annotation."""
    return hashlib.blake2b(uid.encode(), digest_size=4).hexdigest()


def read_start(pod: Pod) -> tuple[int, GangStart] | None:
    """The round that a pod was started in, and with which others; None for a pod whose note does not tell."""
    try:
        note = msgspec.json.decode((pod.metadata.annotations or {}).get(PLACEMENT, ""), type=_Note)
    except (msgspec.DecodeError, UnicodeError):
        return None
    start = note.start
    return None if start is None else (note.round, GangStart(start.pods, start.minimum, tuple(start.others)))
