"""Checked in every run: a task with a given run time has the cores that it asks for, for as long as it takes.

It would take as long on fewer cores, so a policy that gave it fewer would do work that no machine does. That machines give
no more than they have is checked by :class:`flowsched.cluster.cluster_state.ClusterState` whenever a task is bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from flowsched.cluster.snapshot import Task
from flowsched_models.catalogue import Catalogue
from flowsched_models.quantity import count_cores
from flowsched_simulator.run import JobRun
from flowsched_simulator.world import World

_SLACK_S = 1e-5
"""Seconds that a start and an end may be off together; beside them the clock is rounded."""
_ROUNDINGS = 8


def check_width(catalogue: Catalogue, task: Task, width_milli: int, policy: str) -> None:
    """Raise :class:`RuntimeError` where a task with a given run time is given fewer cores than it asks for."""
    if width_milli < task.request_milli and catalogue.jobs[task.profile].has_given_run_time:
        raise RuntimeError(
            f"{policy} gives {task.name} {count_cores(width_milli)}, and it asks for {count_cores(task.request_milli)}: "
            "its given run time is the one with all of them; this is a fault of the policy"
        )


def check_time(tasks: Iterable[tuple[Task, JobRun]], world: World, policy: str) -> None:
    """Raise :class:`RuntimeError` where a task ended before it had its given run time, or after without having lost work.

    One that was killed ends before; none runs longer at a time than its walltime.
    """
    for task, ran in tasks:
        if ran.end_s is None or ran.start_s is None:
            continue
        stays = [(stay.machine, stay.start_s, stay.left_s) for stay in ran.earlier]
        had = 0.0
        slack = 0.0
        if ran.walltime_s is not None and ran.end_s - ran.start_s > ran.walltime_s + _slack_s(ran.end_s):
            raise RuntimeError(
                f"under {policy}, {task.name} ran for {ran.end_s - ran.start_s:.9g} s, and its walltime is "
                f"{ran.walltime_s:.9g} s; this is a fault of the simulation"
            )
        for machine, start_s, end_s in (*stays, (str(ran.machine), ran.start_s, ran.end_s)):
            whole_s = world.given_s(task, machine)
            if whole_s is None:
                break
            ran_s, slack_s = max(0.0, end_s - start_s), _slack_s(end_s)
            if whole_s == 0.0:
                had += 1.0 if ran_s <= slack_s else math.inf
            else:
                had += ran_s / whole_s
                slack += slack_s / whole_s
        else:
            if (had < 1.0 - slack and not ran.killed) or (not stays and had > 1.0 + slack):
                raise RuntimeError(
                    f"under {policy}, {task.name} had {had:.9g} of its given run time when it ended; this is a fault of the "
                    "simulation"
                )


def _slack_s(end_s: float) -> float:
    """Seconds that a start and an end may be off together, at this time of the clock."""
    return _SLACK_S + _ROUNDINGS * math.ulp(end_s)
