"""Tasks with the places of their input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.support.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class DataTasks:
    """N tasks that read B blocks with R replicas, as arrays."""

    jobs: IntArray
    """N: the job of each task, numbered from 0."""
    block_starts: IntArray
    """N + 1: task i reads blocks ``block_starts[i]`` to ``block_starts[i + 1]`` - 1."""
    block_mb: FloatArray
    """B: sizes in MB."""
    replica_starts: IntArray
    """B + 1, into ``replicas``."""
    replicas: IntArray
    """R: the machines that hold a block."""
    age_s: FloatArray
    """N: seconds since each task came."""
    running_on: IntArray
    """N: the machine where each task runs now, -1 if it waits."""
    running_s: FloatArray
    """N: for how long; 0 if it waits."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for columns that do not fit each other."""
        count, blocks = self.count, len(self.block_mb)
        for name, column in (("age_s", self.age_s), ("running_on", self.running_on), ("running_s", self.running_s)):
            if len(column) != count:
                raise ValueError(f"{name} has {len(column)} values for {count} tasks")
        _check_starts("block_starts", self.block_starts, count, blocks)
        _check_starts("replica_starts", self.replica_starts, blocks, len(self.replicas))
        for name, values in (("block_mb", self.block_mb), ("age_s", self.age_s), ("running_s", self.running_s)):
            if len(values) and not (np.isfinite(values).all() and float(values.min()) >= 0.0):
                raise ValueError(f"{name} has a value that is negative or not finite")
        if count and int(self.jobs.min()) < 0:
            raise ValueError(f"a task belongs to job {int(self.jobs.min())}; jobs are numbered from 0")

    @property
    def count(self) -> int:
        """Number of tasks."""
        return len(self.jobs)

    @property
    def job_count(self) -> int:
        """One more than the highest job."""
        return int(self.jobs.max(initial=-1)) + 1


def _check_starts(name: str, starts: IntArray, count: int, end: int) -> None:
    if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
        raise ValueError(f"{name} must rise from 0 to {end} in {count + 1} values")
