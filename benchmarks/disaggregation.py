"""GPU disaggregation: chapter 5 of M. Amaral's thesis (UPC 2019), fitted on four cells and predicted elsewhere.

    python -m benchmarks.disaggregation fit      # values for what the thesis does not say, and how much each matters
    python -m benchmarks.disaggregation warm-up  # the same for what the warm-up leaves in the experiment of 128 machines
    python -m benchmarks.disaggregation run      # all cells of figure 23 and tables 9 and 10 with them
    python -m benchmarks.disaggregation sweep    # which values reach which cells
    python -m benchmarks.disaggregation joint    # one network against phases, over seeds

Each keeps its part under benchmarks/results; `python -m benchmarks.disaggregation_page` makes docs/disaggregation.md of it.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.disaggregation_cells import (
    CELLS,
    EIGHTH,
    FITTED,
    FOOTPRINTS,
    PUBLISHED_S,
    ROOMY,
    WARM_UP_FITTED,
    Assumptions,
    Cell,
    CellRun,
    Footprints,
    run_cell,
)
from benchmarks.machine import describe_machine
from benchmarks.thesis_cell import Kind
from flowsched_models.output import write_whole
from flowsched_models.text_table import text_table
from flowsched_simulator.experiment.paired import PairedDifference, paired_difference

RESULTS = Path(__file__).parent / "results" / "disaggregation.json"
GRID: Mapping[str, tuple[float, ...]] = {
    "sigma": (0.0, 0.2, 0.5, 0.8),
    "interval_s": (2.0, 5.0, 10.0),
    "mean_s": (50.0, 52.0, 54.0, 56.0, 58.0, 60.0, 62.0),
    "pressure": (0.0, 0.05, 0.1, 0.2, 0.5),
    "wait_step": (0.02, 0.1, 1.0),
}
"""Values that are tried, one coordinate after the other."""
PASSES = 2
"""Over all coordinates; the last one shows how much each matters around what was found."""
WARM_UPS = ((7, 7, 2, 0), (10, 4, 2, 0), (8, 8, 2, 0), (16, 4, 2, 0), (4, 4, 2, 0), (8, 3, 3, 0))
"""Footprints of 4a that are tried: 10 of 16 GPUs are usable locally with each."""
WARM_UPS_4B = ((6, 0, 0, 0), (7, 0, 0, 0), (8, 0, 0, 0), (9, 0, 0, 0), (10, 0, 0, 0), (14, 0, 0, 0), (14, 2, 0, 0))
"""Of 4b, tried on an eighth of it against the first row of table 10."""
SEEDS_OF = {"1": 1, "4a": 5, "4b": 1, EIGHTH: 1, ROOMY: 1}
"""Runs whose makespans are averaged."""


@dataclass(frozen=True)
class Ask:
    """A run that is wanted."""

    cell: Cell
    assumed: Assumptions
    footprint: tuple[int, ...]
    seed: int = 0
    policy: str = ""

    def run(self) -> CellRun:
        """Do it."""
        footprints: Footprints = {**FOOTPRINTS, self.cell.experiment: self.footprint}
        return run_cell(self.cell, self.assumed, footprints, self.seed, self.policy)


class Runs:
    """Runs in some processes, each done once."""

    def __init__(self, workers: int) -> None:
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"))
        self._done: dict[Ask, CellRun] = {}

    def __call__(self, asks: Iterable[Ask]) -> dict[Ask, CellRun]:
        """All of them."""
        asks = tuple(dict.fromkeys(asks))
        new = [ask for ask in asks if ask not in self._done]
        for ask, run in zip(new, self._pool.map(Ask.run, new), strict=True):
            self._done[ask] = run
        return {ask: self._done[ask] for ask in asks}


def asks_of(cell: Cell, assumed: Assumptions, footprint: tuple[int, ...] | None = None) -> list[Ask]:
    """The runs that a cell's makespan is the mean of."""
    footprint = footprint or FOOTPRINTS[cell.experiment]
    return [Ask(cell, assumed, footprint, seed) for seed in range(SEEDS_OF[cell.experiment])]


def mean_makespan_s(runs: Mapping[Ask, CellRun], asks: Sequence[Ask]) -> float:
    """Of one cell."""
    return float(np.mean([runs[ask].makespan_s for ask in asks]))


def error_of(makespans: Mapping[Cell, float]) -> float:
    """Root mean square of the logarithm of simulated over published makespans."""
    return math.sqrt(float(np.mean([math.log(s / PUBLISHED_S[cell]) ** 2 for cell, s in makespans.items()])))


def fitted(runs: Runs) -> dict[str, Any]:
    """Coordinate by coordinate: the footprint of 4a, then all of ``GRID``; and what each value gives."""

    def tried(candidates: Sequence[tuple[Assumptions, tuple[int, ...]]]) -> list[dict[str, Any]]:
        wanted = {
            c: {cell: asks_of(cell, c[0], c[1] if cell.experiment == "4a" else None) for cell in FITTED}
            for c in candidates
        }
        done = runs(ask for cells in wanted.values() for asks in cells.values() for ask in asks)
        rows = []
        for (assumed, warm_up), cells in wanted.items():
            makespans = {cell: mean_makespan_s(done, asks) for cell, asks in cells.items()}
            row = {"assumed": asdict(assumed), "warm_up_4a": list(warm_up), "error": error_of(makespans)}
            rows.append(row | {"makespans_s": {cell.key: s for cell, s in makespans.items()}})
            click.echo(f"{row['error']:.4f} {assumed} {warm_up}", err=True)
        return rows

    best, footprint = Assumptions(), WARM_UPS[0]
    rows: dict[str, list[dict[str, Any]]] = {}
    for _ in range(PASSES):
        rows["warm_up_4a"] = tried([(best, each) for each in WARM_UPS])
        footprint = tuple(min(rows["warm_up_4a"], key=lambda row: float(row["error"]))["warm_up_4a"])
        for name, values in GRID.items():
            rows[name] = tried([(replace(best, **{name: value}), footprint) for value in values])
            best = Assumptions(**min(rows[name], key=lambda row: float(row["error"]))["assumed"])
    return {"values": asdict(best), "warm_up_4a": list(footprint), "sensitivity": rows}


def fitted_warm_up(runs: Runs, assumed: Assumptions) -> dict[str, Any]:
    """The footprint of 4b with which an eighth of it comes closest to the first row of table 10."""
    cells = {d: Cell(EIGHTH, d) for d in (False, True)}
    wanted = {(each, d): asks_of(cell, assumed, each) for each in WARM_UPS_4B for d, cell in cells.items()}
    done = runs(ask for asks in wanted.values() for ask in asks)
    rows = []
    for each in WARM_UPS_4B:
        found = {Cell("4b", d): mean_makespan_s(done, wanted[each, d]) for d in cells}
        row = {"warm_up_4b": list(each), "error": error_of(found)}
        rows.append(row | {"makespans_s": {cell.key: s for cell, s in found.items()}})
    return {"warm_up_4b": min(rows, key=lambda row: float(row["error"]))["warm_up_4b"], "sensitivity": rows}


def table_of_warm_up(kept: Mapping[str, Any]) -> str:
    """Footprints of 4b that were tried."""
    keys = [Cell("4b", d).key for d in (False, True)]
    rows = [["warm-up of 4b", "error %", *(f"{key} s" for key in keys)]]
    rows.append(["published", "", *(f"{PUBLISHED_S[Cell('4b', d)]:.0f}" for d in (False, True))])
    for row in kept["sensitivity"]:
        cells = [f"{row['makespans_s'][key]:.0f}" for key in keys]
        rows.append([str(row["warm_up_4b"]), f"{100 * row['error']:.1f}", *cells])
    return "\n".join(text_table(rows))


def table_of_fit(kept: Mapping[str, Any]) -> str:
    """What was tried, and how far each is from the four cells."""
    keys = [cell.key for cell in FITTED]
    rows = [["value", "error %", *(f"{key} s" for key in keys)]]
    rows.append(["published", "", *(f"{PUBLISHED_S[cell]:.0f}" for cell in FITTED)])
    for name, tried in kept["sensitivity"].items():
        for row in tried:
            value = row["warm_up_4a"] if name == "warm_up_4a" else row["assumed"][name]
            cells = [f"{row['makespans_s'][key]:.0f}" for key in keys]
            rows.append([f"{name} = {value}", f"{100 * row['error']:.1f}", *cells])
    return "\n".join(text_table(rows))


def chosen(kept: Mapping[str, Any]) -> tuple[Assumptions, Footprints]:
    """The fitted values."""
    fit = kept["fit"]
    of_4b = tuple(kept["warm-up"]["warm_up_4b"]) if "warm-up" in kept else FOOTPRINTS["4b"]
    return Assumptions(**fit["values"]), {
        **FOOTPRINTS,
        "4a": tuple(fit["warm_up_4a"]),
        "4b": of_4b,
        EIGHTH: of_4b,
    }


def all_cells(runs: Runs, assumed: Assumptions, footprints: Footprints) -> dict[str, Any]:
    """Every cell with one set of values."""
    wanted = {cell: asks_of(cell, assumed, footprints[cell.experiment]) for cell in CELLS}
    done = runs(ask for asks in wanted.values() for ask in asks)
    rows = []
    for asks in wanted.values():
        first = done[asks[0]]
        spread = [done[ask].makespan_s for ask in asks]
        rows.append(first.plain() | {"makespan_s": mean_makespan_s(done, asks), "seeds_s": spread})
    return {"values": asdict(assumed), "footprints": {k: list(v) for k, v in footprints.items()}, "rows": rows}


def kind_of(cell: Cell, makespans_s: Mapping[Cell, float]) -> Kind:
    """What a simulated makespan is, beside those of the other cells."""
    if cell not in PUBLISHED_S:
        return Kind.OURS
    if cell in FITTED or cell in WARM_UP_FITTED:
        return Kind.FITTED
    # Where the policy changes nothing, its makespan is the fitted one again.
    return Kind.DERIVED if makespans_s[cell] == makespans_s[replace(cell, aware=False)] else Kind.PREDICTED


RATIOS: Mapping[str, tuple[Cell, Cell, tuple[float, float]]] = {
    "speed-up by disaggregation, 4 machines, 512 jobs": (Cell("1", False), Cell("1", True), (1.05, 1.2)),
    "speed-up by disaggregation, 4 machines, 64 jobs": (Cell("4a", False), Cell("4a", True), (1.5, 1.65)),
    "the same with the policy": (Cell("4a", False, True), Cell("4a", True, True), (1.25, 1.55)),
    "speed-up by disaggregation, 128 machines": (Cell("4b", False), Cell("4b", True), (1.05, 1.2)),
    "the same with the policy, 128 machines": (Cell("4b", False, True), Cell("4b", True, True), (1.05, 1.2)),
    "gain by the policy, 4 machines, local": (Cell("4a", False), Cell("4a", False, True), (0.9, 0.999)),
    "gain by the policy, 4 machines, remote": (Cell("4a", True), Cell("4a", True, True), (0.8, 0.999)),
    "gain by the policy, 128 machines, local": (Cell("4b", False), Cell("4b", False, True), (1.05, 1.2)),
    "gain by the policy, 128 machines, remote": (Cell("4b", True), Cell("4b", True, True), (1.05, 1.2)),
    "both against neither, 128 machines": (Cell("4b", False), Cell("4b", True, True), (1.05, 1.35)),
}
"""What the thesis states, and what counts as the same."""


def table_of_cells(kept: Mapping[str, Any]) -> str:
    """Makespans beside the published ones, then their ratios."""
    by_key = {row["cell"]: row for row in kept["rows"]}
    makespans_s = {cell: by_key[cell.key]["makespan_s"] for cell in CELLS}
    rows = [["cell", "published s", "simulated s", "off %", "remote %", "slow-down p50/p95/max", "round ms", "kind"]]
    for cell in CELLS:
        row, published = by_key[cell.key], PUBLISHED_S.get(cell)
        slow = "/".join(f"{s:.2f}" for s in row["slowdown"])
        off = "" if published is None else f"{100 * (row['makespan_s'] / published - 1):+.1f}"
        said = "" if published is None else f"{published:.1f}"
        numbers = [said, f"{row['makespan_s']:.1f}", off, f"{100 * row['remote_share']:.0f}"]
        rows.append([cell.key, *numbers, slow, f"{row['decision_ms'][0]:.1f}", kind_of(cell, makespans_s)])
    lines = text_table(rows, left=(0, 7))
    ratios = [["ratio", "published", "simulated", "wanted", ""]]
    for name, (a, b, (low, high)) in RATIOS.items():
        value = by_key[a.key]["makespan_s"] / by_key[b.key]["makespan_s"]
        stated = PUBLISHED_S[a] / PUBLISHED_S[b]
        reached = "reached" if low <= value <= high else "not reached"
        ratios.append([name, f"{stated:.3f}", f"{value:.3f}", f"{low:g} to {high:g}", reached])
    return "\n".join([*lines, "", *text_table(ratios, left=(0, 4))])


SWEEPS = ("4a", EIGHTH, ROOMY)
"""Experiments on which many values are tried."""
SWEPT: Mapping[str, tuple[Any, ...]] = {
    "local": (False, True),
    "pressure": (0.05, 0.2, 1.0),
    "slack": (1.05, 1.5),
    "interval_s": (2.0, 10.0),
}


def swept(runs: Runs, base: Assumptions, footprints: Footprints, experiments: Sequence[str]) -> list[dict[str, Any]]:
    """Makespans of the four cells of an experiment at all combinations of ``SWEPT``."""
    combinations = [dict(zip(SWEPT, values, strict=True)) for values in itertools.product(*SWEPT.values())]
    cells = [cell for e in experiments for cell in cells_of(e)]

    def asks(cell: Cell, change: Mapping[str, Any]) -> list[Ask]:
        change = change if cell.aware else {**change, "slack": base.slack}  # without the policy it decides nothing
        return asks_of(cell, replace(base, **change), footprints[cell.experiment])

    done = runs(ask for change in combinations for cell in cells for ask in asks(cell, change))
    return [
        {**change, "makespans_s": {cell.key: mean_makespan_s(done, asks(cell, change)) for cell in cells}}
        for change in combinations
    ]


RATIOS_OF_SWEEP = ("speed-up", "with policy", "policy local", "policy remote")
"""By disaggregation without and with the policy, by the policy without and with disaggregation."""


def cells_of(experiment: str) -> tuple[Cell, ...]:
    """The four cells of an experiment."""
    return tuple(Cell(experiment, d, a) for d in (False, True) for a in (False, True))


def ratios_of(makespans: Mapping[Cell, float], experiment: str) -> tuple[float, float, float, float]:
    """``RATIOS_OF_SWEEP`` of an experiment."""
    local, local_aware, remote, remote_aware = (makespans[cell] for cell in cells_of(experiment))
    return local / remote, local_aware / remote_aware, local / local_aware, remote / remote_aware


def table_of_sweep(rows: Sequence[Mapping[str, Any]]) -> str:
    """Ratios by values."""
    experiments = list(dict.fromkeys(key.split()[0] for key in rows[0]["makespans_s"]))
    lines = [[*SWEPT, *(f"{e} {what}" for e in experiments for what in RATIOS_OF_SWEEP)]]
    for row in rows:
        found = [
            ratio
            for e in experiments
            for ratio in ratios_of({cell: row["makespans_s"][cell.key] for cell in cells_of(e)}, e)
        ]
        lines.append([*(str(row[key]) for key in SWEPT), *(f"{value:.3f}" for value in found)])
    return "\n".join(text_table(lines))


JOINT = ("4a", EIGHTH, ROOMY)


def compared(
    runs: Runs, assumed: Assumptions, footprints: Footprints, seeds: int, experiments: Sequence[str] = JOINT
) -> list[dict[str, Any]]:
    """The joint network minus the phases, seed by seed."""
    names = ("drmaestro", "drmaestro-joint")
    asks = {
        (e, name, seed): Ask(Cell(e, True), assumed, footprints[e], seed, name)
        for e in experiments
        for name in names
        for seed in range(seeds)
    }
    done = runs(asks.values())
    figures = {
        "makespan_s": lambda run: run.makespan_s,
        "waiting_s": lambda run: run.waiting_s,
        "remote_share": lambda run: run.remote_share,
        "slowdown_p95": lambda run: run.slowdown[1],
        "decision_ms": lambda run: run.decision_ms[0],
    }
    rows = []
    for e in experiments:
        for figure, of in figures.items():
            phases, joint = ({s: of(done[asks[e, n, s]]) for s in range(seeds)} for n in names)
            found = paired_difference(joint, phases)
            rows.append({"experiment": e, "figure": figure, "phases": phases, "joint": joint} | asdict(found))
    return rows


def table_of_joint(rows: Sequence[Mapping[str, Any]]) -> str:
    """Mean differences with their 95 % intervals."""
    lines = [["experiment", "figure", "seeds", "phases", "joint - phases", "95 % from", "to", "relative %"]]
    known = set(PairedDifference.__dataclass_fields__)
    for row in rows:
        found = PairedDifference(**{key: row[key] for key in known if key in row})
        assert found.mean is not None and found.reference_mean is not None
        low, high = found.low or 0.0, found.high or 0.0
        relative = "" if found.relative is None else f"{100 * found.relative:+.1f}"
        numbers = (f"{value:+.3f}" for value in (found.mean, low, high))
        lines.append(
            [row["experiment"], row["figure"], str(found.seeds), f"{found.reference_mean:.3f}", *numbers, relative]
        )
    return "\n".join(text_table(lines, left=(0, 1)))


def keep(part: str, value: Any) -> None:
    """Put a part into the kept results, and all tables beside them."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[part] = value
    kept["machine"] = describe_machine()
    write_whole(RESULTS, dumped(kept))
    write_whole(RESULTS.with_suffix(".txt"), table(kept) + "\n")


def dumped(kept: Mapping[str, Any]) -> str:
    """What is kept as text: lists of numbers, and of pairs of them, on one line."""
    text = json.dumps(kept, indent=1)
    for brackets in (r"\[([^\[\]{}\"]*)\]", r"\[((?:\s*\[[^\[\]\n]*\],?)+\s*)\]"):
        text = re.sub(brackets, lambda found: f"[{' '.join(found[1].split())}]", text)
    return text + "\n"


def table(kept: Mapping[str, Any]) -> str:
    """All that is kept, as text."""
    parts = []
    if "fit" in kept:
        values = ", ".join(f"{key} {value}" for key, value in kept["fit"]["values"].items())
        parts += [f"fit: {values}, warm-up of 4a {kept['fit']['warm_up_4a']}", table_of_fit(kept["fit"]), ""]
    if "warm-up" in kept:
        parts += ["warm-up of 4b, on an eighth of it", table_of_warm_up(kept["warm-up"]), ""]
    if "cells" in kept:
        feet = ", ".join(f"{key} {value}" for key, value in kept["cells"]["footprints"].items())
        parts += [f"cells, CPU for so many jobs left by the warm-up on each machine: {feet}"]
        parts += [table_of_cells(kept["cells"]), ""]
    for name in (f"sweep {each}" for each in SWEEPS):
        if name in kept:
            parts += [name, table_of_sweep(kept[name]), ""]
    if "joint" in kept:
        parts += ["one network minus phases", table_of_joint(kept["joint"]), ""]
    return "\n".join(parts).rstrip()


@click.command()
@click.argument("what", type=click.Choice(["fit", "warm-up", "run", "sweep", "joint"]))
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1))
@click.option(
    "--seeds", default=20, show_default=True, type=click.IntRange(2), help="Of the joint network's comparison."
)
@click.option(
    "--experiment", "experiments", multiple=True, help="Of sweep (4a, 4b/8, 4b/8+) and joint (4a, 4b/8, 4b/8+, 1)."
)
def main(what: str, workers: int, seeds: int, experiments: tuple[str, ...]) -> None:
    """Run one part, print its table and keep it."""
    runs = Runs(workers)
    if what == "fit":
        keep("fit", fitted(runs))
    else:
        kept = json.loads(RESULTS.read_text())
        assumed, footprints = chosen(kept)
        if what == "warm-up":
            keep("warm-up", fitted_warm_up(runs, assumed))
        elif what == "run":
            keep("cells", all_cells(runs, assumed, footprints))
        elif what == "sweep":
            for experiment in experiments or SWEEPS:
                keep(f"sweep {experiment}", swept(runs, assumed, footprints, (experiment,)))
        else:
            rows = compared(runs, assumed, footprints, seeds, experiments or JOINT)
            others = [row for row in kept.get("joint", ()) if row["experiment"] not in (experiments or JOINT)]
            keep("joint", [*others, *rows])
    click.echo(table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
