"""The verdict: which policy is best by the scenario's objective, by how much, and whether services kept their SLO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowsched_simulator.report.number import fixed
from flowsched_simulator.report.table import OWN_POLICY

GOALS = {"makespan": ("makespan_s", "makespan"), "completion": ("mean_completion_s", "mean completion time")}
"""Of each objective of a scenario: the figure that it is judged by, and its name."""


@dataclass(frozen=True)
class _Standing:
    """A policy's figures as a reader sees them: equal here means equal as shown."""

    name: str
    value_s: float
    """The objective's figure, to a tenth of a second."""
    over: float
    """Windows over the SLO, to a tenth of a per cent."""
    broken: bool
    """Whether any window was over the SLO."""

    @property
    def rank(self) -> tuple[float, float]:
        """The SLO first, as the best variant of a baseline is chosen."""
        return self.over, self.value_s


def verdict(table: Sequence[Mapping[str, Any]], objective: str, own: str = OWN_POLICY, unit: str = "windows") -> str:
    """Return what the comparison table comes to, in a sentence or two; empty where there is nothing to compare.

    ``own`` is the policy that is told of even where it is neither best nor second; ``unit`` is what latency is counted in.
    """
    if not table:
        return ""
    key, goal = GOALS.get(objective, GOALS["makespan"])
    done = [_standing(row, key) for row in table if row.get(key) is not None]
    unfinished = [row["policy"] for row in table if row.get(key) is None]
    if not done:
        return "The run did not finish all jobs." if len(table) == 1 else "No policy finished all jobs."
    least = min(one.rank for one in done)
    best = [one for one in done if one.rank == least]
    rest = sorted((one for one in done if one.rank != least), key=lambda one: one.rank)
    services = any(row.get("worst_p95_us") is not None for row in table)
    quicker = min((one for one in rest if one.value_s < best[0].value_s), key=lambda one: one.value_s, default=None)
    says_slo = services and (quicker is None or best[0].broken)
    words = _lead(best, rest, goal, unit) + (_kept(best, rest, unit) if says_slo else "") + "."
    if quicker is not None:
        words += (
            f" {quicker.name} has a {goal} of {_seconds(quicker)}, but is over the SLO in "
            f"{fixed(quicker.over, 1)} % of the {unit}."
        )
    behind = next((one for one in rest[1:] if one.name == own), None)
    if behind is not None and behind is not quicker and best[0].value_s:
        words += f" {own}: {_seconds(behind)}, {_change(behind.value_s / best[0].value_s - 1)}."
    if unfinished:
        words += f" {_names(unfinished)} did not finish all jobs."
    words += _counts(table, "missed", "No deadline is missed.", "Deadlines missed")
    return words + _counts(table, "killed", "No job is killed at its walltime.", "Jobs killed at their walltime")


def ranking(table: Sequence[Mapping[str, Any]], objective: str) -> list[str]:
    """Return the policies that finished all jobs, the best by the objective first."""
    key, _ = GOALS.get(objective, GOALS["makespan"])
    done = [_standing(row, key) for row in table if row.get(key) is not None]
    return [one.name for one in sorted(done, key=lambda one: one.rank)]


def _standing(row: Mapping[str, Any], key: str) -> _Standing:
    ratio = float(row.get("slo_violation_ratio") or 0.0)
    return _Standing(row["policy"], round(float(row[key]), 1), round(100 * ratio, 1), ratio > 0)


def _lead(best: Sequence[_Standing], rest: Sequence[_Standing], goal: str, unit: str) -> str:
    """Who is best, and by how much: less than the runner-up, unless that one is quicker and breaks the SLO more often."""
    names, value, one_only = _names([one.name for one in best]), _seconds(best[0]), len(best) == 1
    if not rest:
        return f"{names} has a {goal} of {value}" if one_only else f"{names} have the same {goal}, {value}"
    if all(best[0].value_s <= one.value_s for one in rest):
        lead = f"{names} {'has' if one_only else 'share'} the least {goal}, {value}"
    elif best[0].broken:
        lead = f"{names} {'has' if one_only else 'have'} the fewest {unit} over the SLO, and a {goal} of {value}"
    else:
        lead = f"{names} {'has' if one_only else 'share'} the least {goal} of the policies that keep the SLO, {value}"
    runner_up = rest[0]
    if runner_up.value_s <= best[0].value_s:
        return lead
    less = fixed(100 * (1 - best[0].value_s / runner_up.value_s), 1)
    return f"{lead}: {less} % less than the runner-up, {runner_up.name} ({_seconds(runner_up)})"


def _kept(best: Sequence[_Standing], rest: Sequence[_Standing], unit: str) -> str:
    """How the best stand to the SLO, and whether the others differ."""
    if any(one.broken for one in best):
        return f"; services are over their SLO in {fixed(best[0].over, 1) if best[0].over else '<0.1'} % of the {unit}"
    broke = sum(one.broken for one in rest)
    if not broke:
        return f", with every service within its SLO{' (as with all policies)' if rest else ''}"
    return f", with every service within its SLO, which {broke} of the others {'break' if broke > 1 else 'breaks'}"


def _counts(table: Sequence[Mapping[str, Any]], key: str, none: str, words: str) -> str:
    """How many deadlines the policies miss, or jobs they have killed, in the order of the table; empty where none can be."""
    counts = [(row["policy"], row[key]) for row in table if row.get(key) is not None]
    if not counts:
        return ""
    if not any(count for _, count in counts):
        return f" {none}"
    return f" {words}: {', '.join(f'{policy} {count}' for policy, count in counts)}."


def _seconds(one: _Standing) -> str:
    return f"{fixed(one.value_s, 1)} s"


def _change(share: float) -> str:
    return f"{fixed(100 * share, 1)} % more" if share >= 0 else f"{fixed(-100 * share, 1)} % less"


def _names(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{names[0]} and {len(names) - 1} other policies"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
