"""Compiled prices of machines and options against the model of one machine and against every option one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from round_parts import deciding_on

from builders import (
    HUNGRY,
    LARGE,
    SCALING,
    SERIAL,
    any_of,
    bound_rounds,
    catalogue,
    flow_scheduler,
    machine,
    rounds,
    running,
    service,
    snapshot,
    task,
)
from flowsched.cluster.compaction import compact
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI, Running, Snapshot, StartDelay
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.pricing.forecast_cache import ForecastCache
from flowsched.pricing.option_kernel import nth_least
from flowsched.round.assignment import PlacementOption
from flowsched.round.options import UNBOUNDED
from flowsched.round.passes import Deciding
from flowsched.round.round_model import Offered
from flowsched_models.forecast import Forecast as ModelForecast
from flowsched_models.forecast import Waiting, forecast
from flowsched_models.pace_table import PaceTable
from flowsched_models.profile import JobProfile
from flowsched_models.runtime import HostFactory, Resident

WIDTHS = st.sampled_from(((100, 1000), (250, 1000, 4000), (500,), (2000,)))


@st.composite
def moments(draw: st.DrawFn) -> Snapshot:
    """Rounds with light and heavy tasks, start delays and services that may share their cores."""
    drawn = draw(rounds(max_machines=2, max_pending=4, max_running=2))
    pending = tuple(
        replace(
            t,
            widths_milli=draw(WIDTHS),
            memory_mib=min(t.memory_mib, 3000),
            weight=draw(any_of(1.0, 1.0, 4.0)),
            min_utility=draw(any_of(None, None, 0.2)),
            machines=None,
        )
        for t in drawn.pending
    )
    delay = draw(any_of(StartDelay(), StartDelay(1.0, 3.0)))
    return replace(drawn, pending=pending, start_delay=delay, share_service_cores=draw(st.booleans()))


@st.composite
def colocations(draw: st.DrawFn, forecasts: ForecastCache, group: int) -> Colocation:
    """Arrivals in ways that the group has for them, now and later."""
    classes = range(len(forecasts.view.classes))
    ways = [(c, way) for c in classes for way in forecasts.ways(group, c)]
    if not ways:
        return ()
    arrivals = draw(st.lists(st.tuples(st.sampled_from(ways), st.integers(0, 2)), max_size=4))
    return tuple(sorted(Arrival(c, start_after, *way) for (c, way), start_after in arrivals))


def prices_of(now: Snapshot, table: PaceTable | None = None) -> FlowPrices:
    hosts = HostFactory(now.catalogue)
    forecasts = ForecastCache(compact(now, hosts), True, table or hosts.attached(PaceTable))
    return FlowPrices(forecasts, Settings())


def forecast_of(prices: FlowPrices, group: int, colocation: Colocation, there: Sequence[Resident]) -> ModelForecast:
    """What the model predicts of a machine with these residents once a co-location has joined them."""
    forecasts, here = prices.forecasts, prices.forecasts.view.groups[group]
    joining = [
        replace(forecasts.resident(group, a), ready_s=forecasts.delay_s(a.task_class, 0))
        if a.start_after == 0
        else forecasts.resident(group, a)
        for a in colocation
    ]
    today = [r for a, r in zip(colocation, joining, strict=True) if a.start_after == 0]
    later = [Waiting(r, a.start_after) for a, r in zip(colocation, joining, strict=True) if a.start_after > 0]
    return forecast(
        here.host,
        [*there, *today],
        later,
        free_cores=here.free_milli / MILLI - sum(r.weight for r in today),
        free_memory_mib=float(here.free_memory_mib) - sum(r.memory_mib for r in today),
        start_delay_s=forecasts.view.snapshot.start_delay.after_waiting_s,
    )


# --- co-locations -----------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(moments(), st.data())
def test_a_compiled_forecast_is_that_of_the_model(now: Snapshot, data: st.DataObject) -> None:
    prices = prices_of(now)
    forecasts, view = prices.forecasts, prices.forecasts.view
    for g, group in enumerate(view.groups):
        colocation = data.draw(colocations(forecasts, g))

        found = prices.forecast(g, colocation)

        if not forecasts.possible(g, colocation) or any(prices.variant(g, a) < 0 for a in colocation):
            assert found is None
            assert prices.machine_cost(g, colocation) == FORBIDDEN
            continue
        truth = forecast_of(prices, g, colocation, group.residents)
        there = len(group.residents)
        if not np.isfinite(truth.waiting_s).all():
            assert found is None
            continue
        assert found is not None
        joined, waited = iter(truth.residents_s[there:]), iter(truth.waiting_s)
        ends = [next(joined if a.start_after == 0 else waited) for a in colocation]
        bound = iter(truth.starts_s)
        starts = [0.0 if a.start_after == 0 else next(bound) for a in colocation]
        assert found.residents_s == pytest.approx(truth.residents_s[:there], rel=1e-9)
        assert found.arrivals_s == pytest.approx(ends, rel=1e-9)
        assert found.starts_s == pytest.approx(starts, rel=1e-9)
        assert found.peak_p95_us == pytest.approx(truth.peak_p95_us, rel=1e-9)


@st.composite
def beside_a_service(draw: st.DrawFn) -> Snapshot:
    """A machine with a service, tasks that are about to end or past their forecasts, and others that may join it."""
    known = LearntRunTimes()
    for k in range(draw(any_of(0, 0, 9))):
        known = known.with_end("night", "large", 0.5 + 0.1 * k)
    profile = st.sampled_from((HUNGRY, SCALING, SERIAL))
    there = [
        running(
            task(f"r{k}", draw(profile), cores=0.5, run_class=draw(any_of("", "night")), memory_mib=500),
            "m1",
            tuple(range(2, 8)),
            progress=draw(any_of(0.5, 0.9, 0.99, 1.0, 1.4)),
            threads=draw(any_of(1, 6)),
        )
        for k in range(draw(st.integers(1, 3)))
    ]
    return snapshot(
        [task(f"w{k}", draw(profile), widths_milli=(500,), memory_mib=500) for k in range(2)],
        [machine("m1", LARGE)],
        services=[service(cores=(0, 1), qps=20_000.0, slo_us=1e6)],
        running=there,
        start_delay=StartDelay(1.0, draw(any_of(0.0, 3.0, 10.0))),
        run_time_errors=draw(any_of(None, RunTimeErrors(), RunTimeErrors.of(40, 1.0))),
        learnt_run_times=known,
        now_s=100.0,
    )


@settings(max_examples=200)
@given(beside_a_service(), st.data())
def test_beside_services_what_runs_may_end_late(now: Snapshot, data: st.DataObject) -> None:
    """Where a job becomes loud after another one has gone, peaks are also those of a run in which all that run stay until
    their late ends.
    """
    prices = prices_of(now)
    (group,) = prices.forecasts.view.groups
    colocation = data.draw(colocations(prices.forecasts, 0))
    found = prices.forecast(0, colocation)
    if found is None:
        return
    estimates = [now.late_estimate(r, "large") for r in group.running]
    late = [r.at(e.scale, e.done, r.ready_s) for r, e in zip(group.residents, estimates, strict=True)]

    expected, careful = (forecast_of(prices, 0, colocation, there) for there in (group.residents, late))

    assert found.residents_s == pytest.approx(expected.residents_s[: len(late)], rel=1e-9)
    gone_s = [np.inf]
    for resident, other, end_s in zip(group.residents, late, expected.residents_s, strict=False):
        longer = other.scale * (1 - other.progress) - resident.scale * (1 - resident.progress)
        assert longer >= -1e-9
        gone_s += [end_s] if longer > 1e-9 else []
    begins_s = [
        begin_s + (now.start_delay.after_waiting_s if a.start_after else prices.forecasts.delay_s(a.task_class, 0))
        for begin_s, a in zip(found.starts_s, colocation, strict=True)
    ]
    ends_s = [
        *zip([0.0] * len(late), found.residents_s, strict=True),
        *zip(found.starts_s, found.arrivals_s, strict=True),
    ]
    for k, a in enumerate(colocation):
        others = (end_s for start_s, end_s in ends_s if start_s < found.starts_s[k] < end_s - 1e-6)
        if a.start_after and not any(others):
            begins_s[k] = 0.0  # it follows ends as they come
    most = np.maximum(expected.peak_p95_us, careful.peak_p95_us)
    if max(begins_s, default=0.0) > min(gone_s) + 1e-6:
        assert found.peak_p95_us == pytest.approx(most, rel=1e-9)
    assert expected.peak_p95_us[0] * (1 - 1e-9) <= found.peak_p95_us[0] <= most[0] * (1 + 1e-9)
    if now.run_time_errors is None and not now.learnt_run_times.in_use:
        assert gone_s == [np.inf] and found.peak_p95_us == pytest.approx(expected.peak_p95_us, rel=1e-9)


def test_a_task_that_would_break_a_goal_beside_another_waits_until_that_has_surely_gone() -> None:
    """Both are noisy, and the program of the one that waits begins 15 s after it is bound."""

    def at(progress: float, errors: RunTimeErrors | None) -> Snapshot:
        runs = running(task("r", HUNGRY, cores=1), "m1", (1, 2, 3), progress=progress, threads=3, width_milli=1000)
        return snapshot(
            [task("w", HUNGRY, cores=1, widths_milli=(1000,))],
            services=[service(qps=40_000.0, slo_us=550.0)],
            running=[runs],
            start_delay=StartDelay(1.0, 15.0),
            run_time_errors=errors,
            now_s=100.0,
        )

    def placed(now: Snapshot) -> int:
        return len(flow_scheduler().decide(now).placements)

    exact, usual = RunTimeErrors.of(10**6, 0.0), RunTimeErrors.of(40, 0.04)
    assert [placed(at(0.5, errors)) for errors in (None, exact, usual)] == [0, 0, 0], "both would be there"
    assert [placed(at(0.97, errors)) for errors in (None, exact)] == [1, 1]
    assert prices_of(at(0.97, usual)).base.ends_s[0, 0] < 15.0, "by the median it is gone as well"
    assert placed(at(0.97, usual)) == 0
    assert placed(replace(at(0.97, usual), services=())) == 1


@settings(max_examples=100)
@given(moments(), st.sampled_from((None, 50.0)), st.data())
def test_the_cost_of_a_machine_is_its_definition(now: Snapshot, goal_s: float | None, data: st.DataObject) -> None:
    prices = prices_of(now)
    if goal_s is not None:
        prices = prices.with_goal(goal_s)
    view, chosen = prices.forecasts.view, prices.settings
    for g, group in enumerate(view.groups):
        colocation = data.draw(colocations(prices.forecasts, g))
        cost, found = prices.machine_cost(g, colocation), prices.forecast(g, colocation)
        if found is None:
            assert cost == FORBIDDEN
            continue
        stay = [r for r, known in zip(group.residents, group.running, strict=True) if known.task.endless]
        settled = forecast(group.host, stay).peak_p95_us
        late = any(
            end > prices.goals.latest_s(a.task_class) for a, end in zip(colocation, found.arrivals_s, strict=True)
        )
        noisy = any(
            colocation and peak > s.slo_us and peak > lasting + 1e-9
            for s, peak, lasting in zip(group.services, found.peak_p95_us, settled, strict=True)
        )
        if late or noisy:
            assert cost == FORBIDDEN
            continue
        total = 0.0
        for s, peak in zip(group.services, found.peak_p95_us, strict=True):
            used = min(0.99, peak / s.slo_us)
            total += chosen.headroom_weight * used / (1.0 - used)
        for (elapsed, tau, weight), end in zip(prices.goals.of_running(g), found.residents_s, strict=True):
            total += weight * prices.goals.g(elapsed + end, tau)
        for a, end in zip(colocation, found.arrivals_s, strict=True):
            total += prices.goals.penalty(a, end)
            total += dict(view.classes[a.task_class].task.wishes).get(group.machine.name, 0.0)
        for one, other in combinations([dict(view.classes[a.task_class].task.counted) for a in colocation], 2):
            total += sum((one[n] + other[n]) / 2.0 for n in one.keys() & other.keys())
        assert cost == pytest.approx(total, rel=1e-9, abs=1e-12)


def test_a_goal_that_is_broken_for_now_is_no_leave_to_come() -> None:
    """What breaks it may stay longer than predicted, and what comes now is there then; beside what never ends, only what
    makes it worse has to stay away.
    """
    calm = replace(SCALING, name="calm", pressure=0.0)
    noisy = running(task("noisy", HUNGRY, cores=2), cores=(1, 2))
    endless = replace(noisy, task=replace(noisy.task, endless=True))

    def price(arriving: JobProfile, *there: Running, slo_us: float) -> float:
        now = snapshot(
            [task("arriving", arriving, cores=1, widths_milli=(1000,))],
            services=[service(slo_us=slo_us)],
            running=there,
            catalogue=catalogue((HUNGRY, SCALING, calm)),
        )
        return prices_of(now).machine_cost(0, (Arrival(0, 0, 1000),))

    alone_us, beside_us = (
        prices_of(snapshot(services=[service()], running=there)).base.peak_us[0, 0] for there in ((), (noisy,))
    )
    between_us = (alone_us + beside_us) / 2
    assert price(calm, noisy, slo_us=2 * beside_us) < FORBIDDEN
    assert price(calm, noisy, slo_us=between_us) == FORBIDDEN
    assert price(calm, endless, slo_us=between_us) < FORBIDDEN
    assert price(SCALING, endless, slo_us=between_us) == FORBIDDEN
    assert price(SCALING, slo_us=2 * beside_us) < FORBIDDEN


@settings(max_examples=60)
@given(moments(), st.data())
def test_neither_company_nor_memory_changes_a_cost(now: Snapshot, data: st.DataObject) -> None:
    """Priced together, one by one, with a fresh table, with one that knows other rounds, and under another goal first."""
    used = PaceTable()
    together, alone, later = prices_of(now), prices_of(now), prices_of(now, used)
    other = prices_of(now, used).with_goal(77.0)
    goal = alone.with_goal(31.0)
    for g in range(len(together.forecasts.view.groups)):
        asked = [data.draw(colocations(together.forecasts, g)) for _ in range(3)]
        for colocation in asked:
            other.machine_cost(g, colocation)
        costs = together.machine_costs(g, asked)
        assert costs == [alone.machine_cost(g, c) for c in asked] == [later.machine_cost(g, c) for c in asked]
        # Forecasts that were made under the own goals serve one goal for all.
        fresh = prices_of(now).with_goal(31.0)
        for c in asked:
            assert goal.machine_cost(g, c) == pytest.approx(fresh.machine_cost(g, c), rel=1e-9)


@settings(max_examples=60)
@given(moments(), st.data())
def test_a_price_of_a_weighted_task_grows_with_its_weight(now: Snapshot, data: st.DataObject) -> None:
    if not now.pending:
        return
    heavy = replace(now, pending=tuple(replace(t, weight=3.0 * t.weight) for t in now.pending))
    once, thrice = prices_of(now), prices_of(heavy)
    for g in range(len(once.forecasts.view.groups)):
        colocation = data.draw(colocations(once.forecasts, g))
        empty = once.machine_cost(g, ()), thrice.machine_cost(g, ())
        assert empty[0] == empty[1]
        found, cost = once.forecast(g, colocation), once.machine_cost(g, colocation)
        assert (thrice.machine_cost(g, colocation) == FORBIDDEN) == (cost == FORBIDDEN)
        if found is None or cost == FORBIDDEN:
            continue
        own = sum(once.goals.penalty(a, end) for a, end in zip(colocation, found.arrivals_s, strict=True))
        assert thrice.machine_cost(g, colocation) == pytest.approx(cost + 2.0 * own, rel=1e-9)


# --- options ----------------------------------------------------------------------------------------------


def book_some(deciding: Deciding, data: st.DataObject) -> list[int]:
    """Put random tasks where they may be; the tasks that are left."""
    model, plan = deciding.model, deciding.plan
    left = list(range(len(model.view.tasks)))
    for t in data.draw(st.lists(st.sampled_from(left), unique=True)) if left else ():
        found = [
            option
            for m in range(len(model.view.machines))
            for price, option in model.offers(plan, t, m)
            if price < FORBIDDEN
        ]
        if found:
            deciding.book(t, data.draw(st.sampled_from(found)))
            left.remove(t)
    return left


def offers(deciding: Deciding, task: int, machine: int) -> list[tuple[float, PlacementOption]]:
    """Options that wait for no more completions than there are jobs to complete."""
    model = deciding.model
    others = len(deciding.plan.colocation(machine, without=task))
    jobs = others + len(model.view.groups[model.view.group_of[machine]].running)
    found = model.offers(deciding.plan, task, machine)
    return [(price, option) for price, option in found if price < FORBIDDEN and option.start_after <= jobs]


def own_penalty(deciding: Deciding, task: int, option: PlacementOption) -> float:
    """What the task's own completion costs with an option, beside the rest of the plan."""
    model = deciding.model
    arrival = Arrival(model.view.class_of[task], *option[1:])
    together = joined(deciding.plan.colocation(option.machine, without=task), arrival)
    predicted = model.prices.forecast(model.view.group_of[option.machine], together)
    assert predicted is not None
    return model.prices.goals.penalty(arrival, predicted.arrivals_s[together.index(arrival)])


def check_options(deciding: Deciding, task: int, wanted: int) -> None:
    """Where they are exact, the cheapest options are those of every option one by one; elsewhere they are no cheaper."""
    model = deciding.model
    machines = range(len(model.view.machines))
    for m in machines:
        planned = deciding.plan.colocation(m)
        running = len(model.view.groups[model.view.group_of[m]].running)
        # Rounds plan a start only after completions that there are: forecasts let others begin once nothing runs.
        assume(all(a.start_after <= running + len(planned) - 1 for a in planned))
        assume(not planned or running or min(a.start_after for a in planned) == 0)
    offers_of = [offers(deciding, task, m) for m in machines]
    exact = np.array([min((p for p, _ in offered), default=FORBIDDEN) for offered in offers_of])
    # Rarely a later start lets others end earlier: its price is then below its own penalty, which bounds it.
    helps = any(price < own_penalty(deciding, task, o) - 1e-9 for offered in offers_of for price, o in offered)

    found = deciding.class_options([task], wanted, UNBOUNDED)[0]

    finite = np.isfinite(found.price)
    slack = 1e-9 * np.maximum(1.0, np.abs(exact[finite]))
    assert (found.price[finite] >= exact[finite] - slack).all()
    cheapest = np.sort(exact)[: min(wanted, len(exact))]
    assert helps or np.sort(found.price)[: len(cheapest)] == pytest.approx(cheapest, rel=1e-9, abs=1e-9)
    for m in np.flatnonzero(finite).tolist():
        option = deciding.option(task, found, m)
        offered = {o: price for price, o in model.offers(deciding.plan, task, m)}
        assert found.price[m] == pytest.approx(offered[option], rel=1e-9, abs=1e-9)


@settings(max_examples=150)
@given(moments(), st.sampled_from(Offered), st.sampled_from((1, 3)), st.integers(1, 3), st.data())
def test_the_cheapest_options_are_those_of_every_option_one_by_one(
    now: Snapshot, offered: Offered, slots: int, wanted: int, data: st.DataObject
) -> None:
    deciding = deciding_on(now, Settings(slots=slots), offered)
    for each in book_some(deciding, data):
        check_options(deciding, each, wanted)


@settings(max_examples=150)
@given(bound_rounds(), st.sampled_from((1, 3)), st.sampled_from((10.0, 600.0)), st.integers(1, 4), st.data())
def test_so_are_they_with_relations_devices_gangs_and_tasks_without_an_end(
    now: Snapshot, slots: int, due_age_s: float, wanted: int, data: st.DataObject
) -> None:
    deciding = deciding_on(now, Settings(slots=slots, due_age_s=due_age_s), Offered.WIDTHS)
    for each in book_some(deciding, data):
        check_options(deciding, each, wanted)


@settings(max_examples=60)
@given(moments(), st.data())
def test_taking_a_task_back_leaves_nothing_behind(now: Snapshot, data: st.DataObject) -> None:
    deciding, fresh = (deciding_on(now, Settings(), Offered.WIDTHS) for _ in range(2))
    left = book_some(deciding, data)
    for t in range(len(now.pending)):
        if t not in left:
            deciding.book(t, None)
    for t in range(len(now.pending)):
        again, first = (d.class_options([t], len(now.machines), UNBOUNDED)[0] for d in (deciding, fresh))
        assert again.price == pytest.approx(first.price, rel=1e-12)


@given(st.lists(st.sampled_from((-1.0, 0.0, 0.5, 2.0, np.inf)), min_size=1, max_size=12), st.data())
def test_the_nth_least_is_that_of_the_sorted_values(values: list[float], data: st.DataObject) -> None:
    n = data.draw(st.integers(0, len(values) - 1))
    reordered = np.array(values)
    assert nth_least(reordered, n) == sorted(values)[n]
    assert sorted(reordered) == sorted(values)
