"""What a what-if changes: read from what a user typed, and applied to the snapshot of a level at forecast prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flowsched.cluster.snapshot import MILLI, Machine, Service, Snapshot, Task
from flowsched.inspector.re_solve import decisions_of, snapshots_of
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.terms import read_terms
from flowsched.solvers import SOLVERS
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError, Problem, Problems, name_help
from flowsched_models.machine import MachineType
from flowsched_models.profiles import load_catalogue
from flowsched_models.quantity import QuantityError, count_cores, parse_milli


@dataclass(frozen=True)
class NewMachine:
    """A machine to add: of a type, or like one that there is; nothing runs on it."""

    like: str
    name: str


@dataclass(frozen=True)
class NewWidth:
    """The only width of a task that waits, in milli-CPU."""

    task: str
    milli: int


@dataclass(frozen=True)
class Changes:
    """All changes of a what-if; none by default. Tasks are named as the record names them."""

    machines: tuple[NewMachine, ...] = ()
    drains: tuple[str, ...] = ()
    """Machines to take away, with what runs there."""
    without: tuple[str, ...] = ()
    """Tasks to forget, whether they wait or run."""
    widths: tuple[NewWidth, ...] = ()
    settings: tuple[str, ...] = ()
    """``KEY=VALUE``."""
    solver: str | None = None

    def lines(self, recorded: RecordView) -> list[str]:
        """What is changed, one line each."""
        return [
            *(f"machine {m.name} is added, like {m.like}" for m in self.machines),
            *(f"machine {name} is drained" for name in self.drains),
            *(f"task {recorded.title(task)} is not there" for task in self.without),
            *(f"task {recorded.title(w.task)} has {count_cores(w.milli)}" for w in self.widths),
            *(f"setting {text}" for text in self.settings),
            *(() if self.solver is None else (f"solver {self.solver}",)),
        ]


@dataclass(frozen=True)
class ChangedSnapshot:
    """A snapshot with changes, and what they did to what runs there."""

    snapshot: Snapshot
    displaced: tuple[Task, ...] = ()
    """Tasks that ran on a drained machine: they wait, from the beginning."""
    lost: tuple[Service, ...] = ()
    """Services whose fixed place is gone."""
    notes: tuple[str, ...] = ()


# Reading


def parse_changes(
    recorded: RecordView,
    *,
    drain: Iterable[str] = (),
    add_machine: Iterable[str] = (),
    without: Iterable[str] = (),
    width: Iterable[str] = (),
    settings: Iterable[str] = (),
    solver: str | None = None,
) -> Changes:
    """Changes as options of a command give them. Raises :class:`InputError` with every mistake among them."""
    problems = Problems()
    known = _Known(recorded)
    drains = [name for name in dict.fromkeys(drain) if known.has_machine(problems, name)]
    machines = _new_machines(problems, known, add_machine)
    gone = [t for text in dict.fromkeys(without) if (t := known.task(problems, "--without", text)) is not None]
    widths = _new_widths(problems, known, width)
    for w in widths:
        if w.task in gone:
            problems.add(
                Problem("--width", None, "", f"{recorded.title(w.task)} has no width: --without takes it away")
            )
    assignments = tuple(settings)
    try:
        read_terms(recorded, assignments, solver if solver in SOLVERS else None)
    except InputError as error:
        problems.extend(error.problems)
    if solver is not None and solver not in SOLVERS:
        problems.add(Problem("--solver", None, "", f"there is no solver '{solver}'", name_help(solver, SOLVERS)))
    problems.raise_any()
    return Changes(tuple(machines), tuple(drains), tuple(dict.fromkeys(gone)), tuple(widths), assignments, solver)


class _Known:
    """What a record has: machines, types, tasks that wait and tasks that run."""

    def __init__(self, recorded: RecordView) -> None:
        self.recorded = recorded
        self.machines = list(dict.fromkeys(name for part in recorded.parts for name in part.machines))
        self.waiting = [task for part in recorded.parts for task in part.tasks]
        self.snapshots = list(snapshots_of(recorded).values())
        waiting = set(self.waiting)
        running = dict.fromkeys(r.task.name for s in self.snapshots for r in s.running)
        self.running = [task for task in running if task not in waiting]
        self._machines = set(self.machines)

    def has_machine(self, problems: Problems, name: str) -> bool:
        if name in self._machines:
            return True
        problems.add(Problem("--drain", None, "", f"there is no machine '{name}'", name_help(name, self.machines)))
        return False

    def task(self, problems: Problems, option: str, text: str, waits: bool = False) -> str | None:
        names = [t for t in (*self.waiting, *self.running) if text.removeprefix("pod/") in (t, self.recorded.title(t))]
        if len(names) == 1 and (not waits or names[0] in self.waiting):
            return names[0]
        if not names:
            titles = [self.recorded.title(t) for t in (*self.waiting, *(() if waits else self.running))]
            message, help = f"there is no task '{text}' that waits or runs", name_help(text, sorted(titles))
            if any(part.snapshot is None for part, *_ in decisions_of(self.recorded)):
                help += "; what runs is known to a bulk round as sums only"
        elif len(names) > 1:
            message = f"{len(names)} tasks are called '{text}'"
            help = f"name one as the record does: {', '.join(names)}"
        else:
            message, help = f"'{text}' runs already", "only a task that waits can be given another width"
        problems.add(Problem(option, None, "", message, help))
        return None


def _new_machines(problems: Problems, known: _Known, texts: Iterable[str]) -> list[NewMachine]:
    found: list[NewMachine] = []
    taken = set(known.machines)
    types = _types(known.snapshots)
    for text in texts:
        like, colon, name = text.partition(":")
        if not like or (colon and not name) or any(c.isspace() for c in name):
            problems.add(Problem("--add-machine", None, "", f"'{text}' is not of the form TYPE or TYPE:NAME"))
            continue
        if not name:
            name = next(n for k in range(1, len(taken) + 2) if (n := f"{like}-new-{k}") not in taken)
        elif name in taken:
            problems.add(
                Problem("--add-machine", None, "", f"there is a machine '{name}' already", "name it otherwise")
            )
            continue
        if like not in types and like not in known.machines:
            message = f"there is neither a machine type nor a machine '{like}'"
            names = [*types, *known.machines]
            if not known.snapshots:
                message = f"there is no machine '{like}' to copy; a bulk round knows no types"
            problems.add(Problem("--add-machine", None, "", message, name_help(like, names)))
            continue
        if not known.snapshots or like not in known.machines:
            bulk = [part for part, *_ in decisions_of(known.recorded) if part.snapshot is None]
            if bulk and all(to_copy(part.machines, like, known.snapshots) is None for part in bulk):
                message = f"no machine of type '{like}' is known to the bulk rounds"
                problems.add(Problem("--add-machine", None, "", message, "name a machine to copy"))
                continue
        taken.add(name)
        found.append(NewMachine(like, name))
    return found


def _new_widths(problems: Problems, known: _Known, texts: Iterable[str]) -> list[NewWidth]:
    found: dict[str, NewWidth] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            problems.add(Problem("--width", None, "", f"'{text}' is not of the form TASK=CORES", "for instance web=2"))
            continue
        task = known.task(problems, "--width", name, waits=True)
        try:
            milli = parse_milli(value)
        except QuantityError as error:
            problems.add(Problem("--width", None, name, error.message, error.help))
            continue
        if task is None:
            continue
        if task in found and found[task].milli != milli:
            problems.add(Problem("--width", None, name, "two widths are given"))
        found[task] = NewWidth(task, milli)
    return list(found.values())


def _types(snapshots: Sequence[Snapshot]) -> dict[str, MachineType]:
    """Machine types by name, the record's own before the bundled ones; empty where no part has types."""
    if not snapshots:
        return {}
    types = dict(load_catalogue().machine_types)
    for snapshot in snapshots:
        types.update(snapshot.catalogue.machine_types)
    return types


def to_copy(machines: Sequence[str], like: str, snapshots: Sequence[Snapshot]) -> str | None:
    """The machine that a new one is like at linear prices: the named one, or the first that is known to be of the type."""
    if like in machines:
        return like
    there = set(machines)
    return min((m.name for s in snapshots for m in s.machines if m.type == like and m.name in there), default=None)


def machine_columns(names: Sequence[str], changes: Changes, snapshots: Sequence[Snapshot]) -> dict[str, int] | None:
    """All machines after the changes, by name, and which of ``names`` each of them is or is like.

    None where it is not known what a new one is like.
    """
    at = {name: i for i, name in enumerate(names)}
    columns = dict(at)
    for machine in changes.machines:
        like = to_copy(names, machine.like, snapshots)
        if like is None:
            return None
        columns[machine.name] = at[like]
    return {name: columns[name] for name in sorted(columns) if name not in changes.drains}


# At forecast prices


def change_snapshot(snapshot: Snapshot, changes: Changes) -> ChangedSnapshot:
    """A snapshot with machines added, then drained, then tasks taken away or given another width."""
    notes: list[str] = []
    for machine in changes.machines:
        snapshot = _with_machine(snapshot, machine, notes)
    gone = {m.name for m in snapshot.machines} & set(changes.drains)
    lost = tuple(s for s in snapshot.services if s.machine in gone)
    without = set(changes.without)
    displaced = tuple(
        replace(r.task, machines=_other(r.task.machines, gone), submit_s=snapshot.now_s, rounds_waited=0)
        for r in snapshot.running
        if r.machine in gone and r.task.name not in without
    )
    widths = {w.task: w.milli for w in changes.widths}
    pending = []
    for task in snapshot.pending:
        if task.name in without:
            continue
        task = replace(task, machines=_other(task.machines, gone))
        milli = widths.get(task.name)
        pending.append(task if milli is None else replace(task, widths_milli=(milli,), request_milli=milli))
    narrowed = [task.name for task in pending if task.name in widths]
    forgotten = without | set(narrowed)
    dropped = [r.task for r in snapshot.reservations if r.task in narrowed or r.machine in gone]
    notes += [f"the reservation of {task} is given up" for task in dict.fromkeys(dropped) if task not in without]
    running = (r for r in snapshot.running if r.machine not in gone and r.task.name not in without)
    changed = replace(
        snapshot,
        machines=tuple(m for m in snapshot.machines if m.name not in gone),
        services=tuple(s for s in snapshot.services if s.machine not in gone),
        running=tuple(replace(r, task=replace(r.task, machines=_other(r.task.machines, gone))) for r in running),
        pending=tuple(pending),
        plan=tuple(p for p in snapshot.plan if p.task not in forgotten and p.machine not in gone),
        reservations=tuple(r for r in snapshot.reservations if r.task not in forgotten and r.machine not in gone),
    )
    return ChangedSnapshot(changed, displaced, lost, tuple(notes))


def _other(machines: tuple[str, ...] | None, gone: set[str]) -> tuple[str, ...] | None:
    return None if machines is None else tuple(name for name in machines if name not in gone)


def _with_machine(snapshot: Snapshot, new: NewMachine, notes: list[str]) -> Snapshot:
    types = _types((snapshot,))
    like = next((m for m in snapshot.machines if m.name == new.like), None)
    if new.like in types:
        kind = types[new.like]
        machine = Machine(new.name, kind.name, kind.vcpus * MILLI, kind.memory_mib, kind.vcpus)
        bound = [t.name for t in snapshot.pending if t.machines is not None]
        if bound:
            notes.append(f"{new.name} is no place for tasks that name their machines ({len(bound)})")
        return replace(snapshot, machines=(*snapshot.machines, machine), catalogue=_with_type(snapshot.catalogue, kind))
    if like is None:
        notes.append(f"forecasts did not look at {new.like}, so they do not look at {new.name} either")
        return snapshot
    labels = tuple((key, new.name if value == like.name else value) for key, value in like.labels)
    machine = replace(like, name=new.name, labels=labels)

    def also(task: Task) -> Task:
        named = task.machines is not None and like.name in task.machines
        return replace(task, machines=(*(task.machines or ()), new.name)) if named else task

    return replace(
        snapshot,
        machines=(*snapshot.machines, machine),
        pending=tuple(also(t) for t in snapshot.pending),
        running=tuple(replace(r, task=also(r.task)) for r in snapshot.running),
    )


def _with_type(catalogue: Catalogue, kind: MachineType) -> Catalogue:
    return replace(catalogue, machine_types={**catalogue.machine_types, kind.name: kind})
