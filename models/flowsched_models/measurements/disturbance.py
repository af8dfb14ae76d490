"""Repeats that others disturbed, as ``flowsched measure`` notes them: how many CPUs others used meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from flowsched_models.measurements.group import Group
from flowsched_models.measurements.measurements import Finding
from flowsched_models.measurements.table import Row

DISTURBED_CPUS = 0.1
"""So many CPUs of others disturb a run; ``flowsched measure`` warns from the same number on."""
COLUMN = "other_cpus"
Time = TypeVar("Time")


def undisturbed(repeats: Sequence[tuple[Row, str, Time]], group: Group) -> list[Time]:
    """The times without those that others disturbed, where a quieter repeat is there.

    ``repeats``: row, what was measured in it (rows of equal text are repeats of each other), and time. A row that does not
    say what others used counts as quiet. Where every repeat was disturbed the quietest stay, and a finding says so.
    """
    others = {row.line: row.optional_number(COLUMN, 0.0) or 0.0 for row, _, _ in repeats}
    least: dict[str, float] = {}
    for row, what, _ in repeats:
        least[what] = min(least.get(what, others[row.line]), others[row.line])
    kept = []
    told: set[str] = set()
    for row, what, time in repeats:
        used, quiet = others[row.line], least[what]
        disturbed = f"the time of {what} was disturbed: others used {used:g} CPUs"
        if used >= (DISTURBED_CPUS if quiet < DISTURBED_CPUS else quiet + DISTURBED_CPUS):
            group.leave_out(row.where(COLUMN), f"{disturbed}, and {quiet:g} in a quieter repeat")
            continue
        kept.append(time)
        if quiet >= DISTURBED_CPUS and what not in told:
            told.add(what)
            text = f"{disturbed}, and there is no quiet repeat: measure it again"
            group.findings.append(Finding(row.where(COLUMN), text, "kept", group.name))
    return kept
