"""The plots of a sweep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from flowsched_models.document import InputError
from flowsched_simulator.experiment.job_curves import QUEUE, UTILISATION, curve, last_end_s
from flowsched_simulator.experiment.metric import METRICS
from flowsched_simulator.experiment.plot import Plot
from flowsched_simulator.experiment.results import Results, compared_figures
from flowsched_simulator.experiment.scenario_case import ESTIMATE_ERROR, LOAD, MODEL_ERROR

_STEPS = 300
_POINTS = 200
_LOG_FROM = 20.0
"""A slowdown this many times another one gets a logarithmic axis."""
_COLUMNS = {"slowdown": "slowdown (completion time over run time alone)", "waiting_s": "waiting time, s"}
_FACTORS = {
    LOAD: "load (arriving work over capacity)",
    MODEL_ERROR: "model error (standard deviation of the logarithm)",
    ESTIMATE_ERROR: "error of estimates (standard deviation of the logarithm)",
}


def plot_cdf(results: Results, column: str, case: str) -> Plot:
    """Share of the jobs of all seeds at or below each value of a column of jobs."""
    known = {"slowdown", "waiting_s", "completion_s"}
    if column not in known:
        raise InputError.one("column", "cannot be drawn", f"one of {', '.join(sorted(known))}", key=column)
    words = column.removesuffix("_s")
    plot = Plot(
        _slug("cdf", words, case),
        f"{words.capitalize()} of jobs: {case}",
        _COLUMNS.get(column, f"{words}, s"),
        "share of jobs",
    )
    shares = (np.arange(_STEPS) + 0.5) / _STEPS
    least, most = np.inf, 0.0
    for policy, style in _lines(results, plot):
        values = list(results.job_values(case, policy, column).values())
        if values:
            found = np.quantile(np.concatenate(values), shares)
            least, most = min(least, found[0]), max(most, found[-1])
            plot.axes.plot(found, shares, label=policy, drawstyle="steps-post", **style)
    plot.axes.set_ylim(0.0, 1.0)
    if column == "slowdown" and most > _LOG_FROM * least > 0.0:
        plot.axes.set_xscale("log")
    return plot.finish()


def plot_over_time(results: Results, what: str, case: str) -> Plot:
    """Utilisation or queue length over time since the first submission, the mean over seeds."""
    label = {UTILISATION: "share of batch cores requested by running jobs", QUEUE: "jobs waiting"}[what]
    title = {UTILISATION: "Utilisation", QUEUE: "Queue"}[what]
    plot = Plot(_slug(what, case), f"{title} over time: {case}", "time since the first submission, s", label)
    runs = results.to_frame()
    cores = float(runs.loc[runs["case"] == case, "batch_cores"].iloc[0])
    jobs = {policy: results.jobs_of(case, policy) for policy in results.policies}
    end_s = max((last_end_s(frame) for each in jobs.values() for frame in each.values()), default=0.0)
    times = np.linspace(0.0, end_s or 1.0, _POINTS)
    for policy, style in _lines(results, plot):
        curves = [curve(frame, what, times) for frame in jobs[policy].values()]
        if curves:
            values = np.mean(curves, axis=0) / (cores if what == UTILISATION else 1.0)
            plot.axes.plot(times, values, label=policy, **style)
    plot.axes.set_ylim(bottom=0.0)
    plot.axes.set_xlim(0.0, end_s or 1.0)
    return plot.finish()


def plot_against_load(results: Results, metric: str | None) -> Plot:
    """A metric against load, with intervals, over the cases that differ from the first in their load alone."""
    metric = metric or ("slo_violation_ratio" if "slo_violation_ratio" in results.shown_metrics() else results.metric)
    told = METRICS[metric]
    plot = Plot(
        _slug("load", metric), f"{told.words[0].upper()}{told.words[1:]} against load", _FACTORS[LOAD], told.head
    )
    points = _cases_along(results, LOAD)
    for policy, style in _lines(results, plot):
        found = [(x, each) for x, case in points if (each := results.mean(case, policy, metric)) is not None]
        if found:
            middle = np.array([each.value for _, each in found]) * told.factor
            half = np.array([(each.high or each.value) - each.value for _, each in found]) * told.factor
            plot.axes.errorbar([x for x, _ in found], middle, half, label=policy, marker="o", ms=4, capsize=3, **style)
    plot.axes.set_ylim(bottom=min(0.0, float(plot.axes.dataLim.y0)))
    if plot.axes.dataLim.y1 <= 0.0:
        plot.axes.set_ylim(0.0, 1.0)
    return plot.finish()


def plot_gain(results: Results, factor: str, metric: str) -> Plot:
    """By how much the metric of the reference is below that of each policy, in % of the policy's, against a factor."""
    told, reference = METRICS[metric], results.reference
    x_axis = _FACTORS.get(factor, factor)
    plot = Plot(
        _slug("gain", factor, metric), f"Gain of {reference} in {told.words}", x_axis, "gain, % of the other policy"
    )
    points = _cases_along(results, factor)
    for policy, style in _lines(results, plot):
        if policy == reference:
            continue
        found = [(x, d) for x, case in points if (d := _gain(results, case, policy, metric)).relative is not None]
        if found:
            middle = [-100.0 * (d.relative or 0.0) for _, d in found]
            half = [100.0 * (d.relative_half_width or 0.0) for _, d in found]
            plot.axes.errorbar([x for x, _ in found], middle, half, label=policy, marker="o", ms=4, capsize=3, **style)
    plot.axes.axhline(0.0, color="#8a8f98", linewidth=1.0, zorder=2)
    return plot.finish()


def varied_factors(results: Results) -> Iterator[str]:
    """The factors that some cases differ in from the first, alone and by number."""
    for factor in dict.fromkeys(name for case in results.cases for name in results.factors(case)):
        try:
            _cases_along(results, factor)
        except InputError:
            continue
        yield factor


def _gain(results: Results, case: str, policy: str, metric: str) -> Any:
    return compared_figures(case, metric, (results, results.reference), (results, policy))


def _lines(results: Results, plot: Plot) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every policy with the style of its line; the reference has the first."""
    order = sorted(results.policies, key=lambda policy: policy != results.reference)
    return ((name, plot.line_style(order.index(name), name == results.reference)) for name in results.policies)


def _cases_along(results: Results, factor: str) -> list[tuple[float, str]]:
    """Value and case of all that differ from the first in one factor alone; :class:`InputError` for fewer than two."""
    base = results.factors(results.cases[0])
    found: dict[float, str] = {}
    for case in results.cases:
        value = results.factors(case).get(factor)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if _others(results.factors(case), factor) == _others(base, factor):
            found.setdefault(float(value), case)
    if len(found) < 2:
        message = "no two scenarios of this experiment differ in it alone"
        raise InputError.one(results.name, message, f"give scenarios a list, as {factor}: [0.6, 0.9]", key=factor)
    return sorted(found.items())


def _others(factors: Mapping[str, Any], factor: str) -> dict[str, Any]:
    """All factors but one; what changes arrivals changes the load too."""
    follows = {LOAD} if factor.startswith("arrivals.") or factor.endswith("_copies") else set()
    skipped = {factor, *follows, *(name for name in factors if factor == LOAD and name.startswith("arrivals."))}
    return {name: value for name, value in factors.items() if name not in skipped}


def _slug(*parts: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", " ".join(parts).lower()).strip("-").replace(".", "_")
