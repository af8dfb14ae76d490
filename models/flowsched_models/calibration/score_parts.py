"""The parts of a report that are about scores: summary, measured against predicted, residuals, groups, coverage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flowsched_models.calibration.calibration import Calibration
from flowsched_models.calibration.latency_score import LatencyScore as LatencyScore
from flowsched_models.calibration.latency_score import errors as latency_errors
from flowsched_models.calibration.plots import BANDS, Ratios, against_plot, coverage_plot, ratio_plot
from flowsched_models.calibration.report_part import Picture, ReportPart, ReportTable, listed, percent
from flowsched_models.text_table import counted
from flowsched_models.validation.score import Errors, Quantity, Score, errors
from flowsched_models.validation.validation import Validation, lines_of

WHAT = {
    Quantity.DURATION: "run times",
    Quantity.MAKESPAN: "makespans",
    Quantity.P95: "p95 in runs, all neighbours played",
}
GOALS = {Quantity.DURATION: (6.0, 24.0), Quantity.MAKESPAN: (3.0, None), Quantity.P95: (6.0, None)}
"""Errors of groups left out that the bundled profiles are held to: median and 90th percentile, in per cent."""
SUMMARY_HEAD = ("what", "predicted by", "values", "median, %", "90th percentile, %", "bias, %", "goal", "met")
ERROR_HEAD = (
    "values",
    "left out: median, %",
    "90th percentile",
    "bias",
    "all groups: median, %",
    "90th percentile",
    "bias",
)
LEFT_OUT, IN_SAMPLE = "a fit without its group", "the fit of all groups"
_TABLES = (("job", "job"), ("machine type", "type of machine"), ("sharing", "kind of sharing"), ("service", "services"))


@dataclass(frozen=True)
class Pair:
    """The errors of one kind of scores, left out and in sample."""

    name: str
    left_out: Errors | None
    in_sample: Errors | None


def summary(result: Calibration) -> ReportPart:
    """How much was measured, and how well it is predicted, in sentences."""
    observed = result.observed
    executions = sum(len(p.jobs) for p in observed.played)
    runs = len({p.run for p in observed.played})
    readings = sum(len(fit.fitted) for fit in result.latency.values())
    counts = (
        counted(executions, "execution"),
        f"{counted(len(observed.sweeps), 'point')} of thread sweeps",
        f"{counted(len(observed.slowdowns), 'slow-down')} beside an aggressor",
        f"{counted(readings, 'reading')} of latency sweeps",
    )
    said = [
        f"Fitted: {counted(len(observed.jobs), 'job')} on {counted(len(observed.machine_types), 'type')} of machines,"
        f" measured by {counted(len(observed.groups), 'group')}: {counted(runs, 'run')} with {listed(counts)}.",
    ]
    rows = summary_rows(result)
    if not rows:
        said.append("No run has executions and no service was swept, so there are no errors to report.")
        return ReportPart("summary", "Summary", tuple(said))
    if not result.left_out:
        said.append(
            "No group was left out (there is one only, or it was not asked for), so the errors are those of the fit itself:"
            " smaller than what a new group will see."
        )
    for row in rows:
        if row[1] == LEFT_OUT or not result.left_out:
            goal = f" The goal, {row[6]} %, is {'met' if row[7] == 'yes' else 'missed'}." if row[7] else ""
            errors_there = f"{row[3]} % off in the median of {row[2]}, {row[4]} % at the 90th percentile."
            said.append(f"{_capital(row[0])}, predicted by {row[1]}: {errors_there}{goal}")
    return ReportPart("summary", "Summary", tuple(said))


def error_table(result: Calibration) -> ReportPart:
    """The errors of the summary in one table."""
    rows = summary_rows(result)
    if not rows:
        return ReportPart("errors", "Errors in numbers", ("There are no errors to report.",))
    caption = (
        "Absolute errors in per cent of what was measured; bias is the median of the signed errors, above 0 where the model"
        " is too slow. Goals are those that the bundled profiles are held to, for groups left out."
    )
    table = ReportTable(caption, SUMMARY_HEAD, rows, (0, 1, 6, 7))
    return ReportPart("errors", "Errors in numbers", tables=(table,))


def summary_rows(result: Calibration) -> tuple[tuple[str, ...], ...]:
    """The rows under ``SUMMARY_HEAD``: quantities of runs, then sweeps of services."""
    rows: list[tuple[str, ...]] = []
    for quantity in Quantity:
        for side, scores in _sides(result, quantity):
            found = errors(scores)
            if found is not None:
                judged = _judged(found.median, found.p90, quantity) if side is LEFT_OUT else ("", "")
                rows.append(
                    (
                        WHAT[quantity],
                        side,
                        f"{found.count:,}",
                        percent(found.median),
                        percent(found.p90),
                        f"{found.bias:+.1f}",
                        *judged,
                    )
                )
    for name, fit in result.latency.items():
        sweeps = [s for s in fit.scores if s.part == "sweep"]
        windows = [s for s in fit.scores if s.part == "run"]
        rows += _latency_rows(f"p95 of {name} in sweeps", LEFT_OUT, sweeps)
        rows += _latency_rows(f"p95 of {name} in sweeps", IN_SAMPLE, fit.fitted)
        rows += _latency_rows(f"p95 of {name} in runs", LEFT_OUT, windows)
    return tuple(rows)


def _sides(result: Calibration, quantity: Quantity) -> list[tuple[str, list[Score]]]:
    """The scores of a quantity, left out and in sample, where there are any."""
    # The fits without a group are of run times; services are fitted to all. A service's own fit has its left-out scores.
    left_out = () if quantity is Quantity.P95 else result.left_out
    both = ((LEFT_OUT, left_out), (IN_SAMPLE, result.in_sample))
    sides = [(side, [s for s in scores if s.quantity is quantity]) for side, scores in both]
    return [(side, scores) for side, scores in sides if scores]


def _capital(text: str) -> str:
    return text if text.startswith("p95") else text[0].upper() + text[1:]


def _latency_rows(what: str, side: str, scores: Sequence[LatencyScore]) -> list[tuple[str, ...]]:
    if not scores:
        return []
    found = latency_errors(scores)
    judged = _judged(found.median, found.p90, Quantity.P95) if side is LEFT_OUT else ("", "")
    rows: list[tuple[str, ...]] = [
        (what, side, f"{found.count:,}", percent(found.median), percent(found.p90), "–", *judged)
    ]
    if side is LEFT_OUT:
        judged = _judged(found.calibrated_median, found.calibrated_p90, Quantity.P95)
        with_one = f"{side}, times one factor of the group"
        shown = (percent(found.calibrated_median), percent(found.calibrated_p90))
        rows.append((what, with_one, f"{found.count:,}", *shown, "–", *judged))
    return rows


def _judged(median: float, p90: float, quantity: Quantity) -> tuple[str, str]:
    most, most_p90 = GOALS[quantity]
    goal = f"{most:g}" if most_p90 is None else f"{most:g} / {most_p90:g}"
    met = median <= most and (most_p90 is None or p90 <= most_p90)
    return f"at most {goal}", "yes" if met else "no"


def against(result: Calibration) -> ReportPart:
    """Measured against predicted: a point for every execution, makespan and window."""
    heading = "Measured against predicted"
    pictures = []
    for quantity, unit, scale in (
        (Quantity.DURATION, "s", 1.0),
        (Quantity.MAKESPAN, "s", 1.0),
        (Quantity.P95, "ms", 1e-3),
    ):
        sides = [
            ("group left out" if side is LEFT_OUT else "fit of all groups", [_scaled(s, scale) for s in scores])
            for side, scores in _sides(result, quantity)
        ]
        if not sides:
            continue
        shares = [
            f"{_share_within(scores, band):.0f} % of them within {100 * band:.0f} % ({title})"
            for title, scores in sides
            for band in BANDS
        ]
        alt = f"Scatter of measured against predicted {WHAT[quantity]}, {len(sides[0][1])} points: {'; '.join(shares)}."
        caption = (
            f"{_capital(WHAT[quantity])}: the line is equality; dashed 10 % away from it, dotted 25 %."
            f" {'; '.join(shares)}."
        )
        pictures.append(Picture(f"against-{quantity.value}", against_plot(sides, unit), alt, caption))
    if not pictures:
        return ReportPart("against", heading, ("No run has executions, so nothing can be set against predictions.",))
    return ReportPart("against", heading, pictures=tuple(pictures))


def _scaled(score: Score, scale: float) -> Score:
    return replace(score, measured=score.measured * scale, predicted=score.predicted * scale)


def _share_within(scores: Sequence[Score], band: float) -> float:
    return 100.0 * sum(abs(s.error) <= band for s in scores) / len(scores)


def residuals(result: Calibration) -> ReportPart:
    """Run times by job, type of machine and kind of sharing."""
    heading = "Residuals of run times"
    pictures, tables = [], []
    for table, name in _TABLES:
        pairs = pairs_of(result, Quantity.DURATION, table)
        if pairs:
            pictures.append(ratio_picture(result, Quantity.DURATION, table, f"by {name}"))
            tables.append(ReportTable(f"Errors of run times by {name}.", (name, *ERROR_HEAD), pair_rows(pairs)))
    if not pictures:
        return ReportPart(
            "residuals", heading, ("No run has executions, so run times beside others have no residuals.",)
        )
    said = (
        "A box is the middle half of the values with its median, whiskers reach from the 5th to the 95th percentile; fewer"
        " than five values are points. Hatched grey: the group was left out of the fit. White: the fit of all groups.",
    )
    return ReportPart("residuals", heading, said, tuple(pictures), tuple(tables))


def ratio_picture(result: Calibration, quantity: Quantity, table: str, by: str) -> Picture:
    """Boxes of predicted over measured, one line for each name of a table."""
    members = {p.name for p in pairs_of(result, quantity, table)}
    rows = [
        Ratios(
            name,
            [s.predicted / s.measured for s in _members(result.left_out, quantity, table, name)],
            [s.predicted / s.measured for s in _members(result.in_sample, quantity, table, name)],
        )
        for name in sorted(members)
    ]
    alt = f"Boxes of predicted over measured {WHAT[quantity]} {by}; the table that follows has the medians."
    caption = f"Predicted over measured {WHAT[quantity]} {by}."
    return Picture(f"residuals-{quantity.value}-{table.replace(' ', '-')}", ratio_plot(rows), alt, caption)


def _members(scores: Sequence[Score], quantity: Quantity, table: str, name: str) -> list[Score]:
    return [s for s in scores if s.quantity is quantity and (table, name) in lines_of(s)]


def pairs_of(result: Calibration, quantity: Quantity, table: str) -> tuple[Pair, ...]:
    """The errors under every name of a table (``all``, ``job``, ``machine type``, ``sharing``, ``service``, ``group``)."""
    sides = {}
    for side, scores in _sides(result, quantity):
        whole = Validation("", {}, tuple(scores), (), (), ())
        sides[side] = {r.name: r.errors for r in whole.rows(quantity) if r.table == table}
    left_out, in_sample = sides.get(LEFT_OUT, {}), sides.get(IN_SAMPLE, {})
    return tuple(Pair(name, left_out.get(name), in_sample.get(name)) for name in sorted({*left_out, *in_sample}))


def pair_rows(pairs: Iterable[Pair]) -> tuple[tuple[str, ...], ...]:
    """Cells under a name and ``ERROR_HEAD``."""
    return tuple(
        (p.name, f"{(p.left_out or p.in_sample).count:,}", *_cells(p.left_out), *_cells(p.in_sample))  # type: ignore[union-attr]
        for p in pairs
    )


def _cells(found: Errors | None) -> tuple[str, str, str]:
    return ("–", "–", "–") if found is None else (percent(found.median), percent(found.p90), f"{found.bias:+.1f}")


def by_group(result: Calibration) -> ReportPart:
    """Errors of every group."""
    heading = "Errors by group"
    pictures, tables = [], []
    for quantity in Quantity:
        pairs = pairs_of(result, quantity, "group")
        if pairs:
            tables.append(
                ReportTable(f"Errors of {WHAT[quantity]} by group.", ("group", *ERROR_HEAD), pair_rows(pairs))
            )
            if quantity is Quantity.DURATION:
                pictures.append(ratio_picture(result, quantity, "group", "by group"))
    if not tables:
        return ReportPart("groups", heading, ("No group has runs, so groups have no errors.",))
    return ReportPart("groups", heading, (), tuple(pictures), tuple(tables))


def coverage(result: Calibration) -> ReportPart:
    """How often the model's own intervals hold what was measured."""
    heading = "Do the intervals hold?"
    rows, series = [], []
    for quantity in Quantity:
        for side, scores in _sides(result, quantity):
            own = [s for s in scores if s.rank is not None]
            found = errors(own)
            if found is not None and found.inside_inner is not None:
                inner, outer = percent(found.inside_inner, 0), percent(found.inside_outer, 0)
                rows.append((WHAT[quantity], side, f"{found.count:,}", inner, outer))
                name = f"{WHAT[quantity]}, {'left out' if side is LEFT_OUT else 'all groups'}"
                series.append((name, [s.rank for s in own if s.rank is not None]))
    if not rows:
        return ReportPart("coverage", heading, ("No run has executions, so the intervals cannot be checked.",))
    head = ("what", "predicted by", "values", "inside the 50 % interval, %", "inside the 90 % interval, %")
    caption = "Measured values inside the model's own intervals, in per cent; 50 and 90 would be as promised."
    alt = "Share of measured values inside the model's intervals of every width; the table has the shares for 50 and 90 %."
    picture = Picture(
        "coverage", coverage_plot(series), alt, "Above the line the intervals are wider than they need be."
    )
    return ReportPart("coverage", heading, (), (picture,), (ReportTable(caption, head, tuple(rows), (0, 1)),))
