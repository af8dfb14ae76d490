"""Two policies compared in one case by one metric, and the sentence about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowsched_models.text_table import counted
from flowsched_simulator.experiment.metric import METRICS, Metric
from flowsched_simulator.experiment.paired import LEVEL, PairedDifference, holm

BETTER, WORSE, OPEN, UNTESTED = "better", "worse", "open", "not tested"


@dataclass(frozen=True)
class PolicyComparison:
    """``policy`` minus ``reference``. Of every metric less is better."""

    case: str
    policy: str
    reference: str
    metric: str
    difference: PairedDifference
    p_adjusted: float | None = None
    """By Holm, over all comparisons that are shown together with this metric."""
    among: int = 1
    """How many of those are tested."""

    @property
    def told_metric(self) -> Metric:
        """How the metric is told; one that is not known by its own name."""
        return METRICS.get(self.metric, Metric(self.metric))

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` than the reference, ``open`` where chance may have made the difference, or ``not tested``:
        one run of each, or a difference that never varies.
        """
        if self.p_adjusted is None:
            return UNTESTED
        if self.p_adjusted >= LEVEL or not self.difference.mean:
            return OPEN
        return BETTER if self.difference.mean < 0.0 else WORSE

    def sentence(self) -> str:
        """Which is better by how much, that no significant difference was found, or why nothing is tested."""
        found, metric = self.difference, self.told_metric
        own, other, by = self.policy, self.reference, f"by {metric.words}"
        lost = f" ({counted(found.lost, 'seed')} left out: a job never ended)" if found.lost else ""
        if found.mean is None:
            return f"{self.case}: {own} and {other} cannot be compared {by}: no seed has a figure of both{lost}."
        if found.mean == 0.0 and (found.low == found.high or not found.drawn):
            where = f"in all {found.seeds} seeds" if found.drawn else "(nothing is drawn: one run each)"
            return f"{self.case}: {own} and {other} are equal {by} {where}{lost}."
        amount = f"{own} is {difference_words(self)}"
        if not found.drawn:
            return f"{self.case}: {by}, {amount} than {other} (nothing is drawn: one run each)."
        if found.low is None:
            return f"{self.case}: {by}, {amount} than {other} with one seed, which decides nothing{lost}."
        if found.low == found.high:
            return f"{self.case}: {by}, {amount} than {other} in all {found.seeds} seeds alike: nothing varies{lost}."
        measured = f"({_between(found, metric)}, {counted(found.seeds, 'seed')}, {p_words(self.p_adjusted)})"
        if self.verdict != OPEN:
            return f"{self.case}: {own} is {self.verdict} than {other} {by}: {difference_words(self)} {measured}{lost}."
        many = f"; not significant after correction for {self.among} comparisons" if _excludes_zero(found) else ""
        start = f"{self.case}: no significant difference between {own} and {other} {by}"
        return f"{start}: {amount} in the mean {measured}{many}{lost}."


def _excludes_zero(found: PairedDifference) -> bool:
    return found.low is not None and found.high is not None and not found.low <= 0.0 <= found.high


def adjusted(found: Sequence[PolicyComparison]) -> list[PolicyComparison]:
    """The same with p values adjusted for their number, metric by metric."""
    places: dict[str, list[int]] = {}
    for place, each in enumerate(found):
        places.setdefault(each.metric, []).append(place)
    made = list(found)
    for own in places.values():
        tested = [found[place].difference.p for place in own]
        for place, p in zip(own, holm(tested), strict=True):
            made[place] = replace(found[place], p_adjusted=p, among=len([each for each in tested if each is not None]))
    return made


def _amount(found: PairedDifference, metric: Metric) -> str:
    """The mean difference: in per cent of the reference, or in units of the metric where the reference is 0 or a share."""
    if _in_points(found, metric):
        assert found.mean is not None
        unit = "percentage points" if metric.unit == "%" else metric.unit
        return f"{found.mean * metric.factor:+.3g} {unit}".rstrip()
    return f"{100 * (found.relative or 0.0):+.1f} %"


def _between(found: PairedDifference, metric: Metric) -> str:
    if _in_points(found, metric):
        assert found.low is not None and found.high is not None
        return f"95 % interval {found.low * metric.factor:+.3g} to {found.high * metric.factor:+.3g}"
    return f"95 % interval {100 * (found.relative_low or 0.0):+.1f} to {100 * (found.relative_high or 0.0):+.1f} %"


def _in_points(found: PairedDifference, metric: Metric) -> bool:
    return metric.unit == "%" or not found.reference_mean


def difference_words(found: PolicyComparison) -> str:
    """``21.2 % lower``: the mean difference in plain words."""
    if not found.difference.mean:
        return "equal"
    amount = _amount(found.difference, found.told_metric)
    return f"{amount.lstrip('+-')} {'higher' if found.difference.mean > 0.0 else 'lower'}"


def difference_cells(found: PolicyComparison) -> list[str]:
    """Mean difference, interval and p value as texts, in the units of the sentence."""
    told, metric = found.difference, found.told_metric
    if told.mean is None:
        return ["-", "-", "-", "-"]
    interval = "-" if told.low is None else _between(told, metric).removeprefix("95 % interval ")
    return [_amount(told, metric), interval, _p_text(found.p_adjusted), _p_text(told.p_wilcoxon)]


def p_words(p: float | None) -> str:
    """``p = 0.11``; a p value that is below any interest as ``p < 0.001``."""
    return "no p" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _p_text(p: float | None) -> str:
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"
