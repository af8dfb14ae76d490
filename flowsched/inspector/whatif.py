"""What if: a record's round solved again with something changed. Nothing outside is touched.

Parts are solved in their order. What earlier parts placed in the record is taken out of a later part's input, the changes
are made, and what the earlier parts place now is put in. So with no change every part gets the input that it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from flowsched.cluster.snapshot import Running, Service, Snapshot, Task
from flowsched.inspector.change import Changes, change_snapshot, machine_columns
from flowsched.inspector.linear_change import CPU, MEMORY, ChangedCluster, Footprint, footprint, footprints
from flowsched.inspector.re_solve import (
    damaged,
    decide_again,
    decisions_of,
    linear_round_of,
    place_again,
    snapshots_of,
)
from flowsched.inspector.record_view import Part, RecordView, new_part
from flowsched.inspector.terms import ROWS_SETTINGS, Terms, has_cost_model, read_terms
from flowsched.records.record import record_head
from flowsched.records.record_types import Record, RecordedWhatIf
from flowsched.round.linear.linear_round import RoundSettings
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import merged

WHAT_IF = "what_if"
"""Key of a record that says that it is no record of a real round: ``changes`` and ``notes``."""
_MIB = 1 << 20
_BULK_SETTINGS = ("resolves", "scoring")


def what_if(recorded: RecordView, changes: Changes) -> RecordView:
    """The round with changes, solved again, as a record of its own; its key ``what_if`` says what was changed.

    Raises :class:`InputError` for a record that does not hold what its round depended on, and for settings that its policy
    does not read.
    """
    terms = read_terms(recorded, changes.settings, changes.solver)
    parts, notes = _Rounds(recorded, changes, terms).solve()
    nothing: RecordedWhatIf = {"changes": [], "notes": []}
    before = recorded.plain.get("what_if", nothing)
    head = record_head(recorded.round, recorded.now_s, recorded.policy, terms.solver, terms.settings)
    changed = {
        **head,
        **terms.plain,
        **_carried(recorded, changes),
        WHAT_IF: {
            "changes": [*before["changes"], *changes.lines(recorded)],
            "notes": list(dict.fromkeys((*before["notes"], *terms.notes, *terms.version, *notes))),
        },
        "parts": parts,
    }
    return RecordView(cast("Record", changed), f"{recorded.source} (what if)")


def _carried(recorded: RecordView, changes: Changes) -> dict[str, Any]:
    """What a record on Kubernetes says beside its parts and is still true; what pods were told is not."""
    old = recorded.plain
    kept: dict[str, Any] = {"titles": dict(recorded.titles)} if recorded.titles else {}
    if "waited" in old:
        kept["waited"] = {task: waited for task, waited in old["waited"].items() if task not in changes.without}
    if "machines" in old and "filters" in old:
        columns = machine_columns(list(old["machines"]), changes, list(snapshots_of(recorded).values()))
        if columns is not None:
            kept["machines"] = list(columns)
            rows = list(columns.values())
            kept["filters"] = [{**f, "verdict": np.asarray(f["verdict"])[rows]} for f in old["filters"]]
    held_nodes = [held for held in old.get("held_nodes", ()) if held["machine"] not in changes.drains]
    if held_nodes:
        kept["held_nodes"] = held_nodes
    return kept


@dataclass
class _Placed:
    """What the parts so far have placed: in the record, or now."""

    linear: Counter[tuple[Footprint, str]] = field(default_factory=Counter)
    """Tasks at linear prices by what they take and where."""
    forecast: list[tuple[Running, Footprint]] = field(default_factory=list)

    def on_machines(self) -> Counter[tuple[Footprint, str]]:
        """All tasks, as linear prices count them."""
        return self.linear + Counter((taken, r.machine) for r, taken in self.forecast)

    def taken(self) -> dict[str, tuple[int, int]]:
        """CPU and memory in MiB that tasks at linear prices took of machines, as forecasts see it."""
        sums: dict[str, tuple[int, int]] = {}
        for (taken, machine), count in self.linear.items():
            needs = dict(taken.needs)
            cpu, memory = sums.get(machine, (0, 0))
            sums[machine] = cpu + count * needs.get(CPU, 0), memory + count * needs.get(MEMORY, 0)
        return {machine: (cpu, -(-memory // _MIB)) for machine, (cpu, memory) in sums.items()}


class _Rounds:
    """All parts of a record, one after the other."""

    def __init__(self, recorded: RecordView, changes: Changes, terms: Terms) -> None:
        self._recorded = recorded
        self._changes = changes
        self._terms = terms
        self._then = _Placed()
        self._now = _Placed()
        self._notes: list[str] = []
        self._snapshots = snapshots_of(recorded)
        self._lost: dict[str, Service] = {}
        self._displaced: dict[str, Task] = {}
        self._freed: dict[str, tuple[Footprint, str]] = {}
        self._apart = _planned_apart(recorded)
        self._read_running()

    def solve(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The new parts, and what to tell about them."""
        found = []
        for parts in decisions_of(self._recorded):
            with damaged(self._recorded, parts[0], "solved again"):
                found += self._rows(parts) if parts[0].snapshot is None else self._snapshot(parts)
        return found, [*self._told(), *self._notes]

    def _read_running(self) -> None:
        """What runs is known to snapshots, task by task: who has to move, and what linear prices count that is gone."""
        pending = {t.name for s in self._snapshots.values() for t in s.pending}
        without = set(self._changes.without) - pending
        for snapshot in self._snapshots.values():
            changed = change_snapshot(snapshot, self._changes)
            self._lost |= {s.name: s for s in changed.lost}
            # Later forecasts see what earlier ones placed as running.
            self._displaced |= {t.name: t for t in changed.displaced if t.name not in pending}
            for r in snapshot.running:
                if r.task.name in without and r.machine not in self._changes.drains:
                    self._freed[r.task.name] = footprint(r.task, r.width_milli, snapshot.catalogue), r.machine

    def _told(self) -> list[str]:
        lost = [f"service {s.name} is lost: its place was on {s.machine}" for s in self._lost.values()]
        titles = ", ".join(self._recorded.title(name) for name in self._displaced)
        moved = (
            [f"what ran on drained machines waits as if submitted now, from its beginning: {titles}"] if titles else []
        )
        return [*lost, *moved]

    # On a snapshot

    def _snapshot(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        part = parts[0]
        snapshot = self._without_earlier(self._snapshots[part.index])
        changed = change_snapshot(snapshot, self._changes)
        self._note(changed.notes)
        given = self._with_earlier(changed.snapshot)
        given = replace(
            given, pending=(*given.pending, *self._displaced_into(part)), catalogue=self._catalogue(given.catalogue)
        )
        found = decide_again(self._terms, given, part.priority)
        if "needs" in part.plain:
            found[0]["needs"] = self._needs(part.forecast["needs"])
        if self._goes_on(parts):
            self._remember(self._then, part, self._snapshots[part.index])
            self._remember(self._now, new_part(part.index, found[0]), given)
        return found

    def _goes_on(self, parts: Sequence[Part]) -> bool:
        """Whether others come after them."""
        return parts[-1].index + 1 < len(self._recorded.parts)

    def _catalogue(self, own: Catalogue) -> Catalogue:
        """All profiles of the record: a part has those that it used, and may now need others."""
        for snapshot in self._snapshots.values():
            own = merged(snapshot.catalogue, own)
        return replace(own, source=next(iter(self._snapshots.values())).catalogue.source)

    def _needs(self, needs: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """What tasks ask for, as linear prices count it, after the changes."""
        widths = {w.task: {CPU: w.milli} for w in self._changes.widths}
        gone = set(self._changes.without)
        return {task: {**own, **widths.get(task, {})} for task, own in needs.items() if task not in gone}

    def _displaced_into(self, part: Part) -> list[Task]:
        """Tasks that lost their machine wait in the first such level of a priority not above theirs, or in the last."""
        levels = [p for p in self._recorded.parts if p.snapshot is not None]
        chosen = []
        for task in self._displaced.values():
            home = next((p for p in levels if p.priority is None or p.priority <= task.priority), levels[-1])
            if home.index == part.index:
                chosen.append(task)
        return chosen

    def _without_earlier(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot without what earlier parts had placed in the record."""
        if self._apart:
            return snapshot
        names = {r.task.name for r, _ in self._then.forecast}
        taken = self._then.taken()
        if not names and not taken:
            return snapshot
        return replace(
            _shifted(snapshot, taken, 1), running=tuple(r for r in snapshot.running if r.task.name not in names)
        )

    def _with_earlier(self, snapshot: Snapshot) -> Snapshot:
        """The same with what they place now."""
        if self._apart:
            return snapshot
        there = {m.name for m in snapshot.machines}
        joined = tuple(r for r, _ in self._now.forecast if r.machine in there)
        return replace(_shifted(snapshot, self._now.taken(), -1), running=(*snapshot.running, *joined))

    def _remember(self, placed: _Placed, part: Part, snapshot: Snapshot) -> None:
        tasks = {t.name: t for t in snapshot.pending}
        needs = part.forecast.get("needs", {})
        for p in part.placements:
            assert p.width_milli is not None and p.threads is not None and p.cores is not None, (
                "forecasts say all three"
            )
            task = tasks[p.task]
            running = Running(task, p.machine, p.width_milli, p.threads, p.cores, snapshot.now_s, snapshot.now_s)
            taken = footprint(task, p.width_milli, snapshot.catalogue, needs.get(p.task))
            placed.forecast.append((running, taken))

    # On rows of machines

    def _rows(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        cluster, settings = linear_round_of(self._recorded, parts)
        bulk = ChangedCluster(cluster)
        then, now = self._then.on_machines(), self._now.on_machines()
        shared = then & now
        bulk.commit(then - shared, -1)
        bulk.change(self._changes, tuple(self._snapshots.values()))
        if self._freed:
            bulk.commit(Counter(self._freed.values()), -1)
            bulk.at_most_empty()
            self._note(("what bulk rounds count of a running task that is taken away is computed from its profile",))
        bulk.commit(now - shared, 1)
        self._note(bulk.notes)
        if _goes_first(parts[0]) and not set(self._changes.without).isdisjoint(parts[0].tasks):
            self._note(("who is overdue for longest goes first; after what is taken away here no other pod does",))
        settings = self._bulk_settings(settings, own_model=has_cost_model(self._recorded))
        found = place_again(bulk.changed(), settings, self._terms.solver, parts)
        if self._goes_on(parts):
            for part in parts:
                self._then.linear += footprints(part)
            for i, new in enumerate(found):
                self._now.linear += footprints(new_part(parts[0].index + i, new))
        return found

    def _bulk_settings(self, given: RoundSettings, own_model: bool) -> RoundSettings:
        """Those of a bulk round, with the changes that it has."""
        names = {text.partition("=")[0].strip().replace("-", "_") for text in self._changes.settings}
        read = ROWS_SETTINGS if own_model else _BULK_SETTINGS
        own = {name: getattr(self._terms.settings, name) for name in read if name in names}
        if names - own.keys() and not own_model:
            self._note((f"a bulk round keeps its prices whatever is set: only {' and '.join(read)} count there",))
        return replace(given, **own)

    def _note(self, notes: Sequence[str]) -> None:
        self._notes += [note for note in notes if note not in self._notes]


def _planned_apart(recorded: RecordView) -> bool:
    """Whether the round fell back to planning classes apart, where forecasts do not see what was placed before.

    Then a level of the same prices stands there twice for one priority, or lacks a running task that an earlier one placed.
    """
    kinds = Counter((part.prices, part.priority) for part in recorded.parts if not _goes_first(part))
    if any(count > 1 for (_, priority), count in kinds.items() if priority is not None):
        return True
    placed: list[tuple[str, str]] = []
    for part in recorded.parts:
        if not part.by_forecasts:
            continue
        running = {r["task"]["name"] for r in part.forecast["snapshot"]["running"]}
        there = set(part.machines)
        if any(machine in there and task not in running for task, machine in placed):
            return True
        placed += [(p.task, p.machine) for p in part.placements]
    return False


def _goes_first(part: Part) -> bool:
    """Whether it is of what is overdue for longest, before all others of its priority."""
    return not part.by_forecasts and "goes_first" in part.linear["given"]


def _shifted(snapshot: Snapshot, taken: Mapping[str, tuple[int, int]], sign: int) -> Snapshot:
    """Machines with so much more CPU and memory, or less."""
    if not taken:
        return snapshot
    machines = []
    for m in snapshot.machines:
        cpu, memory = taken.get(m.name, (0, 0))
        machines.append(replace(m, cpu_milli=m.cpu_milli + sign * cpu, memory_mib=m.memory_mib + sign * memory))
    return replace(snapshot, machines=tuple(machines))
