"""Room for jobs whose run time is given: who comes first, on which of equal machines, and who is overdue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import SCALING, SMALL, catalogue, flow_scheduler, machines, running, snapshot, task
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import apply_settings
from flowsched.cluster.snapshot import Reservation, Running, Snapshot, Task
from flowsched.pricing.forecast_cache import forecast_cache
from flowsched.relations.relation import TaskGroup
from flowsched.round.candidates import look
from flowsched.round.scheduler import begin_round
from flowsched.round.ties import in_steps
from flowsched_models.document import InputError
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.profile import JobProfile
from flowsched_models.runtime import HostFactory

WIDE_TYPE = replace(SMALL, name="wide", vcpus=16, memory_mib=64_000)
PLAIN = fixed_profile(replace(catalogue(()), machine_types={WIDE_TYPE.name: WIDE_TYPE}), None)
CATALOGUE = replace(catalogue((PLAIN,)), machine_types={WIDE_TYPE.name: WIDE_TYPE})


def plain(name: str, cores: int, run_s: float, **changes: object) -> Task:
    changes = {"memory_mib": 1, **changes}
    return task(name, PLAIN, cores=cores, widths_milli=(cores * 1000,), scale=run_s, **changes)


def busy(name: str, at: str, cores: int, left_s: float, first: int = 0, **changes: object) -> Running:
    return running(plain(name, cores, left_s, **changes), at, tuple(range(first, first + cores)), threads=cores)


def world(pending: list[Task], count: int, there: tuple[Running, ...] = (), **changes: object) -> Snapshot:
    return snapshot(pending, machines(count, WIDE_TYPE), running=there, catalogue=CATALOGUE, **changes)


def starts(found: Snapshot, **settings: object) -> dict[str, str]:
    return {p.task: p.machine for p in flow_scheduler(exact_limit=0, **settings).decide(found).placements}


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=20),
    st.lists(st.floats(-1e-12, 1e-12), min_size=20, max_size=20),
)
def test_equal_prices_are_equal_to_the_last_bit(prices: list[float], noise: list[float]) -> None:
    exact = np.round(np.array(prices), 3)
    near = exact * (1.0 + np.array(noise[: len(prices)]))
    stepped, dearest = in_steps(near), float(exact.max())
    assert np.abs(stepped - exact).max() <= 1e-7 * max(dearest, 1e-12) + 1e-9
    assert np.isposinf(in_steps(np.append(near, np.inf))[-1])


def test_tasks_with_an_end_leave_machines_whole_and_others_go_to_the_emptiest() -> None:
    there = (busy("there", "m1", 4, 500.0),)
    found = world([plain("next", 1, 400.0)], 3, there)
    assert starts(found) == {"next": "m1"}
    assert starts(found, scoring="pack") == {"next": "m1"}
    assert starts(found, scoring="spread")["next"] != "m1"
    stays = replace(found, pending=(replace(found.pending[0], endless=True),))
    assert starts(stays)["next"] != "m1"
    assert starts(stays, scoring="pack") == {"next": "m1"}


def test_of_equal_machines_it_takes_the_one_that_it_does_not_outlast() -> None:
    there = (busy("short", "m1", 8, 50.0), busy("long", "m2", 8, 900.0))
    assert starts(world([plain("next", 2, 800.0)], 3, there)) == {"next": "m2"}


def test_many_narrow_jobs_of_one_moment_and_of_many_fill_machines() -> None:
    found = world([], 20)
    for i in range(20):
        name = f"j{i:02d}"
        now = replace(found, now_s=float(i), pending=(plain(name, 1, 300.0, submit_s=float(i)),))
        here = starts(now)[name]
        taken = sum(r.machine == here for r in found.running)
        found = replace(now, pending=(), running=(*found.running, busy(name, here, 1, 300.0, taken, submit_s=float(i))))
    assert len({r.machine for r in found.running}) == 2


def test_where_not_all_fits_weight_over_run_time_says_who_is_first() -> None:
    there = (busy("there", "m1", 8, 1000.0),)
    pending = [plain("long", 8, 800.0), plain("short", 8, 100.0, submit_s=-1.0)]
    assert starts(world(pending, 1, there)) == {"short": "m1"}
    assert starts(world([replace(pending[0], weight=20.0), pending[1]], 1, there)) == {"long": "m1"}
    assert set(starts(world(pending, 2, there))) == {"long", "short"}, "all fits"


def test_long_plain_jobs_count_as_long_measured_ones_where_both_wait() -> None:
    def importance(*waiting: Task) -> float:
        found = replace(world(waiting, 1), catalogue=replace(CATALOGUE, jobs={p.name: p for p in (PLAIN, SCALING)}))
        hosts = HostFactory(found.catalogue)
        view = look(found, hosts, Settings())
        prices = begin_round(view, hosts, Settings()).model.prices
        return prices.goals.weight[view.class_of[[t.name for t in view.tasks].index("mine")]]

    mine, beside = plain("mine", 1, 240.0), plain("beside", 1, 60.0)
    assert importance(mine, beside) == 1.0
    assert importance(mine, replace(beside, profile=SCALING.name)) == pytest.approx(8.0)


def test_what_a_running_plain_job_is_worth_does_not_depend_on_rounds_before() -> None:
    jobs = {p.name: p for p in (PLAIN, SCALING)}
    first = replace(
        world([plain("w", 1, 60.0)], 1, (busy("r", "m1", 1, 240.0),)), catalogue=replace(CATALOGUE, jobs=jobs)
    )
    second = replace(first, pending=(replace(first.pending[0], profile=SCALING.name),))
    kept = HostFactory(first.catalogue)

    def worth(now: Snapshot, hosts: HostFactory) -> list[list[float]]:
        return begin_round(look(now, hosts, Settings()), hosts, Settings()).model.prices.goals.of_running(0)

    fresh = [worth(now, HostFactory(now.catalogue)) for now in (first, second)]
    assert [worth(now, kept) for now in (first, second)] == fresh
    assert fresh[0] != fresh[1]


def test_length_counts_for_measured_jobs_only_unless_it_is_set() -> None:
    assert [Settings().length_exponent(plain) for plain in (True, False)] == [0.0, 1.5]
    fixed = apply_settings(Settings(), ["length_weight=1"])
    assert [fixed.length_exponent(plain) for plain in (True, False)] == [1.0, 1.0]
    assert apply_settings(fixed, ["length_weight=auto"]).length_weight == "auto"
    for text, said in (
        ("long", "'long' is not 'auto' or a number"),
        ("11", "11 is not 'auto' or a number from 0 to 10"),
    ):
        with pytest.raises(InputError) as caught:
            apply_settings(Settings(), [f"length_weight={text}"])
        assert said in str(caught.value)
    assert PLAIN.is_plain
    assert not SCALING.is_plain
    assert replace(PLAIN, pressure=0.1).is_plain
    assert not replace(PLAIN, sensitivity=0.1).is_plain


@pytest.mark.parametrize(
    ("profile", "cores_s"), [(PLAIN, 8 * 100.0 + 4 * 50.0), (replace(PLAIN, sensitivity=0.1), 150.0)]
)
def test_the_backlog_has_all_cores_that_a_plain_job_holds(profile: JobProfile, cores_s: float) -> None:
    found = world([plain("waits", 8, 100.0)], 1, (busy("there", "m1", 4, 50.0),))
    found = replace(found, catalogue=replace(CATALOGUE, jobs={profile.name: profile}))
    hosts = HostFactory(found.catalogue)
    assert forecast_cache(look(found, hosts, Settings()), Settings(), hosts).backlog_s == pytest.approx(cores_s / 16)


@pytest.mark.parametrize(
    ("run_s", "age_s"), [(None, 600.0), (1.0, 600.0), (54.0, 600.0), (100.0, 1060.0), (1e9, 86_400.0)]
)
def test_a_task_is_overdue_after_its_own_age(run_s: float | None, age_s: float) -> None:
    assert Settings().overdue_age_s(run_s) == age_s
    assert Settings(due_runs=0.0).overdue_age_s(run_s) == 600.0
    assert Settings(due_age_s=1e6).overdue_age_s(run_s) == 1e6


def test_fairness_makes_tasks_overdue_sooner() -> None:
    half, first_come = Settings(fairness=0.5), Settings(fairness=1.0)
    assert [half.overdue_age_s(run_s) for run_s in (None, 1.0, 100.0)] == [600.0, 75.0, 132.5]
    assert [first_come.overdue_age_s(run_s) for run_s in (None, 1.0, 1e9)] == [600.0, 0.0, 0.0]
    assert Settings(fairness=0.5, due_runs=0.0).overdue_age_s(1.0) == 75.0


def test_at_full_fairness_the_earliest_is_not_overtaken() -> None:
    there = (busy("there", "m1", 8, 100.0), busy("beside", "m2", 8, 500.0))
    wide = [plain("wide", 16, 800.0, submit_s=-5.0), plain("next", 16, 10.0, submit_s=-1.0)]
    found = world([*wide, plain("narrow", 1, 600.0), plain("brief", 1, 50.0)], 2, there, now_s=1.0)
    assert set(starts(found, slots=1)) == {"narrow", "brief"}
    assert set(starts(found, slots=1, fairness=1.0)) == {"brief"}, "it ends before the turns of both"


def test_a_machine_is_kept_for_the_first_in_turn_that_has_room_nowhere() -> None:
    """Narrow tasks would take the room that it waits for, one after the other."""
    there = (busy("there", "m1", 8, 100.0), busy("beside", "m2", 12, 500.0))
    pending = [plain("wide", 16, 30.0), plain("later", 16, 90.0), plain("narrow", 4, 200.0)]
    never = plain("never", 64, 10.0)
    found = world([never, *pending, plain("brief", 2, 50.0, machines=("m1",))], 2, there)
    decided = flow_scheduler(exact_limit=0).decide(found)
    assert {p.task: p.machine for p in decided.placements} == {"narrow": "m2", "brief": "m1"}
    reasons = {p.task: p.reason for p in decided.postponements}
    assert reasons["wide"] == "comes next, and m1 is reserved for it, predicted to be free in about 100 s"
    assert decided.reservations == (), "the next round asks anew"
    assert set(starts(replace(found, pending=found.pending[3:]))) == {"narrow", "brief"}


def test_who_is_offered_places_first_where_not_all_fits() -> None:
    """Short, wide and patient ones; measured tasks by weight over run time alone."""

    def first(*tasks: Task, profile: JobProfile = PLAIN) -> str:
        found = world(tasks, 1, (busy("there", "m1", 8, 100.0),), now_s=100.0)
        found = replace(found, catalogue=replace(CATALOGUE, jobs={profile.name: profile}))
        (name,) = starts(found)
        return name

    now = {"submit_s": 100.0}
    assert first(plain("long", 8, 90.0, **now), plain("short", 8, 60.0, **now)) == "short"
    assert first(plain("wide", 8, 90.0, **now), plain("short", 5, 80.0, **now)) == "wide"
    assert first(plain("waited", 8, 90.0, submit_s=10.0), plain("short", 8, 60.0, **now)) == "waited"
    assert first(plain("heavy", 8, 90.0, weight=2.0, **now), plain("short", 8, 60.0, **now)) == "heavy"


@pytest.mark.parametrize("key", ["due_age_s=60", "due_runs=3"])
def test_full_fairness_beside_an_overdue_age_is_refused(key: str) -> None:
    with pytest.raises(InputError) as caught:
        apply_settings(Settings(), ["fairness=1", key])
    assert f"{key.partition('=')[0]} would have no effect" in str(caught.value)
    assert apply_settings(Settings(), ["fairness=0.9", key]).fairness == 0.9


def full(count: int) -> tuple[Running, ...]:
    return tuple(busy(f"there-{i}", f"m{i}", 16, 500.0 + i) for i in range(1, count + 1))


def overdue(count: int, **changes: object) -> list[Task]:
    return [plain(f"due-{i}", 16, 100.0, submit_s=-2000.0 + i, **changes) for i in range(count)]


def test_four_overdue_tasks_hold_machines_of_their_own() -> None:
    held = flow_scheduler(exact_limit=0).decide(world(overdue(6), 6, full(6))).reservations
    assert [r.task for r in held] == ["due-0", "due-1", "due-2", "due-3"]
    assert len({r.machine for r in held}) == 4
    again = flow_scheduler(exact_limit=0).decide(world(overdue(6), 6, full(6), reservations=held)).reservations
    assert again == held, "they are kept"


def test_a_reservation_is_kept_where_the_run_time_is_now_estimated_to_be_longer() -> None:
    held = (Reservation("due-0", "m1", 16_000, 501.0),)
    longer = [replace(t, scale=190.0) for t in overdue(1)]
    assert flow_scheduler(exact_limit=0).decide(world(longer, 2, full(2), reservations=held)).reservations == held


def test_a_gang_beside_reservations_is_decided() -> None:
    group = TaskGroup("team", 2)
    members = [plain(f"t{i}", 16, 30.0, group="team") for i in range(2)]
    found = world([*overdue(1), *members], 4, full(2), task_groups=(group,))
    narrow = replace(found, pending=(replace(found.pending[0], machines=("m1",)), *members))
    decided = flow_scheduler(exact_limit=0).decide(narrow)
    assert [(r.task, r.machine) for r in decided.reservations] == [("due-0", "m1")]
    assert {p.task for p in decided.placements} == {"t0", "t1"}


def test_an_overdue_gang_has_its_turn_after_an_overdue_task() -> None:
    group = TaskGroup("team", 2)
    members = [plain(f"t{i}", 16, 30.0, submit_s=-1500.0, group="team") for i in range(2)]
    found = world([*overdue(1), *members], 3, full(3), task_groups=(group,))
    held = flow_scheduler(exact_limit=0).decide(found).reservations
    assert sorted(r.task for r in held) == ["due-0", "t0", "t1"]
    assert len({r.machine for r in held}) == 3
