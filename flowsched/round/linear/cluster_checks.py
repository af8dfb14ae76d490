"""What a cluster refuses before it changes anything: amounts that its integers cannot hold, and what says two things."""

from __future__ import annotations

from math import inf, isnan

import numpy as np

from flowsched.cluster.task_class import MachineSpec, TaskClass
from flowsched.errors import EventError
from flowsched.support.arrays import FloatArray

_EXAMPLE = '(("memory", 512),)'
MOST_UNITS = 1 << 56
"""Most units of a resource, so that sums over what a round looks at stay below 2^63."""
MOST_MILLI = 10_000_000
"""Most CPU of one machine, so that tables by free CPU stay small."""
MOST_READING = 1e9
"""Most that a machine's own reading of a feature, or what one task adds to it, may be."""


def check_amounts(what: str, amounts: dict[str, int]) -> None:
    """Raise ``EventError`` for amounts by resource that cannot be counted. Less than nothing is allowed."""
    for resource, amount in amounts.items():
        if not isinstance(amount, (int, np.integer)):
            raise EventError(
                f"{what}: {resource} must be a whole number (of CPU in thousandths of a core), got {amount!r}"
            )
        if resource == "cpu" and amount > MOST_MILLI:
            raise EventError(
                f"{what} has {amount} of cpu; at most {MOST_MILLI} thousandths of a core are counted on one machine"
            )
        if not -MOST_UNITS <= amount <= MOST_UNITS:
            raise EventError(
                f"{what} has {amount} of {resource}; at most {MOST_UNITS} can be counted, a larger unit would help"
            )


def check_reading(machine: str, feature: str, value: float, limit: float) -> None:
    """Raise ``EventError`` for a machine's own reading of a feature, or its limit, that cannot be counted."""
    if not 0.0 <= value <= MOST_READING:
        raise EventError(f"machine {machine}: reading of {feature} must be from 0 to {MOST_READING:g}, got {value:g}")
    if isnan(limit) or limit < -MOST_READING:
        raise EventError(f"machine {machine}: limit of {feature} must be >= {-MOST_READING:g}, got {limit:g}")


def check_machine(spec: MachineSpec) -> None:
    """Raise ``EventError`` for a machine that joins and cannot be counted."""
    check_amounts(f"machine {spec.name}", dict(spec.allocatable))
    for feature, value in spec.readings.items():
        check_reading(spec.name, feature, value, 0.0)
    for feature, limit in spec.limits.items():
        check_reading(spec.name, feature, 0.0, limit)


def check_class(task_class: TaskClass) -> None:
    """Raise ``EventError`` for a class that turns up and says two things, or what cannot be counted."""
    name = f"class {task_class.name}"
    for attribute in ("needs", "selector", "slowness", "preferences"):
        value = getattr(task_class, attribute)
        if not isinstance(value, tuple):
            raise EventError(
                f"{name}: {attribute} must be a tuple of tuples, as in {_EXAMPLE}, got a {type(value).__name__}"
            )
    whole = (("cpu", task_class.width_milli), *task_class.needs, ("priority", task_class.priority))
    for resource, amount in whole:
        if not isinstance(amount, (int, np.integer)):
            raise EventError(
                f"{name}: {resource} must be a whole number (of CPU in thousandths of a core), got {amount!r}"
            )
    for what in ("sensitivity", "pressure"):
        if not 0.0 <= getattr(task_class, what) < inf:
            raise EventError(f"{name}: {what} must be a finite number >= 0, got {getattr(task_class, what):g}")
    resources = [resource for resource, _ in task_class.needs]
    if "cpu" in resources or len(set(resources)) < len(resources):
        raise EventError(f"{name} names a resource twice in {', '.join(resources)}; each once, and CPU as its width")
    for resource, amount in (("cpu", task_class.width_milli), *task_class.needs):
        if not 0 <= amount <= MOST_UNITS:
            raise EventError(f"{name}: {resource} must be from 0 to {MOST_UNITS}, got {amount}")
    if not task_class.run_s >= 0.0:
        raise EventError(f"{name}: run_s must be >= 0 (infinite without an end), got {task_class.run_s:g}")


def check_effects(name: str, effects: FloatArray) -> None:
    """Raise ``EventError`` for more than can be counted, where a policy says what one task adds. Finite already."""
    if effects.max(initial=0.0) > MOST_READING:
        raise EventError(f"class {name} adds {effects.max():g} to a feature; at most {MOST_READING:g} can be counted")
