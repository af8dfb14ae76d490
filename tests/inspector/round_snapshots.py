"""Six snapshots of three to sixty machines, for tests of the network of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from inspected import HOUSE

from builders import CATALOGUE, LARGE, SMALL, machine, running, service, snapshot, task
from flowsched import Settings, load_snapshot, solve
from flowsched.cluster.snapshot import Machine, Snapshot
from flowsched.inspector.record_view import RecordView

EXAMPLES = HOUSE / "docs" / "examples"
WIDTHS = ((1000,), (1000, 2000), (2000, 4000), (1000, 2000, 4000))


def crowd(machines: int, pending: int, running_tasks: int, seed: int) -> Snapshot:
    """Machines of two types, of which a quarter serve and most are busy, and jobs of three kinds that wait."""
    rng = np.random.default_rng(seed)
    kinds = sorted(CATALOGUE.jobs)
    where: list[Machine] = [
        machine(f"{'small' if k % 3 else 'large'}-{k:02}", SMALL if k % 3 else LARGE) for k in range(machines)
    ]
    busy = rng.permutation(machines)[:running_tasks]
    there = [
        running(
            task(
                f"r{k:02}",
                CATALOGUE.jobs[kinds[int(rng.integers(3))]],
                scale=float(rng.uniform(0.5, 3.0)),
                submit_s=-9.0,
            ),
            where[int(m)].name,
            progress=float(rng.uniform(0.1, 0.9)),
            cores=(2, 3) if m % 4 == 1 else (0, 1),
        )
        for k, m in enumerate(busy)
    ]
    waiting = [
        task(
            f"j{k:02}",
            CATALOGUE.jobs[kinds[int(rng.integers(3))]],
            scale=float(rng.choice([0.5, 1.0, 2.0, 4.0])),
            widths_milli=WIDTHS[int(rng.integers(len(WIDTHS)))],
            submit_s=float(-rng.uniform(0.0, 30.0)),
        )
        for k in range(pending)
    ]
    services = [service(f"s{m}", where[m].name, qps=20_000.0) for m in range(machines) if m % 4 == 1]
    return snapshot(waiting, where, running=there, services=services)


def example(name: str) -> Snapshot:
    """A snapshot of the documentation."""
    return load_snapshot(EXAMPLES / name)


SNAPSHOTS: Mapping[str, tuple[Callable[[], Snapshot], Settings]] = {
    "three, from the documentation": (lambda: example("turns.yaml"), Settings(objective="completion", exact_limit=0)),
    "three, crowded": (lambda: crowd(3, 7, 1, 1), Settings(objective="completion", exact_limit=0)),
    "five, for a makespan": (
        lambda: replace(s := crowd(5, 8, 2, 2), pending=tuple(replace(t, submit_s=0.0) for t in s.pending)),
        Settings(objective="makespan", exact_limit=0),
    ),
    "eight": (lambda: crowd(8, 12, 5, 3), Settings(objective="completion", exact_limit=0)),
    "twenty-four": (lambda: crowd(24, 20, 16, 4), Settings(objective="completion", exact_limit=0)),
    "sixty": (lambda: crowd(60, 40, 45, 5), Settings(objective="completion", exact_limit=0)),
}
"""By what each is, with settings."""


@cache
def recorded(name: str) -> RecordView:
    """The record of a round on one of them."""
    make, settings = SNAPSHOTS[name]
    return solved(make(), settings)


def solved(now: Snapshot, settings: Settings) -> RecordView:
    """The record of a round."""
    record: Mapping[str, Any] | None = solve(now, settings=settings).record
    assert record is not None
    return RecordView(dict(record), "round.npz")  # type: ignore[arg-type]
