"""Classes of tasks and kinds of machines: what is fixed about them does not tell the members of one apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite


@dataclass(frozen=True)
class TaskClass:
    """Tasks that neither a cost nor a constraint tells apart, but for when they came. Hashable: equal ones are one class."""

    name: str
    """The profile, or whatever a reader knows them by."""
    width_milli: int
    """Milli-CPU that a task is granted; 0 for tasks that ask for none."""
    needs: tuple[tuple[str, int], ...] = ()
    """Whole units of memory and further resources that a task asks for, by name; CPU is the width."""
    sensitivity: float = 0.0
    """Relative slow-down per unit of neighbours' pressure."""
    pressure: float = 0.0
    """What one task adds to its neighbours' pressure."""
    run_s: float = inf
    """Predicted run time at its best place in seconds; infinite for tasks without an end."""
    priority: int = 0
    """Higher ones are placed first."""
    selector: tuple[tuple[str, str], ...] = ()
    """Labels that its machine must have."""
    slowness: tuple[tuple[str, float], ...] = ()
    """Run time on machines of a type over the best type's, minus 1; 0 for types that are not named."""
    interference_class: str = ""
    """How it behaves beside others, for policies that sort tasks into such classes."""
    group: str = ""
    """The task group that it is placed with, all or none."""
    movable: bool = True
    """Whether it may be taken off its machine while it runs, to go on elsewhere or to make room."""
    preferences: tuple[tuple[str, str, float], ...] = ()
    """Wishes: label, value, and what a machine without that label costs more, for policies that heed them."""
    locality: tuple[tuple[str, str, float], ...] = ()
    """Where its input is: label, value, and the share of the input that machines with that label hold, 0 to 1."""
    input_mb: float = 0.0
    """Size of that input."""
    max_cost: float = inf
    """Places that cost more are not taken."""
    holds: tuple[str, ...] = ()
    """Names of the relations that it demands; those that were not declared demand nothing."""
    joins: tuple[str, ...] = ()
    """Names of the relations that count it."""
    places: int = 0
    """The cluster's number of its masks and wishes by machine; 0: none."""
    counted: tuple[tuple[int, float], ...] = ()
    """Counts of what a round puts on each machine in which its tasks count, by number, each once, with what every one that
    is counted costs one task more; for the linear prices of ``flow``."""

    @property
    def is_plain(self) -> bool:
        """Whether it has a known end, and neighbours do nothing to it nor it to them."""
        return isfinite(self.run_s) and self.sensitivity == 0.0 and self.pressure == 0.0

    @property
    def bound(self) -> bool:
        """Whether it depends on other tasks, by its group or by relations."""
        return bool(self.group or self.holds or self.joins)

    def demand(self) -> dict[str, int]:
        """All that a task asks for, by resource; nothing that is 0."""
        asked = {"cpu": self.width_milli, **dict(self.needs)}
        return {name: amount for name, amount in asked.items() if amount > 0}


@dataclass(frozen=True)
class MachineKind:
    """What is fixed about a machine and that a cost or a constraint may depend on. Hashable: equal ones are one kind."""

    type: str
    labels: tuple[tuple[str, str], ...] = ()
    """Only those that some selector or policy may ask for, since each combination is a kind of its own."""
    bandwidth: float = 1.0
    """Factor on what neighbours do to each other there."""
    cores: float = 1.0
    """Its size, for policies that weigh a machine's load by it; rounded, since each value is a kind of its own."""

    def __post_init__(self) -> None:
        """Sort the labels. Raises ``ValueError`` for a machine without size."""
        object.__setattr__(self, "labels", tuple(sorted(self.labels)))
        if not 0.0 < self.cores < inf:
            raise ValueError(f"machines of type {self.type} have {self.cores:g} cores; give a number above 0")

    def has(self, selector: tuple[tuple[str, str], ...]) -> bool:
        """Whether it has all labels of a selector."""
        return not selector or set(selector) <= set(self.labels)

    def label(self, key: str, default: str = "") -> str:
        """Value of one label."""
        return dict(self.labels).get(key, default)


@dataclass(frozen=True)
class MachineSpec:
    """One machine as it joins. ``allocatable`` by resource: ``cpu`` in milli-CPU, others in whole units."""

    name: str
    kind: MachineKind
    allocatable: Mapping[str, int]
    readings: Mapping[str, float] = field(default_factory=dict)
    """Features of the machine itself that no task brings, e.g. the price of a service's headroom."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Most that a feature may reach there, e.g. the pressure beyond which a service breaks its goal."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels whose values are domains of relations."""
