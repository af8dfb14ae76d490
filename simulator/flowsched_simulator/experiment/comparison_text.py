"""Statistics of a sweep, and comparisons, as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched_models.text_table import counted, text_table
from flowsched_simulator.experiment.metric import METRICS
from flowsched_simulator.experiment.policy_comparison import PolicyComparison, difference_cells
from flowsched_simulator.experiment.results import Results
from flowsched_simulator.experiment.seed_statistics import Interval
from flowsched_simulator.experiment.verdict import verdict


def results_text(results: Results) -> str:
    """A table of means with intervals for each case, and a sentence for each comparison with the reference."""
    metrics = results.shown_metrics()
    lines = []
    for case in results.cases:
        lines.append(f"{case}: {_means_over(results, case)}; less is better")
        if chosen := results.variants_line(case):
            lines.append(chosen)
        heads = ["policy", *(METRICS[name].head for name in metrics)]
        rows = [
            [policy, *(interval_text(results.mean(case, policy, name), name) for name in metrics)]
            for policy in results.policies
        ]
        lines += text_table([heads, *rows])
        lines += [alike] if (alike := equal_runs_text(results, case)) else []
        lines.append("")
    return "\n".join((*lines, *verdict(results)))


def equal_runs_text(results: Results, case: str) -> str:
    """Which policies have equal runs, as plots and tables show them; empty where none have."""
    alike = "; ".join(" = ".join(same) for same in results.equal_runs(case))
    return f"equal runs: {alike}" if alike else ""


def _means_over(results: Results, case: str) -> str:
    once = [policy for policy in results.policies if not results.is_drawn(case, policy)]
    if len(once) == len(results.policies):
        return "nothing is drawn: one run of each"
    means = f"means over {counted(len(results.seeds), 'seed')}, with 95 % intervals"
    return f"{means}, and one run of {', '.join(once)}, where nothing is drawn" if once else means


def comparisons_text(found: Sequence[PolicyComparison], told: Sequence[str]) -> str:
    """A table of paired differences, and a sentence for each of the metrics that are ``told``."""
    heads = ["case", "policy", "against", "metric", "difference", "95 % interval", "p (Holm)", "p (Wilcoxon)", "seeds"]
    rows = [
        [each.case, each.policy, each.reference, each.metric, *difference_cells(each), str(each.difference.seeds)]
        for each in found
    ]
    table = text_table([heads, *rows], left=(0, 1, 2, 3))
    return "\n".join((*table, "", *(each.sentence() for each in found if each.metric in told)))


def interval_text(found: Interval | None, metric: str) -> str:
    """``131.2 ± 4.1``, in the unit of the metric."""
    if found is None:
        return "-"
    factor = METRICS[metric].factor
    value = _rounded(found.value * factor, 4)
    return value if found.high is None else f"{value} ± {_rounded((found.high - found.value) * factor, 2)}"


def _rounded(value: float, digits: int) -> str:
    """To so many significant digits, without an exponent where the value is large."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text else text
