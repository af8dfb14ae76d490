"""From what all targets have to what they shall have: the differences only, in an order that is safe for the services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from flowsched.node import Allocation


class Kind(StrEnum):
    """What is done to a target."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    CORES = "cores"
    WEIGHT = "weight"
    QUOTA = "quota"


@dataclass(frozen=True)
class Actuation:
    """One step."""

    target: str
    kind: Kind
    cores: tuple[int, ...] = ()
    weight: float = 1.0
    quota: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        """As it stands in logs: ``batch: cores 2,3``."""
        match self.kind:
            case Kind.CORES:
                value = " " + ",".join(map(str, self.cores))
            case Kind.WEIGHT:
                value = f" {self.weight:.4g}"
            case Kind.QUOTA:
                value = " none" if self.quota is None else f" {self.quota:g}"
            case _:
                value = ""
        return f"{self.target}: {self.kind}{value}"


@dataclass(frozen=True)
class Has:
    """What a target has now. Cores None: never set by us, so it may run anywhere."""

    run: bool = True
    started: bool = True
    cores: tuple[int, ...] | None = None
    weight: float = 1.0
    quota: float | None = None

    def after(self, act: Actuation) -> Has:
        """What it has once an act is done."""
        match act.kind:
            case Kind.START:
                return replace(self, run=True, started=True)
            case Kind.PAUSE:
                return replace(self, run=False)
            case Kind.RESUME:
                return replace(self, run=True)
            case Kind.CORES:
                return replace(self, cores=act.cores)
            case Kind.WEIGHT:
                return replace(self, weight=act.weight)
            case Kind.QUOTA:
                return replace(self, quota=act.quota)


def plan(services: Mapping[str, Has], tasks: Mapping[str, Has], wanted: Allocation) -> list[Actuation]:
    """The acts in their order. Targets that are not named in ``wanted`` or not there are left alone.

    First what batch loses: weight before anything is paused, then cores that a service is about to get. Then the services,
    those that shrink before those that grow. Last what batch gains; a program goes on or starts only when the rest is set.
    """
    taking: list[Actuation] = []
    giving: list[Actuation] = []
    gained = _gained(services, wanted)
    for name, has in tasks.items():
        grant = wanted.tasks.get(name)
        if grant is None:
            continue
        if not has.started:
            if grant.run:
                # Its cores and weight are set before its program runs.
                giving.append(Actuation(name, Kind.START, tuple(grant.cores), grant.weight, grant.quota, grant.reason))
            continue
        if grant.weight != has.weight:
            (taking if grant.weight < has.weight else giving).append(Actuation(name, Kind.WEIGHT, weight=grant.weight))
        if grant.quota != has.quota:
            less = has.quota is None or (grant.quota is not None and grant.quota < has.quota)
            (taking if less else giving).append(Actuation(name, Kind.QUOTA, quota=grant.quota))
        if has.run and not grant.run:
            taking.append(Actuation(name, Kind.PAUSE, reason=grant.reason))
        if grant.cores and tuple(grant.cores) != has.cores:
            leaves = has.cores is None or bool(gained & set(has.cores))
            (taking if leaves else giving).append(Actuation(name, Kind.CORES, tuple(grant.cores)))
        if grant.run and not has.run:
            giving.append(Actuation(name, Kind.RESUME, reason=grant.reason))
    taking.sort(key=lambda act: _TAKING.index(act.kind))
    giving.sort(key=lambda act: _GIVING.index(act.kind))
    return [*taking, *_service_acts(services, wanted), *giving]


_TAKING = (Kind.WEIGHT, Kind.QUOTA, Kind.PAUSE, Kind.CORES)
_GIVING = (Kind.CORES, Kind.WEIGHT, Kind.QUOTA, Kind.RESUME, Kind.START)


def _gained(services: Mapping[str, Has], wanted: Allocation) -> set[int]:
    gained: set[int] = set()
    for name, has in services.items():
        if (grant := wanted.services.get(name)) is not None:
            gained |= set(grant.cores) - set(has.cores or ())
    return gained


def _service_acts(services: Mapping[str, Has], wanted: Allocation) -> list[Actuation]:
    acts = []
    for name, has in services.items():
        grant = wanted.services.get(name)
        if grant is not None and grant.cores and tuple(grant.cores) != has.cores:
            grows = has.cores is not None and not set(grant.cores) < set(has.cores)
            acts.append((grows, Actuation(name, Kind.CORES, tuple(grant.cores), reason=grant.reason)))
    return [act for _, act in sorted(acts, key=lambda pair: pair[0])]
