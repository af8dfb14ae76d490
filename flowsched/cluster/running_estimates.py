"""What is estimated of the work of many running tasks at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.cluster.snapshot import Estimate, Running, Snapshot
from flowsched.cluster.still_running import class_run_lengths


def running_estimates(snapshot: Snapshot, running: Sequence[Running], machine_types: Sequence[str]) -> list[Estimate]:
    """:meth:`Snapshot.estimate` of running tasks, to the bit, with the types of their machines."""
    rows = [_length_row(snapshot, r, type_) for r, type_ in zip(running, machine_types, strict=True)]
    done, spreads, runs, squares, factors, forecasts = np.array(rows, np.float64).reshape(-1, 6).T.copy()
    found = np.empty(len(rows))
    class_run_lengths(done, spreads, runs, squares, found)
    lengths = (factors * found / forecasts).tolist()
    return [
        Estimate(r.task.scale * r.factor * length, r.progress / length)
        for r, length in zip(running, lengths, strict=True)
    ]


def _length_row(snapshot: Snapshot, running: Running, machine_type: str) -> tuple[float, ...]:
    """What is done of a task's expected run time, the spread around that, completions, their squares, the expected run time
    and the forecast, both relative to the profile's.
    """
    task, errors = running.task, snapshot.run_time_errors
    if not task.endless:
        learnt = snapshot.learnt_run_times.of(task.run_class, machine_type)
        if learnt is not None:
            done = running.progress * running.factor / learnt.factor
            return done, learnt.spread, learnt.runs, learnt.squares, learnt.factor, running.factor
        if errors is not None:
            stated = snapshot.catalogue.jobs[task.profile].error
            return running.progress, stated, errors.ends, errors.log_squares, 1.0, 1.0
    return 0.0, 0.0, 0.0, 0.0, 1.0, 1.0
