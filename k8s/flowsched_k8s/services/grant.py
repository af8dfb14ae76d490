"""What a latency service was granted when it was bound: that much it keeps others off its node, whatever it says later.

It stands in a condition of the pod, written before the binding, where the next leader reads it. Users may change labels and
annotations of their pods, but not the status: the role ``edit`` does not have that right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from flowsched_k8s import names
from flowsched_k8s.objects import Pod, Struct
from flowsched_k8s.pods.readings import core_set
from flowsched_k8s.services.latency import ServiceWish
from flowsched_models.quantity import format_cores

LOAD, GOAL, PROFILE, CLIENT, CORES = "load", "goal", "profile", "client", "cores"
CLAIMS = (LOAD, GOAL, PROFILE, CLIENT, CORES)
"""What a pod may claim that it was not granted."""


@dataclass(frozen=True)
class Grant:
    """The goal that was kept when a service got its node, and its cores there."""

    node: str
    wish: ServiceWish
    """With the load of its goal, which is the ceiling of the load that it counts with."""
    threads: int
    cores: tuple[int, ...]

    def counted(self, qps: float | None, multiple: float, request_milli: int) -> ServiceWish:
        """What it counts as. ``qps``: its load now, None if that is not known; ``multiple``: how many times the load of its
        goal it may count with; ``request_milli``: what it requests now, since a smaller request pays for fewer cores.
        """
        load = self.wish.qps if qps is None else min(qps, self.wish.qps * multiple)
        return replace(self.wish, qps=load, width_milli=min(self.wish.width_milli, request_milli))


_Amount = Annotated[float, msgspec.Meta(gt=0.0, lt=1e15)]
_Count = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]


class _GrantMessage(Struct):
    """The message of the condition."""

    node: str
    profile: str
    client: str
    p95_us: _Amount
    qps: _Amount
    width_milli: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    threads: _Count
    cores: str


def written(grant: Grant) -> str:
    """A grant as the message of its condition."""
    wish = grant.wish
    return msgspec.json.encode(
        _GrantMessage(
            grant.node,
            wish.profile,
            wish.client,
            wish.slo_us,
            wish.qps,
            wish.width_milli,
            grant.threads,
            format_cores(grant.cores),
        )
    ).decode()


def read_grant(pod: Pod) -> Grant | None:
    """What a bound pod was granted on its node; None if its status does not say that it was granted anything there."""
    message = _condition(pod)
    if message is None:
        return None
    try:
        found = msgspec.json.decode(message, type=_GrantMessage)
    except msgspec.MsgspecError:
        return None
    if found.node != pod.spec.node_name:
        return None
    wish = ServiceWish(found.profile, found.p95_us, found.qps, found.client, found.width_milli)
    return Grant(found.node, wish, found.threads, core_set(found.cores))


def to_write(grant: Grant | None, pod: Pod) -> str | None:
    """What to write into a pod's status before it is bound: empty where a grant of an earlier attempt has to go, None for
    nothing.
    """
    if grant is not None:
        return written(grant)
    return None if _condition(pod) is None else ""


def _condition(pod: Pod) -> str | None:
    holds = (c.message for c in pod.status.conditions or () if c.type == names.GRANTED and c.status == "True")
    return next(holds, None)
