"""Plots of what was fitted: thread sweeps, slow-downs beside an aggressor, p95 against load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from flowsched_models.calibration.figure import (
    FAINT,
    INK,
    PANEL_IN,
    SOFT,
    label,
    panels,
    plain_log_axis,
    plain_number,
    styles,
    svg,
)
from flowsched_models.calibration.latency_fit import FittedLatency
from flowsched_models.calibration.observation import Observations, Slowdown, ThreadSweep
from flowsched_models.calibration.runtime_fit import Fitted, sweep_duration
from flowsched_models.profile import PhaseOrder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 3


@dataclass(frozen=True)
class SweepPoint:
    """A job alone on so many threads: measured by several groups, and as fitted."""

    job: str
    machine_type: str
    cores: int
    sweep: ThreadSweep
    measured_s: float
    fitted_s: float

    @property
    def name(self) -> str:
        """Where."""
        return f"{self.machine_type}, {self.cores} cores"


def sweep_points(fitted: Fitted, observed: Observations) -> list[SweepPoint]:
    """Every point of every thread sweep, by job, place and threads."""
    found = []
    for sweep in observed.sweeps:
        measured = sweep.median_s()
        if measured is not None:
            job, kind = observed.jobs[sweep.job], observed.machine_types[sweep.kind].name
            found.append(SweepPoint(job, kind, len(sweep.cores), sweep, measured, _fitted_s(fitted, observed, sweep)))
    return sorted(found, key=lambda p: (p.job, p.machine_type, p.cores, p.sweep.threads))


def _fitted_s(fitted: Fitted, observed: Observations, sweep: ThreadSweep) -> float:
    serial_first = np.array([o is PhaseOrder.SERIAL_FIRST for o in fitted.phase_order])
    return sweep_duration(sweep, fitted.values, serial_first, observed)


def sweep_plot(fitted: Fitted, observed: Observations) -> bytes:
    """A panel per job: small points of groups, large ones their medians, and the fitted curve."""
    points = sweep_points(fitted, observed)
    jobs = sorted({p.job for p in points})
    places = sorted({p.name for p in points})

    def draw(figure: Figure) -> None:
        handles = {}
        for axes, job in zip(panels(figure, len(jobs), min(_COLUMNS, len(jobs))), jobs, strict=True):
            axes.set_title(label(job))
            for place, (marker, dash, colour) in zip(places, styles(len(places)), strict=True):
                own = [p for p in points if p.job == job and p.name == place]
                if not own:
                    continue
                for p in own:
                    times = list(p.sweep.real_s.values())
                    axes.plot([p.sweep.threads] * len(times), times, ".", color=FAINT, markersize=4, zorder=1)
                most = max(p.sweep.threads for p in own)
                threads = list(range(1, most + 1))
                curve = [_fitted_s(fitted, observed, replace(own[0].sweep, threads=t)) for t in threads]
                axes.plot(threads, curve, linestyle=dash, color=colour, linewidth=1.1, zorder=2)
                (handles[place],) = axes.plot(
                    [p.sweep.threads for p in own],
                    [p.measured_s for p in own],
                    marker,
                    linestyle=dash,
                    color=colour,
                    markerfacecolor="none",
                    markersize=5,
                    linewidth=0,
                    zorder=3,
                )
            axes.set_xlabel("threads")
            axes.set_ylabel("seconds")
            plain_log_axis(axes, "x", sorted({p.sweep.threads for p in points}))
            axes.minorticks_off()
            plain_log_axis(axes, "y")
        figure.legend(
            list(handles.values()), [label(h) for h in handles], loc="outside lower center", ncols=min(4, len(places))
        )

    return svg(draw, *_size(len(jobs)))


def slowdown_plot(fitted: Fitted, observed: Observations) -> bytes:
    """Per job: points of groups, their median as a bar across, and what was fitted as a diamond."""
    rows = observed.slowdowns

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axvline(1.0, color=FAINT)
        for y, row in enumerate(rows):
            ratios = list(row.ratio.values())
            axes.plot(ratios, [y] * len(ratios), "o", color=SOFT, markerfacecolor="none", markersize=4)
            axes.plot([row.median() or 1.0], [y], "|", color=INK, markersize=13, markeredgewidth=2)
            axes.plot([slowdown_fitted(fitted, row)], [y], "D", color="#d55e00", markersize=5)
        axes.set_yticks(range(len(rows)), [label(observed.jobs[r.job]) for r in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("time beside the aggressor / time alone")
        axes.grid(axis="x")
        axes.set_axisbelow(True)

    return svg(draw, 6.4, 0.9 + 0.3 * max(2, len(rows)))


def slowdown_fitted(fitted: Fitted, row: Slowdown) -> float:
    """Time beside one unit of pressure, relative to alone."""
    return 1.0 + float(fitted.values.sensitivity[row.job])


def latency_plot(fit: FittedLatency) -> bytes:
    """A panel per threads and cores: p95 of groups against load, and the curve of every cohort as the client sees it."""
    curves = fit.profile.curves
    cohorts: Sequence[tuple[str, tuple[float, float]]] = [(fit.reference, (1.0, 1.0)), *sorted(fit.cohorts.items())]

    def draw(figure: Figure) -> None:
        handles = {}
        for axes, curve in zip(panels(figure, len(curves), min(_COLUMNS, len(curves))), curves, strict=True):
            axes.set_title(f"{threads_and_cores(curve.threads, curve.cores)}")
            own = [s for s in fit.fitted if s.size == (curve.threads, curve.cores)]
            axes.plot(
                [s.load / 1000.0 for s in own],
                [s.measured_us / 1000.0 for s in own],
                "o",
                color=SOFT,
                markerfacecolor="none",
                markersize=3,
                markeredgewidth=0.6,
            )
            loads = np.linspace(0.0, max([s.load for s in own], default=curve.qcap), 120)
            for (cohort, (latency, capacity)), (_, dash, colour) in zip(cohorts, styles(len(cohorts)), strict=True):
                p95 = [latency * curve.measured_p95_us(float(q), capacity) / 1000.0 for q in loads]
                (handles[cohort],) = axes.plot(loads / 1000.0, p95, linestyle=dash, color=colour, linewidth=1.3)
            axes.set_xlabel("thousand queries per second")
            axes.set_ylabel("p95, ms")
            plain_log_axis(axes, "y")
        if len(cohorts) > 1:
            figure.legend(
                list(handles.values()),
                [label(h) or "no cohort" for h in handles],
                loc="outside lower center",
                ncols=min(5, len(cohorts)),
            )

    return svg(draw, *_size(len(curves)))


def threads_and_cores(threads: int, cores: int) -> str:
    """``2 threads on 1 core``."""
    return f"{plain_number(threads)} thread{'s' * (threads != 1)} on {plain_number(cores)} core{'s' * (cores != 1)}"


def _size(count: int) -> tuple[float, float]:
    columns = max(1, min(_COLUMNS, count))
    return max(4.0, columns * PANEL_IN[0]), -(-count // columns) * PANEL_IN[1] + 0.3
