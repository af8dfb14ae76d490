"""Our policy for shared GPUs and six published ones (FGD, BestFit, ...) on the openb trace, in the published experiment.

Plays the experiment of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023: on 1,213 empty machines pods arrive one at a time until they have asked for 130 % of all GPUs.
Each is placed at once or dropped for good, and none ever leaves. The share of all GPUs that is allocated is told at several
shares that have arrived, as the mean over seeds of the order of arrival.

    python -m benchmarks.openb --list gpuspec33 --seeds 42,43

``gpu-value`` is ours, and is told the shares of the list beforehand, as FGD is; ``gpu-value-online`` knows nothing
beforehand.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine, measured_on
from benchmarks.openb_checks import faults
from benchmarks.openb_playing import GpuPlacements, play_arrivals, random_order
from benchmarks.openb_trace import (
    NODES,
    VARIABLE,
    GpuNodes,
    PodList,
    arrival_orders,
    list_file,
    read_nodes,
    read_pods,
    trace_folder,
)
from benchmarks.openb_value import TIES, ValuePolicy
from flowsched.gpu.demand_prices import PriceProgram
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.document import InputError
from flowsched_models.text_table import text_table
from flowsched_simulator.baselines.gpu.registry import GPU_RULES
from flowsched_simulator.baselines.gpu.rule import GpuOutlook, GpuRule

POLICIES: Mapping[str, GpuRule | ValuePolicy] = {
    **GPU_RULES,
    "gpu-value-online": ValuePolicy(told=False),
    "gpu-value": ValuePolicy(told=True),
}
"""What is played, in this order."""
NODE_ORDERS: Mapping[str, Callable[[GpuOutlook], IntArray]] = {
    "random": random_order,
    "given": lambda outlook: np.arange(len(outlook.names)),
    "reversed": lambda outlook: np.arange(len(outlook.names))[::-1],
    "many": lambda outlook: np.argsort(-outlook.machines.gpus(), kind="stable"),
    "few": lambda outlook: np.argsort(outlook.machines.gpus(), kind="stable"),
}
"""How the machines are listed: drawn from the seed, as in the file, and by their number of GPUs, most or fewest first."""
ARRIVED = (95, 100, 110, 120, 130)
"""% of all GPUs asked for by what has arrived, at which allocation is told."""
RESULTS = Path(__file__).parent / "results"
PUBLISHED = "fgd_published_curves.csv.gz"


@dataclass(frozen=True, eq=False)
class OpenbExperiment:
    """One list on one set of machines."""

    nodes: GpuNodes
    pods: PodList
    orders: Mapping[int, IntArray]
    """By seed: rows of the list in the order of arrival."""

    def outlook(self, seed: int) -> GpuOutlook:
        """What a rule may know of the run with this seed."""
        nodes, pods = self.nodes, self.pods
        return GpuOutlook(nodes.machines, nodes.models, pods.shapes, pods.frequency(), seed, nodes.names)

    def arrivals(self, seed: int) -> IntArray:
        """Shapes in the order of arrival."""
        return self.pods.shape_of[self.orders[seed]]

    def curve(self, seed: int, placements: GpuPlacements) -> dict[int, float]:
        """Allocation in % of all GPUs by % arrived: the mean over all arrivals that round to it, each rounded to 0.01."""
        demand = self.pods.gpu_milli()[self.arrivals(seed)]
        capacity = self.nodes.machines.gpu_capacity_milli()
        arrived = np.rint(100.0 * np.cumsum(demand) / capacity).astype(np.int64)
        taken = np.cumsum(np.where(placements.machine >= 0, demand, 0))
        allocated = np.round(100.0 * taken / capacity, 2)
        sums, counts = np.bincount(arrived, allocated), np.bincount(arrived)
        return {percent: float(sums[percent] / counts[percent]) for percent in np.flatnonzero(counts).tolist()}


def load(name: str, seeds: Sequence[int], folder: Path) -> OpenbExperiment:
    """A list by its name or file, on the machines of the folder. Raises :class:`InputError`."""
    nodes, pods = read_nodes(folder / NODES), read_pods(list_file(folder, name))
    orders = arrival_orders(pods, nodes.machines.gpu_capacity_milli(), seeds, folder)
    return OpenbExperiment(nodes, pods, orders)


def play(policy: GpuRule | ValuePolicy, outlook: GpuOutlook, arrivals: IntArray, order: str) -> GpuPlacements:
    """Play one run, the machines listed in an order of ``NODE_ORDERS``."""
    listed = NODE_ORDERS[order](outlook)
    if isinstance(policy, GpuRule):
        return play_arrivals(policy, outlook, arrivals, listed)
    return policy.play(outlook, arrivals, listed)


def play_policy(
    experiment: OpenbExperiment, policy: GpuRule | ValuePolicy, check: bool = False, order: str = "random"
) -> dict[str, Any]:
    """Allocation by % arrived, mean and standard deviation over the seeds, and CPU times."""
    curves, runs, arrived = list[dict[int, float]](), list[GpuPlacements](), 0
    for seed in experiment.orders:
        outlook, arrivals = experiment.outlook(seed), experiment.arrivals(seed)
        run = play(policy, outlook, arrivals, order)
        if check and (wrong := faults_of(outlook, arrivals, run)):
            raise AssertionError(f"{policy}, seed {seed}: {wrong[0]}")
        curves.append(experiment.curve(seed, run))
        runs.append(run)
        arrived += len(arrivals)
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    spreads = {percent: _spread(np.array([curve[percent] for curve in curves])) for percent in common}
    figures = {
        "allocation": {str(percent): spreads[percent] for percent in ARRIVED if percent in spreads},
        "us_per_placement": 1e6 * sum(run.cpu_s for run in runs) / max(arrived, 1),
        "curve": {str(percent): round(spread["mean"], 3) for percent, spread in spreads.items()},
    }
    if moves := sum(len(run.moves) for run in runs):
        figures["moves"] = moves / len(runs)
    if sets := sum(run.price_sets for run in runs):
        figures["s_per_set_of_prices"] = sum(run.prices_s for run in runs) / sets
        figures["sets_of_prices"] = sets / len(runs)
    return figures


def faults_of(outlook: GpuOutlook, arrivals: IntArray, run: GpuPlacements) -> list[str]:
    """What other arithmetic finds wrong in a run."""
    return faults(outlook.machines, outlook.models, outlook.shapes, arrivals, run.machine, run.device, run.moves)


def _spread(values: FloatArray) -> dict[str, float]:
    """Mean, and the standard deviation of a sample; of one value 0."""
    return {"mean": float(values.mean()), "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0}


def bounds(experiment: OpenbExperiment) -> dict[str, float]:
    """Allocation by % arrived that no policy exceeds, which may leave out what it likes: the mean over the seeds."""
    program = PriceProgram(experiment.nodes.machines, experiment.nodes.models, experiment.pods.shapes)
    capacity, demand = experiment.nodes.machines.gpu_capacity_milli(), experiment.pods.gpu_milli()
    found: dict[int, list[float]] = {percent: [] for percent in ARRIVED}
    for seed in experiment.orders:
        arrivals = experiment.arrivals(seed)
        arrived = 100.0 * np.cumsum(demand[arrivals]) / capacity
        for percent in ARRIVED:
            # What a curve says of x % is a mean over what rounds to it. Allocation never falls, so the last one counts.
            rounded = np.rint(arrived) == percent
            if rounded.any():
                counts = np.bincount(arrivals[: np.flatnonzero(rounded)[-1] + 1], minlength=len(demand))
                most = program.bound(counts) / capacity * 1e5
                found[percent].append(float(np.minimum(arrived[rounded], most).mean()))
    return {str(p): float(np.mean(values)) for p, values in found.items() if len(values) == len(experiment.orders)}


def published(folder: Path, name: str) -> dict[str, float]:
    """Published allocation at 100 % arrived by policy; empty where the folder does not hold it."""
    file = folder / PUBLISHED
    if not file.is_file():
        return {}
    with gzip.open(file, "rt", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["workload"] == name and row["arrived_pct"] == "100"]
    return {row["policy"]: float(row["alloc_mean"]) for row in rows}


def seeds_of(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:  # noqa: ARG001
    """``42..51`` or ``42,43``."""
    try:
        first, dots, last = value.partition("..")
        found = tuple(range(int(first), int(last) + 1)) if dots else tuple(int(part) for part in value.split(","))
    except ValueError:
        found = ()
    if not found or len(set(found)) < len(found) or min(found) < 0:
        raise click.BadParameter(f"must be a range like 42..51 or different numbers like 42,43, got '{value}'")
    return found


@click.command()
@click.option("--list", "name", default="default", show_default=True, help="Name of a list of pods, or a file.")
@click.option(
    "--seeds", default="42..51", show_default=True, callback=seeds_of, help="Orders of arrival: 42..51 or 42,43."
)
@click.option("--policy", "names", multiple=True, type=click.Choice(list(POLICIES)), help="These only.")
@click.option(
    "--node-order",
    "orders",
    multiple=True,
    type=click.Choice(list(NODE_ORDERS)),
    help="How machines are listed: random by the seed (default), as in the file, reversed, many or few GPUs first.",
)
@click.option(
    "--ties",
    multiple=True,
    type=click.Choice(TIES),
    help="Which of equally good machines ours take: by a hash of the name (default), or the first that is listed.",
)
@click.option("--moves", is_flag=True, help="Also ours with one task moved aside for each that fits nowhere.")
@click.option("--data", type=click.Path(path_type=Path), help=f"Folder of the trace, else what {VARIABLE} names.")
@click.option("--check", is_flag=True, help="Also go through every placement by other arithmetic.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--keep", metavar="NAME", help="Keep table and JSON as benchmarks/results/openb-NAME.")
def main(
    name: str,
    seeds: tuple[int, ...],
    names: tuple[str, ...],
    orders: tuple[str, ...],
    ties: tuple[str, ...],
    moves: bool,
    data: Path | None,
    check: bool,
    as_json: bool,
    keep: str | None,
) -> None:
    """Play each policy over the seeds, and print what is allocated in % of all GPUs."""
    folder = trace_folder(data)
    if folder is None:
        raise click.UsageError(f"the openb trace is not here; --data or {VARIABLE} must name its folder")
    try:
        experiment = load(name, seeds, folder)
    except InputError as error:
        raise click.UsageError("\n".join(str(p) for p in error.problems)) from error
    played = {}
    variants = _variants(names or tuple(POLICIES), orders or ("random",), ties or TIES[:1], moves)
    for label, policy, order in variants:
        played[label] = play_policy(experiment, policy, check, order)
        click.echo(f"{label}: {len(seeds)} runs", err=True)
    outcome = {
        "list": experiment.pods.name,
        "seeds": list(seeds),
        "machine": describe_machine(),
        "policies": played,
        "bound": bounds(experiment),
    }
    text, values = table(outcome, published(folder, experiment.pods.name)), json.dumps(outcome, indent=1)
    click.echo(values if as_json else text)
    if keep:
        (RESULTS / f"openb-{keep}.json").write_text(values + "\n", encoding="utf-8")
        (RESULTS / f"openb-{keep}.txt").write_text(text + "\n", encoding="utf-8")


def _variants(
    names: Sequence[str], orders: Sequence[str], ties: Sequence[str], moves: bool
) -> Iterator[tuple[str, GpuRule | ValuePolicy, str]]:
    """What is played: a label, the policy, and how machines are listed. Labels say what differs."""
    for name in names:
        policy = POLICIES[name]
        own = [(name, policy)]
        if isinstance(policy, ValuePolicy):
            moving = (False, True) if moves else (False,)
            own = [
                (
                    name + (f", ties {tie}" if len(ties) > 1 else "") + (", moves" if move else ""),
                    replace(policy, ties=tie, moves=move),
                )
                for tie, move in itertools.product(ties, moving)
            ]
        for (label, chosen), order in itertools.product(own, orders):
            yield label + (f", nodes {order}" if len(orders) > 1 else ""), chosen, order


def table(outcome: Mapping[str, Any], known: Mapping[str, float]) -> str:
    """A line for each policy; ``known``: published allocation at 100 % arrived."""
    head = ["policy", *(f"at {percent} %" for percent in ARRIVED), "published at 100 %", "us a placement"]
    lines = [[*head, "s a set of prices", "moves"]]
    for name, figures in outcome["policies"].items():
        spreads = [figures["allocation"].get(str(percent)) for percent in ARRIVED]
        cells = [f"{spread['mean']:.2f} ± {spread['std']:.2f}" if spread else "" for spread in spreads]
        per_set = figures.get("s_per_set_of_prices")
        cells += [f"{known[name]:.2f}" if name in known else "", f"{figures['us_per_placement']:.1f}"]
        moves = figures.get("moves")
        lines.append([name, *cells, *("" if value is None else f"{value:.2f}" for value in (per_set, moves))])
    limits = [outcome["bound"].get(str(percent)) for percent in ARRIVED]
    lines.append(["no policy exceeds", *("" if limit is None else f"{limit:.2f}" for limit in limits), *[""] * 4])
    seeds = outcome["seeds"]
    title = f"{outcome['list']}: allocated GPUs in % of all, by % arrived; mean ± deviation over {len(seeds)} orders"
    times = f"Times are of the CPU. {measured_on(outcome['machine'])}"
    return "\n".join([title, "", *text_table(lines), "", times])


if __name__ == "__main__":
    main()
