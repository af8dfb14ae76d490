"""What a policy decides: the cost of a machine with the tasks on it, and the cost of letting a task wait.

The price of a placement is the exact change of its machine's total: what the newcomer suffers, what it does to those who are
there, and what it takes of a service's headroom. The engine takes the differences; a policy only values outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from flowsched.assignment import Company
from flowsched.outlook import Outlook
from flowsched.prospect import Prospect

FORBIDDEN = float("inf")


class Prices(Protocol):
    """One round's prices. Terms add up to the cost; the names are the record's."""

    def machine_cost(self, group: int, company: Company) -> float:
        """Cost of a machine of a group once a company has joined it; ``FORBIDDEN`` where it must not."""
        ...

    def machine_costs(self, group: int, companies: Sequence[Company]) -> list[float]:
        """``machine_cost`` of many companies: what has to be forecast for them is forecast together."""
        ...

    def prospect(self, group: int, company: Company) -> Prospect | None:
        """What is predicted for a machine once a company has joined it; None if it cannot."""
        ...

    def machine_terms(self, group: int, company: Company, member: int) -> Mapping[str, float]:
        """What the ``member``-th newcomer of a company adds to its machine's cost, term by term."""
        ...

    def waiting_cost(self, task_class: int) -> float:
        """Cost of leaving one task of a class unscheduled this round."""
        ...

    def waiting_terms(self, task_class: int) -> Mapping[str, float]:
        """The same, term by term."""
        ...

    def least_cost(self, group: int, task_class: int) -> float:
        """A lower bound on what one task of a class adds to the total on a group's machines, in any company."""
        ...

    def resident_least_cost(self, group: int) -> float:
        """A lower bound on the cost of what runs on one machine of a group, in any company."""
        ...

    def welcome(self, group: int, task_class: int) -> bool:
        """Whether a task of a class may run on a machine of the group that runs nothing else."""
        ...

    def utility(self, group: int, company: Company, member: int) -> float | None:
        """Utility of the ``member``-th newcomer's completion, whatever it demands; None where the company does not fit."""
        ...

    def makespan_s(self, group: int, company: Company) -> float:
        """Last predicted completion on a machine, in seconds from now."""
        ...

    def on(self, outlook: Outlook) -> Prices:
        """The same prices of another outlook on the same round."""
        ...

    def with_goal(self, goal_s: float) -> Prices:
        """The same prices with one goal for all, ``goal_s`` from now; itself where goals are fixed."""
        ...


class Policy(Protocol):
    """Turns a view into prices."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def price(self, outlook: Outlook) -> Prices:
        """Open a round."""
        ...
