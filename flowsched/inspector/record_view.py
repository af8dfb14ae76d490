"""An opened record: what a round saw, solved and decided, in the same shape for every writer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, cast

import numpy as np

from flowsched.inspector.graph import Graph, read_graph
from flowsched.records.level_types import (
    ForecastLevel,
    LinearLevel,
    RecordedCertificate,
    RecordedDecision,
    RecordedGangOutcome,
    RecordedPass,
    RecordedPlan,
    RecordedPricedClass,
    RecordedReservation,
)
from flowsched.records.record import FORECAST
from flowsched.records.record_types import Record, RecordedVerdict
from flowsched.records.snapshot_types import RecordedRunning, RecordedSnapshot
from flowsched.round.origin import PlanStage

UNDONE_SHOWN = 5
"""Tasks of a pass that are named as undone at most."""
BY_STAGE: Mapping[str, str] = {
    PlanStage.NETWORK: "a later pass",
    PlanStage.GREEDY: "the greedy rule",
    PlanStage.LIST_SCHEDULING: "list scheduling",
    PlanStage.CARRIED: "the last round's plan",
    PlanStage.MOVE: "a move",
    PlanStage.SWAP: "a swap",
    PlanStage.GANG: "its gang",
    PlanStage.REPAIR: "a repair",
    PlanStage.NEVER_IDLE: "the start of another task",
    PlanStage.PREEMPTION: "a preemption",
}
"""What undid a pass, by stage."""


@dataclass(frozen=True)
class Members:
    """A class with its tasks, or a group with its machines."""

    name: str
    """As nodes of networks are named."""
    members: tuple[str, ...]


@dataclass(frozen=True)
class Placed:
    """A task that the round bound."""

    task: str
    machine: str
    cost: float
    terms: Mapping[str, float]
    width_milli: int | None = None
    threads: int | None = None
    cores: tuple[int, ...] | None = None
    devices: tuple[int, ...] = ()
    runner_up: str | None = None
    """The other machine where one more task of its class would have cost least, at linear prices."""
    runner_up_cost: float | None = None


@dataclass(frozen=True)
class Waits:
    """A task that the round left waiting."""

    task: str
    reason: str
    cause: str
    """``postponed``, or at linear prices the cause of a :class:`flowsched.round.wait_reasons.Reason`."""
    waited_s: float | None = None
    cost: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    planned: RecordedPlan | None = None
    """Where it waits for something."""


@dataclass(frozen=True, eq=False)
class Part:
    """A level: one problem that the round solved; on Kubernetes a round has one or two per priority."""

    index: int
    plain: ForecastLevel | LinearLevel

    @property
    def prices(self) -> str:
        """``forecast`` or ``linear``."""
        return self.plain["prices"]

    @property
    def by_forecasts(self) -> bool:
        """Whether passes of min-cost flow decided it (or a baseline did), at prices of forecasts."""
        return self.plain["prices"] == FORECAST

    @property
    def forecast(self) -> ForecastLevel:
        """``plain`` of a level at forecast prices."""
        return cast("ForecastLevel", self.plain)

    @property
    def linear(self) -> LinearLevel:
        """``plain`` of a level at linear prices."""
        return cast("LinearLevel", self.plain)

    @property
    def priority(self) -> int | None:
        """Priority of its tasks, where rounds go priority by priority."""
        return self.plain.get("priority")

    @property
    def snapshot(self) -> RecordedSnapshot | None:
        """What it was decided on; None where what runs is known as sums, and after the first level of a decision."""
        return self.plain.get("snapshot")

    @property
    def running(self) -> Sequence[RecordedRunning]:
        """What ran before, task by task, as far as its snapshot has it."""
        return () if self.snapshot is None else self.snapshot["running"]

    @property
    def dated(self) -> bool:
        """Whether it knows when its tasks came, and counts memory in MiB: linear prices of ``flow`` do not."""
        return self.by_forecasts or "cost_model" in self.linear["given"]

    @cached_property
    def priced_classes(self) -> Mapping[str, RecordedPricedClass]:
        """Classes at linear prices by name, those last that took no part because their task groups lack members."""
        return {c["name"]: c for c in (*self.linear["classes"], *self.linear["outside"])}

    @cached_property
    def first(self) -> Graph:
        """The network that decided, with its flow: of a round of flow the pass of which most tasks stand."""
        return read_graph(self.plain["first_network"])

    @property
    def graphs(self) -> Mapping[str, Graph]:
        """The networks that a record always has, by name."""
        return {"first": self.first}

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """All machines, by name."""
        return tuple(self.plain["machines"])

    @cached_property
    def machine_number(self) -> Mapping[str, int]:
        """Place of every machine in ``machines``."""
        return {name: i for i, name in enumerate(self.machines)}

    @cached_property
    def classes(self) -> tuple[Members, ...]:
        """Pending tasks that the network cannot tell apart."""
        outside = () if self.by_forecasts else self.linear["outside"]
        return tuple(Members(c["name"], tuple(c["tasks"])) for c in (*self.plain["classes"], *outside))

    @cached_property
    def groups(self) -> tuple[Members, ...]:
        """Machines that the network cannot tell apart."""
        if self.by_forecasts:
            return tuple(Members(g["machine"], tuple(g["members"])) for g in self.forecast["groups"])
        group_of = np.asarray(self.linear["group_of"], dtype=np.int64)
        members: list[list[str]] = [[] for _ in range(int(group_of.max(initial=-1)) + 1)]
        for name, group in zip(self.machines, group_of.tolist(), strict=True):
            members[group].append(name)
        return tuple(Members(names[0], tuple(names)) for names in members)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """All pending tasks."""
        return tuple(task for cls in self.classes for task in cls.members)

    @cached_property
    def class_of(self) -> Mapping[str, str]:
        """Class of every pending task."""
        return {task: cls.name for cls in self.classes for task in cls.members}

    @cached_property
    def group_of(self) -> Mapping[str, str]:
        """Group of every machine."""
        return {machine: group.name for group in self.groups for machine in group.members}

    @cached_property
    def placements(self) -> tuple[Placed, ...]:
        """Tasks that it bound, in the order in which it did."""
        plain, machines = self.plain["placements"], self.machines
        tasks = plain["task"]
        none: Sequence[None] = [None] * len(tasks)
        keys = ("machine", "cost", "width_milli", "threads", "cores", "devices", "runner_up", "runner_up_cost")
        columns = (_listed(plain.get(key, none)) for key in keys)
        return tuple(
            Placed(
                task,
                machines[machine],
                cost,
                terms,
                width,
                threads,
                None if cores is None else tuple(cores),
                tuple(devices or ()),
                None if rival is None or rival < 0 else machines[rival],
                None if rival is None or rival < 0 else rival_cost,
            )
            for task, terms, machine, cost, width, threads, cores, devices, rival, rival_cost in zip(
                tasks, _rows(plain["terms"], len(tasks)), *columns, strict=True
            )
        )

    @cached_property
    def waiting(self) -> tuple[Waits, ...]:
        """Tasks that it left."""
        plain = self.plain["waiting"]
        tasks, reasons = plain["task"], plain["reasons"]
        none: Sequence[None] = [None] * len(tasks)
        columns = (_listed(plain[key]) for key in ("reason", "cost"))
        more = (_listed(plain.get(key, none)) for key in ("waited_s", "planned"))
        return tuple(
            Waits(
                task,
                reasons[reason]["text"],
                reasons[reason]["cause"],
                waited,
                None if cost is None or not math.isfinite(cost) else cost,
                terms,
                planned,
            )
            for task, terms, reason, cost, waited, planned in zip(
                tasks, _rows(plain["terms"], len(tasks)), *columns, *more, strict=True
            )
        )

    @cached_property
    def planned(self) -> Mapping[str, tuple[str, int, int, bool]]:
        """By task, what a round of flow plans: machine, completions to wait for, width, whether services share cores."""
        options = ((e, option_of(e)) for e in self.forecast["plan"])
        return {e["task"]: (*option, bool(e.get("shared"))) for e, option in options if option is not None}

    def outcome_of(self, task: str) -> tuple[Placed | None, Waits | None]:
        """What became of a task: one of the two. Raises ``ValueError`` if the record does not say it."""
        placed = next((p for p in self.placements if p.task == task), None)
        waits = next((w for w in self.waiting if w.task == task), None)
        if placed is None and waits is None:
            raise ValueError(f"it does not say what became of {task}")
        return placed, waits

    @property
    def reservations(self) -> Sequence[RecordedReservation]:
        """``task``, ``machine``, ``start_s``, ``width_milli``."""
        return tuple(self.plain["reservations"])

    def task_group(self, task: str) -> RecordedGangOutcome | None:
        """What it decided about the task group of a task that waited; None for one without."""
        return next((g for g in self.plain.get("task_groups", ()) if task in g["members"]), None)

    @property
    def certificate(self) -> RecordedCertificate | None:
        """``method``, ``primal``, ``bound``, ``unconstrained``, ``gap_absolute``, ``gap_relative``, ``prices``."""
        return self.plain.get("certificate")

    @property
    def passes(self) -> Sequence[RecordedPass]:
        """Of a round of flow."""
        return tuple(self.forecast.get("passes", ()))

    def pass_graph(self, number: int) -> Graph | None:
        """The network of a pass by its number, from 1; None where there is no such pass."""
        one = self.passes[number - 1] if 1 <= number <= len(self.passes) else None
        if one is None:
            return None
        return read_graph(one["network"]) if "network" in one else self.first

    def undone(self, number: int) -> str:
        """Which tasks of a pass are not where it placed them in the end, and what changed that; empty for none."""
        pairs = [(entry["task"], entry["by"]) for entry in self.passes[number - 1]["undone"]]
        told = [f"{task} by {BY_STAGE[by]}" if by is not None else task for task, by in pairs[:UNDONE_SHOWN]]
        more = len(pairs) - len(told)
        return ", ".join(told) + (f" and {more} more" if more > 0 else "")

    @cached_property
    def first_batch(self) -> Mapping[str, int]:
        """By task, the place in ``passes`` of the first one that had it in its batch."""
        return {task: i for i, one in reversed([*enumerate(self.passes)]) for task in one["batch"]}

    @cached_property
    def decided_by(self) -> Mapping[str, RecordedDecision]:
        """By task, the stage that gave it its place; empty for parts without passes."""
        return {entry["task"]: entry for entry in self.forecast.get("decided_by", ())}

    @property
    def counts(self) -> Mapping[str, float]:
        """Work done, such as ``solves``."""
        return self.plain.get("counts", {})

    @property
    def timings(self) -> Mapping[str, float]:
        """Milliseconds by stage, keys end in ``_ms``."""
        return self.plain.get("timings", {})


def _listed(column: Any) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else list(column)


def _rows(terms: Mapping[str, Any], count: int) -> Iterator[Mapping[str, float]]:
    """Terms task by task; none where all are 0."""
    columns = [_listed(values) for values in terms.values()]
    rows = zip(*columns, strict=True) if columns else repeat((), count)
    return (dict(zip(terms, row, strict=True)) if any(row) else {} for row in rows)


def new_part(index: int, solved: Mapping[str, Any]) -> Part:
    """A part that was solved just now; what comes from files was checked when it was read."""
    return Part(index, cast("ForecastLevel | LinearLevel", solved))


def option_of(plan: RecordedPlan) -> tuple[str, int, int] | None:
    """Machine, completions to wait for and width of a planned task; None for one that nothing is planned for."""
    machine, slot, width = plan["machine"], plan["slot"], plan["width_milli"]
    return None if machine is None or slot is None or width is None else (machine, slot, width)


@dataclass(frozen=True, eq=False)
class RecordView:
    """A record, opened. ``plain`` is the whole of it; arrays may be numpy arrays or lists."""

    plain: Record
    source: str = ""
    """The file that it comes from, for messages."""

    @property
    def round(self) -> int:
        """Number of the round."""
        return int(self.plain["round"])

    @property
    def now_s(self) -> float:
        """Time of the round, in seconds."""
        return float(self.plain["now_s"])

    @property
    def writer(self) -> str:
        """Program and version that wrote it."""
        return str(self.plain.get("writer", "unknown"))

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return str(self.plain["policy"])

    @property
    def solver(self) -> str:
        """Name of the solver."""
        return str(self.plain["solver"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The engine's settings."""
        return self.plain["settings"]

    @property
    def titles(self) -> Mapping[str, str]:
        """NAMESPACE/NAME of tasks that are named by uid; empty elsewhere."""
        return self.plain.get("titles", {})

    @property
    def held(self) -> Sequence[RecordedVerdict]:
        """On Kubernetes, what waiting pods were told."""
        return tuple(self.plain.get("held", ()))

    @property
    def timings(self) -> Mapping[str, float]:
        """Milliseconds by stage of the whole round; those of a part are in the part."""
        return self.plain.get("timings", {})

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What the round solved, in order."""
        return tuple(Part(i, p) for i, p in enumerate(self.plain["parts"]))

    @property
    def placed_and_waiting(self) -> tuple[int, int]:
        """How many tasks; one that a part left and a later one placed is placed, and so is one that starts in the place of
        others. One whose place went to a higher priority waits.
        """
        levels = self.plain["parts"]
        placed = {p.task for part in self.parts for p in part.placements}
        placed |= {place["task"] for each in levels for place in each.get("let_in", ())}
        back = {taken["task"] for each in levels for taken in each.get("taken_back", ())}
        waiting = {w.task for part in self.parts for w in part.waiting} | {t for h in self.held for t in h["tasks"]}
        placed -= back
        return len(placed), len((waiting | back) - placed)

    def title(self, task: str) -> str:
        """What a person calls a task."""
        return self.titles.get(task) or task

    def names_of(self, task: str) -> list[str]:
        """What the record may call a task that is asked for by its name, by a title, or by ``pod/`` and one of them."""
        asked = list(dict.fromkeys((task, task.removeprefix("pod/"))))
        return [*asked, *(name for name, title in self.titles.items() if title in asked)]

    def find_task(self, name: str) -> tuple[Part, str] | None:
        """The part that decided on a task, and its name there; ``name`` may be a title, or ``pod/`` and a title.

        Of several parts that is the one that placed it, or else the first.
        """
        wanted = self.names_of(name)
        found = [(part, task) for part in self.parts for task in part.tasks if task in wanted]
        placed = (f for f in found if len(found) > 1 and any(p.task == f[1] for p in f[0].placements))
        return next(placed, found[0] if found else None)
