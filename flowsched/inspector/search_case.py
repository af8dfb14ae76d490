"""What there is to say about one task of a search, as data: every number is in the record or follows from its snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flowsched.assignment import Company, Newcomer, joined
from flowsched.census import Census
from flowsched.inspector import pod_facts, refusals
from flowsched.inspector.account import Account, Part, Placed, Waits
from flowsched.inspector.comparison import differences, plain_terms
from flowsched.inspector.core_price import core_price
from flowsched.inspector.reopened import Reopened, ReopeningError, reopen
from flowsched.inspector.sharing import shared_services
from flowsched.inspector.waiting_bound import waiting_bound
from flowsched.passes import LEFT
from flowsched.policies.policy import FORBIDDEN
from flowsched.relation import RelationKind
from flowsched.snapshot import Task

_STEP = 1e-9
"""Costs that are closer count as equal; then the earlier and narrower column counts."""


@dataclass(frozen=True)
class Move:
    """Another column for a task, or waiting (``machine`` None), with everybody else where the round left them."""

    machine: str | None
    slot: int | None
    """None where the record does not say."""
    width_milli: int | None
    cost: float
    """Change of the total if the task came there, had it been nowhere."""
    terms: Mapping[str, float]

    def plain(self, here: float, here_terms: Mapping[str, float]) -> dict[str, Any]:
        """The same beside what the task costs now: ``more`` is the difference, ``differences`` its terms."""
        return {
            "kind": "waiting" if self.machine is None else "place",
            "machine": self.machine,
            "slot": self.slot,
            "width_milli": self.width_milli,
            "cost": self.cost,
            "more": self.cost - here,
            "terms": plain_terms(self.terms),
            "differences": differences(self.terms, here_terms),
        }


class SearchCase:
    """One task of a search part."""

    def __init__(self, account: Account, part: Part, task: str) -> None:
        """Open the part again, if that can be."""
        self.account = account
        self.part = part
        self.name = task
        self.opened: Reopened | None = None
        self.closed_because: str | None = None
        try:
            self.opened = reopen(account, part)
        except ReopeningError as reason:
            self.closed_because = str(reason)
        self.placed: Placed | None = next((p for p in part.placements if p.task == task), None)
        self.waits: Waits | None = next((w for w in part.waiting if w.task == task), None)
        if self.placed is None and self.waits is None:
            raise ValueError(f"it does not say what became of {task}")

    @cached_property
    def plain_task(self) -> Mapping[str, Any]:
        """The task as the snapshot has it."""
        found: Mapping[str, Any] = next(t for t in self.part.plain["snapshot"]["pending"] if t["name"] == self.name)
        return found

    def facts(self) -> dict[str, Any]:
        """All there is to say; keys as in :mod:`flowsched.inspector.explanation`."""
        facts: dict[str, Any] = {"models": self.opened is not None, "models_missing": self.closed_because}
        facts |= self._asks()
        facts["repairs"] = [dict(r) for r in self.part.plain.get("repairs", ()) if r["task"] == self.name]
        facts["group"] = self._group()
        return facts | (self._placed_facts(self.placed) if self.placed is not None else self._waiting_facts())

    # Placed

    def _placed_facts(self, placed: Placed) -> dict[str, Any]:
        moves = self.moves
        here, terms = self._here(placed)
        elsewhere = [m for m in moves if m.machine is not None and m.machine != placed.machine]
        same = [m for m in moves if m.machine == placed.machine]
        waiting = self._waiting_move()
        rivals = [*elsewhere, *same, *([waiting] if waiting is not None else [])]
        best = _cheapest(rivals)
        by_machine = [_cheapest([m for m in elsewhere if m.machine == name]) for name in _machines(elsewhere)]
        ranked = sorted((m for m in by_machine if m is not None), key=lambda m: (m.cost, m.machine or ""))
        return {
            "fate": "placed",
            "cause": None,
            "place": {
                "machine": placed.machine,
                "width_milli": placed.width_milli,
                "threads": placed.threads,
                "cores": list(placed.cores or ()),
                "cost": placed.cost,
                "terms": plain_terms(placed.terms),
            },
            "runner_up": None if best is None else best.plain(here, terms),
            "waiting": None if waiting is None else waiting.plain(here, terms),
            "alternatives": [m.plain(here, terms) for m in ranked],
            "same_machine": [m.plain(here, terms) for m in sorted(same, key=lambda m: m.cost)],
            "why_now": self._why_now(),
            "waited_s": self.account.now_s - float(self.plain_task.get("submit_s", 0.0)),
            "rounds_waited": int(self.plain_task.get("rounds_waited", 0)),
            "due_age_s": self.account.settings.get("due_age_s"),
            "search_ended_early": self._ended_early(),
            "makespan": self.account.settings.get("objective") == "makespan",
            "neighbours": self._neighbours(placed.machine),
            "services": self._services(placed.machine),
            "shared": shared_services(self.part, self.opened, placed.machine, placed.cores or ()),
        }

    def _here(self, placed: Placed) -> tuple[float, Mapping[str, float]]:
        """What the task costs where moves start from: its place, or the plan's where only that is known."""
        if self._moves_from_record and self.opened is None:
            graph = self.part.last
            node = None if graph is None else graph.node("task", self.name)
            if graph is not None and node is not None and LEFT in graph.terms:
                left = [-float(graph.terms[LEFT][k]) for k in graph.leaving(node).tolist() if graph.terms[LEFT][k]]
                if left:
                    return left[0], placed.terms
        return placed.cost, placed.terms

    def _why_now(self) -> str | None:
        """Why it starts, where a comparison of costs does not say it all."""
        opened = self.opened
        planned = next((e for e in self.part.plain["plan"] if e["task"] == self.name), None)
        if opened is not None:
            t = opened.task_number[self.name]
            if t in opened.dues.must_start:
                return "due"
            if t in opened.gangs.must_start:
                return "group"
        if any(r["moved_to"] is not None for r in self.part.plain.get("repairs", ()) if r["task"] == self.name):
            return "repaired"
        assert self.placed is not None, "only who starts is asked about"
        if planned is not None and planned["machine"] != self.placed.machine:
            return "nothing_runs"
        if planned is not None and planned["slot"] > 0:
            return "idle_machine"
        return None

    def _ended_early(self) -> bool:
        return int(self.part.counts.get("forecasts", 0)) >= int(self.account.settings.get("pricings", 1 << 62))

    # Waiting

    def _waiting_facts(self) -> dict[str, Any]:
        waits = self.waits
        assert waits is not None, "it is placed or it waits"
        reservation = next((self._reserved(r) for r in self.part.reservations if r["task"] == self.name), None)
        refused, short, cause = self._refusals()
        if waits.planned is not None:
            cause = "planned"
        elif reservation is not None:
            cause = "reserved"
        elif self.opened is not None and self.opened.task_number[self.name] in self.opened.gangs.barred:
            cause = "group"
        elif any(r["moved_to"] is None for r in self.part.plain.get("repairs", ()) if r["task"] == self.name):
            cause = "relation"
        planned = None
        if waits.planned is not None:
            planned = {k: waits.planned[k] for k in ("machine", "slot", "width_milli")} | {"start_s": self._start_s()}
        closest = self._closest()
        price = None
        nearest = closest or (short or {}).get("emptiest")
        if nearest is not None:
            price = core_price(self.part, self.part.class_of[self.name], nearest["machine"], self._width_milli)
        return {
            "fate": "waits",
            "cause": cause,
            "reason": waits.reason,
            "waited_s": waits.waited_s,
            "rounds_waited": int(self.plain_task.get("rounds_waited", 0)) + 1,
            "cost": waits.cost,
            "terms": plain_terms(waits.terms),
            "planned": planned,
            "closest": closest,
            "core_price": price,
            "shared": [] if planned is None else self._shared_later(planned["machine"]),
            "needed_waiting": self._needed_waiting(closest, cause),
            "refusals": refused,
            "shortage": short,
            "latency": self._latency() if cause == "service" else [],
            "reservation": reservation,
            "other_reservations": [self._reserved(r) for r in self.part.reservations if r["task"] != self.name],
            "bound": None if self.opened is None else waiting_bound(self.opened, self.name),
            "search_ended_early": self._ended_early(),
            "makespan": self.account.settings.get("objective") == "makespan",
        }

    def _reserved(self, reservation: Mapping[str, Any]) -> dict[str, Any]:
        return dict(reservation) | {"in_s": reservation["start_s"] - self.account.now_s}

    def _shared_later(self, machine: str) -> list[dict[str, Any]]:
        """Services whose cores the task would have too where it is planned for later."""
        opened = self.opened
        if opened is None:
            return []
        view, column = opened.search.view, opened.decided.columns[self._number]
        assert column is not None, "it is planned"
        group = view.group_of[column.machine]
        prospect = opened.search.prices.prospect(group, opened.decided.company(column.machine))
        newcomer = Newcomer(view.class_of[self._number], column.slot, column.width_milli)
        cores, _ = opened.search.outlook.place(group, newcomer, prospect is not None and prospect.shared)
        return shared_services(self.part, opened, machine, cores)

    def _start_s(self) -> float | None:
        """When the machine is predicted to have room for its slot, in seconds from now."""
        opened = self.opened
        if opened is None:
            return None
        t = opened.task_number[self.name]
        column = opened.decided.columns[t]
        assert column is not None, "it is planned"
        view = opened.search.view
        company = opened.decided.company(column.machine)
        prospect = opened.search.prices.prospect(view.group_of[column.machine], company)
        member = company.index(Newcomer(view.class_of[t], column.slot, column.width_milli))
        return None if prospect is None else prospect.starts_s[member]

    def _closest(self) -> dict[str, Any] | None:
        """The cheapest place that is known to start now; of the moves, or where they offer none, of what is open."""
        waits = self.waits
        assert waits is not None, "it waits"
        now = [m for m in self.moves if m.machine is not None and m.slot == 0]
        best = _cheapest(now) or self._cheapest_open()
        return None if best is None or waits.cost is None else best.plain(waits.cost, waits.terms)

    def _cheapest_open(self) -> Move | None:
        """Where the task itself could start beside those who start now and are planned, whatever its group does."""
        opened = self.opened
        if opened is None:
            return None
        search, t = opened.search, opened.task_number[self.name]
        view, census = search.view, self._census()
        found = []
        for m, machine in enumerate(view.machines):
            if not view.allowed(view.class_of[t], m) or census.refusal(view.tasks[t], machine.name) is not None:
                continue
            others = opened.decided.company(m, without=t)
            newcomer = Newcomer(view.class_of[t], 0, self._width_milli)
            price = search.machine_cost(m, joined(others, newcomer)) - search.machine_cost(m, others)
            if price < FORBIDDEN:
                found.append(self._move(m, newcomer, others, price))
        return _cheapest(found)

    def _needed_waiting(self, closest: Mapping[str, Any] | None, cause: str) -> dict[str, Any] | None:
        """By how much waiting would have to cost more for the task to start; the age at which W alone makes up for it."""
        if closest is None or cause != "cost" or closest["more"] <= 0.0:
            return None
        settings = self.account.settings
        assert self.waits is not None, "it waits"
        own = float(self.waits.terms.get("waiting", 0.0))
        most, due_age = float(settings.get("waiting_weight", 0.0)), float(settings.get("due_age_s", 0.0))
        needed = own + float(closest["more"])
        reaches = due_age > 0.0 and 0.0 < needed <= most
        return {
            "more": closest["more"],
            "w": own,
            "w_needed": needed,
            "w_most": most,
            "reached_at_age_s": needed / most * due_age if reaches else None,
        }

    def _latency(self) -> list[dict[str, Any]]:
        """On machines that a latency goal closes: what the service's p95 would be; the one that comes nearest first."""
        opened = self.opened
        if opened is None:
            return []
        search, t = opened.search, opened.task_number[self.name]
        view = search.view
        found = []
        for m, machine in enumerate(view.machines):
            if not view.allowed(view.class_of[t], m):
                continue
            company = joined(opened.decided.company(m, without=t), Newcomer(view.class_of[t], 0, self._width_milli))
            prospect = search.prices.prospect(view.group_of[m], company)
            services = view.groups[view.group_of[m]].services
            for service, p95 in zip(services, () if prospect is None else prospect.peak_p95_us, strict=False):
                if p95 > opened.settings.slo_margin * service.slo_us:
                    found.append(
                        {
                            "machine": machine.name,
                            "service": service.name,
                            "p95_ms": p95 / 1e3,
                            "goal_ms": opened.settings.slo_margin * service.slo_us / 1e3,
                        }
                    )
        return sorted(found, key=lambda f: (f["p95_ms"] / f["goal_ms"], f["machine"]))

    # Both

    @property
    def _width_milli(self) -> int:
        """The narrowest width that it may have."""
        if self.opened is not None:
            return self.opened.task(self.name).widths_milli[0]
        return round(1000 * float(min(self.plain_task["widths"])))

    def _asks(self) -> dict[str, Any]:
        if self.opened is None:
            return {"asks": None}
        task = self.opened.task(self.name)
        return {
            "asks": {
                "widths_milli": list(task.widths_milli),
                "request_milli": task.request_milli,
                "memory_mib": task.memory_mib,
                "resources": {name: units for name, units in task.resources if units},
                "machines": None if task.machines is None else len(task.machines),
                "priority": task.priority,
                "submit_s": task.submit_s,
                "endless": task.endless,
                "holds": list(task.holds),
                "joins": list(task.joins),
            }
        }

    def _group(self) -> dict[str, Any] | None:
        group = next((g for g in self.part.plain.get("task_groups", ()) if self.name in g["members"]), None)
        if group is None:
            return None
        placed = {p.task for p in self.part.placements}
        there = int(group["running"]) + len(group["members"])
        return {
            "name": group["name"],
            "minimum": group["minimum"],
            "running": group["running"],
            "pending": len(group["members"]),
            "members": list(group["members"]),
            "starting": [m for m in group["members"] if m in placed],
            "missing": max(0, int(group["minimum"]) - there),
            "starts": group["starts"],
        }

    @property
    def _moves_from_record(self) -> bool:
        last = self.part.last
        # Who must start has no arcs to later slots, but one wants to know what they would cost. Those of version 1 do not
        # say which slot and width they lead to, and are the best ones of each machine only.
        if last is None or self.opened is None:
            return last is not None
        return self.opened.follows_plan and "slot" in last.columns and self._number not in self.opened.search.must_start

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """All columns that the task could have instead; the record's, or, where its decisions differ from its plan or it
        does not say what columns they are, those around its decisions. Waiting is not among them.
        """
        moves = self._recorded_moves() if self._moves_from_record else self._priced_moves()
        return tuple(m for m in moves if not self._is_here(m) and not self._starts_at_once(m))

    def _is_here(self, move: Move) -> bool:
        """Whether a move leads to what was decided, as those around a plan may that was not followed to the letter."""
        placed = self.placed
        return placed is not None and (move.machine, move.slot, move.width_milli) == (
            placed.machine,
            0,
            placed.width_milli,
        )

    def _starts_at_once(self, move: Move) -> bool:
        """Whether a later slot is none: nobody on its machine would complete before."""
        opened = self.opened
        if opened is None or move.machine is None or not move.slot:
            return False
        view, m = opened.search.view, opened.machine_number[move.machine]
        before = (n for n in opened.decided.company(m, without=self._number) if n.slot < move.slot)
        ends = any(not view.classes[n.task_class].task.endless for n in before)
        return not ends and not view.groups[view.group_of[m]].completes

    def _recorded_moves(self) -> Iterable[Move]:
        graph = self.part.last
        node = None if graph is None else graph.node("task", self.name)
        if graph is None or node is None:
            return
        decided = self.placed if self.placed is not None else self.waits
        base = 0.0 if decided is None or decided.cost is None else decided.cost
        for arc in graph.leaving(node).tolist():
            head = int(graph.heads[arc])
            if graph.kinds[head] != "arrive":
                continue
            terms = graph.terms_of(arc)
            leaving = -terms.pop(LEFT) if LEFT in terms else base
            more = graph.cost(arc) if terms else graph.true_cost(arc)
            slot, width = (int(graph.columns[k][arc]) if k in graph.columns else -1 for k in ("slot", "width_milli"))
            yield Move(
                graph.names[head],
                None if slot < 0 else slot,
                None if width < 0 else width,
                leaving + more,
                terms,
            )

    def _priced_moves(self) -> Iterable[Move]:
        opened = self.opened
        if opened is None:
            return
        t = opened.task_number[self.name]
        last = self.part.last
        # Version 1 does not say which widths were offered: all are priced.
        widths = opened.search.widths or (last is not None and "width_milli" not in last.columns)
        plan, search = opened.decided, replace(opened.search, must_start=frozenset(), widths=widths)
        here = plan.columns[t]
        for m in range(len(search.view.machines)):
            for price, column in search.offers(plan, t, m):
                if price < FORBIDDEN and column != here:
                    newcomer = Newcomer(search.view.class_of[t], column.slot, column.width_milli)
                    yield self._move(m, newcomer, plan.company(m, without=t), price)

    def _move(self, machine: int, newcomer: Newcomer, others: Company, price: float) -> Move:
        assert self.opened is not None, "prices need the models"
        search = self.opened.search
        company = joined(others, newcomer)
        terms = search.prices.machine_terms(search.view.group_of[machine], company, company.index(newcomer))
        return Move(search.view.machines[machine].name, newcomer.slot, newcomer.width_milli, price, terms)

    def _waiting_move(self) -> Move | None:
        if self.opened is not None:
            terms = self.opened.search.prices.waiting_terms(self.opened.search.view.class_of[self._number])
            return Move(None, None, None, sum(terms.values()), dict(terms))
        graph = self.part.last
        node = None if graph is None else graph.node("task", self.name)
        if graph is None or node is None:
            return None
        for arc in graph.leaving(node).tolist():
            own = graph.terms_of(arc)
            if graph.kinds[graph.heads[arc]] == "stay" and "completion_if_postponed" in own:
                own.pop(LEFT, None)
                return Move(None, None, None, sum(own.values()), own)
        return None

    @property
    def _number(self) -> int:
        assert self.opened is not None, "it needs the view"
        return self.opened.task_number[self.name]

    def _neighbours(self, machine: str) -> list[dict[str, Any]]:
        """Everybody else on a machine: when they end with the task and without it, in seconds from now.

        Of those without an end: how many times slower than alone they are.
        """
        opened = self.opened
        if opened is None:
            return []
        search, t = opened.search, self._number
        outlook = search.outlook
        m, g = opened.machine_number[machine], opened.group_number[machine]
        company, without = opened.decided.company(m), opened.decided.company(m, without=t)
        prices = search.prices
        after, before = prices.prospect(g, company), prices.prospect(g, without)
        if after is None or before is None:
            return []
        slow_after = outlook.slowdowns(g, company, after.shared)
        slow_before = outlook.slowdowns(g, without, before.shared)
        found = []
        for i, r in enumerate(opened.residents(machine)):
            ends = after.residents_s[i], before.residents_s[i]
            found.append(_neighbour(r.task, "runs", ends, (slow_after[0][i], slow_before[0][i])))
        names = opened.newcomers(m)
        others = [pair for pair in names if pair[1] != self.name]
        for i, (newcomer, name) in enumerate(others):
            k = names.index((newcomer, name))
            ends = after.newcomers_s[k], before.newcomers_s[i]
            slow = slow_after[1][k], slow_before[1][i]
            found.append(_neighbour(opened.task(name), "planned" if newcomer.slot else "starts", ends, slow))
        return sorted(found, key=lambda n: (-abs(n["later_s"] or 0.0), n["task"]))

    def _services(self, machine: str) -> list[dict[str, Any]]:
        """Latency services of a machine: predicted peak p95 with the task and without it, and the goal, in ms."""
        opened = self.opened
        if opened is None:
            return []
        m, g = opened.machine_number[machine], opened.group_number[machine]
        prices = opened.search.prices
        after = prices.prospect(g, opened.decided.company(m))
        before = prices.prospect(g, opened.decided.company(m, without=self._number))
        if after is None or before is None:
            return []
        here = [s for s in opened.search.view.snapshot.services if s.machine == machine]
        return [
            {
                "service": service.name,
                "p95_ms": with_it / 1e3,
                "p95_without_ms": without / 1e3,
                "goal_ms": service.slo_us / 1e3,
                "headroom_percent": 100.0 * (1.0 - with_it / service.slo_us),
            }
            for service, with_it, without in zip(here, after.peak_p95_us, before.peak_p95_us, strict=True)
        ]

    def _census(self) -> Census:
        """Who is counted by relations once all who start now have started, the task itself left out."""
        assert self.opened is not None, "it needs the view"
        view = self.opened.search.view
        census = view.census.copy()
        for t, column in enumerate(self.opened.decided.columns):
            if column is not None and column.slot == 0 and t != self._number:
                census.add(view.tasks[t], view.machines[column.machine].name)
        return census

    def _refusals(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
        """Which constraint removes how many machines; what is short; and what that amounts to in one word."""
        opened = self.opened
        if opened is None:
            return None, None, "unknown"
        search, t = opened.search, self._number
        view = search.view
        task, c, width = view.tasks[t], view.class_of[t], self._width_milli
        names, away = self._all_machines()
        asked = [name for name, units in task.resources if units > 0]
        resources = ["cpu", "memory", *asked]
        units = dict(task.resources)
        asks = [width, task.memory_mib, *(units[name] for name in asked)]
        census = self._census()
        count = len(names)
        allowed = np.zeros(count, dtype=np.bool_)
        cores = np.zeros(count, dtype=np.bool_)
        free = np.zeros((count, len(resources)), dtype=np.int64)
        whole = np.zeros((count, len(resources)), dtype=np.int64)
        sizes = np.zeros((count, len(resources)), dtype=np.int64)
        relation_of: dict[str, list[int]] = {}
        final: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            if name not in opened.group_number:
                continue
            g = opened.group_number[name]
            group = view.groups[g]
            m = opened.machine_number.get(name)
            company: Company = () if m is None else opened.decided.company(m, without=t)
            allowed[i] = task.machines is None or name in task.machines
            cores[i] = bool(group.batch_cores)
            free[i], whole[i], sizes[i] = self._room(g, company, asked)
            refusal = census.refusal(task, name)
            if refusal is not None:
                holds = refusal.name in task.holds
                role = "holds" if holds and not _only_joined(census, refusal.name, task, name) else "joins"
                missing = census.domain(refusal, name) is None
                relation_of.setdefault(refusals.refused_by(refusal, role, missing), []).append(i)
            elif allowed[i] and cores[i] and (free[i] >= asks).all():
                why = self._closed(g, m, company, Newcomer(c, 0, width))
                if why is not None:
                    final.setdefault(why, []).append(i)
        known = np.array([name in opened.group_number for name in names], dtype=np.bool_)
        lacks = [
            refusals.Check(refusals.insufficient(r), known & (free[:, k] < asks[k])) for k, r in enumerate(resources)
        ]
        related = [refusals.Check(reason, _mask(count, rows)) for reason, rows in sorted(relation_of.items())]
        unlisted = np.array([name in away for name in names], dtype=np.bool_)
        checks = [
            *refusals.by_reason(names, away),
            refusals.Check(refusals.SELECTOR, ~allowed & ~unlisted),
            refusals.Check(refusals.NO_CORES, ~cores & ~unlisted),
            *related,
            *lacks,
            *(refusals.Check(reason, _mask(count, rows)) for reason, rows in sorted(final.items())),
        ]
        table = refusals.tabulate(names, checks)
        short = refusals.shortage(names, resources, asks, free, whole, allowed & cores, sizes)
        short["units"] = {"cpu": "milli", "memory": "MiB"}
        short["stays"] = self._stays(short)
        short["started_there"] = self._started(short)
        roomy = allowed & cores & np.logical_and.reduce([~check.refused for check in lacks])
        related_away = np.zeros(count, dtype=np.bool_)
        for check in related:
            related_away |= check.refused
        if not (allowed & cores).any():
            cause = "not_allowed"
        elif short["never"]:
            cause = "never"
        elif table["available"]:
            cause = "cost"
        elif not roomy.any():
            cause = "capacity"
        elif not (roomy & ~related_away).any():
            cause = "relation"
        else:
            last = {refusals.SERVICE: "service", refusals.UTILITY: "utility", refusals.RESERVED: "held"}
            most = max(final, key=lambda reason: (len(final[reason]), reason))
            cause = last.get(most, "promised")
        return table, short, cause

    def _all_machines(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Machines of the search, and on Kubernetes all others; and what is known of those that the task may not use."""
        names, filtered = self.part.machines, pod_facts.filtered(self.account, self.name)
        if filtered is None:
            return names, {}
        everywhere = tuple(sorted({*names, *pod_facts.all_machines(self.account)}))
        reasons = {name: refusals.OUTSIDE for name in everywhere if name not in names} | dict(filtered)
        held = pod_facts.drains_for(self.account)
        if held is not None and held["task"] != self.name:
            allowed = self.plain_task.get("machines")
            if allowed is not None and held["machine"] not in allowed:
                reasons.setdefault(held["machine"], refusals.RESERVED)
        return everywhere, reasons

    def _room(self, group: int, company: Company, asked: list[str]) -> tuple[list[int], list[int], list[int]]:
        """What is free on a machine once those who start now are there, what would be free if all left who will, and
        what if it were empty.
        """
        assert self.opened is not None, "it needs the view"
        view = self.opened.search.view
        here = view.groups[group]
        starting = [(n, view.classes[n.task_class].task) for n in company if n.slot == 0]
        stay = here.endless
        free = [
            here.free_milli - sum(n.width_milli for n, _ in starting),
            here.free_memory_mib - sum(task.memory_mib for _, task in starting),
        ]
        whole = [
            here.machine.cpu_milli - sum(s.width_milli for s in here.services) - sum(r.width_milli for r in stay),
            here.machine.memory_mib - sum(s.memory_mib for s in here.services) - sum(r.task.memory_mib for r in stay),
        ]
        size = [here.machine.cpu_milli, here.machine.memory_mib]
        for name in asked:
            taken = sum(dict(task.resources).get(name, 0) for _, task in starting)
            kept = sum(dict(r.task.resources).get(name, 0) for r in stay)
            free.append(here.free_resources.get(name, 0) - taken)
            whole.append(dict(here.machine.resources).get(name, 0) - kept)
            size.append(dict(here.machine.resources).get(name, 0))
        return free, whole, size

    def _stays(self, short: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Of all machines that a shortage names: the services there, and who runs without an end."""
        assert self.opened is not None, "it needs the view"
        rows = [*short["largest"], *short["lacking"], short["emptiest"], short["empty"]]
        found = []
        for name in sorted({row["machine"] for row in rows if row is not None}):
            services = [s.name for s in self.opened.search.view.snapshot.services if s.machine == name]
            tasks = [r.task.name for r in self.opened.residents(name) if r.task.endless]
            if services or tasks:
                found.append({"machine": name, "services": services, "tasks": tasks})
        return found

    def _closed(self, group: int, machine: int | None, company: Company, newcomer: Newcomer) -> str | None:
        """Why a machine with room has no price for the task; None where it has one."""
        assert self.opened is not None, "it needs the models"
        search, settings = self.opened.search, self.opened.settings
        prices, view = search.prices, search.view
        together = joined(company, newcomer)
        if prices.machine_cost(group, together) < FORBIDDEN:
            free = machine is None or search.machine_cost(machine, together) < FORBIDDEN
            return None if free else refusals.RESERVED
        prospect = search.prices.prospect(group, together)
        if prospect is None:
            return refusals.PROMISED
        services = view.groups[group].services
        if any(p > settings.slo_margin * s.slo_us for p, s in zip(prospect.peak_p95_us, services, strict=True)):
            return refusals.SERVICE
        return refusals.UTILITY

    def _started(self, short: Mapping[str, Any]) -> list[str]:
        """Who starts in this round on the machine that misses least."""
        if short["emptiest"] is None:
            return []
        return [p.task for p in self.part.placements if p.machine == short["emptiest"]["machine"]]


def _neighbour(task: Task, status: str, ends: tuple[float, float], slow: tuple[float, float]) -> dict[str, Any]:
    later = None if task.endless else ends[0] - ends[1]
    return {
        "task": task.name,
        "status": status,
        "end_s": None if task.endless else ends[0],
        "end_without_s": None if task.endless else ends[1],
        "later_s": later,
        "slowdown": slow[0] if task.endless else None,
        "slowdown_without": slow[1] if task.endless else None,
    }


def _cheapest(moves: Iterable[Move]) -> Move | None:
    best: Move | None = None
    for move in moves:
        if best is None or move.cost < best.cost - _STEP:
            best = move
    return best


def _machines(moves: Iterable[Move]) -> list[str]:
    return list(dict.fromkeys(m.machine for m in moves if m.machine is not None))


def _mask(count: int, rows: list[int]) -> Any:
    mask = np.zeros(count, dtype=np.bool_)
    mask[rows] = True
    return mask


def _only_joined(census: Census, name: str, task: Task, machine: str) -> bool:
    """Whether an apart refuses only because somebody there holds it: what the task holds itself is kept."""
    relation = census.relations[name]
    if relation.kind is not RelationKind.APART or name not in task.joins or name not in task.holds:
        return name not in task.holds
    holder = replace(task, holds=(name,), joins=())
    return census.refusal(holder, machine) is None
