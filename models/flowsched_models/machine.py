"""What a type of machine brings: cores, hardware threads, speed."""

from __future__ import annotations

from dataclasses import dataclass

HOST_ERROR = 0.05
"""``error`` of a machine type that does not say how far its hosts differ."""


@dataclass(frozen=True)
class MachineType:
    """A kind of machine that a cloud sells.

    ``siblings`` pairs the virtual CPUs that share one physical core *and* are seen to slow each other down.
    """

    name: str
    vcpus: int
    memory_mib: int
    """Memory that tasks may ask for (allocatable, not installed)."""
    speed: float = 1.0
    """Default speed of a job without an entry of its own, relative to the reference type."""
    bandwidth: float = 1.0
    """How strongly neighbours' pressure is felt (``q``): 1 on the reference type, lower with more cache."""
    smt: bool = False
    """Whether virtual CPUs ``k`` and ``k + vcpus/2`` are siblings of one physical core."""
    error: float = HOST_ERROR
    """Standard deviation of the logarithm of one host's own factor on all run times: hosts of a type differ."""

    @property
    def siblings(self) -> tuple[tuple[int, int], ...]:
        """Pairs of virtual CPUs on one physical core; empty where no loss is seen."""
        if not self.smt:
            return ()
        half = self.vcpus // 2
        return tuple((k, k + half) for k in range(half))
