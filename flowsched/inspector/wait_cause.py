"""Why a task waits, and why its waiting has no bound, as ``explain`` says in its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class WaitCause(StrEnum):
    """What keeps a task waiting. Those of bulk rounds are :class:`flowsched.round.linear.reasons.Cause`."""

    NOT_ALLOWED = "not_allowed"
    """No machine that it may run on is in the cluster."""
    NEVER = "never"
    """No machine that may take it has room, whatever ends."""
    CAPACITY = "capacity"
    """No machine that may take it has room now."""
    RELATION = "relation"
    """Relations refuse it wherever there is room."""
    SERVICE = "service"
    """Wherever there is room it would break a latency goal."""
    GOAL = "goal"
    """It is a service, and would miss its own p95 goal on every machine that it may run on."""
    UTILITY = "utility"
    """Wherever there is room, it or another task would miss its minimum utility."""
    COST = "cost"
    """Every place is dearer than waiting, or than it may be."""
    HELD = "held"
    """The machines with room are reserved for tasks that come before it."""
    PROMISED = "promised"
    """The machines with room are planned for others."""
    RESERVED = "reserved"
    """A machine is reserved for it."""
    PLANNED = "planned"
    """It is planned behind a completion."""
    GROUP = "group"
    """Its task group cannot start whole."""
    FAULT = "fault"
    """The round failed on it."""
    UNKNOWN = "unknown"
    """The record does not say."""


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


def waits_with_gang(facts: Mapping[str, Any]) -> bool:
    """Whether a task waits until enough of its task group can start with it: what one machine has need not help it."""
    group, asks = facts.get("group"), facts.get("asks") or {}
    if facts["cause"] == WaitCause.GROUP:
        return True
    return facts["cause"] == WaitCause.RESERVED and bool(asks.get("group") if group is None else not group["starts"])
