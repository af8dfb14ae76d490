"""A plan as a schedule: the form that ``flowsched simulate --schedule`` replays."""

from __future__ import annotations

from flowsched.cluster.snapshot import MILLI
from flowsched.planner.plan import Plan
from flowsched_models.quantity import format_cores
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.schedule import Schedule, ScheduledTask, place_of


def schedule_of(scenario: Scenario, plan: Plan, name: str = "plan") -> Schedule:
    """The schedule of a plan: its replay does what the plan predicts."""
    return Schedule(
        name=name,
        cluster=scenario.name,
        services={s.name: place_of(s) for s in scenario.services},
        tasks=tuple(
            ScheduledTask(
                job=t.task,
                machine=t.machine,
                cores=t.cores,
                threads=t.threads,
                start_s=t.start_s if t.after is None else None,
                after=t.after,
                request_milli=t.width_milli,
            )
            for t in plan.tasks
        ),
    )


def schedule_text(schedule: Schedule, description: str) -> str:
    """The schedule file."""
    lines = [
        "apiVersion: flowsched/v1",
        "kind: Schedule",
        f"name: {_quoted(schedule.name)}",
        f"description: {_quoted(description)}",
        f"cluster: {_quoted(schedule.cluster)}",
        "",
        "tasks:",
    ]
    for t in schedule.tasks:
        start = f"after: {_quoted(t.after)}" if t.after is not None else f"start_s: {t.start_s!r}"
        request = "" if t.request_milli is None else f", request: {_request(t.request_milli)}"
        cores = format_cores(t.cores)
        lines.append(
            f"  - {{job: {_quoted(t.job)}, machine: {_quoted(t.machine)}, "
            f'cores: "{cores}", threads: {t.threads}, {start}{request}}}'
        )
    return "\n".join(lines) + "\n"


def _request(milli: int) -> str:
    return str(milli // MILLI) if milli % MILLI == 0 else f"{milli}m"


def _quoted(text: str) -> str:
    """Plain where YAML takes it as text, else in double quotes."""
    plain = text and all(c.isalnum() or c in "-_." for c in text) and text[0].isalpha()
    if plain and text.lower() not in ("true", "false", "null", "yes", "no", "on", "off"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
