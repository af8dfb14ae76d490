"""All threads of some processes, steered one by one: each has its own affinity and class, and they come and go."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from flowsched.node.deadline import Deadline
from flowsched_agent.controls.refusals import ControlError, refusal
from flowsched_agent.controls.scheduling import OneWay, of_weight, online, reserve, set_affinity, set_attributes
from flowsched_agent.controls.weights import is_lowest, nice_of, weight_of_nice
from flowsched_agent.sensors.process import GONE, Process, read_process, threads
from flowsched_agent.system import Attributes, Policy, System
from flowsched_models.quantity import format_cores

ROUNDS = 20
"""Looks for threads that have appeared meanwhile. What a steered thread starts is steered already, so few are needed."""
_FAR = 1.3
"""A weight that comes out by more than this factor other than asked is worth a sentence."""


@dataclass(frozen=True)
class Thread:
    """A thread; its start tells it from a later one of the same number."""

    pid: int
    tid: int
    start: int


@dataclass(frozen=True)
class Settings:
    """How a thread was before it was steered."""

    affinity: tuple[int, ...]
    attributes: Attributes


class Threads:
    """Steers all threads of the processes that ``members`` names at each moment."""

    def __init__(
        self, system: System, name: str, members: Callable[[], list[Process]], one_way: OneWay | None = None
    ) -> None:
        """Nothing is read yet: see :meth:`remember`. ``one_way``: what is refused because it could not be taken back."""
        self._system = system
        self._name = name
        self._one_way = one_way or OneWay()
        self.members = members
        self.original: dict[Thread, Settings] = {}
        self.was_stopped = False
        self.said: list[str] = []
        self._reserved: tuple[Thread, Settings] | None = None
        """The thread that has a reservation, and how it was before that."""

    def remember(self) -> None:
        """Note the settings and whether all stands still. Raises :class:`ControlError`."""
        there = self.members()
        self.was_stopped = bool(there) and all(process.stopped for process in there)
        for thread in self.listed():
            try:
                self.original[thread] = self._settings(thread)
            except OSError as error:
                if error.errno not in GONE:
                    raise refusal(f"the settings of {self._name} were read (thread {thread.tid})", error) from None
        if not self.original:
            raise ControlError(f"{self._name} was to be steered", "it has no thread left; it has ended", gone=True)

    def _settings(self, thread: Thread) -> Settings:
        return Settings(self._system.affinity(thread.tid), self._system.attributes(thread.tid))

    def listed(self) -> list[Thread]:
        """All threads now."""
        found = []
        for process in self.members():
            for tid in threads(self._system, process.pid):
                thread = read_process(self._system, process.pid, tid)
                if thread is not None:
                    found.append(Thread(process.pid, tid, thread.start))
        return found

    def settings_of(self, thread: Thread) -> Settings:
        """How it was, or how the first of all was if it came later: it had that from a thread that is steered."""
        known = self.original.get(thread)
        return known if known is not None else next(iter(self.original.values()))

    def each(self, act: Callable[[Thread], None]) -> int:
        """Do something to every thread, to those that appear meanwhile too; how many there were.

        Threads that vanish are no error as long as one is left. Raises the first other :class:`ControlError` after it has
        tried all.
        """
        done: set[Thread] = set()
        refused: ControlError | None = None
        for _ in range(ROUNDS):
            new = [thread for thread in self.listed() if thread not in done]
            if not new:
                break
            for thread in new:
                done.add(thread)
                try:
                    act(thread)
                except ControlError as error:
                    if not error.gone:
                        refused = refused or error
        if refused is not None:
            raise refused
        if not done:
            raise ControlError(f"{self._name} was to be steered", "it has no thread left; it has ended", gone=True)
        return len(done)

    # What is steered

    def set_cores(self, cores: tuple[int, ...]) -> None:
        """Affinity of every thread."""
        got: set[tuple[int, ...]] = set()

        def pin(thread: Thread) -> None:
            got.add(set_affinity(self._system, thread.tid, self._name, cores))

        self.each(pin)
        for fewer in sorted(got - {tuple(sorted(set(cores)))}):
            self.said.append(
                f"{self._name} was to run on the CPUs {format_cores(cores)} and runs on {format_cores(fewer)}: "
                "its cpuset has no more"
            )

    def set_weight(self, weight: float) -> None:
        """A nice value or SCHED_IDLE for every thread that has no real-time class; none that could not be taken back."""
        first: list[Thread] = []

        def weigh(thread: Thread) -> None:
            found = self._attributes(thread)
            if found.policy.real_time:
                first.append(thread)
                return
            # Its own class of the start, so that a batch class comes back after an idle one.
            kept = self.settings_of(thread).attributes
            basis = replace(found, policy=kept.policy if not kept.policy.real_time else Policy.OTHER)
            wanted = of_weight(weight, basis)
            if wanted == found:
                return
            if (why := self._one_way.objection(kept, wanted)) is not None:
                raise ControlError(f"{self._name} was to have weight {weight:.3g} (thread {thread.tid})", why)
            set_attributes(self._system, thread.tid, self._name, wanted)

        self.each(weigh)
        if first:
            self.said.append(
                f"{self._name} was to have weight {weight:g} and keeps real-time scheduling in {len(first)} of its threads: "
                "that goes before every weight"
            )
        real = weight_of_nice(nice_of(weight))
        if not is_lowest(weight) and not weight / _FAR < real < weight * _FAR:
            self.said.append(
                f"{self._name} was to have weight {weight:g} and has {real:.3g}, nice {nice_of(weight)}: nice values go "
                "no further; groups do"
            )

    def set_deadline(self, deadline: Deadline | None) -> None:
        """Reserve for one thread, the one that has used most CPU; None: back to what it was."""
        if deadline is None:
            self._end_reservation()
            return
        there = self.listed()
        if not there:
            raise ControlError(f"{self._name} was to have a deadline", "it has no thread left; it has ended", gone=True)
        if self._reserved is not None and self._reserved[0] in there:
            thread = self._reserved[0]
        else:
            thread = max(there, key=lambda one: (self._used(one), -one.start, -one.tid))
        if len(there) > 1:
            self.said.append(
                f"{self._name} has {len(there)} threads, and a reservation is for one: thread {thread.tid} has it, "
                "which has used most CPU"
            )
        self._reserve(thread, deadline)

    def _reserve(self, thread: Thread, deadline: Deadline) -> None:
        try:
            before, everywhere = self._settings(thread), online(self._system)
        except OSError as error:
            raise refusal(f"the settings of {self._name} were read (thread {thread.tid})", error) from None
        pinned = set(before.affinity) != set(everywhere)
        if pinned:
            # A pinned thread is refused; its cpuset may hold it back still, and then the kernel says so.
            set_affinity(self._system, thread.tid, self._name, everywhere)
        try:
            reserve(self._system, thread.tid, self._name, deadline)
        except ControlError:
            if pinned:
                set_affinity(self._system, thread.tid, self._name, before.affinity)
            raise
        if self._reserved is None or self._reserved[0] != thread:
            self._reserved = (thread, before)

    def _end_reservation(self) -> None:
        reserved, self._reserved = self._reserved, None
        if reserved is not None and reserved[0] in self.listed():
            restore_thread(self._system, self._name, reserved[0].tid, reserved[1])

    def stop(self) -> None:
        """SIGSTOP to every process, to those that were started meanwhile too."""
        done: set[tuple[int, int]] = set()
        for _ in range(ROUNDS):
            new = [process for process in self.members() if (process.pid, process.start) not in done]
            if not new:
                break
            for process in new:
                done.add((process.pid, process.start))
                self._signal(process, signal.SIGSTOP)
        if not done:
            raise ControlError(f"{self._name} was to be paused", "it has no process left; it has ended", gone=True)

    def go_on(self) -> None:
        """SIGCONT to every process."""
        there = self.members()
        for process in there:
            self._signal(process, signal.SIGCONT)
        if not there:
            raise ControlError(f"{self._name} was to be resumed", "it has no process left; it has ended", gone=True)

    def stopped(self) -> bool:
        """Whether every thread of every process stands still."""
        there = self.members()
        return bool(there) and all(process.stopped for process in there)

    def _signal(self, process: Process, number: signal.Signals) -> None:
        try:
            signal_process(self._system, process, number)
        except OSError as error:
            if error.errno != errno.ESRCH:
                what = f"{self._name} was to get {number.name} (process {process.pid})"
                raise refusal(what, error) from None

    # How it was

    def restore(self) -> None:
        """Bring back what each thread had, where it has something else now; raises after it has tried all."""
        self.each(lambda thread: restore_thread(self._system, self._name, thread.tid, self.settings_of(thread)))
        self._reserved = None
        if not self.was_stopped:
            self.go_on()

    def saved(self) -> list[dict[str, Any]]:
        """The settings of each thread as plain JSON, the first first."""
        return [
            {
                **asdict(thread),
                "affinity": list(settings.affinity),
                **asdict(settings.attributes),
                "policy": int(settings.attributes.policy),
            }
            for thread, settings in self.original.items()
        ]

    def _attributes(self, thread: Thread) -> Attributes:
        try:
            return self._system.attributes(thread.tid)
        except OSError as error:
            raise refusal(f"the class of {self._name} was read (thread {thread.tid})", error) from None

    def _used(self, thread: Thread) -> int:
        try:
            path = self._system.proc / str(thread.pid) / "task" / str(thread.tid) / "schedstat"
            return int(self._system.read(path).split()[0])
        except (OSError, ValueError, IndexError):
            return 0


def signal_process(system: System, process: Process, number: signal.Signals) -> None:
    """Signal this process, and never a later one that got its number. Raises :class:`OSError`, ESRCH if it is gone."""
    held = system.hold(process.pid)
    try:
        now = read_process(system, process.pid)
        if now is None or now.start != process.start:
            raise OSError(errno.ESRCH, "it is gone")
        if held is None:
            system.signal(process.pid, number)
        else:
            system.signal_held(held, number)
    finally:
        if held is not None:
            system.let_go(held)


def restore_thread(system: System, name: str, tid: int, settings: Settings) -> None:
    """Class first: a thread with a reservation cannot be pinned. Raises :class:`ControlError`."""
    try:
        attributes, affinity = system.attributes(tid), system.affinity(tid)
    except OSError as error:
        raise refusal(f"the settings of {name} were read (thread {tid})", error) from None
    if attributes != settings.attributes:
        set_attributes(system, tid, name, settings.attributes)
    if affinity != settings.affinity:
        set_affinity(system, tid, name, settings.affinity)


def settings_from(saved: dict[str, Any]) -> tuple[Thread, Settings]:
    """One entry of :meth:`Threads.saved`."""
    attributes = Attributes(
        Policy(saved["policy"]),
        **{key: int(saved[key]) for key in ("nice", "priority", "runtime_ns", "deadline_ns", "period_ns", "flags")},
    )
    thread = Thread(int(saved["pid"]), int(saved["tid"]), int(saved["start"]))
    return thread, Settings(tuple(int(core) for core in saved["affinity"]), attributes)
