"""The commands that this agent started itself: whether they came to run, and how they ended."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Collection

from flowsched_agent.commands_started import NEVER_RUN, StartError, start
from flowsched_agent.configuration import Command
from flowsched_agent.error_reporter import ErrorReporter
from flowsched_agent.managed_target import GoneError
from flowsched_agent.state_file import Started

LOG = logging.getLogger(__name__)


class Children:
    """By name of the task."""

    def __init__(self, error_reporter: ErrorReporter) -> None:
        """None were started."""
        self._error_reporter = error_reporter
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._completed: set[str] = set()

    def start(self, name: str, command: Command, prepare: Callable[[Started], None]) -> bool:
        """Start one; whether that was possible. It is not tried again: what is missing does not come by itself.

        Raises :class:`StateError` and :class:`ControlError` where it could not be prepared: a disk is full, or another agent
        is in the way. That may pass.
        """
        try:
            self._running[name] = start(name, command, prepare)
        except (StartError, GoneError, OSError) as error:
            self._error_reporter.fault(f"start {name}", f"{name} is given up: {error}", "start")
            return False
        return True

    def reap(self, name: str) -> None:
        """Take leave of one that has ended, and say how."""
        child = self._running.get(name)
        if child is None or child.poll() is None:
            return
        del self._running[name]
        about = {"target": name, "code": child.returncode}
        if child.returncode == 0:
            LOG.info("ended", extra=about)
            self._completed.add(name)
        elif (why := NEVER_RUN.get(child.returncode)) is not None:
            self._error_reporter.fault(f"start {name}", f"{name} is given up: it cannot be started: {why}", "start")
        else:
            LOG.warning("the command ended with code %d", child.returncode, extra=about)

    def take_completed(self, present: Collection[str]) -> tuple[str, ...]:
        """Those that have ended well, each told once, and not while anything of it is still present."""
        found = tuple(sorted(self._completed.difference(present)))
        self._completed.difference_update(found)
        return found
