"""How long a pod without a profile is forecast to run: what ``flow`` prices it by, and sees of it where it runs."""

from __future__ import annotations

from dataclasses import replace

from flowsched.cluster.snapshot import MILLI
from flowsched_k8s import names
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.intent import Intent

LEAST_MILLI = MILLI
"""CPU that a pod without a profile must ask for to be seen by forecasts: a smaller one only takes its request away."""
_DIGITS = 2


def forecast_run_s(entry: PodEntry) -> float | None:
    """Seconds that a pod without a profile is forecast to run, wherever it is; None where nothing is known of that, and for
    pods that forecasts do not see or know otherwise: those with profiles, and those that ask for less than a core.

    It is what the pod declares, else what the first completion of its class has taught, at most until its deadline. What
    later ones teach is the factor of its class, as for pods with profiles.
    """
    intent = entry.intent
    run_s = intent.run_s
    if run_s is None and entry.learnt_s is not None:
        deadline_s = entry.pod.spec.active_deadline_seconds or 0
        run_s = entry.learnt_s if deadline_s <= 0 else min(entry.learnt_s, float(deadline_s))
    if run_s is None or intent.profile is not None or intent.service is not None or entry.request_milli < LEAST_MILLI:
        return None
    return rounded(run_s)


def keep_first(entry: PodEntry, read: Intent) -> Intent:
    """What a pod says, read again: a run time that was changed while it waits is not used, and one sentence says so. On a
    node the first one stays.
    """
    placed = bool(entry.place or entry.pod.spec.node_name)
    if entry.declared_s is None and not placed:
        entry.declared_s = read.run_s
    if read.run_s == entry.declared_s:
        return read
    if placed:
        return replace(read, run_s=entry.declared_s)
    if read.run_s is None:
        return read
    problem = f"{names.RUN_TIME} was changed while the pod waits and is not used; give it when the pod is created"
    return replace(read, run_s=None, problems=(*read.problems, problem))


def rounded(run_s: float) -> float:
    """A run time in two significant digits: more is seldom known, and pods that differ by less are one class."""
    return float(f"{run_s:.{_DIGITS - 1}e}")
