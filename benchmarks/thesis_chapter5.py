"""Chapter 5 of the thesis: GPUs on other machines, with the values that :mod:`benchmarks.disaggregation` fitted.

``docs/disaggregation.md`` says what was fitted to what, and shows the sweeps of what no values reach.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from benchmarks import disaggregation
from benchmarks.disaggregation import RATIOS, chosen, kind_of
from benchmarks.disaggregation_cells import PUBLISHED_S, run_cell
from benchmarks.disaggregation_cells import Cell as DisaggregationCell
from benchmarks.thesis_cell import Cell, Kind, ThesisTable

MAKESPANS, SPEED_UPS = "disaggregation", "disaggregation-ratios"
_SAME = 0.1
"""A makespan within a tenth is held to be reached."""
_made: dict[str, dict[DisaggregationCell, float]] = {}


def makespans() -> dict[DisaggregationCell, float]:
    """Of every published cell, by simulation; the same runs for both tables."""
    if "s" not in _made:
        assumed, footprints = chosen(json.loads(disaggregation.RESULTS.read_text(encoding="utf-8")))
        found: dict[DisaggregationCell, float] = {}
        for cell in PUBLISHED_S:
            print(f"disaggregation: {cell.key}", file=sys.stderr)
            seeds = range(disaggregation.SEEDS_OF[cell.experiment])
            found[cell] = sum(run_cell(cell, assumed, footprints, seed).makespan_s for seed in seeds) / len(seeds)
        _made["s"] = found
    return _made["s"]


def makespan_cells() -> Iterator[Cell]:
    """Figure 23, tables 9 and 10."""
    found = makespans()
    for cell, published in PUBLISHED_S.items():
        row = f"experiment {cell.experiment}, {'with' if cell.disaggregated else 'without'} disaggregation"
        column = "with the policy" if cell.aware else "without the policy"
        yield Cell(MAKESPANS, row, column, published, published, found[cell], kind_of(cell, found), _SAME * published)


def ratio_cells() -> Iterator[Cell]:
    """What the thesis concludes of them: nothing that the makespans do not imply."""
    found = makespans()
    for name, (one, other, (low, high)) in RATIOS.items():
        published = PUBLISHED_S[one] / PUBLISHED_S[other]
        wanted = f"published {published:.3f}"
        yield Cell(SPEED_UPS, name, wanted, low, high, found[one] / found[other], Kind.DERIVED)


TABLES = (
    ThesisTable(MAKESPANS, "makespans in s (Fig. 23, tables 9 and 10)", makespan_cells, 1),
    ThesisTable(SPEED_UPS, "the same as ratios", ratio_cells, 3),
)
