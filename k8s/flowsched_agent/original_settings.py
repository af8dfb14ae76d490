"""The agent's side of its state file: what must be on disk before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flowsched.cluster.class_runs import ClassRuns
from flowsched.node import NodeLearner
from flowsched_agent.controls.control import Saved
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.error_reporter import ErrorReporter
from flowsched_agent.managed_target import ManagedTarget
from flowsched_agent.state_file import Started, State, StateError, StateFile, boot_id, start_time


@dataclass(eq=False)
class OriginalSettings:
    """Writes down the original settings of all targets, and the started commands."""

    _file: StateFile | None
    """None where nothing is changed; its lock must be held."""
    _on_exit: str
    _targets: Callable[[], Iterable[ManagedTarget]]
    _error_reporter: ErrorReporter
    _learner: NodeLearner | None = None
    """What it has learnt is kept beside them."""
    _announced: dict[str, Saved] = field(default_factory=dict)
    commands: dict[str, Started] = field(default_factory=dict)
    """By name of the task."""

    def announcer(self, name: str) -> Callable[[Saved], None]:
        """What writes down how a taking is undone, before it happens; raises :class:`StateError`."""

        def announce(saved: Saved) -> None:
            if self._file is not None:
                self._announced[name] = saved
                self.write(must=True)

        return announce

    def taken(self, name: str) -> None:
        """It says itself from now on how it is undone."""
        self._announced.pop(name, None)

    def write(self, must: bool = False) -> None:
        """Write down what has to be undone; with ``must`` raises :class:`StateError` where that fails."""
        if self._file is None:
            return
        saved: dict[str, Mapping[str, Any]] = dict(self._announced)
        for one in self._targets():
            if one.control is None:
                continue
            try:
                saved[one.name] = one.control.saved()
            except ControlError as error:
                # Nothing of it may be changed that cannot be put back.
                one.control = None
                if not error.gone:
                    self._error_reporter.fault(f"save {one.name}", f"{one.name} is left alone: {error}", "control")
        try:
            self._file.write(self._state(saved))
        except StateError as error:
            if must:
                raise
            self._error_reporter.fault("state", str(error))
            # The same holds for what was found but is not on disk.
            for one in self._targets():
                if not one.written:
                    one.control = None
            return
        for one in self._targets():
            one.written = one.control is not None

    def close(self) -> None:
        """Everything is put back: only commands that go on are left to be known of, and what was learnt."""
        if self._file is None:
            return
        left = tuple(c for c in self.commands.values() if c.runs())
        try:
            if left or self._learnt():
                self._file.write(replace(self._state({}), commands=left))
            else:
                self._file.remove()
        except (StateError, OSError) as error:
            self._error_reporter.fault("state", f"{error}")

    def _state(self, saved: Mapping[str, Mapping[str, Any]]) -> State:
        pid = os.getpid()
        commands = tuple(self.commands.values())
        return State(boot_id(), pid, start_time(pid) or 0, saved, commands, self._on_exit, self._learnt())

    def _learnt(self) -> tuple[ClassRuns, ...]:
        return () if self._learner is None else self._learner.learnt.classes
