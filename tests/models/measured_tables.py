"""Tables of measurements, written as their owners do, and what the reader says of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from flowsched_models.document import InputError
from flowsched_models.measurements import Measurements, load_measurements

THREADS = "job,threads,run,real_s,machine_type\n"
RUNS = "schedule,run,job,machine_type,cores,threads,start_s,end_s,exit_code\n"
NORMAL = ((1, 100.0), (2, 51.0), (4, 27.0), (8, 18.0))
"""Seconds of a job by threads."""


def write(folder: Path, **tables: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def sweep(times: Iterable[tuple[int, float]], job: str = "sort", run: int = 1, kind: str = "lab-8") -> str:
    return "".join(f"{job},{n},{run},{s},{kind}\n" for n, s in times)


def run_of(run: str, times: dict[str, tuple[float, float]], schedule: str = "plan") -> str:
    return "".join(f"{schedule},{run},{job},lab-8,,4,{a},{b},0\n" for job, (a, b) in times.items())


def findings(measured: Measurements) -> list[str]:
    return [str(f) for f in measured.findings]


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_measurements(path, **options)
    return str(caught.value)
