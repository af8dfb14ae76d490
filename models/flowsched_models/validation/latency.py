"""Measured p95 of services during runs, beside the model's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

from flowsched_models.measurements.machine_run import MachineRun, machine_runs
from flowsched_models.measurements.measurements import LatencyWindow, Placed, Run
from flowsched_models.runtime import ServiceLoad
from flowsched_models.validation.play import Player
from flowsched_models.validation.playable import NotScored
from flowsched_models.validation.score import Quantity, Score
from flowsched_models.validation.sharing_kind import sharing_of

_DIGITS = 3
"""Loads are told apart by so many digits: one per mille of the load is far less of p95 than any error here."""


def score_windows(
    run: Run, whole: Run, windows: Sequence[LatencyWindow], player: Player, not_scored: NotScored
) -> Iterator[Score]:
    """Every window of a run. ``whole`` is the run with the machines that cannot be played.

    The model has the load of the window; neighbours move as they do under the load of the run.
    """
    machines = {m.node: m for m in machine_runs(run, player.catalogue)}
    normal = NormalDist()
    for window in windows:
        placed = [s for s in whole.services if window.service in ("", s.profile)]
        if not placed:
            not_scored["windows", "executions do not tell where their service was"] += 1
        elif len(placed) > 1:
            not_scored[
                "windows", f"several services '{placed[0].profile}' in one run: nothing tells whose they are"
            ] += 1
        elif placed[0] not in run.services:
            not_scored["windows", "their service was on a machine that cannot be played"] += 1
        elif window.t_end_s <= window.t_start_s or window.p95_us <= 0.0:
            not_scored["windows", "they have no length, or a p95 of 0"] += 1
        else:
            service = placed[0]
            machine = machines.get(service.node)
            predicted = _predicted_us(run, service, machine, window, player)
            profile = player.catalogue.services[service.profile]
            vcpus = player.catalogue.machine_types[service.machine_type].vcpus
            cores = len(service.cores) or vcpus
            error = profile.error_of(profile.curve_or_estimate(service.threads, cores))
            off = math.log(window.p95_us / predicted)
            jobs = [e for e in run.executions if e.node == service.node]
            yield Score(
                Quantity.P95,
                run.group,
                run.schedule,
                run.run,
                run.year,
                window.p95_us,
                predicted,
                service.profile,
                service.node,
                service.machine_type,
                service.cores,
                service.threads,
                window.t_start_s,
                sharing_of(service.cores, window.t_start_s, window.t_end_s, jobs, vcpus),
                rank=0.5 if abs(off) < 1e-9 else normal.cdf(off / error) if error > 0.0 else float(off > 0.0),
            )


def _predicted_us(
    run: Run, service: Placed, machine: MachineRun | None, window: LatencyWindow, player: Player
) -> float:
    services = [s for s in run.services if s.node == service.node]
    index = services.index(service)
    loads = list(player.loads(_loads(run, services, machine, player)))
    if window.qps > 0.0:
        loads[index] = replace(loads[index], qps=_rounded(window.qps))
    p95_us = player.latency(service.machine_type, tuple(loads), machine)
    return p95_us(window.t_start_s, window.t_end_s)[index]


def _loads(run: Run, services: Sequence[Placed], machine: MachineRun | None, player: Player) -> tuple[ServiceLoad, ...]:
    """The services of a machine as the model takes them, also where no job ran beside them."""
    if machine is not None:
        return machine.services
    any_job = replace(run.executions[0], node=services[0].node, machine_type=services[0].machine_type, cores=())
    (idle,) = machine_runs(replace(run, executions=(any_job,)), player.catalogue)
    return idle.services


def _rounded(qps: float) -> float:
    return float(f"{qps:.{_DIGITS}g}")


def windows_by_run(windows: Sequence[LatencyWindow]) -> Mapping[tuple[str, str, str], list[LatencyWindow]]:
    """Windows by group, schedule and run, in the order of time."""
    found: dict[tuple[str, str, str], list[LatencyWindow]] = {}
    for window in sorted(windows, key=lambda w: w.t_start_s):
        found.setdefault((window.group, window.schedule, window.run), []).append(window)
    return found
