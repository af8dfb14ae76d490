"""One measurement: a critical task beside background processes under one setting. Nothing stays behind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.isolation_bench.first import set_first
from benchmarks.isolation_bench.measured import BenchError, Measured, measured
from benchmarks.isolation_bench.setting import CriticalTask, Setting, Way
from benchmarks.isolation_bench.workers import Program, Worker
from flowsched.node.deadline import Deadline
from flowsched_agent.controls.detected import Detected
from flowsched_agent.controls.own_group import PARENT, OwnGroup
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.scheduling import reserve
from flowsched_agent.system import System

_NAME = "isolation"
_SPARE_S = 60.0
"""How long beyond its time a worker may take that this machine hardly lets run."""
_WARM_UP_S = 0.2


def objection(setting: Setting, detected: Detected) -> str | None:
    """Why this machine cannot be measured under a setting, in one sentence; None if it can."""
    if len(detected.online) < 2:
        return "one core only: there is nothing to keep apart"
    if setting.way is Way.GROUPS and not detected.own_groups:
        return f"groups of its own are needed: {detected.controllers['cpu'].why or 'no cpu controller'}"
    if setting.way is Way.DEADLINE and not detected.deadline.possible:
        return f"SCHED_DEADLINE is refused: {detected.deadline.why}"
    if setting.way is Way.FIFO and not detected.fifo.possible:
        return f"SCHED_FIFO is refused: {detected.fifo.why}"
    return None


def measure(
    system: System,
    detected: Detected,
    program: Program,
    setting: Setting,
    task: CriticalTask,
) -> Measured:
    """Run it once. Raises :class:`BenchError`; processes and groups are gone then, too."""
    count = task.background or 2 * len(detected.online)
    arguments = [
        "critical",
        *(str(us * 1000) for us in (task.runtime_us, task.period_us)),
        str(task.jobs),
        str(task.window_us * 1000),
        str(int(task.relative_sleep)),
    ]
    # What is entered last is left first: processes end before the groups that hold them are removed.
    with ExitStack() as groups, ExitStack() as processes:
        try:
            critical = processes.enter_context(Worker(program, arguments))
            hogs = [processes.enter_context(Worker(program, ["hog"])) for _ in range(count)]
            if detected.own_groups:
                _group(system, detected, setting, critical, hogs, groups)
            if setting.way is Way.DEADLINE:
                runtime_us = task.runtime_us * (1.0 + setting.margin)
                reserve(system, critical.pid, "the critical task", Deadline(runtime_us, task.period_us))
            elif setting.way is Way.FIFO:
                set_first(system, critical.pid, "the critical task")
        except ControlError as error:
            raise BenchError(str(error)) from None
        for hog in hogs:
            hog.begin()
        system.sleep(_WARM_UP_S)
        critical.begin()
        limit_s = task.seconds + _SPARE_S
        response, used = critical.numbers("jobs", limit_s), critical.numbers("windows", limit_s)
    return measured(setting.name, response, used, task.runtime_us, task.period_us, task.window_us)


def _group(
    system: System,
    detected: Detected,
    setting: Setting,
    critical: Worker,
    hogs: Sequence[Worker],
    groups: ExitStack,
) -> None:
    """Groups by weight; a real-time task stays where it is, for a group of v1 gives it no time."""

    def make(name: str, workers: Sequence[Worker], weight: float) -> None:
        own = OwnGroup(system, detected.hierarchies, f"{_NAME}-{name}", workers[0].pid)
        groups.callback(_leave, own)
        for worker in workers[1:]:
            own.move_in(worker.pid)
        own.group.set_weight(weight)

    if setting.way is Way.GROUPS:
        make("critical", [critical], setting.weight)
    if setting.siblings:
        for number, hog in enumerate(hogs):
            make(f"background-{number}", [hog], 1.0)
    elif hogs:
        make("background", hogs, 1.0)


def _leave(own: OwnGroup) -> None:
    with contextlib.suppress(ControlError):
        own.leave()


def remove_left_over(system: System, detected: Detected, say: Callable[[str], None]) -> None:
    """Remove empty groups of a measurement that was killed. What is not ours, or not empty, stays."""
    for root in dict.fromkeys(detected.hierarchies.trees().values()):
        parent = root / PARENT
        try:
            found = [name for name in system.folders(parent) if re.fullmatch(rf"{_NAME}-[a-z0-9-]+\.\d+", name)]
        except OSError:
            continue
        for name in found:
            with contextlib.suppress(OSError):
                if not system.read(parent / name / "cgroup.procs").strip():
                    system.remove_folder(parent / name)
                    say(f"removed the empty group {parent / name} of an earlier measurement")
        with contextlib.suppress(OSError):
            system.remove_folder(parent)  # stays where a process is in it
