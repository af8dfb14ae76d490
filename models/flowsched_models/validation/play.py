"""A measured run played in the model: every job at its measured start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.catalogue import Catalogue
from flowsched_models.cell import Floats
from flowsched_models.execution import Execution
from flowsched_models.lookahead import Entry, Lookahead, LookaheadResult
from flowsched_models.measurements.machine_run import MachineRun, machine_runs
from flowsched_models.measurements.measurements import MeasuredExecution, Run
from flowsched_models.runtime import Host, HostFactory, ServiceLoad
from flowsched_models.uncertainty import job_factors, machine_factors

DRAWS = 400
_SEED = 0
_ANY = 1e9
"""What tasks may request: a run that was measured has had its room."""

Segment = tuple[float, float, tuple[float, ...]]
"""From, to, and the p95 of every service of a machine in between."""


@dataclass(frozen=True)
class PlayedMachine:
    """One machine of a run; times on the clock of the run."""

    machine: MachineRun
    ends_s: Floats
    """[executions]"""
    drawn_ends_s: Floats
    """[draws, executions]; no draws for a model that is only compared with."""

    def durations(self) -> Iterator[tuple[MeasuredExecution, float, Floats]]:
        """Every execution, its duration in the model, and the drawn ones."""
        for i, execution in enumerate(self.machine.executions):
            drawn = self.drawn_ends_s[:, i] - execution.start_s
            yield execution, float(self.ends_s[i]) - execution.start_s, drawn


class Player:
    """Plays runs with one catalogue. With ``shared`` False every job is played alone on the machine."""

    def __init__(
        self, catalogue: Catalogue, clients: Mapping[str, str], draws: int = DRAWS, *, shared: bool = True
    ) -> None:
        """``clients``: the load client of every service profile. ``draws`` may be 0."""
        self.catalogue = catalogue
        self._clients = clients
        self._draws = draws
        self._shared = shared
        self._hosts = HostFactory(catalogue)

    def machines(self, run: Run) -> Iterator[PlayedMachine]:
        """The machines of a run that executed jobs, by name."""
        for machine in machine_runs(run, self.catalogue):
            machine = replace(machine, services=self.loads(machine.services))
            factors = self._factors(run, machine)
            ends = self._ends(machine, factors) + machine.first_start_s
            yield PlayedMachine(machine, ends[0], ends[1:])

    def loads(self, services: Sequence[ServiceLoad]) -> tuple[ServiceLoad, ...]:
        """The services with the clients that were chosen."""
        return tuple(replace(load, client=self._clients[load.profile]) for load in services)

    def latency(
        self, machine_type: str, loads: Sequence[ServiceLoad], machine: MachineRun | None
    ) -> Callable[[float, float], tuple[float, ...]]:
        """Time-weighted p95 of every service of a machine, as a function of a span on the clock of the run.

        ``machine``: its jobs; None where there are none.
        """
        host = self._hosts.host(machine_type, loads)
        alone = host.rates(()).p95_us
        segments = [] if machine is None or not self._shared else _segments(host, machine)

        def p95_us(start_s: float, end_s: float) -> tuple[float, ...]:
            weighted = [0.0] * len(alone)
            left_s = end_s - start_s
            for begin_s, stop_s, values in segments:
                step = min(end_s, stop_s) - max(start_s, begin_s)
                if step > 0.0:
                    left_s -= step
                    weighted = [w + step * value for w, value in zip(weighted, values, strict=True)]
            return tuple(
                (w + max(0.0, left_s) * value) / (end_s - start_s) for w, value in zip(weighted, alone, strict=True)
            )

        return p95_us

    def _factors(self, run: Run, machine: MachineRun) -> Floats:
        """[1 + draws, executions]: first as the profiles say. Draws depend on the names in the run only."""
        columns = []
        of_machine = machine_factors(
            self.catalogue, f"{run.name}/{machine.node}", machine.machine_type, _SEED, self._draws
        )
        for i, execution in enumerate(machine.executions):
            name = f"{run.name}/{machine.node}/{execution.job}/{i}"
            own = job_factors(self.catalogue, name, execution.job, _SEED, self._draws)
            columns.append(np.concatenate([[1.0], own * of_machine]))
        return np.stack(columns, axis=1)

    def _ends(self, machine: MachineRun, factors: Floats) -> Floats:
        """[draws, executions] seconds from the first start on this machine."""
        if self._shared:
            return self._run(machine.machine_type, machine.services, machine.entries, factors).ends_s
        alone = [
            self._run(machine.machine_type, (), (entry,), factors[:, [i]]).ends_s
            for i, entry in enumerate(machine.entries)
        ]
        return np.concatenate(alone, axis=1)

    def _run(
        self, machine_type: str, services: Sequence[ServiceLoad], entries: Sequence[Entry], factors: Floats
    ) -> LookaheadResult:
        host = self._hosts.host(machine_type, services)
        return Lookahead(host, _ANY, _ANY, 0.0).run(entries, factors)


def _segments(host: Host, machine: MachineRun) -> list[Segment]:
    """p95 from event to event, on the clock of the run; before the first and after the last the service is alone."""
    motion: Execution[int] = Execution(host)
    for i, e in enumerate(machine.entries):
        motion.start(i, e)
    segments = []
    while (until := motion.next_event_s()) < float("inf"):
        begin, p95 = motion.now_s, motion.p95_us
        motion.advance(until)
        segments.append((machine.first_start_s + begin, machine.first_start_s + until, p95))
    return segments
