"""What a search part's plan does to latency services and when all is done: the models asked again about a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched.assignment import Company, Newcomer
from flowsched.compaction import View, compact
from flowsched.inspector.account import SEARCH, Account, Part
from flowsched.inspector.again import POLICY, damaged, read_settings, snapshot_of
from flowsched.outlook import Outlook
from flowsched.policies.flow import FlowPolicy
from flowsched.policies.policy import Prices
from flowsched.prospect import Prospect
from flowsched.snapshot import Service
from flowsched_models.runtime import HostFactory


@dataclass(frozen=True)
class ServiceProspect:
    """What is predicted for a latency service."""

    machine: str
    goal_us: float
    """What its p95 must not exceed, in microseconds."""
    peak_p95_us: float | None
    """Highest p95 until all that is planned there is done; None where the plan cannot be."""


@dataclass(frozen=True)
class Prospects:
    """The predicted future of a record's machines."""

    services: Mapping[str, ServiceProspect]
    last_end_s: float | None
    """When the last task with an end is done, in seconds from the round; None if there is none."""


def prospects_of(account: Account) -> Prospects:
    """The future under a record's plans; where rounds go by priority, under the last search, which saw the most.

    Raises :class:`InputError` for a damaged record.
    """
    services: dict[str, ServiceProspect] = {}
    ends: list[float] = []
    for part in account.parts if account.policy == POLICY else ():
        if part.kind == SEARCH:
            snapshot = snapshot_of(account, part)
            with damaged(account, part):
                view = compact(snapshot, HostFactory(snapshot.catalogue))
                ends += _look(view, _prices(account, part, view), part, services)
    return Prospects(services, max(ends, default=None))


def standing_cost(account: Account, part: Part) -> float:
    """What a search's machines would cost with nobody but those who run there, in the prices it ended with.

    Raises :class:`InputError` for a damaged record.
    """
    snapshot = snapshot_of(account, part)
    with damaged(account, part):
        view = compact(snapshot, HostFactory(snapshot.catalogue))
        prices = _prices(account, part, view)
        return sum(group.size * prices.machine_cost(g, ()) for g, group in enumerate(view.groups))


def _prices(account: Account, part: Part, view: View) -> Prices:
    """The prices that a search ended with."""
    settings = read_settings(account)[0]
    prices = FlowPolicy(settings).price(Outlook(view, bool(part.plain.get("shares", False))))
    goal_s = part.plain.get("goal_s")
    # As the search does: a goal of 0 comes from rounds in which nobody has an end.
    return prices if goal_s is None else prices.with_goal(max(goal_s, 1e-3))


def _look(view: View, prices: Prices, part: Part, services: dict[str, ServiceProspect]) -> list[float]:
    companies = _companies(view, part)
    on: dict[str, list[Service]] = {}
    for service in view.snapshot.services:
        on.setdefault(service.machine, []).append(service)
    ends: list[float] = []
    for g, group in enumerate(view.groups):
        for name in (*(view.machines[m].name for m in group.members), *group.spares):
            company = companies.get(name, ())
            prospect = prices.prospect(g, company)
            for k, service in enumerate(on.get(name, ())):
                peak = None if prospect is None else prospect.peak_p95_us[k]
                services[service.name] = ServiceProspect(name, service.slo_us, peak)
            if prospect is not None:
                ends += _ends(view, g, company, prospect)
    return ends


def _companies(view: View, part: Part) -> dict[str, Company]:
    class_of = {task.name: view.class_of[t] for t, task in enumerate(view.tasks)}
    companies: dict[str, list[Newcomer]] = {}
    for entry in part.plain["plan"]:
        if entry["machine"] is not None:
            newcomer = Newcomer(class_of[entry["task"]], entry["slot"], entry["width_milli"])
            companies.setdefault(entry["machine"], []).append(newcomer)
    return {machine: tuple(sorted(company)) for machine, company in companies.items()}


def _ends(view: View, group: int, company: Company, prospect: Prospect) -> list[float]:
    running = zip(view.groups[group].running, prospect.residents_s, strict=True)
    joining = zip(company, prospect.newcomers_s, strict=True)
    return [
        *(end for r, end in running if not r.task.endless),
        *(end for n, end in joining if not view.classes[n.task_class].task.endless),
    ]
