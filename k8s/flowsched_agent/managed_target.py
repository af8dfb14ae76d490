"""One service or task that is steered: its controls, what it has, and what was refused."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched.node import LOWEST_WEIGHT, Deadline, NodeService, NodeTask
from flowsched_agent.actuation_plan import Actuation, Has, Kind
from flowsched_agent.configuration import ServiceSpec, TaskSpec
from flowsched_agent.controls.control import Control
from flowsched_agent.controls.refusals import ControlError

LOG = logging.getLogger(__name__)


class GoneError(Exception):
    """The processes are no longer there."""


@dataclass
class ManagedTarget:
    """What is known of a target apart from its kind."""

    name: str
    control: Control | None = None
    has: Has = field(default_factory=Has)
    refused: set[tuple[str, str]] = field(default_factory=set)
    """(kind, value) of what could not be set: said once, and not tried again with that value."""
    written: bool = False
    """Whether its original settings are on disk."""
    owed: bool = False
    """It has bandwidth of its own: the kernel lets it run anywhere, and refuses to pin it."""
    unweighed: bool = False
    """A low weight was refused: it runs as urgently as a service beside it."""
    pauses: int = 0
    errors: int = 0

    @property
    def weight(self) -> float:
        """That it really has, relative to Linux's default."""
        return 1.0 if self.unweighed else self.has.weight

    def do(self, act: Actuation, dry_run: bool) -> None:
        """Carry an act out, or do without it where it is refused. Raises :class:`GoneError`."""
        if act.kind is not Kind.START and not dry_run:
            self._try(act)
        if act.kind is Kind.PAUSE and self.has.run:
            self.pauses += 1
        if not (self.unweighed and act.kind is Kind.WEIGHT and act.weight < 1.0):
            self.has = self.has.after(act)

    def renew(self) -> None:
        """Set again what is set: for new threads, and where another program wrote it. Raises :class:`GoneError`."""
        if self.control is None:
            return
        if self.has.cores is not None:
            self._try(Actuation(self.name, Kind.CORES, self.has.cores))
        if self.has.weight != 1.0:
            self._try(Actuation(self.name, Kind.WEIGHT, weight=self.has.weight))
        if not self.has.run:
            self._try(Actuation(self.name, Kind.PAUSE))

    def owe(self, deadline: Deadline) -> None:
        """Give it its bandwidth, or do without. Raises :class:`GoneError`."""
        if self.control is None or ("deadline", str(deadline)) in self.refused:
            return
        try:
            self.control.set_deadline(deadline)
            self.owed = True
        except ControlError as error:
            self._refused("deadline", str(deadline), error)

    def _try(self, act: Actuation) -> None:
        control = self.control
        value = str(act)
        if control is None or (act.kind.value, value) in self.refused:
            return
        try:
            match act.kind:
                case Kind.CORES:
                    control.set_cores(act.cores)
                case Kind.WEIGHT:
                    control.set_weight(act.weight)
                case Kind.QUOTA:
                    control.set_quota(act.quota)
                case Kind.PAUSE:
                    control.pause()
                case Kind.RESUME:
                    control.resume()
                case Kind.START:
                    raise AssertionError("programs are started elsewhere")
        except ControlError as error:
            self._refused(act.kind.value, value, error)
            self.unweighed = self.unweighed or (act.kind is Kind.WEIGHT and act.weight < 1.0)
            if act.kind is Kind.PAUSE:
                # What cannot be stopped can still be last in line.
                self._try(Actuation(self.name, Kind.WEIGHT, weight=LOWEST_WEIGHT))
        for sentence in control.sentences():
            if ("said", sentence) not in self.refused:
                self.refused.add(("said", sentence))
                LOG.info("%s", sentence, extra={"target": self.name})

    def _refused(self, kind: str, value: str, error: ControlError) -> None:
        if error.gone:
            raise GoneError(str(error)) from None
        self.errors += 1
        self.refused.add((kind, value))
        LOG.warning("done without: %s", error, extra={"target": self.name, "act": kind})


@dataclass
class ManagedService(ManagedTarget):
    """A latency service."""

    spec: ServiceSpec = field(kw_only=True)
    service: NodeService = field(kw_only=True)
    queries: int | None = None
    silent: bool = False
    """It did not answer when it was last asked, or what cannot be true."""
    doubted_until_s: float = -math.inf
    """Until then its answers count for nothing, because a decision about them failed."""
    unanswered: bool = False
    """There was no answer when it was last asked."""
    silence_told: bool = False
    silence_told_s: float = -math.inf
    """Whether the log says so, and when it was last said."""

    @property
    def there(self) -> bool:
        """Whether there is such a service: its processes, or a port that answers."""
        return self.control is not None or not self.silent


@dataclass
class ManagedTask(ManagedTarget):
    """A batch job."""

    spec: TaskSpec = field(kw_only=True)
    task: NodeTask = field(kw_only=True)
    submitted_s: float = field(kw_only=True)
    cpu_s: float = 0.0
    done: bool = False
    """Nothing of it is left, and nothing new can come under its name."""

    @property
    def shares(self) -> bool:
        """Whether it may share a core with a service, as far as is known: it can be given a low weight."""
        return not self.unweighed or self.owed


def has_of(managed: Mapping[str, ManagedTarget]) -> dict[str, Has]:
    """What each has."""
    return {name: one.has for name, one in managed.items()}
