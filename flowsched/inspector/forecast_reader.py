"""What forecast prices say of one task: every number is in the record or follows from its snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from flowsched.inspector.flow_task import FlowTask
from flowsched.inspector.forecast_refusals import cause_of, machines_found, stays
from flowsched.inspector.gpu_facts import gpu_facts
from flowsched.inspector.moves import by_machine, moves_of, waiting_move
from flowsched.inspector.other_option import OtherOption
from flowsched.inspector.overtaking import overtaking_facts
from flowsched.inspector.placed_facts import neighbours_of, services_of, why_now
from flowsched.inspector.refusals import MachinesFound
from flowsched.inspector.sharing import shared_services
from flowsched.inspector.tied_machines import tied_facts
from flowsched.inspector.wait_cause import WaitCause
from flowsched.inspector.waiting_bound import waiting_bound
from flowsched.inspector.waiting_facts import (
    better_gpus,
    closest_place,
    core_price,
    latency_facts,
    needed_waiting,
    planned_facts,
    shared_later,
)


class ForecastReader(FlowTask):
    """Of a task that flow decided, or a baseline."""

    def known(self) -> dict[str, Any]:
        """Whether there are models, what it asks for, and the stage that gave it a place."""
        return {
            "models": self.opened is not None,
            "models_missing": self.closed_because,
            "asks": _asks(self),
            "decided_by": _decided_by(self),
        }

    def here(self) -> tuple[float, Mapping[str, float]]:
        """As recorded."""
        return self.place.cost, self.place.terms

    @cached_property
    def _moves(self) -> tuple[OtherOption, ...]:
        return moves_of(self)

    @property
    def _away(self) -> list[OtherOption]:
        return [m for m in self._moves if m.machine not in (None, self.place.machine)]

    def elsewhere(self) -> Sequence[OtherOption]:
        """Of every other machine the cheapest start there, now or later."""
        return by_machine(self._away)

    def same_machine(self) -> Sequence[OtherOption]:
        """Other widths and later starts."""
        return sorted((m for m in self._moves if m.machine == self.place.machine), key=lambda m: m.cost)

    def waiting(self) -> OtherOption | None:
        """At the price of the unscheduled node."""
        return waiting_move(self)

    def neighbours(self) -> list[dict[str, Any]]:
        """When they end with it and without it."""
        return neighbours_of(self, self.place.machine)

    def more_of_place(self) -> dict[str, Any]:
        """Why it starts now, what tied, services and GPUs."""
        placed = self.place
        return {
            "tied": tied_facts(self, self._away),
            "why_now": why_now(self.part, self.opened, self.name, placed.machine),
            "waited_s": self.recorded.now_s - float(self.plain.get("submit_s", 0.0)),
            "rounds_waited": self.rounds_waited,
            "due_age_s": self.due_age_s,
            "search_ended_early": self.ended_early,
            "makespan": self.makespan,
            "services": services_of(self, placed.machine),
            "gpus": gpu_facts(self),
            "shared": shared_services(self.part, self.opened, placed.machine, placed.cores or ()),
        }

    def waited(self) -> tuple[float | None, int | None]:
        """As recorded."""
        return self.wait.waited_s, self.rounds_waited + 1

    def left(self) -> tuple[float | None, Mapping[str, float]]:
        """As recorded."""
        return self.wait.cost, self.wait.terms

    def closest(self) -> dict[str, Any] | None:
        """Beside what its waiting costs."""
        best, waits = closest_place(self), self.wait
        return None if best is None or waits.cost is None else best.plain(waits.cost, waits.terms)

    @cached_property
    def machines(self) -> MachinesFound | None:
        """All of the part, and on Kubernetes all others."""
        return machines_found(self)

    def stays(self, machines: Sequence[str]) -> list[dict[str, Any]]:
        """Services, and tasks without an end."""
        return stays(self.restored, machines)

    def cause(self, facts: Mapping[str, Any]) -> str:
        """What keeps it from starting."""
        if self.opened is not None and self.number in self.opened.gangs.barred:
            return WaitCause.GROUP
        if any(r["moved_to"] is None for r in self.part.forecast.get("repairs", ()) if r["task"] == self.name):
            return WaitCause.RELATION
        return WaitCause.UNKNOWN if self.machines is None else cause_of(self.machines, facts)

    def core_price(self, machine: str) -> dict[str, Any] | None:
        """By the certificate."""
        return core_price(self.part, machine, self.width_milli)

    def more_of_waiting(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Where it is planned, what would change its mind, who came later, and how long it can last."""
        cause, closest, reservation = facts["cause"], facts["closest"], facts["reservation"]
        planned = planned_facts(self, self.wait)
        start_s = None if planned is None else planned["start_s"]
        return {
            "planned": planned,
            "better_gpus": better_gpus(self, closest) if cause == WaitCause.COST else None,
            "shared": [] if planned is None else shared_later(self, planned["machine"]),
            "needed_waiting": needed_waiting(self, closest, cause),
            "latency": latency_facts(self) if cause == WaitCause.SERVICE else [],
            "came_later": overtaking_facts(
                self, WaitCause(cause), start_s if reservation is None else reservation["in_s"], closest
            ),
            "bound": None if self.opened is None else waiting_bound(self.opened, self.name),
            "search_ended_early": self.ended_early,
            "makespan": self.makespan,
        }


def _decided_by(task: FlowTask) -> dict[str, Any] | None:
    """The stage that decided where it starts or is planned; None where it has no place, and for baselines."""
    entry = task.part.decided_by.get(task.name)
    if entry is None:
        return None
    network, passes = entry["stage"] == "network", task.part.passes
    return {
        "stage": entry["stage"],
        "pass": entry["pass"] if network else None,
        "passes": len(passes),
        "price": entry.get("price"),
        "runner_up": entry.get("runner_up"),
        "batch": len(passes[entry["pass"] - 1]["batch"]) if network else None,
        "early": bool(entry.get("early")),
    }


def _asks(task: FlowTask) -> dict[str, Any] | None:
    if task.opened is None:
        return None
    own = task.opened.task(task.name)
    return {
        "widths_milli": list(own.widths_milli),
        "request_milli": own.request_milli,
        "memory_mib": own.memory_mib,
        "resources": {name: units for name, units in own.resources if units},
        "machines": None if own.machines is None else len(own.machines),
        "priority": own.priority,
        "submit_s": own.submit_s,
        "endless": own.endless,
        "holds": list(own.holds),
        "joins": list(own.joins),
    }
