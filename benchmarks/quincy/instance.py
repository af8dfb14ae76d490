"""Random instances for benchmarks and tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.quincy.machines import Machines
from benchmarks.quincy.tasks import DataTasks
from flowsched.pricing.linear.policies.locality_prices import LocalityPrices
from flowsched.support.arrays import IntArray


@dataclass(frozen=True)
class InstanceShape:
    """Racks of 40 machines of 12 slots; jobs of 20 tasks; a task's input lies in 8 blocks on 8 machines, of which it
    prefers all, and the two racks with most of it. 30 % of the blocks lie on every fifth machine: the hot ones.
    """

    machines: int = 12_500
    machines_per_rack: int = 40
    slots: int = 12
    tasks_per_job: int = 20
    blocks: int = 8
    smallest_mb: int = 32
    largest_mb: int = 256
    hot_share: float = 0.3
    hot_every: int = 5
    prices: LocalityPrices = field(
        default_factory=lambda: LocalityPrices(
            preferred_share=0.0, preferred_machines=8, preferred_racks=2, waiting=10_000.0, waiting_per_s=10.0
        )
    )

    def draw_machines(self) -> Machines:
        """All machines, idle."""
        return Machines(
            np.arange(self.machines) // self.machines_per_rack, np.full(self.machines, self.slots, dtype=np.int64)
        )

    def draw_tasks(self, count: int, first_job: int, random: np.random.Generator) -> DataTasks:
        """New tasks of jobs from ``first_job`` on."""
        blocks = count * self.blocks
        hot = random.random(blocks) < self.hot_share
        hot_machines: IntArray = np.arange(0, self.machines, self.hot_every)
        places = np.where(
            hot,
            hot_machines[random.integers(0, len(hot_machines), blocks)],
            random.integers(0, self.machines, blocks),
        )
        return DataTasks(
            jobs=first_job + np.arange(count) // self.tasks_per_job,
            block_starts=np.arange(count + 1) * self.blocks,
            block_mb=random.integers(self.smallest_mb, self.largest_mb + 1, blocks).astype(np.float64),
            replica_starts=np.arange(blocks + 1),
            replicas=places,
            age_s=np.round(random.uniform(0.0, 300.0, count), 1),
            running_on=np.full(count, -1, dtype=np.int64),
            running_s=np.zeros(count),
        )
