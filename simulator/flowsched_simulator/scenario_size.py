"""How large a scenario may be: a few lines of a file can ask for more machines and tasks than there is memory for."""

from __future__ import annotations

import os

from flowsched_models.document import InputError

MOST = 2_000_000
"""Machines and tasks together; a machine or task takes some hundred bytes, and a round of all of them minutes."""
VARIABLE = "FLOWSCHED_MOST_MACHINES_AND_TASKS"
"""In the environment: another limit. A file cannot raise it, as it may come from a stranger."""


def check_size(source: str, machines: int, tasks: int) -> None:
    """Raise :class:`InputError` for a scenario that is too large, before any of it is made."""
    most = _limit()
    if machines + tasks > most:
        message = f"has {machines:,} machines and {tasks:,} tasks, more than {most:,} together"
        raise InputError.one(source, message, f"lower copies and tasks, or set {VARIABLE} in the environment")


def _limit() -> int:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return MOST
    if not text.isascii() or not text.isdigit():
        raise InputError.one(VARIABLE, "must be a whole number of machines and tasks", f"such as {2 * MOST}")
    return int(text)
