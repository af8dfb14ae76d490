"""What happens in a live cluster, as typed values: one line of an events file each, read and written by one codec.

Most events state how something is from now on: a machine, a relation, a binding. A later statement of the same key replaces
an earlier one, and ``Removed`` takes it back. :class:`RecordedState` is what the events so far state: the recorder writes
where that differs from what there is, the player makes rounds' inputs of it. Tasks, values and kinds have numbers in a file.
Several numbers are written as runs: ``[[1,40],[57,57]]``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from flowsched.cluster.booked_tasks import BookedTask
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import PlannedStart, Reservation, Running, Service
from flowsched.relations.relation import Relation, TaskGroup
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.gpus import Demand, NodeGpus
from flowsched_k8s.rounds.held_nodes import HeldNodes
from flowsched_k8s.rounds.round_input import Keeper, Nominee, PodKind
from flowsched_models.form import beyond_64_bits

EVENTS_VERSION = "flowsched/v1"
EVENTS_KIND = "Events"

Key = tuple[str, int | str]
"""Name of an event, and what identifies that which it is about."""
Runs = tuple[tuple[int, int], ...]
"""Numbers in their order: first and last of each run."""


def _without_end(data: Any) -> Any:
    """JSON has no infinity: a reservation that has no known end says null."""
    return data | {"start_s": math.inf} if isinstance(data, dict) and data.get("start_s") is None else data


Reservations = tuple[Annotated[Reservation, BeforeValidator(_without_end)], ...]


class Line:
    """What a line of the file is made of."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class EventsHeader(Line):
    """The first line."""

    writer: str
    t: float
    """Seconds since 1970, as everywhere in the file."""
    solver: str
    settings: Settings
    """The engine's."""
    catalogue: Mapping[str, Any]
    """The profiles, but for those that every installation has."""
    cost_model: CostModelChoice = field(default_factory=CostModelChoice)
    """What said what a place costs, with all of its settings; ``flow`` where the line does not say it."""
    part: int = 1
    """Of the files of one run of the scheduler, which file this is."""


class LiveEvent(Line):
    """What each further line tells, beside its time."""


class Statement(LiveEvent):
    """How something is from now on. Its first field identifies it."""

    @property
    def key(self) -> Key:
        """What a later event of the same kind replaces."""
        return type(self).__name__, next(iter(vars(self).values()))


@dataclass(frozen=True)
class MachineAdded(Statement):
    """A machine is there, or has changed."""

    name: str
    type: str
    vcpus: int
    bandwidth: float
    allocatable: Mapping[str, int]
    """CPU in milli-CPU, memory in bytes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    pressure_cap: float = math.inf
    """Pressure of all that is there beyond which a p95 goal breaks."""
    headroom_slope: float = 0.0
    """Price of a unit of pressure."""
    services: tuple[Service, ...] = ()
    """As forecasts see them."""
    gpus: NodeGpus | None = None
    """Its GPUs, if they are known as devices."""
    keepers: tuple[Keeper, ...] = ()
    """Its latency services whose goals keep pods off."""


@dataclass(frozen=True)
class RelationAdded(Statement):
    """A relation between tasks is known."""

    name: str
    relation: Relation


@dataclass(frozen=True)
class DemandLearnt(Statement):
    """What is expected of a part of the machines."""

    of: str
    """``gpus``: of those with GPUs."""
    demand: Demand


@dataclass(frozen=True)
class RunTimesLearnt(Statement):
    """What completions of a class on a machine type taught of run times."""

    of: str
    """Class and machine type, with a space between them."""
    runs: int
    micro_logs: int
    """Sum of the logarithms of run times over forecasts, in millionths."""
    nano_squares: int
    """Sum of their squares, in billionths."""


@dataclass(frozen=True)
class ValuesAdded(Statement):
    """A value for each machine, in the order of their names: masks, reasons, wishes, run times."""

    values: int
    runs: tuple[tuple[bool | float | str, int], ...]
    """A value, and how many machines have it one after the other."""


@dataclass(frozen=True)
class KindAdded(Statement):
    """What tasks are like that only their age tells apart."""

    kind: int
    like: PodKind
    values: Mapping[str, int]
    """Numbers of values: ``allowed``, ``verdict``, ``eligible``, ``preference``, and ``slowness`` where it is known."""


@dataclass(frozen=True)
class TaskSubmitted(Statement):
    """A task is known, or could be scheduled since another moment: its scheduling gates went."""

    task: int
    uid: str
    name: str
    """NAMESPACE/NAME."""
    since_s: float | None = None
    """Since when it could be scheduled; None for a task that does not wait for this scheduler."""


@dataclass(frozen=True)
class TaskBound(Statement):
    """A task takes room on a machine, bound by any scheduler; again where that or its forecast has changed."""

    task: int
    booked: BookedTask
    running: Running | None = None
    """As forecasts see it, without its name and progress; None where they do not."""
    needs: Mapping[str, int] = field(default_factory=dict)
    """What forecasts take it to need."""


@dataclass(frozen=True)
class Removed(LiveEvent):
    """What an event has stated holds no longer."""

    of: str
    """Name of that event."""
    key: int | str


@dataclass(frozen=True)
class ProfilesChanged(LiveEvent):
    """Other profiles were read."""

    catalogue: Mapping[str, Any]


@dataclass(frozen=True)
class MachinesSeen(LiveEvent):
    """What has changed on machines was looked at between two rounds: what is estimated of jobs there goes on from now."""


@dataclass(frozen=True)
class ProgressEstimated(LiveEvent):
    """How far a machine's jobs are estimated to be at this moment, by uid, where a file begins in the middle of a run."""

    machine: str
    progress: Mapping[str, float]


@dataclass(frozen=True)
class Taken:
    """Tasks of one kind that take part in a round, in the order in which they are served."""

    kind: int
    tasks: Runs
    waited: tuple[tuple[int, int], ...]
    """Rounds that have left a task waiting so far, and how many tasks one after the other they have left."""


@dataclass(frozen=True)
class RoundBegun(LiveEvent):
    """A round takes tasks and decides on the state as it is now."""

    round: int
    takes: tuple[Taken, ...]
    groups: tuple[TaskGroup, ...] = ()
    group_of: Mapping[str, str] = field(default_factory=dict)
    """Group of each placed member, by uid."""
    nominated: tuple[Nominee, ...] = ()
    """Tasks that preemption makes room for, with what is held for them."""
    held_nodes: HeldNodes | None = None
    """Machines that drain for an overdue task or gang."""
    plan: tuple[PlannedStart, ...] = ()
    """What the last round planned, as far as this one looks at it."""
    reservations: Reservations = ()


@dataclass(frozen=True)
class Placed:
    """A task and its place."""

    task: int
    machine: str
    cost: float
    width_milli: int | None = None
    threads: int | None = None
    cores: tuple[int, ...] | None = None


@dataclass(frozen=True)
class LeftWaiting:
    """Tasks that were not placed, and why."""

    tasks: Runs
    fate: str
    why: str


@dataclass(frozen=True)
class RoundDecided(LiveEvent):
    """What the round decided."""

    round: int
    placed: tuple[Placed, ...] = ()
    left: tuple[LeftWaiting, ...] = ()
    plan: tuple[PlannedStart, ...] = ()
    reservations: Reservations = ()


@dataclass(frozen=True)
class RoundFailed(LiveEvent):
    """A fault of flowsched: the round decided nothing."""

    round: int
    why: str


STATEMENTS = (
    MachineAdded,
    RelationAdded,
    DemandLearnt,
    RunTimesLearnt,
    ValuesAdded,
    KindAdded,
    TaskSubmitted,
    TaskBound,
)
EVENTS = (*STATEMENTS, Removed, ProfilesChanged, MachinesSeen, ProgressEstimated, RoundBegun, RoundDecided, RoundFailed)
_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {kind.__name__: TypeAdapter(kind) for kind in EVENTS}
_HEADER = TypeAdapter(EventsHeader)


class LineError(Exception):
    """Why a line is no event, in words that follow a colon."""


class RecordedState:
    """What the events so far state."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.machines: dict[str, MachineAdded] = {}
        self.relations: dict[str, RelationAdded] = {}
        self.demand: dict[str, DemandLearnt] = {}
        self.learnt: dict[str, RunTimesLearnt] = {}
        self.values: dict[int, ValuesAdded] = {}
        self.kinds: dict[int, KindAdded] = {}
        self.tasks: dict[int, TaskSubmitted] = {}
        self.bound: dict[int, TaskBound] = {}
        tables = vars(self).values()
        self.statements = {kind.__name__: table for kind, table in zip(STATEMENTS, tables, strict=True)}
        self.on: dict[str, dict[int, None]] = {}
        """Bound tasks by machine."""
        self.task_count = 0
        """Tasks that were named so far, gone or not."""

    def put(self, statement: Statement) -> None:
        """Take note of how something is. Raises :class:`LineError` if that contradicts what was stated before."""
        name, key = statement.key
        if isinstance(statement, TaskSubmitted):
            if statement.task > self.task_count + 1:
                raise LineError(f"task {statement.task} does not follow task {self.task_count}")
            self.task_count = max(self.task_count, statement.task)
        elif isinstance(statement, TaskBound):
            self.remove(name, key)
            self.on.setdefault(statement.booked.machine, {})[statement.task] = None
        self.statements[name][key] = statement

    def remove(self, of: str, key: Any) -> Statement | None:
        """What was stated holds no longer. The statement, if there was one."""
        found: Statement | None = self.statements[of].pop(key, None)
        if isinstance(found, TaskBound):
            del self.on[found.booked.machine][key]
        return found


def event_line(t: float, event: LiveEvent) -> str:
    """An event as a line, without its end. ``t``: seconds since 1970."""
    keys = body(event)[1:]
    return f'{{"t":{t!r},"event":"{type(event).__name__}"{"" if keys == "}" else ","}{keys}'


def header_line(header: EventsHeader) -> str:
    """The first line, without its end."""
    # Defaults are written, as those of another version may differ.
    rest = _HEADER.dump_json(header).decode()
    return f'{{"apiVersion":"{EVENTS_VERSION}","kind":"{EVENTS_KIND}",{rest[1:]}'


def body(event: LiveEvent) -> str:
    """An event as JSON without time and name; a key that has its usual value is left out."""
    return _ADAPTERS[type(event).__name__].dump_json(event, exclude_defaults=True).decode()


def read_event(line: str) -> tuple[float, LiveEvent]:
    """The time and the event of a line. Raises :class:`LineError`."""
    data = _object(line)
    t, name = data.pop("t", None), data.pop("event", None)
    if isinstance(t, bool) or not isinstance(t, int | float):
        raise LineError("has no time: 't' must be a number of seconds")
    if not abs(t) <= sys.float_info.max:
        raise LineError("has no time: 't' must be a finite number of seconds")
    if not isinstance(name, str) or name not in _ADAPTERS:
        raise LineError(f"there is no event {json.dumps(name)}")
    event: LiveEvent = _read(_ADAPTERS[name], data, name)
    return float(t), event


def read_header(line: str) -> EventsHeader:
    """The header of a first line. Raises :class:`LineError`."""
    data = _object(line)
    kind, version = data.pop("kind", None), data.pop("apiVersion", None)
    if kind != EVENTS_KIND:
        raise LineError(f'is not the header of an events file: kind is {json.dumps(kind)}, not "{EVENTS_KIND}"')
    if version != EVENTS_VERSION:
        raise LineError(f"apiVersion is {json.dumps(version)}; this flowsched reads only {json.dumps(EVENTS_VERSION)}")
    header: EventsHeader = _read(_HEADER, data, "the header")
    return header


def runs(numbers: Iterable[int]) -> Runs:
    """Numbers in their order, as runs."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def numbers_of(runs: Runs, most: int) -> list[int]:
    """The numbers of runs. Raises :class:`LineError` for one that is not from 1 to ``most``."""
    for first, last in runs:
        if not 1 <= first <= last <= most:
            raise LineError(f"[{first},{last}] is not among the {most} that the file has named so far")
    return [number for first, last in runs for number in range(first, last + 1)]


def reason(error: ValidationError) -> str:
    """The first mistake, with its key."""
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"].lower())))


def _object(line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise LineError("is not a JSON object")
    return data


_MANY_DIGITS = re.compile(r"(?<![\d.])\d{19}")
"""A whole number that may be beyond 64 bits."""


def _read(adapter: TypeAdapter[Any], data: Mapping[str, Any], what: str) -> Any:
    # As JSON, so that nothing is converted but lists to tuples.
    text = json.dumps(data)
    # Long lines are looked through value by value only where some number is long enough to matter.
    if _MANY_DIGITS.search(text) and (wrong := next(_out_of_range(data), "")):
        raise LineError(f"{what}: {wrong}")
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise LineError(f"{what}: {reason(error)}") from None


def _out_of_range(value: Any, key: str = "") -> Iterator[str]:
    """What is wrong with each whole number inside a value that is beyond 64 bits, with its key."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _out_of_range(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _out_of_range(inner, f"{key}.{position}")
    elif isinstance(value, int) and (message := beyond_64_bits(value)):
        yield f"{key}: {message}"
