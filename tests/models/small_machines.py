"""Machines to measure on, and the rows that come of it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from flowsched_models.measuring.topology import Topology

FOUR = Topology(cores=(0, 1, 2, 3), siblings=((0,), (1,), (2,), (3,)), caches=((0, 1, 2, 3),), memory_mib=8000)
SMT = replace(FOUR, siblings=((0, 2), (1, 3)))


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))
