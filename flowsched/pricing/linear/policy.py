"""What a cost model decides: prices that are sums over what tasks bring to a machine.

A task of class c costs, on machine m of kind k,

    cost(c, m) = base[c, k] + sum over features f of coefficient[c, f] * factor[k, f] * x[m, f]

where ``x[m, f]`` is the machine's own reading plus ``effect[c', f]`` of every task c' that is there. That is all the engine
needs: sums are kept in O(changes), machines whose readings fall into the same bucket are one group, and tasks of the same
round pay for each other, since each that is placed raises what the next one sees. A price that counts what a newcomer does
to others, beside what it suffers, makes a machine's total the sum of its tasks' prices as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.support.arrays import FloatArray

FORBIDDEN = float("inf")


@dataclass(frozen=True)
class Feature:
    """Something that costs depend on and that changes as tasks come and go."""

    name: str
    bucket: float = 0.0
    """Machines whose readings differ by less than this may be one group; 0 keeps them apart unless equal."""
    term: str = ""
    """The name of its part of a cost in records; the feature's own name if empty."""
    of_round: bool = field(default=False, repr=False)
    """Whether it counts only what a round places: it begins at 0, has no limit and tells no groups apart."""


@dataclass(frozen=True, eq=False)
class ClassPrices:
    """One class in the eyes of a policy."""

    base: FloatArray
    """Cost of a task on an otherwise empty machine, by kind; ``FORBIDDEN`` where it must not run. At least 0."""
    coefficients: FloatArray
    """Cost per unit of each feature. At least 0."""
    effects: FloatArray
    """What one task adds to each feature of its machine. At least 0."""
    waiting: float
    """Cost of leaving a task that has just come for a later round; infinite if any place is better than none."""
    growth: float = 0.0
    """What is added to it by the due age, linearly, and not beyond."""


class NoFeatures:
    """Of a policy: its costs depend on nothing that else is on a machine."""

    features: ClassVar[tuple[Feature, ...]] = ()

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """None, as there are no features."""
        del kind
        return ()


def labels_of(policy: CostModel) -> tuple[str, ...]:
    """Labels of machines that a policy asks kinds for whatever tasks say: its member ``labels``, which it need not have."""
    return tuple(getattr(policy, "labels", ()))


class CostModel(Protocol):
    """Turns classes and kinds into prices, the same for the same class and kinds.

    Asked when a class turns up, and about all classes once more when machines of new kinds join; never in a round.
    """

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    @property
    def features(self) -> tuple[Feature, ...]:
        """What its costs depend on, in the order of the arrays."""
        ...

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Factor of each feature on machines of a kind; usually 1."""
        ...

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """Prices of a class; ``base`` has a value for each of ``kinds``, and nothing else depends on them.

        The engine forbids what a selector excludes, and sees to it that tasks fit.
        """
        ...
