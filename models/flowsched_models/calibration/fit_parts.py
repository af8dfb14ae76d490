"""The parts of a report that are about the fit: parameters, sweeps, slow-downs, latency curves, and what must be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowsched_models.calibration.calibration import Calibration
from flowsched_models.calibration.curve_plots import (
    latency_plot,
    slowdown_fitted,
    slowdown_plot,
    sweep_plot,
    sweep_points,
    threads_and_cores,
)
from flowsched_models.calibration.figure import plain_number
from flowsched_models.calibration.latency_fit import FittedLatency
from flowsched_models.calibration.latency_score import errors as latency_errors
from flowsched_models.calibration.noise_fit import FAR, SETTLED_S, SHARES, FittedNoise
from flowsched_models.calibration.parameter import Block, Scale
from flowsched_models.calibration.plots import Bar, interval_plot
from flowsched_models.calibration.report_part import Picture, ReportPart, ReportTable, percent
from flowsched_models.text_table import counted

NO_INTERVAL = "none"
PER_JOB, PER_MACHINE = "of jobs", "of machines"
_TWO_SIDES = np.array([-1.96, 1.96])


def parameters(result: Calibration) -> ReportPart:
    """Every fitted number with its interval, and how much of it was assumed."""
    fitted = result.fitted
    blocks: list[tuple[Block, list[Bar]]] = []
    at = 0
    for block in fitted.parameters.blocks:
        bars = []
        assumed = block.plain(block.mean)
        for k, key in enumerate(block.keys):
            value, low, high = fitted.interval(at)
            bars.append(Bar(key, value, low, high, fitted.identified(at), float(assumed[k])))
            at += 1
        if bars:
            blocks.append((block, bars))
    count = sum(len(bars) for _, bars in blocks)
    weak = sum(not bar.identified for _, bars in blocks for bar in bars)
    said = (
        f"{counted(count, 'number')} of the run-time model, with 95 % intervals from the curvature of the fit."
        f" {counted(weak, 'number')} of them {'is' if weak == 1 else 'are'} mostly assumed: measurements narrowed the"
        " assumption by less than 30 %. A tick marks the assumption, a hollow dot and a dotted line a number that is mostly"
        " assumed.",
    )
    pictures = []
    jobs = set(fitted.parameters.jobs)
    for name, own in (
        (PER_JOB, [(b, bars) for b, bars in blocks if set(b.keys) <= jobs]),
        (PER_MACHINE, [(b, bars) for b, bars in blocks if not set(b.keys) <= jobs]),
    ):
        if own:
            drawn = interval_plot([(b.name, bars, b.scale is Scale.LOG) for b, bars in own])
            alt = f"Fitted numbers {name} with their 95 % intervals, a panel for each kind; the tables have them too."
            pictures.append(
                Picture(f"parameters-{name.split()[-1]}", drawn, alt, f"Numbers {name}, with 95 % intervals.")
            )
    head = ("of", "value", "95 % interval", "assumed beforehand", "what decides")
    tables = [ReportTable(f"{b.name}.", head, tuple(_bar_row(bar, b) for bar in bars), (0, 4)) for b, bars in blocks]
    tables += [table for fit in result.latency.values() for table in _service_tables(fit)]
    return ReportPart("parameters", "Parameters", said, tuple(pictures), tuple(tables))


def _bar_row(bar: Bar, block: Block) -> tuple[str, ...]:
    k = block.keys.index(bar.name)
    ends = block.plain(block.mean[k] + block.deviation[k] * _TWO_SIDES)
    assumed = f"{short(bar.assumed or 0.0)} ({short(float(ends[0]))} to {short(float(ends[1]))})"
    decides = "the measurements" if bar.identified else "not identified: mostly what was assumed"
    return bar.name, short(bar.value), f"{short(bar.low)} to {short(bar.high)}", assumed, decides


def _service_tables(fit: FittedLatency) -> Iterator[ReportTable]:
    rows = tuple(
        (
            p.name,
            short(p.value),
            f"{short(p.low)} to {short(p.high)}" if 0.0 < p.high < float("inf") else NO_INTERVAL,
            p.source,
            "yes" if p.identified else "no: assumed" if p.source == "default" else "not identified",
        )
        for p in fit.parameters
    )
    if rows:
        head = ("number", "value", "95 % interval", "fitted to", "identified")
        yield ReportTable(f"{fit.service}.", head, rows, (0, 3, 4))


def sweeps(result: Calibration) -> ReportPart:
    """Every job alone on 1, 2, 4, … threads."""
    heading = "Thread sweeps"
    points = sweep_points(result.fitted, result.observed)
    if not points:
        return ReportPart(
            "sweeps", heading, ("No thread sweep was measured: how jobs scale comes from the runs alone.",)
        )
    rows = tuple(
        (
            p.job,
            p.machine_type,
            str(p.cores),
            str(p.sweep.threads),
            str(len(p.sweep.real_s)),
            f"{p.measured_s:.1f}",
            f"{p.fitted_s:.1f}",
            f"{100.0 * (p.fitted_s / p.measured_s - 1.0):+.1f}",
        )
        for p in points
    )
    head = ("job", "type of machine", "cores", "threads", "groups", "measured, s", "fitted, s", "error, %")
    table = ReportTable("Each job alone: median over groups, and the fit.", head, rows, (0, 1))
    alt = "Seconds against threads, a panel for every job: groups, their medians and the fitted curve; see the table."
    caption = "Small points: groups. Markers: their medians. Lines: the fit."
    picture = Picture("sweeps", sweep_plot(result.fitted, result.observed), alt, caption)
    return ReportPart("sweeps", heading, (), (picture,), (table,))


def slowdowns(result: Calibration) -> ReportPart:
    """Every job beside an aggressor on the last-level cache."""
    heading = "Slow-down beside an aggressor"
    rows = result.observed.slowdowns
    if not rows:
        return ReportPart(
            "slowdowns", heading, ("No job was measured beside an aggressor: how much jobs feel is assumed.",)
        )
    table = ReportTable(
        "Time beside an aggressor on the last-level cache, relative to alone.",
        ("job", "groups", "measured, median", "least", "most", "fitted"),
        tuple(
            (
                result.observed.jobs[row.job],
                str(len(row.ratio)),
                f"{row.median() or 0.0:.3f}",
                f"{min(row.ratio.values()):.3f}",
                f"{max(row.ratio.values()):.3f}",
                f"{slowdown_fitted(result.fitted, row):.3f}",
            )
            for row in rows
        ),
    )
    alt = "Slow-down of every job beside an aggressor: groups, their median and what was fitted; see the table."
    caption = "Circles: groups. Upright bar: their median. Diamond: what was fitted."
    picture = Picture("slowdowns", slowdown_plot(result.fitted, result.observed), alt, caption)
    return ReportPart("slowdowns", heading, (), (picture,), (table,))


def latency(result: Calibration) -> ReportPart:
    """p95 of services against load, and beside aggressors."""
    heading = "p95 of services"
    if not result.latency:
        return ReportPart(
            "latency", heading, ("No latency sweep was measured: services keep the profiles that they had.",)
        )
    pictures: list[Picture] = []
    tables: list[ReportTable] = []
    for name, fit in result.latency.items():
        alt = f"p95 of {name} against load, a panel for each number of threads and cores; see the table."
        caption = f"{name}: circles are readings of groups, lines the curves; their logarithmic axis is p95."
        if fit.cohorts:
            caption += f" The curve of {fit.reference or 'the reference'} is fitted, the others differ by two factors."
        pictures.append(Picture(f"latency-{name}", latency_plot(fit), alt, caption))
        tables += _latency_tables(name, fit)
    return ReportPart("latency", heading, (), tuple(pictures), tuple(tables))


def _latency_tables(name: str, fit: FittedLatency) -> Iterator[ReportTable]:
    rows = []
    for curve in fit.profile.curves:
        size = (curve.threads, curve.cores)
        inside = latency_errors(s for s in fit.fitted if s.size == size)
        out = [s for s in fit.scores if s.part == "sweep" and s.size == size]
        blind = latency_errors(out) if out else None
        rows.append(
            (
                threads_and_cores(*size),
                f"{inside.count:,}",
                f"{curve.qcap:,.0f}",
                percent(inside.median),
                percent(blind.median if blind else None),
                percent(blind.p90 if blind else None),
                percent(blind.calibrated_median if blind else None),
            )
        )
    head = (
        "size",
        "readings",
        "capacity, queries/s",
        "all groups: median error, %",
        "left out: median, %",
        "90th percentile, %",
        "left out, with one factor: median, %",
    )
    yield ReportTable(f"Sweeps of {name}: errors of p95.", head, tuple(rows))
    yield from interval_tables(name, fit)
    if fit.aggressors:
        yield ReportTable(
            f"p95 of {name} beside aggressors, relative to none.",
            ("aggressor", "type of machine", "factor", "95 % interval", "groups"),
            tuple(
                (
                    a.kind,
                    a.machine_type,
                    f"{a.p95.value:.2f}",
                    f"{a.p95.low:.2f} to {a.p95.high:.2f}" if a.p95.high < float("inf") else NO_INTERVAL,
                    str(a.p95.groups),
                )
                for a in fit.aggressors
            ),
            (0, 1),
        )


def interval_tables(name: str, fit: FittedLatency) -> Iterator[ReportTable]:
    """Runs under a changing load: errors by group and size, and the scatter by length of the interval."""
    keys = sorted({(s.part, s.group, s.size) for s in fit.interval_scores})
    rows = []
    for part, group, size in keys:
        found = latency_errors(s for s in fit.interval_scores if (s.part, s.group, s.size) == (part, group, size))
        beside = "jobs of the lowest weight" if part == "behind" else "no job"
        numbers = percent(found.median), percent(found.p90), percent(found.calibrated_median)
        rows.append((group, threads_and_cores(*size), beside, f"{found.count:,}", *numbers))
    head = ("group", "size", "on its cores", "intervals", "median error, %", "90th percentile, %", "with one factor, %")
    if rows:
        caption = f"{name} in runs under a changing load: errors of p95 with the load client of the other groups."
        yield ReportTable(caption, head, tuple(rows), (0, 1, 2))
    if fit.noise:
        yield _noise_table(name, fit.noise)


def _noise_table(name: str, noise: Sequence[FittedNoise]) -> ReportTable:
    """Fitted mixtures, and beside each quantile of theirs the one that was measured."""
    rows = tuple(
        (
            f"{n.noise.window_s:g}",
            f"{n.windows:,}",
            f"{n.groups}",
            f"{n.unsettled:,}",
            f"{n.noise.error:.3f}",
            percent(100.0 * n.noise.stalls),
            f"{n.noise.stall:.3f}",
            *(f"{n.noise.quantile(share):.2f} / {n.measured[share]:.2f}" for share in SHARES),
            f"{100.0 * n.noise.share_above(FAR):.2f} / {100.0 * n.far:.2f}",
        )
        for n in noise
    )
    columns = ("length, s", "intervals", "groups", "left out", "error", "with a stall, %", "growth by a stall")
    within = tuple(f"{100.0 * share:g} % within" for share in SHARES)
    caption = (
        f"{name}: scatter of p95 between intervals of one load, in logarithms; factors that so many stay within and share"
        f" beyond {FAR:g}, fitted / measured. Left out: less than {SETTLED_S:g} s from a change on its cores."
    )
    return ReportTable(caption, (*columns, *within, f"beyond {FAR:g}, %"), rows)


def notes(result: Calibration) -> Iterator[ReportPart]:
    """Warnings, assumptions, and what the reader found."""
    said = ("Nothing is to be warned of.",)
    yield ReportPart("warnings", "Warnings", () if result.warnings else said, items=result.warnings)
    said = ("Nothing had to be assumed.",)
    yield ReportPart("assumed", "Assumed", () if result.defaults else said, items=result.defaults)
    if not result.findings:
        yield ReportPart("findings", "Found in the measurements", ("The reader found nothing suspicious.",))
        return
    rows = tuple((str(f.where), f.text, f.consequence) for f in result.findings)
    table = ReportTable("By file, row (the header is row 1) and column.", ("where", "what", "done"), rows, (0, 1, 2))
    yield ReportPart("findings", "Found in the measurements", tables=(table,))


def short(value: float) -> str:
    """Three significant digits; next to nothing is 0."""
    if abs(value) < 1e-6:
        return "0"
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value:.2g}"
    return plain_number(float(f"{value:.3g}"))
