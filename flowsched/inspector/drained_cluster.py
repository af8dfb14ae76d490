"""The cluster once everything that ends has ended: what a task group finds there, and how long runs take there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flowsched.cluster.compaction import View
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.restored_round import RestoredRound, remembered
from flowsched.pricing.flow_prices import FlowPrices
from flowsched.pricing.forecast_cache import forecast_cache
from flowsched.round.assignment import Assignment
from flowsched.round.candidates import look
from flowsched.round.demands import Levels
from flowsched.round.gang import RoundGang, fit_now
from flowsched.round.round_model import RoundModel
from flowsched_models.runtime import HostFactory


@dataclass(frozen=True, eq=False)
class DrainedCluster:
    """Machines that hold only services and tasks without an end, and the tasks that wait."""

    model: RoundModel

    @property
    def view(self) -> View:
        """Its tasks and machines."""
        return self.model.view

    @property
    def prices(self) -> FlowPrices:
        """At each task's own goal."""
        return self.model.prices


@remembered
def drained_cluster(opened: RestoredRound) -> DrainedCluster:
    """The cluster without what ends, at the time of its round."""
    snapshot = opened.model.view.snapshot
    stay = tuple(r for r in snapshot.running if r.task.endless)
    return _open(opened, replace(_patient(snapshot), running=stay))


@remembered
def room_for(opened: RestoredRound, gang: RoundGang) -> int:
    """How many of a task group's needed members could start at once in the drained cluster."""
    world = drained_cluster(opened)
    number = {task.name: t for t, task in enumerate(world.view.tasks)}
    members = tuple(sorted(number[opened.model.view.tasks[t].name] for t in gang.members))

    def fits(count: int) -> bool:
        smaller = RoundGang(replace(gang.group, minimum=gang.running + count), gang.running, members)
        return bool(fit_now(world.model, smaller)[0])

    # Room for some is room for fewer, so halving finds the most. To fail takes far longer than to succeed: what cores and
    # memory rule out is not tried.
    tasks = [world.view.tasks[t] for t in members]
    width, memory = max(1, min(t.widths_milli[0] for t in tasks)), max(1, min(t.memory_mib for t in tasks))
    places = sum(
        len(g.members) * min(g.free_milli // width, g.free_memory_mib // memory)
        for g in world.view.groups
        if g.batch_cores
    )
    least, most = 0, min(gang.needed, len(members), max(0, places))
    if most and fits(most):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


@remembered
def can_be_reserved(opened: RestoredRound, gang: RoundGang) -> bool:
    """Whether a task group, if it were overdue and first, would start now or get a reservation for each needed member."""
    snapshot = _patient(opened.model.view.snapshot)
    names = {opened.model.view.tasks[t].name for t in gang.members}
    first, *others = (t for t in snapshot.pending if t.name in names)
    # One overdue member is enough: the scheduler asks the same for each.
    since_s = min(t.submit_s for t in (first, *others))
    due = replace(first, submit_s=since_s - 1.0)
    world = _open(opened, replace(snapshot, pending=(due, *others)))
    settings = replace(opened.settings, due_age_s=snapshot.now_s - since_s + 0.5, due_runs=0.0)
    nothing = Assignment([None] * len(world.view.tasks), world.view.class_of, len(world.view.machines))
    overdue = Levels(world.model, settings).settled(nothing).overdue
    return bool(overdue.must_start or overdue.reservations)


def _patient(snapshot: Snapshot) -> Snapshot:
    """Nothing is planned or reserved, and no utility is demanded: an overdue task demands none."""
    pending = tuple(replace(t, min_utility=None) for t in snapshot.pending)
    return replace(snapshot, pending=pending, plan=(), reservations=())


def _open(opened: RestoredRound, snapshot: Snapshot) -> DrainedCluster:
    hosts = HostFactory(snapshot.catalogue)
    view = look(snapshot, hosts, opened.settings)
    forecasts = forecast_cache(view, opened.settings, hosts)
    prices = FlowPrices(forecasts, opened.settings)
    return DrainedCluster(RoundModel(view, forecasts, prices, opened.settings.slots))
