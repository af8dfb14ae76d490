"""DRMaestro's policies by name, with settings as they are typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from flowsched.disaggregation.scheduler import DisaggregationScheduler
from flowsched.disaggregation.settings import DisaggregationSettings
from flowsched.round.linear.choice import value_of
from flowsched.solvers.solver import Solver
from flowsched_models.document import InputError, name_help
from flowsched_models.runtime import HostFactory


@dataclass(frozen=True)
class DisaggregationPolicy:
    """One of them."""

    summary: str
    network_aware: bool = False
    joint: bool = False


DISAGGREGATION_POLICIES: Mapping[str, DisaggregationPolicy] = {
    "drmaestro": DisaggregationPolicy(
        "DRMaestro: CPU and memory by min-cost flow, then GPUs on any machine by another"
    ),
    "drmaestro-network": DisaggregationPolicy(
        "drmaestro, priced by the load of networks; placements that would miss their goal are postponed ten times at most",
        network_aware=True,
    ),
    "drmaestro-joint": DisaggregationPolicy(
        "drmaestro with one network for CPU and GPU instead of two phases", joint=True
    ),
}


def own_settings() -> tuple[tuple[str, Any], ...]:
    """Their settings with defaults."""
    usual = DisaggregationSettings()
    return tuple((field.name, getattr(usual, field.name)) for field in fields(DisaggregationSettings))


def chosen_settings(policy: str, assignments: Sequence[tuple[str, str]]) -> DisaggregationSettings:
    """Settings as ``(key, value)`` texts of ``--set``; raises :class:`InputError`, which names the option."""
    kinds = {field.name: str(field.type) for field in fields(DisaggregationSettings)}
    given: dict[str, Any] = {}
    for typed, text in assignments:
        key = typed.replace("-", "_")
        if key not in kinds:
            known = [f"{policy}.{name}" for name in kinds]
            message = f"the policy '{policy}' has no setting '{typed}'"
            raise InputError.one("--set", message, name_help(typed, known), key=f"{policy}.{typed}={text}")
        try:
            given[key] = value_of(text, kinds[key])
        except ValueError as error:
            raise InputError.one("--set", f"{policy}.{key} {error}") from error
    try:
        return DisaggregationSettings(**given)
    except ValueError as error:
        raise InputError.one("--set", f"{policy}.{error}") from error


def make_disaggregation(
    name: str,
    solver: Solver,
    settings: DisaggregationSettings | None = None,
    hosts: HostFactory | None = None,
    keep_records: bool = False,
) -> DisaggregationScheduler:
    """One of them as a scheduler."""
    policy = DISAGGREGATION_POLICIES[name]
    return DisaggregationScheduler(
        name,
        solver,
        settings,
        network_aware=policy.network_aware,
        joint=policy.joint,
        hosts=hosts,
        keep_records=keep_records,
    )
