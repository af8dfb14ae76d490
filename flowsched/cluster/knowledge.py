"""What a policy is told about tasks and machines, beside what every policy reads."""

from __future__ import annotations

from enum import StrEnum


class Knowledge(StrEnum):
    """One kind of knowledge. Requests, memory, relations, priorities and times of arrival are known to all policies."""

    RUN_TIMES = "run times"
    """How long a task would run alone on the cores that it is granted, as estimated, on each type of machine."""
    PROFILES = "profiles"
    """How a run time changes with the number of cores, so that the policy can choose it."""
    INTERFERENCE = "interference"
    """What tasks and services that share a machine do to each other."""
    DEMAND = "the demand"
    """Which shapes of task come, and how often."""
    INPUT = "places of input"
    """Which machines or racks hold the data that a task reads."""
    FUTURE = "the future"
    """Jobs that have not been submitted yet."""


def knowledge_of(policy: object) -> tuple[Knowledge, ...] | None:
    """What a policy, or its class, says in its attribute ``told``; None where that is missing or something else."""
    told = getattr(policy, "told", None)
    return told if isinstance(told, tuple) and all(isinstance(each, Knowledge) for each in told) else None


def knowledge_text(told: tuple[Knowledge, ...] | None) -> str:
    """For readers: ``run times, profiles``; of a policy that does not say, ``not stated``."""
    if told is None:
        return "not stated"
    return ", ".join(told) or "nothing"
