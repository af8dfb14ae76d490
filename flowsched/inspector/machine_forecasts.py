"""What the plan of a record does to latency services and when all is done: the models asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched.cluster.compaction import View
from flowsched.cluster.snapshot import by_machine
from flowsched.inspector.re_solve import damaged, snapshot_of
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.terms import POLICY, read_settings
from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.forecast_cache import Forecast
from flowsched.round.round_model import RoundModel
from flowsched.round.round_record import rebuild_model


@dataclass(frozen=True)
class ServiceForecast:
    """What is predicted for a latency service."""

    machine: str
    goal_us: float
    """What its p95 must not exceed, in microseconds."""
    peak_p95_us: float | None
    """Highest p95 until all that is planned there is done; None where the plan cannot be."""


@dataclass(frozen=True)
class RoundForecast:
    """The predicted future of a record's machines."""

    services: Mapping[str, ServiceForecast]
    last_end_s: float | None
    """When the last task with an end is done, in seconds from the round; None if there is none."""


def forecasts_of(recorded: RecordView) -> RoundForecast:
    """The future under a record's plans; where rounds go by priority, under the last part, which saw the most.

    Raises :class:`InputError` for a damaged record.
    """
    services: dict[str, ServiceForecast] = {}
    ends: list[float] = []
    for part in recorded.parts if recorded.policy == POLICY else ():
        if part.by_forecasts:
            with damaged(recorded, part):
                ends += _look(_model(recorded, part), part, services)
    return RoundForecast(services, max(ends, default=None))


def residents_cost(recorded: RecordView, part: Part) -> float:
    """What a part's machines would cost with only what runs there, in the prices that it ended with.

    Raises :class:`InputError` for a damaged record.
    """
    with damaged(recorded, part):
        model = _model(recorded, part)
        groups = enumerate(model.view.groups)
        return sum(group.size * model.prices.machine_cost(g, ()) for g, group in groups)


def _model(recorded: RecordView, part: Part) -> RoundModel:
    settings = read_settings(recorded)[0]
    snapshot = snapshot_of(recorded, part)
    return rebuild_model(snapshot, settings, part.forecast.get("goal_s"))


def _look(model: RoundModel, part: Part, services: dict[str, ServiceForecast]) -> list[float]:
    view = model.view
    colocations = _colocations(view, part)
    on = by_machine(view.snapshot.services)
    ends: list[float] = []
    for g, group in enumerate(view.groups):
        for name in (*(view.machines[m].name for m in group.members), *group.spares):
            colocation = colocations.get(name, ())
            found = model.prices.forecast(g, colocation)
            for k, service in enumerate(on.get(name, ())):
                peak = None if found is None else found.peak_p95_us[k]
                services[service.name] = ServiceForecast(name, service.slo_us, peak)
            if found is not None:
                ends += _ends(view, g, colocation, found)
    return ends


def _colocations(view: View, part: Part) -> dict[str, Colocation]:
    class_of = {task.name: view.class_of[t] for t, task in enumerate(view.tasks)}
    arrivals: dict[str, list[Arrival]] = {}
    for task, planned in part.planned.items():
        arrivals.setdefault(planned[0], []).append(Arrival(class_of[task], *planned[1:]))
    return {machine: tuple(sorted(there)) for machine, there in arrivals.items()}


def _ends(view: View, group: int, colocation: Colocation, found: Forecast) -> list[float]:
    running = zip(view.groups[group].running, found.residents_s, strict=True)
    joining = zip(colocation, found.arrivals_s, strict=True)
    return [
        *(end for r, end in running if not r.task.endless),
        *(end for n, end in joining if not view.classes[n.task_class].task.endless),
    ]
