"""Profiles as a YAML file that says of every number where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from flowsched_models.calibration.calibration import Calibration
from flowsched_models.calibration.latency_score import errors as latency_errors
from flowsched_models.machine import MachineType
from flowsched_models.picked_fields import picked
from flowsched_models.profile import JobProfile
from flowsched_models.profiles import dump_catalogue
from flowsched_models.quantity import format_memory
from flowsched_models.text_table import counted
from flowsched_models.validation.score import Quantity, errors

_HEAD = """\
# Written by `flowsched calibrate`: fitted, not typed in. Fit again rather than change numbers here.
#
# {title}
#
# {summary}
#
# Keys: `flowsched calibrate` and the model are described in docs/calibration.md and docs/model.md.
"""


def profiles_text(calibration: Calibration, title: str) -> str:
    """The file's content."""
    document: dict[str, Any] = {"apiVersion": "flowsched/v1", "kind": "Profiles"}
    document["jobs"] = {n: _job(j, calibration) for n, j in sorted(calibration.catalogue.jobs.items())}
    services = {n: s for n, s in dump_catalogue(calibration.catalogue)["services"].items() if n in calibration.latency}
    if services:
        document["services"] = {n: _service(n, s, calibration) for n, s in sorted(services.items())}
    document["machine_types"] = {
        n: _machine(m, calibration) for n, m in sorted(calibration.catalogue.machine_types.items())
    }
    body = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True, default_flow_style=None)
    return _HEAD.format(title=wrapped(title), summary=wrapped(_summary(calibration))) + body


def _summary(calibration: Calibration) -> str:
    observed = calibration.observed
    executions = sum(len(p.jobs) for p in observed.played)
    runs = len({p.run for p in observed.played})
    text = (
        f"{counted(len(observed.groups), 'group')}, {counted(runs, 'run')} with {counted(executions, 'execution')},"
        f" {counted(len(observed.sweeps), 'point')} of thread sweeps."
    )
    found = errors(s for s in calibration.left_out if s.quantity is Quantity.DURATION)
    if found is not None:
        text += f" Run times of groups left out: {found.median:.1f} % in the median,"
        text += f" {found.p90:.1f} % at the 90th percentile."
    return text


def wrapped(text: str) -> str:
    """A text as lines of a comment, but for the first mark."""
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n# ".join(lines)


def _job(job: JobProfile, calibration: Calibration) -> dict[str, Any]:
    executions = sum(
        int((p.jobs == calibration.observed.jobs.index(job.name)).sum()) for p in calibration.observed.played
    )
    groups = {g for s in calibration.observed.sweeps if calibration.observed.jobs[s.job] == job.name for g in s.real_s}
    source = f"Fitted to {counted(executions, 'execution')} and the thread sweeps of {counted(len(groups), 'group')}."
    source += " Error: from groups left out." if calibration.left_out else " Error: assumed, as no group was left out."
    row: dict[str, Any] = {
        "source": source,
        "work_s": job.work_s,
        "serial_fraction": job.serial_fraction,
        "phase_order": job.phase_order.value,
        **picked(job, "smt_gain", "sensitivity", "pressure"),
        "memory": format_memory(job.memory_mib),
    }
    if job.oversubscription:
        row["oversubscription"] = job.oversubscription
    if job.threads_power_of_two:
        row["threads_power_of_two"] = True
    row["error"] = job.error
    if job.speed:
        row["speed"] = dict(job.speed)
    return row


def _service(name: str, plain: Mapping[str, Any], calibration: Calibration) -> dict[str, Any]:
    fitted = calibration.latency[name]
    left_out = latency_errors(s for s in fitted.scores if s.part == "sweep")
    source = f"Fitted to {len(fitted.fitted)} readings; curves describe {fitted.reference or 'the only cohort'}."
    if left_out.count:
        source += f" p95 in sweeps of groups left out: {left_out.median:.1f} % in the median."
    return {"source": source, **_said(plain)}


def _said(value: Any) -> Any:
    """Plain data with short numbers, without what says nothing: none, no, and nothing in it."""
    if isinstance(value, Mapping):
        return {k: _said(v) for k, v in value.items() if not (v is None or v is False or v in ({}, []))}
    return [_said(v) for v in value] if isinstance(value, list) else short(value)


def _machine(machine: MachineType, calibration: Calibration) -> dict[str, Any]:
    names = calibration.fitted.parameters.machine_types
    measured = "measured" if machine.name in names else "not measured itself"
    if machine.name == calibration.fitted.parameters.reference:
        measured = "the reference for speed and bandwidth"
    own = next((fit.source for fit in calibration.controlled if fit.machine.name == machine.name), None)
    return {
        "source": own or f"{machine.vcpus} vCPU; {measured}.",
        "vcpus": machine.vcpus,
        "memory": format_memory(machine.memory_mib),
        **picked(machine, "speed", "bandwidth", "smt", "error"),
    }


def short(value: Any) -> Any:
    """Numbers to four significant digits; whole ones as such."""
    if isinstance(value, float):
        short = float(f"{value:.4g}")
        return int(short) if short == int(short) and abs(short) >= 10 else short
    return value
