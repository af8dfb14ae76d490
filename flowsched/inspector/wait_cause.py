"""Why a task waits, and why its waiting has no bound, as ``explain`` says in its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from flowsched.round.wait_reasons import WaitCause

__all__ = ["NoBound", "WaitCause", "waits_with_gang"]


class NoBound(StrEnum):
    """Why the waiting of a task has no bound."""

    INFEASIBLE = "infeasible"
    """As the machines are, it never starts."""
    RELATION = "relation"
    """A relation refuses it on every machine that could take it."""
    GROUP_EXPIRED = "group_expired"
    GROUP_INCOMPLETE = "group_incomplete"
    GROUP_NEVER = "group_never"
    """Its group never fits as a whole."""
    GROUP_UNRESERVED = "group_unreserved"
    """No machines can be reserved for the whole of its group."""
    ENDLESS = "endless"
    """Some tasks run without an end, or without a known one."""
    NOT_LOOKED_AT = "not_looked_at"
    """There may be one: at linear prices of a cost model it is not worked out."""


def waits_with_gang(facts: Mapping[str, Any]) -> bool:
    """Whether a task waits until enough of its task group can start with it: what one machine has need not help it."""
    group, asks = facts.get("group"), facts.get("asks") or {}
    if facts["cause"] == WaitCause.GROUP:
        return True
    return facts["cause"] == WaitCause.RESERVED and bool(asks.get("group") if group is None else not group["starts"])
