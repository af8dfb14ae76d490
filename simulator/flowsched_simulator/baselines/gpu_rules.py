"""The published rules for shared GPUs as baselines: in order of arrival, each task where its rule has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.gpu.shapes import shape_arrays
from flowsched.pricing.gpu_prices import as_devices
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.counted_demand import CountedDemand
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room, RoomLayout, fullest_devices


class _GpuRuleBaseline(Baseline):
    """Order of arrival; what does not fit is skipped, and the rule chooses among the machines where a task fits.

    Of machines that are equal to the rule, the first in an order that the seed draws, as in the published experiments.
    """

    draws = True
    rule: ClassVar[str]
    """Its name in the registry of rules."""

    def __init__(self, granting: Granting, seed: int = 0) -> None:
        """``seed`` draws the order of ties."""
        super().__init__(granting, seed)
        self._device: dict[str, int] = {}
        self._demand = CountedDemand()
        self._known: tuple[RoomLayout, dict[str, int], tuple[str, ...]] | None = None
        """Of the machines of a layout: the order of ties, and the models of their GPUs."""

    def round_of(self, snapshot: Snapshot) -> Round:
        """A round in which shares go to the devices that the rule says."""
        this = super().round_of(snapshot)
        this.pick_devices = self._devices
        self._device.clear()
        return this

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """The machine that the rule places the task on, if no other were there to choose from."""
        from flowsched_simulator.baselines.gpu.registry import GPU_RULES
        from flowsched_simulator.baselines.gpu.rule import GpuOutlook

        seed = int(this.rng.integers(2**31))  # drawn for each task, so that none depends on where others had a choice
        if len(rooms) == 1 and (task.gpus is None or not task.gpus.is_share):
            return rooms[0]
        rule = GPU_RULES[self.rule]
        rank, models = self._ties(this)
        ranked = sorted(rooms, key=lambda r: rank[r.name])
        mine = task.at_least(width_milli).gpu_shape
        demand = dict(self._demand.of(this.snapshot))
        demand.setdefault(mine, 0)
        shapes = tuple(demand)
        frequency: IntArray = np.array(list(demand.values()), dtype=np.int64)
        machines = as_devices(
            [r.free_milli for r in ranked],
            [r.free_memory_mib for r in ranked],
            [r.machine.gpus for r in ranked],
            [r.devices for r in ranked],
            models,
        )
        outlook = GpuOutlook(machines, models, shapes, frequency, seed)
        arrays = shape_arrays(shapes, models)
        state = rule.start(outlook)
        for row, residents in enumerate(this.residents(ranked)):
            for resident in residents:
                if resident.task.gpus is not None and (shape := resident.task.gpu_shape) in demand:
                    rule.placed(row, shapes.index(shape), outlook.machines, arrays, state)
        row, device = rule.choose(shapes.index(mine), outlook.machines, arrays, state)
        if row < 0:
            return ranked[0]
        self._device[task.name] = int(device)
        return ranked[row]

    def _ties(self, this: Round) -> tuple[dict[str, int], tuple[str, ...]]:
        """By name the place of each machine where ties are broken, and the models of all GPUs."""
        if self._known is None or self._known[0] is not this.layout:
            order = np.random.default_rng([self.seed, 7]).permutation(len(this.rooms))
            rank = {this.rooms[room].name: i for i, room in enumerate(order)}
            models = tuple(sorted({m.gpus.model for m in this.snapshot.machines if m.gpus is not None}))
            self._known = this.layout, rank, models
        return self._known[1:]

    def _devices(self, room: Room, task: Task) -> tuple[int, ...]:
        device = self._device.get(task.name, -1)
        is_share = task.gpus is not None and task.gpus.is_share
        return (device,) if is_share and device >= 0 else fullest_devices(room, task)


class GpuFgd(_GpuRuleBaseline):
    """Fragmentation gradient descent: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
    Fragmentation Gradient Descent", USENIX ATC 2023, section 4.
    """

    name = "gpu-fgd"
    description = "FGD: where the expected fragmentation of GPUs grows least"
    rule = "FGD"
    told = (Knowledge.DEMAND,)


class GpuBestFit(_GpuRuleBaseline):
    """BestFit of the same comparison: the least left over CPU and GPU."""

    name = "gpu-best-fit"
    description = "BestFit over CPU and GPU: the machine with the least left"
    rule = "BestFit"


class GpuPacking(_GpuRuleBaseline):
    """GpuPacking of the same comparison."""

    name = "gpu-packing"
    description = "GpuPacking: used devices before free ones, and those before idle machines"
    rule = "GpuPacking"


class GpuClustering(_GpuRuleBaseline):
    """GpuClustering of the same comparison."""

    name = "gpu-clustering"
    description = "GpuClustering: tasks of one kind together, on the fullest such machine"
    rule = "GpuClustering"


class GpuDotProd(_GpuRuleBaseline):
    """DotProd of the same comparison."""

    name = "gpu-dot-prod"
    description = "DotProd: the machine whose free CPU and GPU are least aligned with the task"
    rule = "DotProd"


class GpuRandom(_GpuRuleBaseline):
    """Random of the same comparison: order of arrival, any machine, any device."""

    name = "gpu-random"
    description = "Order of arrival, any machine and any device where the task fits"
    rule = "Random"
