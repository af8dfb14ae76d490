"""What became of a cluster's machines and tasks between two looks at its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.pending_tasks import Wait
from flowsched.cluster.snapshot import Machine, Running


class StateChanges(NamedTuple):
    """By name, what came (True) or went (False) last; what is not here is as it was."""

    machines: Mapping[str, tuple[Machine, bool]]
    waits: Mapping[str, tuple[Wait, bool]]
    running: Mapping[str, tuple[Running, bool]]


class StateMark(NamedTuple):
    """A moment of a state, as its logs have it."""

    machines: LogMark[Machine]
    waits: LogMark[Wait]
    running: LogMark[Running]

    def since(self, earlier: StateMark) -> StateChanges | None:
        """What changed after an earlier mark; None where that cannot be told, as :meth:`LogMark.since` says."""
        machines = self.machines.since(earlier.machines)
        waits, running = self.waits.since(earlier.waits), self.running.since(earlier.running)
        if machines is None or waits is None or running is None:
            return None
        return StateChanges(
            {change[0].name: change for change in machines},
            {change[0].task.name: change for change in waits},
            {change[0].task.name: change for change in running},
        )
