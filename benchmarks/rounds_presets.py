"""The workloads that `benchmarks.rounds` measures, and what they are to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLASSES = 60
PERIOD_S = 10.0
"""Seconds of the cluster's clock between two rounds; only ages depend on it."""


@dataclass(frozen=True)
class Goal:
    """A figure of a result that is to stay below a limit, or reach it where ``least``."""

    figure: str
    limit: float
    least: bool = False

    def plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The goal beside what was measured; None where that figure was not."""
        value = row.get(self.figure)
        met = None if value is None else bool(value >= self.limit if self.least else value < self.limit)
        return {"figure": self.figure, "least": self.least, "limit": self.limit, "measured": value, "met": met}


@dataclass(frozen=True)
class Preset:
    """One workload. Which of the fields count depends on the course that it is run by."""

    name: str
    course: str
    """``churn``, ``single``, ``burst``: see :mod:`benchmarks.rounds_course`; ``quincy``, ``quincy-incremental``: the
    networks with data locality, which do not compact."""
    machines: int
    told: str
    """What it is, in a sentence for the page."""
    goals: tuple[Goal, ...]
    use: float = 0.9
    """Share of all cores that runs tasks as a round begins."""
    churn: float = 0.01
    """Share of the running tasks that leaves before each round, while as many come."""
    waiting: int = 0
    """Tasks that wait as a round begins: what leaves brings the use down to ``use``, what comes fills this up."""
    tasks: int = 0
    """Tasks that come at once."""
    rounds: int = 200
    gap_every: int = 1
    """Every so many rounds there is a certificate."""


PRESETS: Mapping[str, Preset] = {
    p.name: p
    for p in (
        Preset(
            "google",
            "churn",
            12_500,
            "12,500 machines, 90 % of the cores used, 1 % of the running tasks leave before each round and as many come.",
            (Goal("p95_ms", 20.0), Goal("gap_p95", 0.02)),
        ),
        Preset(
            "google-98",
            "churn",
            12_500,
            "12,500 machines; as each round begins, 98 % of the cores are used and 5,000 tasks wait.",
            (Goal("p95_ms", 40.0),),
            use=0.98,
            waiting=5_000,
            gap_every=4,
        ),
        Preset(
            "huge",
            "churn",
            100_000,
            "100,000 machines, 90 % of the cores used, 1 % churn; memory is the process's peak, set-up included.",
            (Goal("p95_ms", 200.0), Goal("rss_mib", 4096.0)),
            gap_every=10,
        ),
        Preset(
            "single-pod",
            "single",
            12_500,
            "12,500 idle machines; before each round one task comes and the oldest of ten leaves.",
            (Goal("p95_ms", 2.0),),
            use=0.0,
            tasks=10,
        ),
        Preset(
            "poseidon",
            "burst",
            2_700,
            "2,700 idle machines, 35,000 tasks that arrive at once, all decided in one round; Poseidon's published table "
            "has 12.96 s for it.",
            (Goal("p95_ms", 500.0),),
            use=0.0,
            churn=1.0,
            tasks=35_000,
            gap_every=20,
        ),
        Preset(
            "quincy",
            "quincy",
            12_500,
            "Data-locality preferences, every task in the graph, from scratch; the ratio is a whole round (build, solve, "
            "decode) by OR-tools' own solve.",
            (Goal("ratio", 1.25),),
            churn=1.0,
            rounds=20,
        ),
        Preset(
            "quincy-incremental",
            "quincy-incremental",
            12_500,
            "The same with 1 % churn, from the last flow; the ratio is how many times faster that is than OR-tools from "
            "scratch, at 90 % use and at 98 %.",
            (Goal("ratio", 10.0, least=True), Goal("ratio_98", 3.0, least=True)),
        ),
    )
}


def judged(preset: Preset, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The preset's goals beside what was measured."""
    return [goal.plain(row) for goal in preset.goals]


def goal_sentences(goals: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence per goal."""
    found = []
    for goal in goals:
        side = "at least" if goal["least"] else "under"
        answer = {True: "met", False: "missed", None: "not measured"}[goal["met"]]
        measured = "" if goal["measured"] is None else f" ({goal['measured']:.4g})"
        found.append(f"goal: {goal['figure']} {side} {goal['limit']:g}: {answer}{measured}")
    return found
