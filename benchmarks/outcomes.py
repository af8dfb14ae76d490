"""What the engine decides on known inputs, against what it decided before: --check; --write after decisions changed.

Cases are bundled scenarios and examples under `flow`, cost models and a baseline, the 24 variations, snapshot files, and
Kubernetes events as they were recorded. Of each round stand placements with their cores and devices, preemptions, moves and
reservations (`places`), and why the others wait (`causes`): nothing of records, costs or times. Stored is a digest of each
case and a short one of every round, so that the first round that differs is known; --show CASE prints rounds in words, to be
compared with what another commit prints.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.engine_demo import demo_variations
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions, Scheduler, decider
from flowsched.cluster.played_events import find_player
from flowsched.cluster.settings import Settings
from flowsched.records.snapshot_source import load_snapshot
from flowsched_models.runtime import HostFactory
from flowsched_simulator import Scenario, load_scenario
from flowsched_simulator.policies import EngineOptions, schedulers, schedulers_with
from flowsched_simulator.simulation import Options, Simulation

RESULTS = Path(__file__).parent / "results"
STORED = RESULTS / "outcomes.json"
EVENTS = RESULTS / "events"
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
FLOW, LINEAR = "flow", "flow-network"
RUNS = {
    "parsec-memcached-2024": (LINEAR, "quincy", "fcfs"),
    "parsec-memcached-2024-c": (LINEAR,),
    "memcached-tight-goal": (FLOW, LINEAR, "load-spreading"),
    "parsec-poisson": (FLOW, LINEAR, "coco"),
    "thesis-table-7": (FLOW,),
    "thesis-100-jobs": (FLOW, "gpu-best-fit"),
    "open-cluster.yaml": (FLOW, LINEAR, "shortest-job-first"),
    "flood.yaml": (LINEAR, "fcfs"),
    "shared-gpus.yaml": (FLOW,),
    "remote-gpus.yaml": ("drmaestro",),
}
"""Policies by scenario: a bundled one, or a file of the documentation. Under `flow` some are among the variations."""
SNAPSHOTS = ("snapshot.yaml", "turns.yaml", "waiting.yaml")
MODELS = (FLOW, LINEAR, "quincy", "coco", "trivial")
SHORT = 4
"""Hexadecimal digits of a round's digest."""


class Round(NamedTuple):
    """A round in words."""

    now_s: float
    places: tuple[str, ...]
    causes: tuple[str, ...]


Rounds = Iterable[Round]


class Watched:
    """A scheduler whose decisions are taken down."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Nothing is decided yet."""
        self._scheduler = scheduler
        self.rounds: list[Round] = []

    def __getattr__(self, name: str) -> Any:
        """All else is the scheduler's own."""
        return getattr(self._scheduler, name)

    def decide_on(self, state: ClusterState, now_s: float) -> Decisions:
        """As the scheduler decides."""
        decisions = decider(self._scheduler)(state, now_s)
        self.rounds.append(in_words(now_s, decisions))
        return decisions


def in_words(now_s: float, decided: Decisions) -> Round:
    """A round as it is compared."""

    def place(what: str, one: Any) -> str:
        cores = ",".join(map(str, one.cores))
        return f"{what} {one.task} {one.machine} {one.width_milli}m {one.threads} threads {cores} {one.devices}"

    places = [
        *(f"preempt {p.task} {p.machine} for {p.room_for}" for p in decided.preemptions or ()),
        *(place(f"move from {m.source}", m) for m in decided.moves or ()),
        *(place("start", p) for p in decided.placements),
        *(f"reserve {r.machine} for {r.task} {r.width_milli}m" for r in decided.reservations),
    ]
    planned = {p.task: f"; planned {p.machine} {p.slot} {p.width_milli}m" for p in decided.plan}
    return Round(
        now_s,
        tuple(sorted(places)),
        tuple(sorted(f"wait {p.task}: {p.reason}{planned.get(p.task, '')}" for p in decided.postponements)),
    )


def simulated(scenario: Scenario | str, policy: str) -> Rounds:
    """The rounds of a run, of a scenario or of one to be found by its name; of a baseline's variants the first one's."""
    if isinstance(scenario, str):
        scenario = load_scenario(scenario)
    hosts = HostFactory(scenario.catalogue)
    _, scheduler = next(iter(schedulers(policy, scenario, 0, EngineOptions(), hosts)))
    watched = Watched(scheduler)
    Simulation(scenario, watched, Options(), hosts=hosts).run()
    return watched.rounds


def solved(path: Path, policy: str) -> Rounds:
    """The round of a snapshot file."""
    snapshot = load_snapshot(path)
    _, scheduler = next(iter(schedulers_with(policy, Settings(), 0, EngineOptions(), None)))
    return [in_words(snapshot.now_s, scheduler.decide(snapshot))]


def played(path: Path) -> Rounds:
    """What was recorded and what is decided now are compared by the player: a round in words for the verdict."""
    return [Round(0.0, (find_player()(path, None).verdict(),), ())]


def cases() -> dict[str, Callable[[], Rounds]]:
    """What decides each case, by its name."""
    found: dict[str, Callable[[], Rounds]] = {}
    for name, policies in RUNS.items():
        place = str(EXAMPLES / name) if name.endswith(".yaml") else name
        found |= {f"{name} {policy}": partial(simulated, place, policy) for policy in policies}
    found |= {f"{what} {FLOW}": partial(simulated, scenario, FLOW) for what, scenario in demo_variations()}
    for name in SNAPSHOTS:
        found |= {f"{name} {policy}": partial(solved, EXAMPLES / name, policy) for policy in MODELS}
    found |= {f"events {path.name}": partial(played, path) for path in sorted(EVENTS.glob("*.jsonl.gz"))}
    return found


def digests(rounds: Rounds) -> dict[str, Any]:
    """What is stored of a case."""
    kept = list(rounds)
    short = [hashlib.sha256("\n".join(r.places + r.causes).encode()).hexdigest()[:SHORT] for r in kept]
    found: dict[str, Any] = {"rounds": len(kept), "starts": sum(p.startswith("start") for r in kept for p in r.places)}
    for part in ("places", "causes"):
        text = "\n".join(line for i, r in enumerate(kept) for line in (f"round {i} at {r.now_s!r}", *getattr(r, part)))
        found[part] = hashlib.sha256(text.encode()).hexdigest()
    return found | {"each": "".join(short)}


def differences(stored: Mapping[str, Any], rounds: Rounds) -> list[str]:
    """Where a case is not what it was, in words; none where it is."""
    kept = list(rounds)
    now = digests(kept)
    if now == stored:
        return []
    parts = [part for part in ("rounds", "starts", "places", "causes") if now[part] != stored[part]]
    told = [f"{part} differ: {now[part]} now, {stored[part]} before" for part in parts]
    before, after = (
        [text[i : i + SHORT] for i in range(0, len(text), SHORT)] for text in (stored["each"], now["each"])
    )
    first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if first is not None:
        told += [f"the first round that differs is {first}, at {kept[first].now_s!r} s; now it says:"]
        told += [f"  {line}" for line in (*kept[first].places, *kept[first].causes)][:20]
    return told


def stored() -> dict[str, Any]:
    """The digests by case."""
    found: dict[str, Any] = json.loads(STORED.read_text())
    return found


def chosen(only: str) -> Iterator[tuple[str, Callable[[], Rounds]]]:
    """Cases whose names contain a text."""
    return ((name, decide) for name, decide in cases().items() if only in name)


@click.command(help=__doc__)
@click.option("--check", "mode", flag_value="check", default=True, help="Compare with what is stored (the default).")
@click.option("--write", "mode", flag_value="write", help="Store what is decided now.")
@click.option("--show", metavar="CASE", default="", help="Print the rounds of the cases with this in their names.")
@click.option("--only", metavar="TEXT", default="", help="Cases with this in their names only.")
def main(mode: str, show: str, only: str) -> None:
    """Run cases."""
    if show:
        for name, decide in chosen(show):
            click.echo(f"{name}")
            for number, told in enumerate(decide()):
                click.echo("\n".join([f"round {number} at {told.now_s!r} s", *told.places, *told.causes]))
        return
    known = stored() if STORED.exists() else {}
    wrong, there = 0, cases()
    for name, decide in chosen(only):
        began = time.process_time()
        rounds = list(decide())
        if mode == "write":
            known[name] = digests(rounds)
            STORED.write_text(
                json.dumps({name: known[name] for name in sorted(known) if name in there}, indent=1) + "\n"
            )
            told = []
        else:
            told = differences(known[name], rounds) if name in known else ["nothing is stored of it: --write"]
        wrong += bool(told)
        click.echo(f"{name}: {len(rounds)} rounds, {time.process_time() - began:.2f} s" + ", differs" * bool(told))
        for line in told:
            click.echo(f"  {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
