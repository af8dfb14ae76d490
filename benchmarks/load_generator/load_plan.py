"""What the generator is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.load_generator.steps import LoadStep


@dataclass(frozen=True)
class LoadPlan:
    """Requests of one kind to one server."""

    steps: tuple[LoadStep, ...]
    host: str = "127.0.0.1"
    port: int = 11211
    connections: int = 16
    keys_per_get: int = 1
    values: int = 0
    """Values stored before the start, whose keys are then asked for; 0: keys that were never stored, so that an answer
    costs the server all look-ups and the network next to nothing."""
    value_bytes: int = 64
    seed: int = 1
    closed: bool = False
    """Every connection sends its next request when it has the answer to the one before; rates do not count."""
    drain_s: float = 2.0
    """How long answers are awaited after the last step."""
    cpus: tuple[int, ...] = ()
    """Cores for the generator; empty: where it likes."""
    fifo: int = 0
    """Priority as SCHED_FIFO; 0: a normal process."""

    def arguments(self) -> Sequence[str]:
        """For the generator's command line."""
        named = {
            "host": self.host,
            "port": self.port,
            "connections": self.connections,
            "keys_per_get": self.keys_per_get,
            "values": self.values,
            "value_bytes": self.value_bytes,
            "seed": self.seed,
            "closed": int(self.closed),
            "drain_s": self.drain_s,
            "fifo": self.fifo,
        }
        if self.cpus:
            named["cpus"] = ",".join(map(str, self.cpus))
        return [f"{key}={value}" for key, value in named.items()]

    def standard_input(self) -> str:
        """The steps, as the generator reads them."""
        return "".join(f"{step.rate!r} {step.seconds!r}\n" for step in self.steps)
