"""Part `ablation` of `benchmarks.engine`: the same rounds with the network replaced by a greedy, and by improvement alone.

Over time: every workload is simulated with each of the three, which gives mean penalty and mean completion of the runs; in
the run of the network both others decide every round too, on the same snapshot, which gives the share of rounds whose
decisions differ, that of the network's placements which the other does not make, and what the rounds' plans cost by the
yardstick of `engine_penalty`. Single rounds: many tasks without an end, measured by interference alone.

A network is *contested* if two tasks or more could take the same machine. Its share is of the networks of two waiting tasks
or more, those of plans that a round did not keep included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.engine_demo import demo_variations
from benchmarks.engine_hooks import (
    ABLATIONS,
    GREEDY,
    IMPROVEMENT,
    NETWORK,
    assign_by,
    contested_networks,
    decided_by_network,
)
from benchmarks.engine_penalty import Yardstick, interference
from benchmarks.engine_snapshots import one_per_machine, tight
from benchmarks.engine_text import aligned, bar, bar_lines, number, ratio
from benchmarks.engine_worker import run_variants, settings_with
from benchmarks.engine_workloads import EIGHT, SIXTY, WIDE, Crowd, crowd_document, scenario_document, write
from flowsched import solve
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.snapshot import Snapshot
from flowsched_models.runtime import HostFactory
from flowsched_simulator import EngineOptions, Scenario, load_scenario
from flowsched_simulator.policies import schedulers

HIGHEST_LOAD = 1.19
DEMO, ONE_PER_MACHINE = "demo", "one per machine"
BULK: dict[str, Callable[[], Snapshot]] = {
    ONE_PER_MACHINE: one_per_machine,
    "20 classes, tight": lambda: tight(400, 2400, 20),
    "200 classes, tight": lambda: tight(400, 2400, 200),
}
QUICK_BULK: dict[str, Callable[[], Snapshot]] = {ONE_PER_MACHINE: lambda: one_per_machine(6, 2, 8)}
WORSE_LIMIT, COMPLETION_LIMIT, SCARCE_LIMIT, STANDS_LIMIT, CONTESTED_LIMIT = 1.005, 0.99, 0.97, 0.9, 0.75


@dataclass
class Shadow:
    """Another scheduler that decides the same rounds; its decisions are compared and not carried out."""

    other: Scheduler
    rounds: int = 0
    differ: int = 0
    changed: int = 0
    """Placements of the decisions beside it that it does not make."""
    penalty: float = 0.0

    def look(self, snapshot: Snapshot, decisions: Decisions, yardstick: Yardstick) -> None:
        theirs = self.other.decide(snapshot)
        self.rounds += 1
        self.differ += chosen(theirs) != chosen(decisions)
        self.changed += len(chosen(decisions) - chosen(theirs))
        self.penalty += yardstick.total(theirs)


@dataclass
class Watch:
    """Looks at every round of a run of the network."""

    hosts: HostFactory
    shadows: dict[str, Shadow]
    penalty: float = 0.0
    placed: int = 0
    stand: int | None = 0
    """Placements that stand as a network decided them; None once a round has not counted them."""
    contested: int = 0
    networks: int = 0
    """Of two waiting tasks or more."""

    def __call__(self, snapshot: Snapshot, decisions: Decisions) -> None:
        yardstick = Yardstick(snapshot, self.hosts)
        self.penalty += yardstick.total(decisions)
        self.placed += len(decisions.placements)
        count = decided_by_network(decisions)
        self.stand = None if self.stand is None or count is None else self.stand + count
        contested, networks = contested_networks(decisions)
        self.contested, self.networks = self.contested + contested, self.networks + networks
        for shadow in self.shadows.values():
            shadow.look(snapshot, decisions, yardstick)


def chosen(decisions: Decisions) -> frozenset[tuple[str, str, int]]:
    """What a round starts: task, machine, width."""
    return frozenset((p.task, p.machine, p.width_milli) for p in decisions.placements)


def measure(
    loads: Sequence[float], seeds: Sequence[int], quick: bool, workloads: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """One row per workload; ``workloads``: beginnings of the names of those that are measured, empty for all. Fails at once
    where the engine's network cannot be replaced.
    """
    assign_by(NETWORK)
    asked = tuple(workloads) or ("",)
    with tempfile.TemporaryDirectory() as folder:
        for workload, document in over_time(loads, seeds, quick):
            if workload.startswith(asked):
                yield simulated(workload, load_scenario(write(document, Path(folder))))
    for name, make in (QUICK_BULK if quick else BULK).items():
        if name.startswith(asked):
            yield single_round(name, make())


def over_time(loads: Sequence[float], seeds: Sequence[int], quick: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """(workload, scenario file): one name for all seeds and variations of a workload."""
    if quick:
        yield "3 machines", crowd_document(Crowd(1, 4, 5), HIGHEST_LOAD, 0)
        return
    for _, scenario in demo_variations():
        yield DEMO, scenario_document(scenario)
    for seed in seeds:
        yield f"8 machines at {HIGHEST_LOAD:.0%}", crowd_document(EIGHT, HIGHEST_LOAD, seed)
    for load in loads:
        for seed in seeds:
            yield f"60 machines at {load:.0%}", crowd_document(SIXTY, load, seed)
    for seed in seeds:
        yield f"wide tasks at {HIGHEST_LOAD:.0%}", crowd_document(WIDE, HIGHEST_LOAD, seed)


def simulated(workload: str, scenario: Scenario) -> dict[str, Any]:
    """A run with each of the three, and the same rounds decided by all of them."""
    hosts = HostFactory(scenario.catalogue)
    watch = Watch(hosts, {kind: Shadow(engine(scenario, kind, hosts)) for kind in (GREEDY, IMPROVEMENT)})
    runs = {}
    for kind in ABLATIONS:
        (runs[kind],) = run_variants(scenario, "flow", assign_by(kind), watch if kind == NETWORK else None)
        click.echo(f"{workload}, {scenario.name}, {kind}: {number(runs[kind]['mean_completion_s'])} s", err=True)
    return {
        "workload": workload,
        "scenario": scenario.name,
        "runs": runs,
        "rounds": {
            NETWORK: {"penalty": watch.penalty},
            **{
                kind: {
                    "penalty": s.penalty,
                    "differ": s.differ / max(1, s.rounds),
                    "changed": s.changed / max(1, watch.placed),
                }
                for kind, s in watch.shadows.items()
            },
        },
        "placed": {NETWORK: watch.placed},
        "stand": None if watch.stand is None else watch.stand / max(1, watch.placed),
        "contested": [watch.contested, watch.networks],
    }


def engine(scenario: Scenario, kind: str, hosts: HostFactory) -> Scheduler:
    """The engine with one of the three."""
    ((_, scheduler),) = schedulers("flow", scenario, 0, EngineOptions(settings_with(assign_by(kind))), hosts)
    return scheduler


def single_round(workload: str, snapshot: Snapshot) -> dict[str, Any]:
    """One round of many tasks, decided by all three."""
    found = {kind: solve(snapshot, settings=settings_with(assign_by(kind))) for kind in ABLATIONS}
    stand = decided_by_network(found[NETWORK])
    click.echo(f"{workload}: placed {', '.join(f'{k} {len(d.placements)}' for k, d in found.items())}", err=True)
    return {
        "workload": workload,
        "scenario": workload,
        "runs": {},
        "rounds": {
            kind: {
                "penalty": interference(snapshot, decisions) / max(1, len(decisions.placements)),
                "differ": float(chosen(decisions) != chosen(found[NETWORK])),
                "changed": len(chosen(found[NETWORK]) - chosen(decisions)) / max(1, len(found[NETWORK].placements)),
            }
            for kind, decisions in found.items()
        },
        "placed": {kind: len(decisions.placements) for kind, decisions in found.items()},
        "stand": None if stand is None else stand / max(1, len(found[NETWORK].placements)),
        "contested": list(contested_networks(found[NETWORK])),
    }


def summed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per workload and other way of assigning: the network over it, in the mean over the workload's scenarios."""
    found = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        here = [row for row in rows if row["workload"] == workload]
        for kind in (GREEDY, IMPROVEMENT):
            line: dict[str, Any] = {"workload": workload, "other": kind, "scenarios": len(here)}
            for key in ("mean_penalty", "mean_completion_s", "makespan_s"):
                line[key] = over([(r["runs"][NETWORK][key], r["runs"][kind][key]) for r in here if r["runs"]])
            line["round_penalty"] = over(
                [(r["rounds"][NETWORK]["penalty"], r["rounds"][kind]["penalty"]) for r in here]
            )
            line["differ"] = sum(r["rounds"][kind]["differ"] for r in here) / len(here)
            changed = [r["rounds"][kind].get("changed") for r in here]
            line["changed"] = None if None in changed else sum(changed) / len(here)
            line["contested"] = contested(here)
            stands = [r["stand"] for r in here]
            line["stand"] = None if None in stands else sum(stands) / len(stands)
            placed = [(r["placed"][NETWORK], r["placed"][kind]) for r in here if kind in r["placed"]]
            line["placed"] = placed[0] if placed else None
            found.append(line)
    return found


def contested(rows: Sequence[dict[str, Any]]) -> float | None:
    """Share of networks that are contested; None where a row does not say it, or none had two tasks."""
    counts = [row.get("contested") for row in rows]
    if None in counts or not sum(networks for _, networks in counts):
        return None
    return ratio(sum(many for many, _ in counts), sum(networks for _, networks in counts))


def over(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Sum of the firsts over the sum of the seconds; None where a figure is missing."""
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not known or len(known) < len(pairs):
        return None
    return ratio(sum(a for a, _ in known), sum(b for _, b in known))


def bars(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the network has to keep to beside the greedy at the same prices."""
    found = []
    for line in summed(rows):
        if line["other"] != GREEDY:
            continue
        name = line["workload"]
        penalty = line["round_penalty"] if line["mean_penalty"] is None else line["mean_penalty"]
        if name == DEMO:  # what these scenarios ask for is a makespan
            found.append(bar(f"{name}: makespan over the greedy's", line["makespan_s"], WORSE_LIMIT))
            what = f"{name}: share of networks of two tasks or more that are contested"
            found.append(bar(what, line["contested"], CONTESTED_LIMIT, least=True))
        else:
            found.append(bar(f"{name}: mean penalty over the greedy's", penalty, WORSE_LIMIT))
        if name == f"60 machines at {HIGHEST_LOAD:.0%}":
            found.append(bar(f"{name}: mean completion over the greedy's", line["mean_completion_s"], COMPLETION_LIMIT))
        if name in BULK:
            more = line["placed"] is not None and line["placed"][0] > line["placed"][1]
            what = f"{name}: mean penalty over the greedy's, or more tasks placed"
            found.append({**bar(what, penalty, SCARCE_LIMIT), **({"met": True} if more else {})})
    found.append(
        bar("share of all placements that stand as a network decided them", standing(rows), STANDS_LIMIT, least=True)
    )
    return found


def standing(rows: Sequence[dict[str, Any]]) -> float | None:
    """Of all placements of the network's runs and rounds, those that stand as a network decided them."""
    known = [
        (row["stand"] * row["placed"][NETWORK], row["placed"][NETWORK]) for row in rows if row["stand"] is not None
    ]
    if not known or len(known) < len(rows):
        return None
    return ratio(sum(a for a, _ in known), sum(b for _, b in known))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The network over each other way, workload by workload, then the bars."""
    lines = [["workload", "over", "runs", "mean penalty", "mean completion", "makespan", "penalty of the same rounds"]]
    lines[0] += ["rounds that differ", "placements that change", "contested", "stand", "placed"]
    for line in summed(rows):
        lines.append(
            [
                line["workload"],
                ABLATIONS[line["other"]],
                str(line["scenarios"]),
                *(number(line[k], 3) for k in ("mean_penalty", "mean_completion_s", "makespan_s", "round_penalty")),
                f"{line['differ']:.0%}",
                *("-" if line[k] is None else f"{line[k]:.0%}" for k in ("changed", "contested")),
                "-" if line["stand"] is None else f"{line['stand']:.0%}",
                "-" if line["placed"] is None else "{} / {}".format(*line["placed"]),
            ]
        )
    head = "the network over the other way of assigning, at the same prices; below 1 the network is better:"
    return "\n\n".join([head, aligned(lines), bar_lines(bars(rows))])
