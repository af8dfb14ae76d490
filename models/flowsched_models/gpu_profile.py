"""What GPUs do to a job's speed: their model, the links between them, and the jobs that share them or their surroundings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flowsched_models.gpu_topology import GpuTopology


class Contention(NamedTuple):
    """How jobs at one place disturb each other: a job is slower by its sensitivity times the others' pressure."""

    sensitivity: float = 0.0
    pressure: float = 0.0


NO_CONTENTION = Contention()


class GpuUse(NamedTuple):
    """Where a job's GPUs are, as far as its speed depends on it."""

    slowdown: float = 1.0
    """How many times longer it runs than on the best linked devices of the fastest model, alone."""
    devices: int = 0
    """Bits of the devices of its machine that it uses."""
    sockets: int = 0
    """Bits of the sockets that these devices are on."""
    remote: bool = False
    """Whether it reaches GPUs, or is reached, over the network of its machine."""


NO_GPUS = GpuUse()
"""A job that uses none, or whose GPUs nothing is known of."""


@dataclass(frozen=True)
class GpuProfile:
    """The part of a job's profile that is about GPUs."""

    speed: Mapping[str, float] = field(default_factory=dict)
    """Speed by GPU model, relative to the fastest; 1 for those that are not named. No run is faster than alone on that."""
    links: Mapping[str, float] = field(default_factory=dict)
    """How many times longer it runs where the slowest link between its GPUs is of a class; 1 for those not named."""
    communication: float = 0.0
    """How much its GPUs have to say to one another: weight of the edges of the job graph (4: smallest batch, 1: largest)."""
    socket: Contention = NO_CONTENTION
    """Among jobs that use GPUs of one socket."""
    device: Contention = NO_CONTENTION
    """Among jobs that share a GPU."""
    network: Contention = NO_CONTENTION
    """Among jobs of one machine that reach GPUs over the network."""
    remote: float = 1.0
    """How many times longer it runs where its GPUs are on another machine than its CPU, with the network to itself."""
    network_when_local: bool = False
    """Whether it goes through the network of its machine where its GPUs are on that machine too."""

    def places(self, use: GpuUse) -> tuple[float, ...]:
        """[places] of a job's row in the compiled model: sensitivity, pressure and bits of each kind of place."""
        bits = (use.sockets, use.devices, int(use.remote))
        kinds = (self.socket, self.device, self.network)
        return tuple(v for kind, at in zip(kinds, bits, strict=True) for v in (*kind, float(at)))

    def slowdown(self, model: str, link_class: str | None) -> float:
        """How many times longer a job runs on GPUs of a model whose slowest link is of a class; None: a single GPU."""
        links = 1.0 if link_class is None else self.links.get(link_class, 1.0)
        return links / self.speed.get(model, 1.0)

    def use(self, model: str, topology: GpuTopology | None, devices: Sequence[int], remote: bool = False) -> GpuUse:
        """Some devices of a machine as the run-time model takes them."""
        mask = sum(1 << device for device in devices)
        away = self.remote if remote else 1.0
        remote = remote or self.network_when_local
        if topology is None:
            return GpuUse(self.slowdown(model, None) * away, mask, 0, remote)
        slowdown = self.slowdown(model, topology.slowest_class(devices)) * away
        return GpuUse(slowdown, mask, topology.socket_mask(devices), remote)

    def use_from_afar(self) -> GpuUse:
        """The part of a job that has CPU and memory, and GPUs on other machines."""
        return GpuUse(self.remote, remote=True)

    def best_use(self, model: str, topology: GpuTopology | None, count: int) -> GpuUse:
        """Devices that are as well linked as a machine's can be, undisturbed."""
        return GpuUse(self.slowdown(model, None if topology is None else topology.best_class(count)))


NO_GPU_PROFILE = GpuProfile()
"""Of a job that is as fast on any GPU, and makes no other job slower there."""
