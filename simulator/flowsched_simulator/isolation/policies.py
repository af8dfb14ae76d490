"""The ways of isolating critical tasks, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowsched_models.document import InputError, Problem, name_help

DEADLINE, EQUAL = "deadline", "equal"
POLICIES = (DEADLINE, "shares-95", "shares-99", EQUAL)
"""Those that are compared unless others are asked for; ``shares-N`` works for every N between 0 and 100."""
SUMMARIES = {
    DEADLINE: "SCHED_DEADLINE for every critical thread, all others in the fair class",
    "shares-95": "the critical tasks in a group that has 95 % of a core beside 1024",
    "shares-99": "the same with 99 %",
    EQUAL: "no groups: every thread weighs 1024",
}
_SHARES = re.compile(r"shares-(\d{1,2}(?:\.\d{1,3})?)")


def share_of(policy: str) -> float | None:
    """The share that a ``shares-N`` gives, as a fraction; None for other names."""
    found = _SHARES.fullmatch(policy)
    share = float(found[1]) / 100.0 if found else 0.0
    return share if 0.0 < share < 1.0 else None


def check_isolation_policies(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once. Raises :class:`InputError` with all that are none."""
    InputError.raise_any(
        Problem("--policy", None, "", f"there is no way of isolating tasks called '{name}'", name_help(name, POLICIES))
        for name in names
        if name not in (DEADLINE, EQUAL) and share_of(name) is None
    )
    return tuple(dict.fromkeys(names)) or POLICIES
