"""What a round decides, as values: placements, postponements, reservations, certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.snapshot import MILLI, PlannedStart, Reservation, Snapshot
from flowsched.support.late_sequence import LateSequence
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_models.text_table import counted


@dataclass(frozen=True, slots=True)
class Placement:
    """Bind a task now."""

    task: str
    machine: str
    width_milli: int
    threads: int
    cores: tuple[int, ...]
    cost: float = 0.0
    terms: Mapping[str, float] = field(default_factory=dict)
    devices: tuple[int, ...] = ()
    """GPUs that it takes, or takes a share of."""


@dataclass(frozen=True)
class Postponement:
    """Let a task wait, on purpose, and say why."""

    task: str
    reason: str
    waited_s: float
    cost: float = 0.0
    terms: Mapping[str, float] = field(default_factory=dict)
    planned: PlannedStart | None = None
    by_choice: bool = False
    """Whether the policy counts it: it could have started, and waits for something better, so many times at most."""


@dataclass(frozen=True)
class Preemption:
    """Let a running task of lower priority wait again, so that another one starts in its place."""

    task: str
    machine: str
    room_for: str
    """The task that it makes room for."""
    cost: float
    """What its leaving costs: its penalty if it waits, less its penalty where it runs."""
    keeps_work: bool = False
    """Whether it goes on later where it stopped."""


@dataclass(frozen=True)
class Move:
    """Let a running task go on on another machine, or start anew there."""

    task: str
    source: str
    machine: str
    width_milli: int
    threads: int
    cores: tuple[int, ...]
    pause_s: float
    """How long its program stands still."""
    gain: float
    """What the cost of both machines falls by, the pause included."""
    price: float
    """What it had to gain."""
    keeps_work: bool = True
    devices: tuple[int, ...] = ()
    """GPUs that it takes there, or takes a share of."""


@dataclass(frozen=True)
class Certificate:
    """How far from optimal the round can be.

    ``gap_relative = (primal - bound) / (primal - unconstrained)``, 0/0 = 0, where ``unconstrained`` is the sum of every
    task's best cost if it had the cluster to itself.
    """

    method: str
    """``exact`` (CP-SAT on the same objective) or ``lagrangian`` (weak duality on the first network)."""
    primal: float
    bound: float
    unconstrained: float
    prices: Mapping[str, float] = field(default_factory=dict)
    """Prices of tiers that the bound was computed with (``lagrangian``), by tier."""
    machines: int | None = None
    """Machines that the bound is over, where the round did not look at all of them; None for all."""

    @property
    def gap_absolute(self) -> float:
        """Primal cost minus lower bound, in units of cost."""
        return max(0.0, self.primal - self.bound)

    @property
    def gap_relative(self) -> float:
        """The absolute gap over what scheduling could win or lose at all."""
        spread = self.primal - self.unconstrained
        return self.gap_absolute / spread if spread > 1e-12 else 0.0


NO_BOUND = "no bound"
_NOTHING_PROVED = 0.995
"""A relative gap of this or more is shown as 100 %: the bound says no more than what the tasks cost alone."""


def proves_nothing(gap_relative: float) -> bool:
    """Whether a certificate's bound is hardly more than what every task would cost with the cluster to itself."""
    return gap_relative >= _NOTHING_PROVED


def gap_words(certificate: Mapping[str, Any]) -> str:
    """A gap for a reader, of a certificate as plain data: absolute, and relative to what scheduling can win or lose."""
    if proves_nothing(certificate["gap_relative"]):
        return f"{NO_BOUND} beyond what the tasks cost alone"
    share = f"{100.0 * certificate['gap_relative']:.2f} % of what scheduling can win or lose"
    return f"gap {certificate['gap_absolute']:.4f} ({share})"


class LatePostponements(LateSequence[Postponement]):
    """Postponements whose reasons are put into words when the first is asked for; nothing is planned for any of them, and
    none is by choice.
    """

    def __init__(self, count: int, make: Callable[[], Sequence[Postponement]]) -> None:
        """``make`` gives all of them, whenever it is called."""
        self._count = count
        self._make = make

    @cached_property
    def all(self) -> tuple[Postponement, ...]:
        """All of them."""
        return tuple(self._make())

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True, repr=False)
class Decisions(ShortRepr):
    """The outcome of one round. Every pending task is in exactly one of placements and postponements."""

    placements: tuple[Placement, ...]
    postponements: Sequence[Postponement]
    reservations: tuple[Reservation, ...] = ()
    certifier: Callable[[], Certificate | None] | None = field(default=None, repr=False, compare=False)
    """How to work out how far from optimal the round can be; off the decision path."""
    recipe: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False, compare=False)
    """How to make the round's record, for schedulers that keep one; off the decision path, in any thread."""
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()
    """Reports of the solves that a time limit stopped. With any, the decisions depend on the speed of the machine."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How much the round did, and how many placements which stage decided; empty where a scheduler does not count."""
    preemptions: tuple[Preemption, ...] | None = None
    """To be carried out before the placements; None where nothing is ever preempted."""
    moves: tuple[Move, ...] | None = None
    """To be carried out after the preemptions and before the placements, all at once: two tasks may take each other's
    place. None where nothing ever moves."""
    look_again_s: float | None = None
    """When a round would decide otherwise though nothing has happened by then, in seconds of the snapshot's clock: a task
    that waits for a better place is due."""

    def overview(self) -> Overview:
        """How much was decided; a row per placement."""
        placed, postponed = len(self.placements), len(self.postponements)
        words = f"of a round: {counted(placed, 'placement')}, {counted(postponed, 'postponement')}"
        rows = ((p.task, p.machine, p.width_milli / MILLI, p.threads, p.cost) for p in self.placements)
        return Overview(words, ("task", "machine", "width", "threads", "cost"), rows, len(self.placements))

    @property
    def plan(self) -> tuple[PlannedStart, ...]:
        """What tasks wait for, of those that a start is planned for."""
        if isinstance(self.postponements, LatePostponements):
            return ()
        return tuple(p.planned for p in self.postponements if p.planned is not None)

    @property
    def by_choice(self) -> frozenset[str]:
        """Names of the tasks that wait by choice."""
        if isinstance(self.postponements, LatePostponements):
            return frozenset()
        return frozenset(p.task for p in self.postponements if p.by_choice)

    @cached_property
    def certificate(self) -> Certificate | None:
        """How far from optimal the round can be, worked out when it is first asked for; None where there is no bound."""
        return None if self.certifier is None else self.certifier()

    @cached_property
    def record(self) -> Mapping[str, Any] | None:
        """The round's record, made when it is first asked for; None where none is kept."""
        return None if self.recipe is None else self.recipe()


class Scheduler(Protocol):
    """What a simulator or a cluster needs from every scheduler."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round. Must not change the snapshot; same snapshot, same decisions."""
        ...


@runtime_checkable
class StateScheduler(Scheduler, Protocol):
    """A scheduler that reads the state of a cluster instead of a snapshot of it."""

    def decide_on(self, state: ClusterState, now_s: float) -> Decisions:
        """One round. Must not change the state; same content of the state, same decisions."""
        ...


def decider(scheduler: Scheduler) -> Callable[[ClusterState, float], Decisions]:
    """What decides a round on a state at a moment: the scheduler itself, or on a snapshot if that is what it reads."""
    if isinstance(scheduler, StateScheduler):
        return scheduler.decide_on
    return lambda state, now_s: scheduler.decide(state.snapshot(now_s))
