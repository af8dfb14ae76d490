"""An opened record: what a round saw, solved and decided, in the same shape for every writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, Final, cast

import numpy as np

from flowsched.inspector.graph import Graph, read_graph
from flowsched.inspector.wait_cause import WaitCause
from flowsched.records.record_types import (
    NetworkPart,
    Record,
    RecordedCertificate,
    RecordedDecision,
    RecordedDemand,
    RecordedHeldMachine,
    RecordedPass,
    RecordedPlan,
    RecordedReservation,
    RecordedVerdict,
    SearchPart,
)
from flowsched.round.origin import PlanStage

SEARCH = "search"
"""Kind of a part that passes of min-cost flow decided (and of the parts of baselines)."""
_COLUMNS: Final = ("machine", "cost", "runner_up", "runner_up_cost")
NETWORK = "network"
"""Kind of a part that one network of classes and groups decided: a bulk round, or a round of another cost model."""


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
    runner_up: str | None = None
    """The other machine where one more task of its class would have cost least, of a bulk round."""
    runner_up_cost: float | None = None


@dataclass(frozen=True)
class Waits:
    """A task that the round left waiting."""

    task: str
    reason: str
    cause: str = "postponed"
    """``postponed``, or in a network part the cause of a :class:`flowsched.scale.reasons.Reason`."""
    waited_s: float | None = None
    cost: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    planned: RecordedPlan | None = None
    """Where it waits for something."""


@dataclass(frozen=True, eq=False)
class Part:
    """One problem that the round solved; on Kubernetes a round has one or two per priority."""

    kind: str
    index: int
    plain: SearchPart | NetworkPart
    now_s: float | None = None
    """Time of the round, where it is known."""

    @property
    def search(self) -> SearchPart:
        """``plain`` of a part of kind ``search``."""
        return cast("SearchPart", self.plain)

    @property
    def network(self) -> NetworkPart:
        """``plain`` of a part of kind ``network``."""
        return cast("NetworkPart", self.plain)

    @property
    def priority(self) -> int | None:
        """Priority of its tasks, where rounds go priority by priority."""
        return self.plain.get("priority")

    @property
    def bulk(self) -> bool:
        """Whether it is of a bulk round, which can be solved again by itself."""
        return "given" in self.plain

    @property
    def dated(self) -> bool:
        """Whether it knows when its tasks came, and counts memory in MiB: rounds by linear prices of ``flow`` do not."""
        return not self.bulk or "cost_model" in self.network["given"]

    @cached_property
    def demands(self) -> Mapping[str, RecordedDemand]:
        """The classes of a network part by name, those last that took no part because their task groups lack members."""
        return {d["name"]: d for d in (*self.network["demands"], *self.network.get("outside", ()))}

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
        if self.kind != SEARCH:
            return tuple(self.network["fleet"]["machines"])
        return tuple(m["name"] for m in self.search["snapshot"]["machines"])

    @cached_property
    def machine_number(self) -> Mapping[str, int]:
        """Place of every machine in ``machines``."""
        return {name: i for i, name in enumerate(self.machines)}

    @cached_property
    def classes(self) -> tuple[Members, ...]:
        """Pending tasks that the network cannot tell apart."""
        if self.kind != SEARCH:
            return tuple(Members(d["name"], tuple(d["tasks"])) for d in self.demands.values())
        return tuple(Members(c["task"], tuple(c["members"])) for c in self.search["classes"])

    @cached_property
    def groups(self) -> tuple[Members, ...]:
        """Machines that the network cannot tell apart."""
        if self.kind == SEARCH:
            return tuple(Members(g["machine"], tuple(g["members"])) for g in self.search["groups"])
        group_of = np.asarray(self.network["group_of"], dtype=np.int64)
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
        return tuple(self._placed())

    @cached_property
    def waiting(self) -> tuple[Waits, ...]:
        """Tasks that it left."""
        if self.kind == NETWORK:
            return tuple(self._left())
        return tuple(
            Waits(p["task"], p["reason"], "postponed", p["waited_s"], p["cost"], p["terms"], p["planned"])
            for p in self.search["postponements"]
        )

    @cached_property
    def planned(self) -> Mapping[str, tuple[str, int, int, bool]]:
        """By task, what a round of flow plans: machine, completions to wait for, width, whether services share cores."""
        options = ((e, option_of(e)) for e in self.search["plan"])
        return {e["task"]: (*option, bool(e.get("shared"))) for e, option in options if option is not None}

    def outcome_of(self, task: str) -> tuple[Placed | None, Waits | None]:
        """What became of a task: one of the two. Raises ``ValueError`` if the record does not say it."""
        placed = next((p for p in self.placements if p.task == task), None)
        waits = next((w for w in self.waiting if w.task == task), None)
        if placed is None and waits is None:
            raise ValueError(f"it does not say what became of {task}")
        return placed, waits

    @property
    def reservations(self) -> Sequence[RecordedHeldMachine]:
        """``task``, ``machine``, ``start_s``, and in a round of flow ``width_milli``."""
        return tuple(self.plain.get("reservations", ()))

    def width_of(self, reservation: RecordedHeldMachine) -> int:
        """Milli-CPU that a reservation is for."""
        if self.kind == SEARCH:
            return cast("RecordedReservation", reservation)["width_milli"]
        demand = self.demands[self.class_of[reservation["task"]]]
        return int(demand["needs"].get("cpu", 0))

    @property
    def certificate(self) -> RecordedCertificate | None:
        """``method``, ``primal``, ``bound``, ``unconstrained``, ``gap_absolute``, ``gap_relative``, ``prices``."""
        return self.plain.get("certificate")

    @property
    def passes(self) -> Sequence[RecordedPass]:
        """Of a round of flow."""
        return tuple(self.search.get("passes", ()))

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
        return {entry["task"]: entry for entry in self.search.get("decided_by", ())}

    @property
    def counts(self) -> Mapping[str, float]:
        """Work done, such as ``solves``."""
        return self.plain.get("counts", {})

    @property
    def timings(self) -> Mapping[str, float]:
        """Milliseconds by stage, keys end in ``_ms``."""
        return self.plain.get("timings", {})

    def _left(self) -> Iterator[Waits]:
        created = {
            task: float(since)
            for d in self.network["demands"]
            for task, since in zip(d["tasks"], d["created_s"], strict=True)
        }
        now_s = self.now_s
        for entry in self.network["left"]:
            for task, cost in zip(entry["tasks"], np.asarray(entry["costs"]).tolist(), strict=True):
                waited = None if now_s is None or not self.dated else now_s - created[task]
                yield Waits(task, entry["text"], entry["cause"], waited, cost, {"waiting": cost})
        for demand in self.network.get("outside", ()):
            yield from (Waits(task, demand["reason"], WaitCause.GROUP) for task in demand["tasks"])

    def _placed(self) -> Iterator[Placed]:
        if self.kind == SEARCH:
            for p in self.search["placements"]:
                cores = tuple(p["cores"])
                yield Placed(p["task"], p["machine"], p["cost"], p["terms"], p["width_milli"], p["threads"], cores)
            return
        plain, machines = self.network["placements"], self.machines
        width_of = {name: int(d["needs"].get("cpu", 0)) for name, d in self.demands.items()}
        terms = {name: np.asarray(values).tolist() for name, values in plain["terms"].items()}
        rows = zip(*terms.values(), strict=True) if terms else repeat(())
        columns = (np.asarray(plain[k]).tolist() for k in _COLUMNS)
        for task, machine, cost, rival, rival_cost in zip(plain["task"], *columns, strict=True):
            yield Placed(
                task,
                machines[machine],
                cost,
                dict(zip(terms, next(rows), strict=True)),
                width_of[self.class_of[task]],
                runner_up=None if rival < 0 else machines[rival],
                runner_up_cost=None if rival < 0 else rival_cost,
            )


def new_part(kind: str, index: int, solved: Mapping[str, Any]) -> Part:
    """A part that was solved just now; what comes from files was checked when it was read."""
    return Part(kind, index, cast("SearchPart | NetworkPart", solved))


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
        return tuple(Part(p["kind"], i, p, self.plain.get("now_s")) for i, p in enumerate(self.plain["parts"]))

    @property
    def placed_and_waiting(self) -> tuple[int, int]:
        """How many tasks; one that a part left and a later one placed is placed."""
        placed = {p.task for part in self.parts for p in part.placements}
        waiting = {w.task for part in self.parts for w in part.waiting} | {t for h in self.held for t in h["tasks"]}
        return len(placed), len(waiting - placed)

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
