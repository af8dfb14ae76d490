"""What a controller logs while the load of a service changes."""

from __future__ import annotations

from dataclasses import dataclass

LoadRunKey = tuple[str, str, str]
"""Schedule or experiment, seconds between changes of the load, run."""


@dataclass(frozen=True)
class LoadEvent:
    """What a controller logged: a job or a service starts, ends, waits, or has other cores from now on."""

    t_s: float
    kind: str
    job: str
    cores: tuple[int, ...]
    """Empty where the event does not change them."""
    threads: int | None
    weight: float
