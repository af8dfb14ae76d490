"""What GPUs make a node cost pods that are placed at linear prices: the value that it loses for the demand.

The same prices as in rounds of ``flow``, as the nodes are when a part of a round begins: pods that come to a node in the
same part all pay what the first one does. What no demand tells apart is left to pods that ask for GPUs: of equal nodes those
without come first for all others, also before the first pod has asked for any.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from flowsched.cluster.machine_rows import MachineRows
from flowsched.gpu.devices import WHOLE_MILLI, MachineGpus
from flowsched.pricing.gpu_prices import MachineWorth, as_devices, worth_of
from flowsched.round.linear.restricted import PRICE_BUCKET
from flowsched.support.arrays import FloatArray
from flowsched_k8s.gpus import MIB, shape_of
from flowsched_k8s.rounds.round_input import ClassInput, RoundInput

_WORTH = lru_cache(maxsize=4)(worth_of)
"""A device plugin that restarts takes a node's GPUs away and gives them back."""
LAST = PRICE_BUCKET
"""What a node with GPUs costs pods that ask for none: the least that puts it into another group than one without."""


def gpu_costs(given: RoundInput, machines: MachineRows, classes: Sequence[ClassInput]) -> list[FloatArray | None]:
    """For each class what each machine row costs for its GPUs; None where nothing does.

    For pods that ask for GPUs that is what a node costs more than the cheapest one: they have to go to some.
    """
    found = _lost_values(given, machines, classes)
    rows = [row for name in given.gpus.nodes if (row := machines.row(name)) is not None]
    if not rows:
        return found
    last = np.zeros(machines.rows)
    last[rows] = LAST
    for i, (c, cost) in enumerate(zip(classes, found, strict=True)):
        if given.gpus.asked(c.needs) is None and c.allowed[rows].any() and c.allowed[last == 0.0].any():
            found[i] = last if cost is None else cost + last
    return found


def _lost_values(given: RoundInput, machines: MachineRows, classes: Sequence[ClassInput]) -> list[FloatArray | None]:
    """The same for the value that nodes lose for the demand."""
    concerned = [c for c in classes if given.gpus_matter(c)]
    if not concerned:
        return [None] * len(classes)
    names = [name for name in sorted(given.gpus.nodes) if machines.row(name) is not None]
    rows = np.array([machines.row(name) for name in names], np.int64)
    columns = {resource: i for i, resource in enumerate(machines.resources)}
    whole, free = machines.allocatable[rows], np.maximum(0, machines.free[rows])
    devices_of: list[MachineGpus | None] = []
    left: list[list[int]] = []
    for i, name in enumerate(names):
        kind = given.gpus.nodes[name]
        column = columns.get(kind.resource)
        count, idle = (0, 0) if column is None else (int(whole[i, column]), int(min(free[i, column], whole[i, column])))
        devices_of.append(MachineGpus(kind.model, count, kind.memory_mib) if count else None)
        left.append([WHOLE_MILLI] * idle + [0] * (count - idle))
    cpu, memory = columns.get("cpu"), columns.get("memory")
    if cpu is None or memory is None or not any(devices_of):
        return [None] * len(classes)
    idle_machines = sorted(
        (gpus, int(whole[i, cpu]), int(whole[i, memory]) // MIB)
        for i, gpus in enumerate(devices_of)
        if gpus is not None
    )
    worth = _WORTH(given.gpus.demand, tuple(idle_machines))
    devices = as_devices(free[:, cpu], free[:, memory] // MIB, devices_of, left, worth.models)
    shapes = [shape_of(c.needs, given.gpus.asked(c.needs), c.gpu_models) for c in concerned]
    found: dict[str, FloatArray] = {}
    for c, loss in zip(concerned, MachineWorth(worth, devices).losses(shapes), strict=True):
        asked = given.gpus.asked(c.needs)
        fits = np.isfinite(loss) & c.allowed[rows]
        fits &= [asked is None or given.gpus.nodes[name].resource == asked for name in names]
        if fits.any():
            cost = np.zeros(machines.rows)
            cheapest = 0.0 if asked is None else float(loss[fits].min())
            cost[rows] = given.settings.gpu_weight * (np.where(fits, loss, loss[fits].max()) - cheapest)
            found[c.name] = cost
    return [found.get(c.name) for c in classes]
