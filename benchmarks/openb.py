"""FGD, BestFit, GpuPacking, GpuClustering, DotProd and Random on the openb trace of shared GPUs, as they were published.

Plays the experiment of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023: on 1,213 empty machines pods arrive one at a time until they have asked for 130 % of all GPUs.
Each is placed at once or dropped for good, and none ever leaves. The share of all GPUs that is allocated is told at several
shares that have arrived, as the mean over seeds of the order of arrival.

    python -m benchmarks.openb --list gpuspec33 --seeds 42,43
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.openb_checks import faults
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
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.document import InputError
from flowsched_models.text_table import text_table
from flowsched_simulator.baselines.gpu.playing import GpuPlacements, play_arrivals
from flowsched_simulator.baselines.gpu.registry import GPU_RULES
from flowsched_simulator.baselines.gpu.rule import GpuOutlook, GpuRule

POLICIES: Mapping[str, GpuRule] = GPU_RULES
"""What is played, in this order."""
ARRIVED = (95, 100, 110, 120, 130)
"""% of all GPUs asked for by what has arrived, at which allocation is told."""
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
        return GpuOutlook(self.nodes.machines, self.nodes.models, self.pods.shapes, self.pods.frequency(), seed)

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


def play_policy(experiment: OpenbExperiment, rule: GpuRule, check: bool = False) -> dict[str, Any]:
    """Allocation by % arrived, mean and standard deviation over the seeds, and CPU time of a decision."""
    curves, decision_us = list[dict[int, float]](), list[float]()
    for seed in experiment.orders:
        outlook, arrivals = experiment.outlook(seed), experiment.arrivals(seed)
        placements = play_arrivals(rule, outlook, arrivals)
        if check:
            models, shapes = outlook.models, outlook.shapes
            if wrong := faults(outlook.machines, models, shapes, arrivals, placements.machine, placements.device):
                raise AssertionError(f"{rule.name}, seed {seed}: {wrong[0]}")
        curves.append(experiment.curve(seed, placements))
        decision_us.append(1e6 * placements.cpu_s / len(arrivals))
    reached = [percent for percent in ARRIVED if all(percent in curve for curve in curves)]
    allocation = {str(percent): _spread(np.array([curve[percent] for curve in curves])) for percent in reached}
    return {"allocation": allocation, "us_per_placement": float(np.mean(decision_us))}


def _spread(values: FloatArray) -> dict[str, float]:
    """Mean, and the standard deviation of a sample; of one value 0."""
    return {"mean": float(values.mean()), "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0}


def bounds(experiment: OpenbExperiment) -> dict[str, float]:  # noqa: ARG001
    """Allocation by % arrived that no policy exceeds; empty as long as nothing computes one."""
    return {}


def published(folder: Path, name: str) -> dict[str, float]:
    """Published allocation at 100 % arrived by policy; empty where the folder does not hold it."""
    file = folder / PUBLISHED
    if not file.is_file():
        return {}
    with gzip.open(file, "rt", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["workload"] == name and row["arrived_pct"] == "100"]
    return {row["policy"]: float(row["alloc_mean"]) for row in rows}


def _seeds(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:  # noqa: ARG001
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
    "--seeds", default="42..51", show_default=True, callback=_seeds, help="Orders of arrival: 42..51 or 42,43."
)
@click.option("--policy", "names", multiple=True, type=click.Choice(list(POLICIES)), help="These only.")
@click.option("--data", type=click.Path(path_type=Path), help=f"Folder of the trace, else what {VARIABLE} names.")
@click.option("--check", is_flag=True, help="Also go through every placement by other arithmetic.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(
    name: str, seeds: tuple[int, ...], names: tuple[str, ...], data: Path | None, check: bool, as_json: bool
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
    for policy in names or POLICIES:
        played[policy] = play_policy(experiment, POLICIES[policy], check)
        click.echo(f"{policy}: {len(seeds)} runs", err=True)
    outcome = {
        "list": experiment.pods.name,
        "seeds": list(seeds),
        "policies": played,
        "bound": bounds(experiment),
    }
    if as_json:
        click.echo(json.dumps(outcome, indent=1))
    else:
        click.echo(table(outcome, published(folder, experiment.pods.name)))


def table(outcome: Mapping[str, Any], known: Mapping[str, float]) -> str:
    """A line for each policy; ``known``: published allocation at 100 % arrived."""
    head = ["policy", *(f"at {percent} %" for percent in ARRIVED), "published at 100 %", "CPU us a placement"]
    lines = [head]
    for name, figures in outcome["policies"].items():
        spreads = [figures["allocation"].get(str(percent)) for percent in ARRIVED]
        cells = [f"{spread['mean']:.2f} ± {spread['std']:.2f}" if spread else "" for spread in spreads]
        lines.append(
            [name, *cells, f"{known[name]:.2f}" if name in known else "", f"{figures['us_per_placement']:.1f}"]
        )
    if outcome["bound"]:
        limits = [outcome["bound"].get(str(percent)) for percent in ARRIVED]
        lines.append(["no policy exceeds", *("" if limit is None else f"{limit:.2f}" for limit in limits), "", ""])
    seeds = outcome["seeds"]
    title = f"{outcome['list']}: allocated GPUs in % of all, by % arrived; mean ± deviation over {len(seeds)} orders"
    return "\n".join([title, "", *text_table(lines)])


if __name__ == "__main__":
    main()
