"""Plots of scores and of parameters: measured against predicted, residuals, coverage, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowsched_models.calibration.figure import (
    FAINT,
    INK,
    SOFT,
    label,
    panels,
    plain_log_axis,
    plain_number,
    styles,
    svg,
)
from flowsched_models.cell import Floats
from flowsched_models.uncertainty import INNER, OUTER, inside
from flowsched_models.validation.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BANDS = (0.10, 0.25)
"""Errors that lines are drawn for."""
_RATIOS = (0.4, 0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5)
_FEWEST_FOR_BOX = 5
"""Fewer values are drawn as points."""
_ROW_IN = 0.19
"""Height of one line of a plot with names, in inches."""


def against_plot(sides: Sequence[tuple[str, Sequence[Score]]], unit: str) -> bytes:
    """Measured (x) against predicted (y) on logarithmic axes, a panel for every side; a marker for every job or service."""
    names = sorted({s.subject for _, scores in sides for s in scores})
    every = [v for _, scores in sides for s in scores for v in (s.measured, s.predicted)]
    low, high = min(every) / 1.15, max(every) * 1.15

    def draw(figure: Figure) -> None:
        handles, bands = {}, {}
        for axes, (title, scores) in zip(panels(figure, len(sides), len(sides)), sides, strict=True):
            axes.set_title(title)
            line = np.array([low, high])
            axes.plot(line, line, color=INK, linewidth=0.9)
            for band, dash in zip(BANDS, ("--", ":"), strict=True):
                for factor in (1.0 + band, 1.0 - band):
                    drawn = axes.plot(line, line * factor, color=SOFT, linewidth=0.9, linestyle=dash)
                bands[f"{100.0 * band:.0f} % either way"] = drawn[0]
            for name, (marker, _, colour) in zip(names, styles(len(names)), strict=True):
                own = [s for s in scores if s.subject == name]
                (handles[name],) = axes.plot(
                    [s.measured for s in own],
                    [s.predicted for s in own],
                    marker,
                    markersize=4.2,
                    markerfacecolor="none",
                    markeredgewidth=0.9,
                    color=colour,
                )
            axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
            axes.set_xlabel(f"measured, {unit}")
            axes.set_ylabel(f"predicted, {unit}")
            plain_log_axis(axes, "x")
            plain_log_axis(axes, "y")
        shown = {**{label(n): h for n, h in handles.items() if n}, **bands}
        figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=min(5, len(shown)))

    return svg(draw, 4.2 * max(len(sides), 1) + 0.4, 5.1 + 0.2 * (len(names) // 5))


@dataclass(frozen=True)
class Ratios:
    """Predicted over measured of one kind of scores."""

    name: str
    left_out: Sequence[float]
    in_sample: Sequence[float]


def ratio_plot(rows: Sequence[Ratios]) -> bytes:
    """Boxes of predicted over measured: hatched grey where the group was left out of the fit, white for the fit of all."""
    both = any(r.left_out for r in rows)
    values = [v for r in rows for v in (*r.left_out, *r.in_sample)]
    low, high = max(0.35, min(0.79, *values)), min(2.9, max(1.27, *values))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axvspan(0.9, 1.1, color="#eef1f4", linewidth=0)
        axes.axvline(1.0, color=INK, linewidth=0.9)
        for k, row in enumerate(rows):
            if both:
                _box(axes, np.clip(row.left_out, low, high), k - 0.19, "#b9c0c8", "////")
                _box(axes, np.clip(row.in_sample, low, high), k + 0.19, "white", "")
            else:
                _box(axes, np.clip(row.in_sample, low, high), k, "white", "")
        axes.set_yticks(range(len(rows)), [label(r.name) for r in rows])
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(low * 0.97, high * 1.03))
        axes.set_xlabel("predicted / measured; the grey stripe is 10 % either way")
        plain_log_axis(axes, "x", _RATIOS)
        axes.grid(axis="x")
        axes.set_axisbelow(True)

    return svg(draw, 7.2, 0.9 + max(2, len(rows)) * _ROW_IN * (2.1 if both else 1.5))


def _box(axes: Axes, values: Sequence[float] | Floats, at: float, fill: str, hatch: str) -> None:
    if len(values) < _FEWEST_FOR_BOX:
        axes.plot(values, [at] * len(values), "o" if hatch else "D", markersize=3.5, markerfacecolor=fill, color=INK)
        return
    axes.boxplot(
        [values],
        positions=[at],
        orientation="horizontal",
        widths=0.32,
        whis=(5, 95),
        patch_artist=True,
        boxprops={"facecolor": fill, "edgecolor": INK, "linewidth": 0.8, "hatch": hatch},
        medianprops={"color": INK, "linewidth": 2.0},
        whiskerprops={"color": INK, "linewidth": 0.8},
        capprops={"color": INK, "linewidth": 0.8},
        flierprops={"marker": ".", "markersize": 3, "markerfacecolor": SOFT, "markeredgecolor": SOFT},
        manage_ticks=False,
    )


def coverage_plot(series: Sequence[tuple[str, Sequence[float]]]) -> bytes:
    """Share of the measured values inside the model's own intervals (y) against what they promise (x); from ranks."""
    levels = np.linspace(0.0, 1.0, 41)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([0, 100], [0, 100], color=SOFT, linewidth=0.9)
        axes.annotate("as promised", (52, 49), color=SOFT, fontsize=7.5, rotation=45, rotation_mode="anchor")
        for level in (INNER, OUTER):
            axes.axvline(100.0 * level, color=FAINT, linewidth=0.8)
        for (name, ranks), (marker, dash, colour) in zip(series, styles(len(series)), strict=True):
            shares = [100.0 * sum(inside(r, level) for r in ranks) / len(ranks) for level in levels]
            axes.plot(
                100.0 * levels,
                shares,
                marker=marker,
                markevery=4,
                markersize=4,
                linestyle=dash,
                color=colour,
                label=name,
            )
        axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
        axes.set_xlabel("interval of the model, %")
        axes.set_ylabel("measured values inside it, %")
        figure.legend(loc="outside right upper")

    return svg(draw, 7.0, 4.4)


@dataclass(frozen=True)
class Bar:
    """A number with its interval, as drawn."""

    name: str
    value: float
    low: float
    high: float
    identified: bool
    assumed: float | None = None
    """What was assumed of it beforehand."""


def interval_plot(blocks: Sequence[tuple[str, Sequence[Bar], bool]]) -> bytes:
    """A panel for every block of parameters; ``log`` axes where its third entry says so.

    Dots with whiskers; hollow where the measurements say little; a tick where the assumption beforehand stood.
    """
    blocks = sorted(blocks, key=lambda b: len(b[1]))
    columns = min(3, len(blocks))
    longest = [max(len(b[1]) for b in blocks[k : k + columns]) for k in range(0, len(blocks), columns)]

    def draw(figure: Figure) -> None:
        grid = figure.add_gridspec(len(longest), columns, height_ratios=[n + 4 for n in longest])
        for k, (title, bars, log) in enumerate(blocks):
            axes = figure.add_subplot(grid[k // columns, k % columns])
            axes.set_title(title)
            for y, bar in enumerate(bars):
                if bar.assumed is not None:
                    axes.plot([bar.assumed], [y], "|", color=SOFT, markersize=8)
                axes.plot(
                    [bar.low, bar.high], [y, y], color=INK, linewidth=1.0, linestyle="-" if bar.identified else ":"
                )
                fill = INK if bar.identified else "white"
                axes.plot([bar.value], [y], "o", color=INK, markerfacecolor=fill, markersize=4)
            axes.set_yticks(range(len(bars)), [label(b.name) + ("" if b.identified else " (assumed)") for b in bars])
            axes.set_ylim(len(bars) - 0.5, -0.5)
            if log:
                plain_log_axis(axes, "x")
                _thin_ticks(axes)
            axes.grid(axis="x")
            axes.set_axisbelow(True)

    return svg(draw, 0.6 + 3.1 * columns, sum(n + 4 for n in longest) * _ROW_IN)


def _thin_ticks(axes: Axes) -> None:
    """A few round numbers, so that they do not run into each other."""
    from matplotlib.ticker import MaxNLocator

    low, high = axes.get_xlim()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1.0)
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        ticks = np.array([s * d for d in decades for s in steps if low <= s * d <= high])
        if len(ticks) > 1:
            break
    else:
        every: Floats = np.asarray(MaxNLocator(3).tick_values(low, high))
        ticks = every[(every >= low) & (every <= high)]
    axes.set_xticks(ticks, [plain_number(float(t)) for t in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)
