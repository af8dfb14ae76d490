"""flowsched: cluster scheduling by min-cost flow, priced by measured performance models.

``load_snapshot`` and ``solve`` are one round from Python; ``flowsched_simulator`` has ``load_scenario`` and ``simulate``.
What ``__all__`` names is the public interface; every other module of the package is private and may change without notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowsched.cluster.decision import Certificate, Decisions, Placement, Postponement
    from flowsched.cluster.settings import Settings
    from flowsched.cluster.snapshot import Snapshot
    from flowsched.errors import InputError
    from flowsched.records.record_file import load_record, write_record
    from flowsched.records.record_types import Record
    from flowsched.records.snapshot_source import load_snapshot
    from flowsched.round.scheduler import FlowScheduler, solve
else:
    # The engine takes a second to import, and every command imports this package: so each name when it is asked for.
    _MODULES = {
        "Certificate": "cluster.decision",
        "Decisions": "cluster.decision",
        "FlowScheduler": "round.scheduler",
        "InputError": "errors",
        "Placement": "cluster.decision",
        "Postponement": "cluster.decision",
        "Record": "records.record_types",
        "Settings": "cluster.settings",
        "Snapshot": "cluster.snapshot",
        "load_record": "records.record_file",
        "load_snapshot": "records.snapshot_source",
        "solve": "round.scheduler",
        "write_record": "records.record_file",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})


__all__ = [
    "Certificate",
    "Decisions",
    "FlowScheduler",
    "InputError",
    "Placement",
    "Postponement",
    "Record",
    "Settings",
    "Snapshot",
    "load_record",
    "load_snapshot",
    "solve",
    "write_record",
]
