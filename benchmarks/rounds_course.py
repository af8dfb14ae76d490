"""What happens between the rounds of a preset: who leaves, who comes. Drawing that is no part of a round's time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from benchmarks.rounds_presets import CLASSES, Preset
from benchmarks.scale_workload import CORE, Mix, draw_mix, filled
from flowsched.cluster.task_rows import RUNNING
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.support.arrays import IntArray

NOBODY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Events:
    """What the cluster tells before a round: task rows that end, and classes of tasks that come."""

    leave: IntArray
    come: IntArray
    running: int
    """Tasks that ran before."""


class Course:
    """A cluster, and what happens to it round by round; the same seed, the same course."""

    def __init__(self, preset: Preset, seed: int) -> None:
        """The cluster as it is before the first round."""
        self.preset = preset
        self.mix: Mix = draw_mix(CLASSES, seed)
        self.cluster: ClusterRows = filled(preset.machines, self.mix, preset.use, seed)
        self._widths = np.array([c.width_milli // CORE for c in self.mix.classes], dtype=np.int64)
        self._cores = int(self.cluster.machines.allocatable[self.cluster.machines.alive, 0].sum()) // CORE
        self._random = np.random.default_rng([seed, preset.machines, 2])
        self._stay: deque[int] = deque()

    def draw(self) -> Events:
        """What happens before the next round. A burst's last tasks have left by then, which takes no part in its time."""
        running = np.flatnonzero(self.cluster.tasks.state == RUNNING)
        if self.preset.course == "burst":
            self.cluster.leave(np.flatnonzero(self.cluster.tasks.state))
            return Events(NOBODY, self._classes(self.preset.tasks), 0)
        if self.preset.course == "single":
            # Those that wait for no room would be forgotten here; on idle machines nobody does.
            known = set(self._stay)
            self._stay.extend(row for row in running.tolist() if row not in known)
            over = len(self._stay) >= self.preset.tasks
            leave = np.array([self._stay.popleft()], dtype=np.int64) if over else NOBODY
            return Events(leave, self._classes(1), len(running))
        if self.preset.waiting:
            leave = self._down_to_use(running)
            wait = self.cluster.tasks.count - len(running)
            return Events(leave, self._classes(max(0, self.preset.waiting - wait)), len(running))
        count = max(1, round(len(running) * self.preset.churn))
        leave = self._random.choice(running, count, replace=False)
        return Events(leave, self._classes(count), len(running))

    def _classes(self, count: int) -> IntArray:
        drawn: IntArray = self._random.choice(CLASSES, count, p=self.mix.share)
        return drawn

    def _down_to_use(self, running: IntArray) -> IntArray:
        """Running tasks, drawn one after the other until the use is what it should be."""
        order = self._random.permutation(running)
        widths = self._widths[self.cluster.tasks.task_class[order]]
        over = int(widths.sum()) - round(self._cores * self.preset.use)
        if over <= 0:
            return NOBODY
        leaving: IntArray = order[: int(np.searchsorted(np.cumsum(widths), over)) + 1]
        return leaving
