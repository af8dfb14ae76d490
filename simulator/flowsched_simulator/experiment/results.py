"""The results of a sweep, read from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowsched_models.document import InputError, name_help
from flowsched_models.picked_fields import picked
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_models.text_table import counted
from flowsched_simulator.experiment.gathering import ABOUT, RESULTS, TIMINGS
from flowsched_simulator.experiment.metric import METRICS, SHOWN
from flowsched_simulator.experiment.paired import PairedDifference, paired_difference
from flowsched_simulator.experiment.policy_comparison import PolicyComparison, adjusted
from flowsched_simulator.experiment.seed_statistics import Interval, mean_of, quantile_of
from flowsched_simulator.table import variants_line

if TYPE_CHECKING:
    import pandas as pd

    from flowsched_simulator.experiment.plot import Plot

FRAMES = ("runs", "jobs", "windows", "rounds")


class Results(ShortRepr):
    """Tables, statistics and plots of a sweep. Tables are read when they are first asked for."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """As :func:`load_results` makes it."""
        self.folder = folder
        self.about = about
        self.name: str = about["name"]
        self.reference: str = about["reference"]
        self.metric: str = about["metric"]
        self.seeds: tuple[int, ...] = tuple(about["seeds"])
        self._frames: dict[tuple[str, str], pd.DataFrame] = {}

    def overview(self) -> Overview:
        """Cases, policies and seeds in numbers; the mean of the metric for each."""
        words = (
            f"{self.name}: {counted(len(self.cases), 'scenario')}, {counted(len(self.policies), 'policy', 'policies')}, "
            f"{counted(len(self.seeds), 'seed')}"
        )
        rows = [(case, policy, *_ends(self.mean(case, policy))) for case in self.cases for policy in self.policies]
        return Overview(words, ("case", "policy", f"mean of {self.metric}", "low", "high"), rows, len(rows))

    @property
    def cases(self) -> tuple[str, ...]:
        """Names of the cases, in the order of the experiment."""
        return tuple(case["case"] for case in self.about["cases"])

    @property
    def policies(self) -> tuple[str, ...]:
        """Labels of the policies, in the order of the experiment."""
        return tuple(each["label"] for each in self.about["policies"])

    def factors(self, case: str) -> Mapping[str, Any]:
        """By what a case differs from others: load, model error, copies, changed keys."""
        self._check("case", case, self.cases)
        return next(each["factors"] for each in self.about["cases"] if each["case"] == case)

    def is_drawn(self, case: str, policy: str) -> bool:
        """Whether the seed decides anything; False: there is one run, and no chance in it."""
        self._check("case", case, self.cases)
        return policy not in next(each.get("undrawn", ()) for each in self.about["cases"] if each["case"] == case)

    def equal_runs(self, case: str) -> list[tuple[str, ...]]:
        """Policies whose runs are equal in every figure of every seed, together."""
        self._check("case", case, self.cases)
        runs = self.to_frame()
        figures = [name for name in METRICS if name in runs]
        found: dict[str, list[str]] = {}
        for policy in self.policies:
            own = runs[(runs["case"] == case) & (runs["policy"] == policy)]
            found.setdefault(own[["seed", *figures]].to_json(orient="values", double_precision=15), []).append(policy)
        return [tuple(same) for same in found.values() if len(same) > 1]

    def variants_line(self, case: str) -> str:
        """How the variants of a case were chosen; empty where there was nothing to choose."""
        self._check("case", case, self.cases)
        seeds = next(each.get("variant_seeds", {}) for each in self.about["cases"] if each["case"] == case)
        return variants_line([{"policy": policy, "variant_seeds": each} for policy, each in seeds.items()])

    def to_frame(self, table: str = "runs") -> pd.DataFrame:
        """A table as a data frame: ``runs``, ``jobs``, ``windows`` or ``rounds``; first columns: case, policy, seed."""
        self._check("table", table, FRAMES)
        return self._frame(RESULTS, table)

    def timings(self, table: str = "runs") -> pd.DataFrame:
        """What clocks measured: ``runs`` (wall and CPU seconds, host, versions) or ``rounds`` (milliseconds)."""
        self._check("table", table, ("runs", "rounds"))
        return self._frame(TIMINGS, table)

    def mean(self, case: str, policy: str, metric: str | None = None) -> Interval | None:
        """Mean over seeds; None where no run has the figure."""
        values = self.values(case, policy, self._metric(metric))
        known = [value for value in values.values() if value is not None]
        return mean_of(known) if known else None

    def quantile(self, case: str, policy: str, q: float, metric: str | None = None) -> Interval | None:
        """A quantile (0 to 1) with its bootstrap interval.

        Of a figure of jobs (completion, waiting, slowdown) over the jobs of all seeds, of other figures over seeds.
        """
        metric = self._metric(metric)
        column = METRICS[metric].of_jobs
        if not column:
            groups = [[value] for value in self.values(case, policy, metric).values() if value is not None]
            return quantile_of(groups, q) if groups else None
        jobs = self.job_values(case, policy, column)
        return quantile_of(list(jobs.values()), q) if jobs else None

    def job_values(self, case: str, policy: str, column: str) -> dict[int, Any]:
        """A column of jobs as arrays, by seed; jobs without a value (never ended) are left out."""
        jobs = self.jobs_of(case, policy)
        return {seed: found for seed, frame in jobs.items() if len(found := frame[column].dropna().to_numpy())}

    def jobs_of(self, case: str, policy: str) -> Mapping[int, pd.DataFrame]:
        """The jobs of every seed."""
        return self._jobs_of.get((case, policy), {})

    def summary(self, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """A row for each case, policy and metric: mean, median and p95, each with ``_low`` and ``_high``."""
        import pandas as pd

        rows = []
        for metric in metrics or self.shown_metrics():
            for case in self.cases:
                for policy in self.policies:
                    row: dict[str, Any] = {"case": case, "policy": policy, "metric": metric}
                    found = {
                        "mean": self.mean(case, policy, metric),
                        "median": self.quantile(case, policy, 0.5, metric),
                        "p95": self.quantile(case, policy, 0.95, metric),
                    }
                    for name, each in found.items():
                        row |= zip((name, f"{name}_low", f"{name}_high"), _ends(each), strict=True)
                    rows.append(row)
        return pd.DataFrame(rows)

    def comparisons(
        self, reference: str | None = None, metric: str | None = None, policies: Sequence[str] | None = None
    ) -> list[PolicyComparison]:
        """Every policy minus the reference, case by case, with p values adjusted for their number."""
        reference, metric = reference or self.reference, self._metric(metric)
        self._check("policy", reference, self.policies)
        for policy in policies or ():
            self._check("policy", policy, self.policies)
        found = []
        for case in self.cases:
            for policy in policies or self.policies:
                if policy != reference:
                    difference = compared_figures(case, metric, (self, policy), (self, reference))
                    found.append(PolicyComparison(case, policy, reference, metric, difference))
        return adjusted(found)

    def compare(self, reference: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Paired differences to the reference as a data frame; see :meth:`comparisons`."""
        return comparison_frame(self.comparisons(reference, metric))

    def shown_metrics(self) -> tuple[str, ...]:
        """The metric that decides, and those that are usually shown, as far as runs have them."""
        runs = self.to_frame()
        usual = (self.metric, *SHOWN, "missed", "killed", "mean_gpu_fragmentation", "unfinished")
        has = [name for name in dict.fromkeys(usual) if name in runs and runs[name].notna().any()]
        zero = ("unfinished", "slo_violation_ratio")
        return tuple(name for name in has if name == self.metric or name not in zero or runs[name].max() > 0)

    def plot_cdf(self, column: str = "slowdown", case: str | None = None) -> Plot:
        """Share of jobs at or below each slowdown (or ``waiting_s``, ``completion_s``), a line per policy."""
        from flowsched_simulator.experiment.plots import plot_cdf

        return plot_cdf(self, column, self._case(case))

    def plot_utilisation(self, case: str | None = None) -> Plot:
        """Share of batch cores that running jobs request, over time, the mean over seeds."""
        from flowsched_simulator.experiment.plots import plot_over_time

        return plot_over_time(self, "utilisation", self._case(case))

    def plot_queue(self, case: str | None = None) -> Plot:
        """Jobs that wait, over time, the mean over seeds."""
        from flowsched_simulator.experiment.plots import plot_over_time

        return plot_over_time(self, "queue", self._case(case))

    def plot_against_load(self, metric: str | None = None) -> Plot:
        """A metric (default: violations, where there are any) against load, with intervals."""
        from flowsched_simulator.experiment.plots import plot_against_load

        return plot_against_load(self, metric)

    def plot_gain(self, factor: str = "model_error", metric: str | None = None) -> Plot:
        """By how much the reference is better than each policy, against a factor, with intervals."""
        from flowsched_simulator.experiment.plots import plot_gain

        return plot_gain(self, factor, self._metric(metric))

    def _metric(self, metric: str | None) -> str:
        metric = metric or self.metric
        runs = self.to_frame()
        self._check("metric", metric, [name for name in METRICS if name in runs])
        return metric

    def _case(self, case: str | None) -> str:
        case = case or self.cases[0]
        self._check("case", case, self.cases)
        return case

    def _check(self, noun: str, name: str, known: Sequence[str]) -> None:
        if name not in known:
            raise InputError.one(noun, f"{self.name} has no such {noun}", name_help(name, known), key=name)

    def values(self, case: str, policy: str, metric: str) -> dict[int, float | None]:
        """A figure of runs by seed; None where a run does not have it."""
        runs = self.to_frame()
        own = runs[(runs["case"] == case) & (runs["policy"] == policy)]
        return {
            int(seed): None if value != value else float(value)
            for seed, value in zip(own["seed"], own[metric].astype(float), strict=True)
        }

    @cached_property
    def _jobs_of(self) -> dict[tuple[str, str], dict[int, pd.DataFrame]]:
        found: dict[tuple[str, str], dict[int, pd.DataFrame]] = {}
        for (case, policy, seed), frame in self.to_frame("jobs").groupby(["case", "policy", "seed"], sort=True):
            found.setdefault((str(case), str(policy)), {})[int(seed)] = frame
        return found

    def _frame(self, part: str, table: str) -> pd.DataFrame:
        if (part, table) not in self._frames:
            import pyarrow.parquet as pq

            self._frames[part, table] = pq.read_table(self.folder / part / f"{table}.parquet").to_pandas()
        return self._frames[part, table]


def _ends(found: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if found is None else (found.value, found.low, found.high)


def compared_figures(
    case: str, metric: str, own: tuple[Results, str], reference: tuple[Results, str]
) -> PairedDifference:
    """The figures of a policy minus those of another, each from its results.

    The one run of a policy for which nothing is drawn stands beside every seed of one for which something is.
    """
    (a, a_drawn), (b, b_drawn) = (
        (results.values(case, policy, metric), results.is_drawn(case, policy)) for results, policy in (own, reference)
    )
    if not a_drawn:
        a = dict.fromkeys(b, next(iter(a.values()), None))
    if not b_drawn:
        b = dict.fromkeys(a, next(iter(b.values()), None))
    return paired_difference(a, b, a_drawn or b_drawn)


def load_results(folder: str | Path) -> Results:
    """The results of a sweep. Raises :class:`InputError` for a folder that has none."""
    folder = Path(folder)
    path = folder / RESULTS / ABOUT
    if not path.is_file():
        missing = "there is no such folder" if not folder.is_dir() else "this folder has no results of a sweep"
        help = "flowsched sweep EXPERIMENT --out FOLDER writes them when all runs are done"
        raise InputError.one(folder, missing, help)
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return Results(folder, about)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError.one(path, f"is damaged: {error}", "run the sweep again") from None


def comparison_frame(found: Sequence[PolicyComparison]) -> pd.DataFrame:
    """Comparisons as a data frame: differences in units of the metric, and relative to the reference's mean."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                **picked(each, "case", "policy", "reference", "metric"),
                **picked(
                    each.difference, "seeds", "mean", "low", "high", "relative", "relative_low", "relative_high", "p"
                ),
                "p_adjusted": each.p_adjusted,
                "p_wilcoxon": each.difference.p_wilcoxon,
                "verdict": each.verdict,
            }
            for each in found
        ]
    )
