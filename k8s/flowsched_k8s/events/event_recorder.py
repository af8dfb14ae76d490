"""Events of a live cluster, for a file that is played later: what has changed since the last round, and what it decided.

The state machine says at once what goes: tasks, machines, profiles. All else is looked up when a round begins, in what the
round is about to read: nodes that have changed since they were looked at last, relations, kinds of pods. So a played round
has exactly the input that the live one had, and recording costs what has changed and not what there is.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.snapshot import Running
from flowsched.records.record import writer
from flowsched.support.arrays import IntArray
from flowsched_k8s.cache import Cache
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.configuration.cost_model import plain_cost_model
from flowsched_k8s.events import live_events as live
from flowsched_k8s.events.event_file import EventFile
from flowsched_k8s.rounds.neutral import without_plain
from flowsched_k8s.rounds.occupied_nodes import OccupiedNodes
from flowsched_k8s.rounds.round_input import ClassInput, PodKind, RoundInput, RoundResult
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import dump_catalogue

LOG = logging.getLogger(__name__)

ARRAYS = {
    "allowed": np.bool_,
    "verdict": np.int16,
    "eligible": np.bool_,
    "preference": np.float64,
    "slowness": np.float64,
}
"""What a class of tasks has by machine."""
SAME = ("groups", "group_of", "nominated", "held_nodes")
"""What a round's begin has as its input has it."""
GPUS = "gpus"
"""What the demand is for."""
_REMEMBERED = 8192
"""Distinct kinds and values that are known again; afterwards they get other numbers."""
_Note = TypeVar("_Note", bound=Callable[..., None])


def _safely(note: _Note) -> _Note:
    """A fault of the recording must not stop the scheduling."""

    @wraps(note)
    def noted(recorder: EventRecorder, *about: Any) -> None:
        if not recorder.broken:
            try:
                note(recorder, *about)
            except Exception:
                recorder.broken = True
                LOG.exception("events are not recorded any more")

    return cast(_Note, noted)


class _FileState(live.RecordedState):
    """What the file that is being written states so far, and what it was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: dict[str, tuple[int, bool]] = {}
        """By node, its revision when it was last looked at, and whether with what forecasts see."""
        self.task_of: dict[str, int] = {}
        """Number by uid."""
        self.known: dict[object, int] = {}
        """Numbers of values and kinds, by content: most are those of the round before."""
        self.named = 0
        """Numbers that values and kinds have got."""
        self.learnt_from: LearntRunTimes = NOTHING_LEARNT
        """What was learnt when the round before began."""
        self.begun: tuple[int, dict[str, int]] = -1, {}
        """The round that is on, with the numbers of its tasks: some may be gone before it ends."""


class EventRecorder:
    """See the module. Everything is to be called from the thread that changes the cache; writing is another thread's."""

    def __init__(self, file: EventFile, cache: Cache, occupied: OccupiedNodes, solver: str, most_bytes: int) -> None:
        """A file that is larger than ``most_bytes`` is followed by another one, which begins with all that there is."""
        self._file = file
        self._cache = cache
        self._occupied = occupied
        self._solver = solver
        self._most_bytes = most_bytes
        self._state: _FileState | None = None
        self._part = 0
        self._batch: list[tuple[float, live.LiveEvent]] = []
        self._now_s = -math.inf
        occupied.followers.append(self.looked)
        self.broken = False
        """Whether a fault has ended the recording."""

    @_safely
    def begun(self, given: RoundInput) -> None:
        """A round has its input."""
        self._now_s = max(self._now_s, given.now_s)
        header = None
        if self._state is None or self._file.size > self._most_bytes:
            header = self._header(given)
            self._state, self._batch = _FileState(), []
        state, seen = self._state, bool(given.cluster.machines)
        resumed = header is not None and self._occupied.machines.estimate_any
        if resumed and not seen:
            self._occupied.look(given.now_s)
        self._relations(state)
        self._machines(state, seen or resumed)
        if resumed:
            # What is estimated of running jobs has a history that this file does not tell: it goes on from what it is now.
            for name, progress in self._occupied.machines.resume_all():
                self._emit(live.ProgressEstimated(name, progress))
        self._round(state, given)
        self._write(header)

    @_safely
    def looked(self, now_s: float) -> None:
        """What runs was looked at between two rounds."""
        if self._state is not None:
            self._now_s = max(self._now_s, now_s)
            self._relations(self._state)
            self._machines(self._state, seen=True)
            self._emit(live.MachinesSeen())
            self._write()

    @_safely
    def decided(self, result: RoundResult, now_s: float) -> None:
        """A round ended."""
        if self._state is not None and self._state.begun[0] == result.number:
            self._emit(decided_event(result, self._state.begun[1]), now_s)
            self._write()

    @_safely
    def failed(self, number: int, message: str, now_s: float) -> None:
        """A round raised."""
        if self._state is not None and self._state.begun[0] == number:
            self._emit(live.RoundFailed(number, message), now_s)
            self._write()

    @_safely
    def task_gone(self, uid: str, now_s: float) -> None:
        """A pod is gone."""
        if self._state is not None and (number := self._state.task_of.pop(uid, None)) is not None:
            gone = (live.TaskBound.__name__, number), (live.TaskSubmitted.__name__, number)
            self._remove(gone, now_s)

    @_safely
    def machine_gone(self, node: str, now_s: float) -> None:
        """A node left the pool."""
        if self._state is not None and self._state.looked_at.pop(node, None) is not None:
            bound = [(live.TaskBound.__name__, number) for number in self._state.on.get(node, ())]
            self._remove((*bound, (live.MachineAdded.__name__, node)), now_s)

    @_safely
    def profiles_changed(self, catalogue: Catalogue, now_s: float) -> None:
        """Other profiles are used from now on."""
        if self._state is not None:
            self._emit(live.ProfilesChanged(_plain(catalogue)), now_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what still waits, but no longer than this."""
        if self._state is not None and not self.broken:
            self._write()
        self._file.close(timeout_s)

    # Insides

    def _emit(self, event: live.LiveEvent, now_s: float = -math.inf) -> None:
        # Clocks that are read one after the other may not agree to the last bit.
        self._now_s = max(self._now_s, now_s)
        self._batch.append((self._now_s, event))
        if isinstance(event, live.Statement) and self._state is not None:
            self._state.put(event)

    def _remove(self, keys: Iterable[live.Key], now_s: float = -math.inf) -> None:
        for of, key in keys:
            if self._state is not None and self._state.remove(of, key) is not None:
                self._emit(live.Removed(of, key), now_s)

    def _write(self, header: live.EventsHeader | None = None) -> None:
        self.broken = bool(self._file.failed)
        if self._file.full:
            LOG.warning("the disk is too slow for the file of events: another one is begun later")
            self._state = None
            return
        batch, self._batch = self._batch, []
        if header is not None:
            self._part = header.part
        self._file.add(batch, header)

    def _header(self, given: RoundInput) -> live.EventsHeader:
        model = CostModelChoice(**plain_cost_model(given.cost_model))
        catalogue = _plain(given.catalogue)
        return live.EventsHeader(writer(), given.now_s, self._solver, given.settings, catalogue, model, self._part + 1)

    def _update(self, state: live.RecordedState, there: set[live.Key], now: Sequence[live.Statement]) -> None:
        """Write where what the file states, by keys, is not what is so now."""
        self._remove(sorted(there - {statement.key for statement in now}))
        for statement in now:
            name, key = statement.key
            if state.statements[name].get(key) != statement:
                self._emit(statement)

    def _task(self, state: _FileState, uid: str, since_s: float | None = None) -> int:
        number = state.task_of.get(uid)
        if number is None:
            entry = self._cache.pods.get(uid)
            number = state.task_of[uid] = state.task_count + 1
            self._emit(live.TaskSubmitted(number, uid, uid if entry is None else str(entry.key), since_s))
        elif since_s not in (None, state.tasks[number].since_s):
            self._emit(replace(state.tasks[number], since_s=since_s))
        return number

    # Relations, and machines with what is bound and seen there

    def _relations(self, state: _FileState) -> None:
        machines = self._cache.machines
        known = dict(state.relations)
        now = [live.RelationAdded(r.name, r) for r in machines.relation_store.relations()]
        self._update(state, {added.key for added in known.values()}, now)
        for added in now:
            if known.get(added.name) != added:
                # Tasks that are bound and joined it as it was declared are on nodes that have not changed for that.
                for row in np.flatnonzero(machines.relation_store.topology_counts(added.name).members).tolist():
                    state.looked_at.pop(str(machines.names[row]), None)

    def _machines(self, state: _FileState, seen: bool) -> None:
        """``seen``: this round looks at what runs there as forecasts see it."""
        cache = self._cache
        there: set[live.Key] = set()
        now: list[live.Statement] = []
        for name in sorted(cache.nodes):
            revision = cache.revisions.of(name)
            if state.looked_at.get(name) in ((revision, seen), (revision, True)):
                continue
            state.looked_at[name] = revision, seen
            for number in list(state.on.get(name, ())):
                there.add((live.TaskBound.__name__, number))
                uid = state.tasks[number].uid
                # Another pod took its name before that was seen, or it stood for a pod outside of the pool.
                if uid not in cache.pods and cache.booked.booking(uid) is None:
                    self.task_gone(uid, self._now_s)
            now += self._machine(state, name, seen)
        self._update(state, there, now)

    def _machine(self, state: _FileState, name: str, seen: bool) -> Iterator[live.Statement]:
        """A machine and what is bound there. A round without forecasts leaves how they see it as it was last."""
        machines, node = self._cache.machines, self._cache.nodes[name]
        earlier = state.machines.get(name)
        services = earlier.services if earlier else ()
        running: Mapping[str, Running] = {}
        if seen:
            here = self._occupied.machines.on(name)
            services, running = here.services, here.running
        what = node.type.name, node.type.vcpus, machines.bandwidth(name), dict(node.allocatable)
        limits = machines.service(name)
        gpus = self._cache.gpus.of(name)
        keepers = self._cache.services.keepers.get(name, ())
        yield live.MachineAdded(name, *what, dict(machines.labels(name)), *limits, services, gpus, keepers)
        for uid in (*sorted(node.pods), *self._cache.outside.counted_on(name)):
            number, booked = self._task(state, uid), self._cache.booked.booking(uid)
            assert booked is not None, "every pod on a node is booked"
            before = state.bound.get(number)
            if uid in running:
                task = replace(running[uid].task, name="", job="")
                yield live.TaskBound(number, booked, replace(running[uid], task=task), self._cache.pods[uid].needs)
            elif not seen and before is not None and before.booked.machine == name:
                yield replace(before, booked=booked)
            else:
                yield live.TaskBound(number, booked)

    # The round

    def _round(self, state: _FileState, given: RoundInput) -> None:
        order = given.machines.order()
        demand = [live.DemandLearnt(GPUS, given.gpus.demand)] if given.gpus.demand else []
        self._update(state, {learnt.key for learnt in state.demand.values()}, demand)
        if given.learnt is not state.learnt_from:
            rows = [live.RunTimesLearnt(f"{r.run_class} {r.machine_type}", *r[2:5]) for r in given.learnt.classes]
            self._update(state, {row.key for row in state.learnt.values()}, rows)
            state.learnt_from = given.learnt
        state.begun = given.number, {}
        takes = []
        for c in given.classes:
            kind = self._kind(state, c, order)
            tasks = [self._task(state, uid, since_s) for uid, since_s in zip(c.uids, c.since_s, strict=True)]
            waited = np.array([given.rounds_waited.get(uid, 0) for uid in c.uids])
            takes.append(live.Taken(kind, live.runs(tasks), _counted(waited)))
            state.begun[1].update(zip(c.uids, tasks, strict=True))
        same = {name: getattr(given, name) for name in SAME}
        plan = given.cluster.plan, given.cluster.reservations
        self._emit(live.RoundBegun(given.number, tuple(takes), **same, plan=plan[0], reservations=plan[1]))

    def _kind(self, state: _FileState, c: ClassInput, order: IntArray) -> int:
        arrays = {name: getattr(c, name)[order] for name in ARRAYS if getattr(c, name) is not None}
        texts = tuple(c.reasons)
        values = {}
        for name, array in arrays.items():
            digest = hashlib.blake2b(array.tobytes(), digest_size=16).digest()
            said = texts if name == "verdict" else ()
            content = digest, array.dtype.str, said
            values[name] = state.known.get(content) or self._add(
                state, content, live.ValuesAdded, _counted(array, said)
            )
        like = PodKind(**{f.name: getattr(c, f.name) for f in fields(PodKind)})
        if like.task is not None:
            like = replace(like, task=replace(like.task, name="", job="", submit_s=0.0))
        made_of = live.body(live.KindAdded(0, like, values))
        return state.known.get(made_of) or self._add(state, made_of, live.KindAdded, like, values)

    def _add(self, state: _FileState, content: object, what: Callable[..., live.Statement], *of: object) -> int:
        """The number of values, or of a kind, that the file does not have yet."""
        if len(state.known) >= _REMEMBERED:
            state.known.clear()
        state.named += 1
        state.known[content] = state.named
        self._emit(what(state.named, *of))
        return state.named


def decided_event(result: RoundResult, number_of: Mapping[str, int]) -> live.RoundDecided:
    """What a round decided, with the numbers of its tasks."""
    placed = (
        live.Placed(number_of[c.uid], c.node, float(c.cost), c.width_milli, c.threads, c.cores) for c in result.chosen
    )
    left = (live.LeftWaiting(live.runs(number_of[u] for u in h.uids), str(h.fate), h.message) for h in result.held)
    return live.RoundDecided(result.number, tuple(placed), tuple(left), result.plan, result.reservations)


def _counted(array: NDArray[Any], texts: Sequence[str] = ()) -> tuple[tuple[Any, int], ...]:
    """An array as values, or texts by index, and how many follow one another."""
    if not len(array):
        return ()
    begins = np.concatenate([[0], np.flatnonzero(array[1:] != array[:-1]) + 1])
    counts = np.diff([*begins, len(array)]).tolist()
    return tuple((texts[v] if texts else v, n) for v, n in zip(array[begins].tolist(), counts, strict=True))


def _plain(catalogue: Catalogue) -> dict[str, Any]:
    return dict(dump_catalogue(without_plain(catalogue)))
