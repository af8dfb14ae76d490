"""CPU weights in the units that Linux has for them: nice values, v1 shares, v2 weights."""

from __future__ import annotations

import math

from flowsched.node.allocation import LOWEST_WEIGHT

NICE_STEP = 1.25
"""Ratio of the weights of neighbouring nice values (``sched_prio_to_weight`` in Linux, within 2 %)."""
SHARES = (2, 262144)
"""Least and largest ``cpu.shares``."""
V2_WEIGHTS = (1, 10000)
"""Least and largest ``cpu.weight``."""
_DEFAULT_SHARES = 1024
_DEFAULT_V2 = 100


def is_lowest(weight: float) -> bool:
    """Whether it means: only what others leave."""
    return weight <= LOWEST_WEIGHT * 1.001


def nice_of(weight: float) -> int:
    """The nearest nice value, in [-20, 19]."""
    return min(19, max(-20, round(-math.log(weight) / math.log(NICE_STEP))))


def weight_of_nice(nice: int) -> float:
    """The weight of a nice value relative to nice 0."""
    return math.pow(NICE_STEP, -nice)


def shares_of(weight: float) -> int:
    """``cpu.shares`` of cgroup v1."""
    return min(SHARES[1], max(SHARES[0], round(weight * _DEFAULT_SHARES)))


def v2_of(weight: float) -> int:
    """``cpu.weight`` of cgroup v2 for a group among others of default 100."""
    return min(V2_WEIGHTS[1], max(V2_WEIGHTS[0], round(weight * _DEFAULT_V2)))


def kubelet_v2_of(shares: int) -> int:
    """``cpu.weight`` that kubelet gives for shares: [2, 262144] on [1, 10000] in a straight line.

    So 1024 shares are 39 and not the default of 100: a pod's group is to be compared with its siblings only in this scale
    (KEP-2254, cgroup v2).
    """
    shares = min(SHARES[1], max(SHARES[0], shares))
    return 1 + (shares - 2) * 9999 // 262142
