"""Profiles of jobs on GPUs as a YAML file, and what a user must know of their fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from flowsched_models.calibration.gpu_fit import STEPS, GpuFit
from flowsched_models.calibration.profiles_text import short, wrapped
from flowsched_models.catalogue import Catalogue
from flowsched_models.cell import Floats
from flowsched_models.measurements.gpu_throughputs import CITED, GpuThroughputs, TrainingJob
from flowsched_models.profiles import dump_catalogue
from flowsched_models.text_table import counted

_HEAD = """\
# Written by `flowsched calibrate`: measured and fitted, not typed in. Calibrate again rather than change numbers here.
#
# {title}
#
# {summary}
#
# {keys}
apiVersion: flowsched/v1
kind: Profiles
"""
_KEYS = f"""work_s: {STEPS:,} steps on the fastest GPU. speed: measured. links: spread over servers against packed,
measured; factors differ by model of GPU, so each has a class of links. device: sensitivity times pressure, least squares on
the log slow-downs of pairs on one GPU of all models. Assumed: one thread drives a job (serial_fraction 0.9999), memory,
error; device of jobs on several GPUs is that on one."""
_ALWAYS = ("serial_fraction", "smt_gain", "sensitivity", "pressure")


def gpu_profiles_text(fit: GpuFit, measured: GpuThroughputs, title: str) -> str:
    """The file's content."""
    jobs = {profile.name: profile for profile in fit.profiles.values()}
    known = Catalogue(jobs, {}, {}, CITED, {topology.name: topology for topology in fit.topologies})
    plain = dump_catalogue(known)
    document: dict[str, Any] = {"source": CITED, "jobs": {}, "gpu_topologies": {}}
    for job, profile in fit.profiles.items():
        document["jobs"][job.name] = {"source": _source(job, fit, measured), **_kept(plain["jobs"][profile.name])}
    for topology in fit.topologies:
        source = "Assumed: two servers of four GPUs as one machine, for the links that were measured over servers."
        document["gpu_topologies"][topology.name] = {"source": source, **plain["gpu_topologies"][topology.name]}
    body = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True, default_flow_style=None)
    summary = " ".join(line.strip() + "." for line in gpu_summary(fit, measured))
    return _HEAD.format(title=wrapped(title), summary=wrapped(summary), keys=wrapped(_KEYS)) + body


def gpu_summary(fit: GpuFit, measured: GpuThroughputs) -> list[str]:
    """What was measured, and how far the fit is from it."""
    ratios = sum(len(spread.keys() & measured.packed[job].keys()) for job, spread in measured.spread.items())
    lines = [
        f"{counted(len(fit.profiles), 'job')} on {counted(len(measured.gpus), 'model')} of GPU",
        f"  speeds: {sum(map(len, measured.packed.values()))} measured; {len(fit.assumed_speeds)} assumed, as on one GPU",
        f"  links: {ratios} measured; {fit.faster_spread} of them faster spread than packed, taken as even",
    ]
    if len(fit.errors):
        told = f"{_error(fit.errors)}; {_error(fit.constant_errors)} if all were the same"
        lines.append(f"  slow-downs of {counted(len(fit.errors), 'pair')} on one GPU, fitted to all: {told}")
    return lines


def _error(errors: Floats) -> str:
    median, p90 = 100.0 * np.percentile(np.abs(errors), (50, 90))
    return f"{median:.1f} % in the median, {p90:.1f} % at the 90th percentile"


def _source(job: TrainingJob, fit: GpuFit, measured: GpuThroughputs) -> str:
    rates = ", ".join(f"{rate:.4g} on {gpu}" for gpu, rate in sorted(measured.packed[job].items()))
    assumed = "".join(f"; *assumed* on {gpu}, as on one GPU" for other, gpu in fit.assumed_speeds if other == job)
    return f"{job}. Steps per second: {rates}{assumed}."


def _kept(value: Any, *, top: bool = True) -> Any:
    """Short numbers, and no key that has its default."""
    if isinstance(value, dict):
        kept = {key: _kept(inside, top=False) for key, inside in value.items()}
        return {key: inside for key, inside in kept.items() if inside or (top and key in _ALWAYS)}
    return short(value)
