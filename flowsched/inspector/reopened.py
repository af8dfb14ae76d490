"""A search of a record, opened again: the same models, prices and decisions, so that more can be asked of them.

Nothing is solved or decided anew. A record whose numbers this flowsched cannot reproduce is not opened: whoever explains
it has to do with what the record itself holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from flowsched.assignment import Assignment, Column, Newcomer
from flowsched.compaction import compact
from flowsched.gang import Gangs, settle_gangs
from flowsched.inspector.account import Account, Part
from flowsched.inspector.again import snapshot_of
from flowsched.outlook import Outlook
from flowsched.policies.flow import FlowPolicy
from flowsched.record import rebuild_search
from flowsched.reservation import Dues, settle_dues
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.snapshot import Running, Task
from flowsched.solvers import installed, make_solver
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory

_SAME = 1e-6
"""How far a cost may be from the record's, relative to 1 or to itself."""


class ReopeningError(Exception):
    """Why a part cannot be opened again, in words that follow a colon."""


@dataclass(frozen=True, eq=False)
class Reopened:
    """A search with the prices that its round ended with, and what the round made of it."""

    search: Search
    settings: Settings
    plan: Assignment
    """The plan that the search ended with."""
    decided: Assignment
    """What became of it: who starts now, and who is planned for later."""
    dues: Dues
    gangs: Gangs

    @cached_property
    def task_number(self) -> Mapping[str, int]:
        """Index of every pending task."""
        return {task.name: t for t, task in enumerate(self.search.view.tasks)}

    @cached_property
    def machine_number(self) -> Mapping[str, int]:
        """Index of every machine that the search looked at."""
        return {machine.name: m for m, machine in enumerate(self.search.view.machines)}

    @cached_property
    def group_number(self) -> Mapping[str, int]:
        """Group of every machine, also of those that the search left out because they were like others."""
        found = {
            machine.name: g for machine, g in zip(self.search.view.machines, self.search.view.group_of, strict=True)
        }
        return found | {name: g for g, group in enumerate(self.search.view.groups) for name in group.spares}

    @cached_property
    def follows_plan(self) -> bool:
        """Whether everything was decided as the plan says: nothing was repaired, no idle machine began early."""
        return self.plan.columns == self.decided.columns

    def task(self, name: str) -> Task:
        """A pending task."""
        return self.search.view.tasks[self.task_number[name]]

    def newcomers(self, machine: int) -> list[tuple[Newcomer, str]]:
        """Who starts on a machine or is planned for it, in the order of its company, with names."""
        view = self.search.view
        found = []
        for t in self.decided.on(machine):
            column = self.decided.columns[t]
            assert column is not None, "it is on the machine"
            found.append((Newcomer(view.class_of[t], column.slot, column.width_milli), view.tasks[t].name))
        return sorted(found)

    def residents(self, machine: str) -> tuple[Running, ...]:
        """What runs on a machine, in the order of its group's residents."""
        snapshot = self.search.view.snapshot
        alone = replace(
            snapshot,
            machines=tuple(m for m in snapshot.machines if m.name == machine),
            services=tuple(s for s in snapshot.services if s.machine == machine),
            running=tuple(r for r in snapshot.running if r.machine == machine),
            plan=(),
            reservations=(),
        )
        return compact(alone, HostFactory(snapshot.catalogue)).groups[0].running


_OPENED: WeakKeyDictionary[Part, Reopened] = WeakKeyDictionary()
"""Parts that have been opened: whoever asks about one task often asks about the next."""


def reopen(account: Account, part: Part) -> Reopened:
    """A search part, opened again. Raises :class:`ReopeningError`."""
    found = _OPENED.get(part)
    if found is None:
        found = _OPENED[part] = _open(account, part)
    return found


def _open(account: Account, part: Part) -> Reopened:
    if account.policy != FlowPolicy.name:
        raise ReopeningError(f"its policy, {account.policy}, is not known here")
    try:
        snapshot = snapshot_of(account, part)
        known = {f.name for f in fields(Settings)}
        settings = Settings(**{k: v for k, v in account.settings.items() if k in known})
    except InputError as error:
        raise ReopeningError(f"the record {error.problems[0].message}") from None
    except (TypeError, ValueError) as error:
        raise ReopeningError(f"the settings cannot be read ({error})") from None
    policy = FlowPolicy(settings)
    solver = make_solver(account.solver if account.solver in installed() else "ortools")
    search = rebuild_search(
        snapshot,
        policy,
        solver,
        settings,
        holds={},
        must_start=frozenset(),
        barred=frozenset(),
        widths=bool(part.plain.get("widths", False)),
        goal_s=part.plain.get("goal_s"),
        shares=bool(part.plain.get("shares", False)),
    )
    # What is due or together was settled before the search, with the prices that it began with.
    began_as_it_ended = part.plain.get("goal_s") is None and not search.outlook.shares
    prices = search.prices if began_as_it_ended else policy.price(Outlook(search.view))
    dues = settle_dues(search.view, prices, settings)
    gangs = settle_gangs(search.view, prices, dues.must_start, dues.holds, dues.seed)
    search = replace(search, holds=dues.holds, must_start=dues.must_start | gangs.must_start, barred=gangs.barred)
    opened = Reopened(search, settings, _plan(search, part.plain["plan"]), _decided(search, part), dues, gangs)
    _check(opened, part)
    return opened


def _plan(search: Search, entries: Any) -> Assignment:
    columns: dict[str, Column | None] = {}
    number = {machine.name: m for m, machine in enumerate(search.view.machines)}
    for e in entries:
        columns[e["task"]] = (
            None if e["machine"] is None else Column(_known(number, e["machine"]), e["slot"], e["width_milli"])
        )
    return _assignment(search, columns)


def _decided(search: Search, part: Part) -> Assignment:
    columns: dict[str, Column | None] = {}
    number = {machine.name: m for m, machine in enumerate(search.view.machines)}
    for p in part.placements:
        if p.width_milli is None:
            raise ReopeningError("the record does not say how wide its tasks are")
        columns[p.task] = Column(_known(number, p.machine), 0, p.width_milli)
    for w in part.waiting:
        planned = w.planned
        columns[w.task] = (
            None
            if planned is None
            else Column(_known(number, planned["machine"]), planned["slot"], planned["width_milli"])
        )
    return _assignment(search, columns)


def _assignment(search: Search, columns: Mapping[str, Column | None]) -> Assignment:
    view = search.view
    return Assignment([columns.get(t.name) for t in view.tasks], view.class_of, len(view.machines))


def _known(number: Mapping[str, int], machine: str) -> int:
    if machine not in number:
        raise ReopeningError(f"the record places somebody on {machine}, which its snapshot does not lead to")
    return number[machine]


def _check(opened: Reopened, part: Part) -> None:
    """Whether the models say what they said when the record was made."""
    search = opened.search
    for placed in part.placements:
        if placed.task not in opened.task_number:
            raise ReopeningError(f"the record places {placed.task}, which its snapshot does not have")
        t = opened.task_number[placed.task]
        column = opened.decided.columns[t]
        assert column is not None, "it is placed"
        company = opened.decided.company(column.machine)
        member = company.index(Newcomer(search.view.class_of[t], 0, column.width_milli))
        terms = search.prices.machine_terms(search.view.group_of[column.machine], company, member)
        if not _same(sum(terms.values()), placed.cost):
            raise ReopeningError("the models of this flowsched predict other costs than the record has")
    for waits in part.waiting:
        if waits.planned is not None or waits.cost is None or waits.task not in opened.task_number:
            continue
        if not _same(search.waiting(opened.task_number[waits.task]), waits.cost):
            raise ReopeningError("the models of this flowsched predict other costs than the record has")


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= _SAME * max(1.0, abs(b))
