"""flowsched: cluster scheduling by min-cost flow, priced by measured performance models.

``load_snapshot`` and ``solve`` are one round from Python; ``flowsched_simulator`` has ``load_scenario`` and ``simulate``.
"""

from __future__ import annotations

from flowsched.decision import Certificate, Decisions, Placement, Postponement
from flowsched.record_file import load_record, write_record
from flowsched.round import FlowScheduler, solve
from flowsched.settings import Settings
from flowsched.snapshot import Snapshot
from flowsched.snapshot_file import load_snapshot

__all__ = [
    "Certificate",
    "Decisions",
    "FlowScheduler",
    "Placement",
    "Postponement",
    "Settings",
    "Snapshot",
    "load_record",
    "load_snapshot",
    "solve",
    "write_record",
]
