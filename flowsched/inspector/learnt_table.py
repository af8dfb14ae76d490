"""What completions had taught before a round, as a table: ``flowsched inspect --learnt``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from flowsched.cluster.snapshot_dump import plain_learnt_run_times
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.wording import count_text
from flowsched.records.snapshot_types import RecordedSnapshot
from flowsched_models.text_table import printable, text_table

SHOWN = 40
"""Rows without ``--all``."""
NOTHING = "nothing was learnt: no task of a class had completed before this round"


def render_learnt(recorded: RecordView, everything: bool = False) -> str:
    """Classes by machine type, those with the most completions first; ``everything``: more than ``SHOWN`` too."""
    snapshot = next((part.snapshot for part in recorded.parts if part.snapshot is not None), None)
    lines = [NOTHING] if snapshot is None else list(_lines(snapshot, everything))
    return "\n".join(map(printable, lines))


def _lines(snapshot: RecordedSnapshot, everything: bool) -> Iterator[str]:
    learnt = plain_learnt_run_times(snapshot)
    if not learnt.classes:
        yield NOTHING
        return
    entries = sorted(learnt.classes, key=lambda entry: -entry.runs)
    rows = [("class", "machine type", "runs", "run time over forecast", "factor", "spread %")]
    for entry in entries if everything else entries[:SHOWN]:
        found = learnt.shown(entry.run_class, entry.machine_type)
        assert found is not None, "it has completions"
        ratio = math.exp(entry.log_sum / entry.runs)
        numbers = f"{entry.runs:,}", f"{ratio:.2f}", f"{found.factor:.2f}", f"{100.0 * found.spread:.0f}"
        rows.append((entry.run_class, entry.machine_type, *numbers))
    yield from text_table(rows, left=(0, 1))
    if len(rows) <= len(entries):
        yield f"and {count_text(len(entries) - len(rows) + 1)} more (--all)"
    spreads = (f"{100.0 * math.sqrt(variance):.0f} %" for variance in learnt.variances)
    yield "spread of runs within a class and type {}, of types within a class {}, of classes {}".format(*spreads)
    if not learnt.applied:
        yield "forecasts do without: learning is observed only"
