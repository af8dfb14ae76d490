"""What forecast prices say of one task: every number is in the record or follows from its snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from flowsched.inspector.flow_task import FlowTask, find_task
from flowsched.inspector.forecast_refusals import cause_of, machines_found, stays
from flowsched.inspector.gpu_facts import gpu_facts
from flowsched.inspector.moves import by_machine, moves_of, waiting_move
from flowsched.inspector.other_option import OtherOption
from flowsched.inspector.overtaking import overtaking_facts
from flowsched.inspector.placed_facts import neighbours_of, services_of, why_now
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.refusals import MachinesFound
from flowsched.inspector.sharing import shared_services
from flowsched.inspector.task_reader import TaskReader
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


class ForecastReader(TaskReader):
    """Of a task that flow decided, or a baseline."""

    def __init__(self, recorded: RecordView, part: Part, name: str) -> None:
        """Restore the models, where that can be."""
        super().__init__(recorded, part, name)
        self.task = find_task(recorded, part, name)

    def known(self) -> dict[str, Any]:
        """Whether there are models, what it asks for, and the stage that gave it a place."""
        task = self.task
        return {
            "models": task.opened is not None,
            "models_missing": task.closed_because,
            "asks": _asks(task),
            "decided_by": _decided_by(task),
        }

    def here(self) -> tuple[float, Mapping[str, float]]:
        """As recorded."""
        return self.placed.cost, self.placed.terms

    @cached_property
    def _moves(self) -> tuple[OtherOption, ...]:
        return moves_of(self.task)

    @property
    def _away(self) -> list[OtherOption]:
        return [m for m in self._moves if m.machine not in (None, self.placed.machine)]

    def elsewhere(self) -> Sequence[OtherOption]:
        """Of every other machine the cheapest start there, now or later."""
        return by_machine(self._away)

    def same_machine(self) -> Sequence[OtherOption]:
        """Other widths and later starts."""
        return sorted((m for m in self._moves if m.machine == self.placed.machine), key=lambda m: m.cost)

    def waiting(self) -> OtherOption | None:
        """At the price of the unscheduled node."""
        return waiting_move(self.task)

    def neighbours(self) -> list[dict[str, Any]]:
        """When they end with it and without it."""
        return neighbours_of(self.task, self.placed.machine)

    def more_of_place(self) -> dict[str, Any]:
        """Why it starts now, what tied, services and GPUs."""
        task, placed = self.task, self.placed
        return {
            "tied": tied_facts(task, self._away),
            "why_now": why_now(task.part, task.opened, task.name, placed.machine),
            "waited_s": task.recorded.now_s - float(task.plain.get("submit_s", 0.0)),
            "rounds_waited": task.rounds_waited,
            "due_age_s": task.due_age_s,
            "search_ended_early": task.ended_early,
            "makespan": task.makespan,
            "services": services_of(task, placed.machine),
            "gpus": gpu_facts(task),
            "shared": shared_services(task.part, task.opened, placed.machine, placed.cores or ()),
        }

    def waited(self) -> tuple[float | None, int | None]:
        """As recorded."""
        return self.waits.waited_s, self.task.rounds_waited + 1

    def left(self) -> tuple[float | None, Mapping[str, float]]:
        """As recorded."""
        return self.waits.cost, self.waits.terms

    def closest(self) -> dict[str, Any] | None:
        """Beside what its waiting costs."""
        best, waits = closest_place(self.task), self.waits
        return None if best is None or waits.cost is None else best.plain(waits.cost, waits.terms)

    @cached_property
    def machines(self) -> MachinesFound | None:
        """All of the part, and on Kubernetes all others."""
        return machines_found(self.task)

    def stays(self, machines: Sequence[str]) -> list[dict[str, Any]]:
        """Services, and tasks without an end."""
        return stays(self.task.restored, machines)

    def cause(self, facts: Mapping[str, Any]) -> str:
        """What keeps it from starting."""
        task = self.task
        if task.opened is not None and task.number in task.opened.gangs.barred:
            return WaitCause.GROUP
        if any(r["moved_to"] is None for r in task.part.forecast.get("repairs", ()) if r["task"] == task.name):
            return WaitCause.RELATION
        return WaitCause.UNKNOWN if self.machines is None else cause_of(self.machines, facts)

    def core_price(self, machine: str) -> dict[str, Any] | None:
        """By the certificate."""
        return core_price(self.task.part, machine, self.task.width_milli)

    def more_of_waiting(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Where it is planned, what would change its mind, who came later, and how long it can last."""
        task, cause, closest, reservation = self.task, facts["cause"], facts["closest"], facts["reservation"]
        planned = planned_facts(task, self.waits)
        start_s = None if planned is None else planned["start_s"]
        return {
            "planned": planned,
            "better_gpus": better_gpus(task, closest) if cause == WaitCause.COST else None,
            "shared": [] if planned is None else shared_later(task, planned["machine"]),
            "needed_waiting": needed_waiting(task, closest, cause),
            "latency": latency_facts(task) if cause == WaitCause.SERVICE else [],
            "came_later": overtaking_facts(
                task, WaitCause(cause), start_s if reservation is None else reservation["in_s"], closest
            ),
            "bound": None if task.opened is None else waiting_bound(task.opened, task.name),
            "search_ended_early": task.ended_early,
            "makespan": task.makespan,
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
