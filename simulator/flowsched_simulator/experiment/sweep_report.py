"""The page of a sweep: what it found in sentences, paired differences, means, plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from flowsched_models.output import make_folder, write_whole, write_whole_bytes
from flowsched_models.page_style import page_template, page_text
from flowsched_models.text_table import counted, spelt
from flowsched_simulator.experiment.comparison_text import equal_runs_text, interval_text
from flowsched_simulator.experiment.metric import METRICS
from flowsched_simulator.experiment.plot import Plot
from flowsched_simulator.experiment.plots import varied_factors
from flowsched_simulator.experiment.policy_comparison import OPEN, PolicyComparison, difference_cells
from flowsched_simulator.experiment.results import Results
from flowsched_simulator.experiment.scenario_case import LOAD
from flowsched_simulator.experiment.verdict import verdict
from flowsched_simulator.report.script import style

_KINDS = ("svg", "pdf")


def write_report(results: Results) -> Path:
    """Write ``plots/`` and ``report.html`` beside the results; the page. The same results give the same bytes."""
    by_case = {case: _case_plots(results, case) for case in results.cases}
    across = list(_plots_across(results))
    folder = results.folder / "plots"
    make_folder(folder)
    files = {
        f"{plot.name}.{kind}": plot.to_bytes(kind)
        for plot in (*across, *(plot for plots in by_case.values() for plot in plots))
        for kind in _KINDS
    }
    for name, content in files.items():
        write_whole_bytes(folder / name, content)
    for path in folder.iterdir():
        if path.suffix[1:] in _KINDS and path.name not in files:
            path.unlink()
    path = results.folder / "report.html"
    write_whole(path, render_sweep_report(results, by_case, across, files))
    return path


def render_sweep_report(
    results: Results, by_case: Mapping[str, Sequence[Plot]], across: Sequence[Plot], files: Mapping[str, bytes]
) -> str:
    """The page as one document that asks for nothing beside itself. ``files``: the plots as they are written."""
    drawn = {case: [_element(plot, files) for plot in plots] for case, plots in by_case.items()}
    found = results.comparisons()
    metrics = results.shown_metrics()
    return page_template(__package__, "sweep.html.j2").render(
        name=results.name,
        description=results.about["description"],
        extent=_extent(results),
        verdicts=verdict(results),
        metric=METRICS[results.metric].words,
        reference=results.reference,
        heads=[METRICS[name].head for name in metrics],
        across=[_element(plot, files) for plot in across],
        sections=[
            _section(results, case, [each for each in found if each.case == case], metrics, drawn[case])
            for case in results.cases
        ],
        comparisons=len(found),
        policies=_policies(results),
        css=style() + Markup(page_text(__package__, "sweep.css")),
    )


def _element(plot: Plot, files: Mapping[str, bytes]) -> Markup:
    return Markup(plot.markup(files[f"{plot.name}.svg"]))


def _extent(results: Results) -> str:
    cases = counted(len(results.cases), "scenario")
    runs = len(results.to_frame())
    policies = counted(len(results.policies), "policy", "policies")
    return (
        f"{counted(runs, 'run')}: {cases}, {policies}, {counted(len(results.seeds), 'seed')} ({spelt(results.seeds)})"
    )


def _section(
    results: Results, case: str, found: Sequence[PolicyComparison], metrics: Sequence[str], plots: Sequence[Markup]
) -> dict[str, Any]:
    """What the page says of one case; ``zero`` is where no difference lies on the axis, in per cent."""
    zero, rows = _difference_rows(found)
    means = tuple(
        (policy, *(interval_text(results.mean(case, policy, name), name) for name in metrics))
        for policy in results.policies
    )
    about = ", ".join(
        f"{name.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
        for name, value in results.factors(case).items()
        if not (name.endswith("_copies") and value == 1)
    )
    chosen = results.variants_line(case)
    return {
        "name": case,
        "about": about,
        "chosen": chosen,
        "alike": equal_runs_text(results, case),
        "zero": zero,
        "differences": rows,
        "means": means,
        "plots": plots,
    }


def _difference_rows(found: Sequence[PolicyComparison]) -> tuple[float, list[dict[str, Any]]]:
    """Rows on one axis, which has zero and every interval on it: texts, and where the interval lies, in per cent."""
    ends = [0.0]
    for each in found:
        told = each.difference
        ends += [value for value in (told.mean, told.low, told.high) if value is not None]
    least, most = min(ends), max(ends)
    span = (most - least) * 1.08 or 1.0
    start = least - (span - (most - least)) / 2.0

    def place(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else round(100.0 * (value - start) / span, 2)

    rows = [
        {
            "policy": each.policy,
            "verdict": {OPEN: "not significant"}.get(each.verdict, each.verdict),
            "cells": difference_cells(each),
            "low": place(each.difference.low),
            "middle": place(each.difference.mean),
            "high": place(each.difference.high),
        }
        for each in found
    ]
    return place(0.0) or 0.0, rows


def _policies(results: Results) -> list[tuple[str, str]]:
    told = []
    for each in results.about["policies"]:
        runs = results.to_frame()
        used = sorted(set(runs.loc[runs["policy"] == each["label"], "variant"]) - {""})
        parts = [each["policy"]] if each["policy"] != each["label"] else []
        parts += each["settings"]
        if used:
            parts.append("; ".join(used))
        told.append((each["label"], ", ".join(parts)))
    return told


def _case_plots(results: Results, case: str) -> list[Plot]:
    return [
        results.plot_cdf("slowdown", case),
        results.plot_cdf("waiting_s", case),
        results.plot_utilisation(case),
        results.plot_queue(case),
    ]


def _plots_across(results: Results) -> list[Plot]:
    """What cases together show: against load, and the gain against every factor that is varied alone."""
    factors = list(varied_factors(results))
    made = []
    if LOAD in factors:
        # Where nothing is ever over an SLO the plot would be empty; tables leave it out too.
        drawn = [name for name in ("slo_violation_ratio",) if name in results.shown_metrics()]
        made += [results.plot_against_load(name) for name in dict.fromkeys((*drawn, results.metric))]
    if len(results.policies) > 1:
        made += [results.plot_gain(factor) for factor in factors]
    return made
