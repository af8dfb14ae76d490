"""``quincy`` with compacted tasks: a task costs the data that it must fetch from elsewhere, waiting costs time.

After M. Isard, V. Prabhakaran, J. Currey, U. Wieder, K. Talwar, A. Goldberg, "Quincy: Fair Scheduling for Distributed
Computing Clusters" (SOSP 2009, section 4): a machine that holds part of the input costs the rest, a rack at most what its
worst machine does, the cluster at most what the worst of all does; only machines and racks with a share of the input are
preferred. Prices and defaults are :mod:`flowsched.pricing.linear.policies.locality_prices`. In Quincy's own network every
task and every machine is a node of its own. Here tasks with input in the same places are one class and machines with equal
labels one group: right for racks, and wasteful for machines, since a label per machine leaves nothing to fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.checks import above_zero, number, whole, word
from flowsched.pricing.linear.policies.locality_prices import LocalityPrices
from flowsched.pricing.linear.policy import ClassPrices, NoFeatures


@dataclass(frozen=True)
class QuincyPolicy(NoFeatures):
    """Tasks go to their data, to its rack if not, and elsewhere before they wait too long."""

    rack_label: str = "rack"
    """Label of machines that says in which rack they are."""
    machine_label: str = "machine"
    """Label that says which machine it is, on those that a task may prefer."""
    within_rack: float = LocalityPrices.within_rack
    """Per MB that comes from another machine of the same rack."""
    across_racks: float = LocalityPrices.across_racks
    """Per MB that comes from another rack."""
    preferred_share: float = LocalityPrices.preferred_share
    """A machine or rack is preferred if it holds at least this share of a task's input."""
    preferred_machines: int = LocalityPrices.preferred_machines
    """At most so many machines are preferred: those with most of the input."""
    preferred_racks: int = LocalityPrices.preferred_racks
    """At most so many racks."""
    waiting: float = LocalityPrices.waiting
    """For leaving a task, whatever its age."""
    waiting_per_s: float = LocalityPrices.waiting_per_s
    """And for every second since it came, up to the due age."""
    due_age_s: float = 600.0
    """The due age of the rounds."""

    name: ClassVar[str] = "quincy"
    told: ClassVar[tuple[Knowledge, ...]] = (Knowledge.INPUT,)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a value that it cannot take."""
        for price in ("within_rack", "across_racks", "preferred_share", "waiting_per_s"):
            number(price, getattr(self, price))
        number("waiting", self.waiting, endless=True)
        whole("preferred_machines", self.preferred_machines)
        whole("preferred_racks", self.preferred_racks)
        word("rack_label", self.rack_label)
        word("machine_label", self.machine_label)
        above_zero("due_age_s", self.due_age_s)
        if self.preferred_share > 1.0:
            raise ValueError(f"preferred_share is {self.preferred_share:g}; give a share from 0 to 1")
        if self.within_rack > self.across_racks:
            raise ValueError(
                f"within_rack is {self.within_rack:g} and across_racks {self.across_racks:g}; "
                "data from the same rack cannot cost more than data from another"
            )
        if self.rack_label == self.machine_label:
            raise ValueError(
                f"rack_label and machine_label are both {self.rack_label!r}; a label can say only one of them"
            )

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """What has to be fetched, by kind. Raises ``ValueError`` for a share that is none."""
        machines, racks = self._shares(task_class)
        near_racks = _most(racks, self.preferred_share, self.preferred_racks)
        near_machines = _most(machines, self.preferred_share, self.preferred_machines)
        base = np.empty(len(kinds))
        for k, kind in enumerate(kinds):
            rack, machine = kind.label(self.rack_label), kind.label(self.machine_label)
            share = self.across_racks
            if rack in near_racks:
                share = self.within_rack * racks[rack] + self.across_racks * (1.0 - racks[rack])
            if machine in near_machines:
                local = machines[machine]
                near = max(local, racks.get(rack, 0.0))
                share = min(share, self.within_rack * (near - local) + self.across_racks * (1.0 - near))
            base[k] = share * task_class.input_mb
        nothing = np.zeros(0)
        return ClassPrices(base, nothing, nothing, self.waiting, self.waiting_per_s * self.due_age_s)

    def _shares(self, task_class: TaskClass) -> tuple[dict[str, float], dict[str, float]]:
        """Shares of the input by machine and by rack."""
        machines: dict[str, float] = {}
        racks: dict[str, float] = {}
        for label, value, share in task_class.locality:
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"class {task_class.name} has a share of {share:g} of its input at {label}={value}")
            if label == self.machine_label:
                machines[value] = share
            elif label == self.rack_label:
                racks[value] = share
            else:
                raise ValueError(
                    f"class {task_class.name} has input at {label}={value}; "
                    f"policy quincy knows the labels {self.rack_label} and {self.machine_label}"
                )
        return machines, racks


def _most(shares: Mapping[str, float], least: float, most: int) -> frozenset[str]:
    """The places with at least a share, at most so many, those that hold most first."""
    enough = sorted((-share, place) for place, share in shares.items() if share > 0.0 and share >= least)
    return frozenset(place for _, place in enough[:most])
