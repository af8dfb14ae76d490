"""Controllers' logged runs on one machine, played in the simulator: makespans, active times, and the order of groups.

python -m benchmarks.node_runs DATA
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median, stdev

import click

from benchmarks.machine import describe_machine, measured_on
from benchmarks.node_replay import Replayed, replay
from flowsched_models.calibration.controlled_fit import (
    LEAST_INTERVAL_S,
    SUFFIX,
    fit_controlled,
    with_controlled,
    without_controlled,
)
from flowsched_models.catalogue import Catalogue
from flowsched_models.measurements.controlled_run import ControlledRun
from flowsched_models.measurements.load import load_measurements
from flowsched_models.measurements.measurements import Measurements
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).with_name("results")
YEARS = ("2023", "2024")
FITTED_YEAR = "2024"
"""The year whose logs the machine type is fitted to; the other one has its jobs' factors from its other groups."""
PUBLISHED = {"czanoli": "048"}
"""Groups that published their controller under a number."""
UNEXPLAINED = 1.4
"""A group whose jobs take so many times as long as played, in the median, had limits that its log does not tell."""


@dataclass(frozen=True)
class GroupResult:
    """The runs of one group, measured and played."""

    group: str
    year: str
    measured_s: tuple[float, ...]
    played_s: tuple[float, ...]
    active: Mapping[str, tuple[float, float]]
    """By job: mean seconds that it ran, measured and played."""
    unseen_s: tuple[float, ...] = ()
    """Makespans played with what groups other than this one say: speeds fitted without it, or factors of its year."""
    unseen_active: Mapping[str, float] = field(default_factory=dict)

    @property
    def spread_s(self) -> float:
        """Standard deviation of the measured makespans of its repeats."""
        return stdev(self.measured_s) if len(self.measured_s) > 1 else 0.0

    @property
    def explained(self) -> bool:
        """Whether jobs took about what their log says they had."""
        return median(a / b for a, b in self.active.values()) <= UNEXPLAINED


@click.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(data: Path) -> None:
    """Play every run of 2023 and 2024 whose load changes every 10 s, and write benchmarks/results/node_runs.*."""
    measurements = load_measurements(data, years=YEARS)
    names = numbered(measurements.years)
    runs = [replace(r, group=names[r.group]) for r in measurements.controlled_runs if r.interval_s == LEAST_INTERVAL_S]
    groups = unseen(runs, load_catalogue())
    machine = describe_machine()
    text = render(groups, left_out(measurements, names)) + "\n\n" + measured_on(machine) + "\n"
    kept = {"machine": machine, "groups": [as_json(g) for g in groups]}
    (RESULTS / "node_runs.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "node_runs.txt").write_text(text, encoding="utf-8")
    click.echo(text, nl=False)


def numbered(years: Mapping[str, str]) -> dict[str, str]:
    """Names of groups by year and number, as docs/calibration.md calls them; the one that published with its number."""
    count: Counter[str] = Counter()
    found = {}
    for group, year in sorted(years.items()):
        count[year] += 1
        found[group] = f"{year}-{count[year]}" + (f" ({PUBLISHED[group]})" if group in PUBLISHED else "")
    return found


def unseen(runs: Sequence[ControlledRun], catalogue: Catalogue) -> list[GroupResult]:
    """Every group played with the bundled profiles, and once more with what the other groups say."""
    groups = play(runs, catalogue)
    found = []
    for g in groups:
        own = [run for run in runs if run.group == g.group]
        if g.year == FITTED_YEAR:
            others = [run for run in runs if run.group != g.group and run.year == FITTED_YEAR]
            plain = without_controlled(catalogue)
            smt = {name: catalogue.machine_types[name + SUFFIX].smt for name in {run.machine_type for run in own}}
            fits = [
                f
                for name, s in smt.items()
                for f in fit_controlled(others, plain, leave_out=False, smt=s)
                if f.of == name
            ]
            (again,) = play(own, with_controlled(plain, fits))
        else:
            (again,) = play(own, catalogue, {g.group: year_factors(g, groups)})
        active = {job: seconds for job, (_, seconds) in again.active.items()}
        found.append(replace(g, unseen_s=again.played_s, unseen_active=active))
    return found


def play(
    runs: Sequence[ControlledRun], catalogue: Catalogue, scales: Mapping[str, Mapping[str, float]] | None = None
) -> list[GroupResult]:
    """Every run, by group. ``scales``: of groups, what each job's work is multiplied by."""
    played: dict[str, list[tuple[ControlledRun, Replayed]]] = defaultdict(list)
    for run in runs:
        scale = (scales or {}).get(run.group, {})
        played[run.group].append((run, replay(run, catalogue, run.machine_type + SUFFIX, scale)))
    found = []
    for group, pairs in sorted(played.items()):
        active = {
            job: (fmean(run.active_s[job] for run, _ in pairs), fmean(r.active_s[job] for _, r in pairs))
            for job in sorted(pairs[0][0].executions)
        }
        measured = tuple(run.makespan_s for run, _ in pairs)
        found.append(GroupResult(group, pairs[0][0].year, measured, tuple(r.makespan_s for _, r in pairs), active))
    return sorted(found, key=lambda g: fmean(g.measured_s))


def year_factors(group: GroupResult, groups: Iterable[GroupResult]) -> dict[str, float]:
    """What each job took longer than played, in the median of the *other* groups of the same year."""
    others = [g for g in groups if g.year == group.year and g.group != group.group and g.explained]
    if not others:
        return {}
    return {job: median(g.active[job][0] / g.active[job][1] for g in others) for job in group.active}


def left_out(data: Measurements, names: Mapping[str, str]) -> list[str]:
    """Runs under a changing load that are not played, and why."""
    return [
        f"{names.get(finding.group, finding.group)}: {finding.text}"
        for finding in data.findings
        if finding.consequence == "left out" and finding.text.startswith(("load runs", "the controller's log"))
    ]


def ties(one: GroupResult, other: GroupResult) -> bool:
    """Whether two groups differ by less than their repeats: twice the larger standard deviation of the two."""
    return abs(fmean(one.measured_s) - fmean(other.measured_s)) <= 2.0 * max(one.spread_s, other.spread_s)


def order(groups: Sequence[GroupResult], played: Callable[[GroupResult], float]) -> tuple[float, list[str], int]:
    """Rank correlation, the pairs in the wrong order, and how many pairs are no ties."""
    from scipy.stats import spearmanr  # a second of CPU time, for those who import this module for anything else

    wrong, clear = [], 0
    for one, other in combinations(groups, 2):
        if ties(one, other):
            continue
        clear += 1
        if (fmean(one.measured_s) < fmean(other.measured_s)) != (played(one) < played(other)):
            wrong.append(
                f"{one.group} {fmean(one.measured_s):.0f} s and {other.group} {fmean(other.measured_s):.0f} s,"
                f" played {played(one):.0f} s and {played(other):.0f} s"
            )
    rank = spearmanr([fmean(g.measured_s) for g in groups], [played(g) for g in groups]).statistic
    return float(rank), wrong, clear


def render(groups: Sequence[GroupResult], unused: Sequence[str]) -> str:
    """Tables and the verdict."""
    clear = [g for g in groups if g.explained]
    own = [g for g in clear if g.year == FITTED_YEAR]
    lines = [
        "Logged runs of controllers, played: makespan in s, mean of repeats.",
        f"Unseen: groups of {FITTED_YEAR} with speeds fitted without them; others with factors of jobs from the other",
        "groups of their year.",
        "",
        *_makespans(groups),
        "",
        "Active seconds of jobs, mean of repeats: measured, played, played unseen",
        "",
        *_active(groups),
        "",
    ]
    for name, some, played in (
        (f"groups of {FITTED_YEAR}, bundled profiles", own, lambda g: fmean(g.played_s)),
        (f"groups of {FITTED_YEAR}, unseen", own, lambda g: fmean(g.unseen_s)),
        ("groups of both years, bundled profiles", clear, lambda g: fmean(g.played_s)),
        ("groups of both years, unseen", clear, lambda g: fmean(g.unseen_s)),
    ):
        rank, wrong, pairs = order(some, played)
        every = len(some) * (len(some) - 1) // 2
        lines.append(
            f"Order of {name}: rank correlation {rank:.2f}; {pairs - len(wrong)} of {pairs} pairs right,"
            f" {every - pairs} more are ties."
        )
        lines += [f"  wrong: {pair}" for pair in wrong]
    lines.append("A tie: means of two groups at most twice the larger standard deviation of their repeats apart.")
    lines += ["", "Played, but not in the order:"]
    lines += [f"  {_unexplained(g)}" for g in groups if not g.explained] or ["  none"]
    return "\n".join([*lines, "", "Not played:", *(f"  {text}" for text in unused)])


def _unexplained(group: GroupResult) -> str:
    ratio = median(a / b for a, b in group.active.values())
    return f"{group.group}: in the median its jobs take {ratio:.2f} times as long: it had limits that its log does not tell"


def _makespans(groups: Sequence[GroupResult]) -> list[str]:
    rows = [["group", "runs", "measured", "sd", "played", "error %", "unseen", "error %"]]
    for g in groups:
        measured = fmean(g.measured_s)
        row = [g.group, str(len(g.measured_s)), f"{measured:.1f}", f"{g.spread_s:.1f}"]
        for played in (g.played_s, g.unseen_s):
            row += [f"{fmean(played):.1f}", f"{100.0 * (fmean(played) / measured - 1.0):+.1f}"]
        rows.append(row)
    return text_table(rows, indent="")


def _active(groups: Sequence[GroupResult]) -> list[str]:
    jobs = list(groups[0].active)
    rows = [["group", *jobs]]
    for g in groups:
        rows.append([g.group, *(f"{g.active[j][0]:.1f} {g.active[j][1]:.1f} {g.unseen_active[j]:.1f}" for j in jobs)])
    off = [f"{median(100.0 * abs(g.unseen_active[j] / g.active[j][0] - 1.0) for g in groups):.1f}" for j in jobs]
    return text_table([*rows, ["unseen, median error %", *off]], indent="")


def as_json(group: GroupResult) -> dict[str, object]:
    """Plain values, seconds to a tenth."""
    return {
        "group": group.group,
        "year": group.year,
        "measured_s": [round(s, 1) for s in group.measured_s],
        "played_s": [round(s, 1) for s in group.played_s],
        "unseen_s": [round(s, 1) for s in group.unseen_s],
        "active_s": {
            job: [round(s, 1) for s in (*group.active[job], group.unseen_active[job])] for job in group.active
        },
    }


if __name__ == "__main__":
    main()
