"""One machine in motion, and the forecast that looks ahead with it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, LARGE, SMALL, any_of, profiles
from flowsched_models import execution_kernel
from flowsched_models.estimated_executions import EstimatedExecutions
from flowsched_models.execution import Execution, what_is_left
from flowsched_models.forecast import Waiting, forecast
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.ordered_pace_table import OrderedPaceTable
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import Host, HostFactory, Resident, ServiceLoad

HOSTS = HostFactory(CATALOGUE)
ALL = (0, 1, 2, 3)
ALONE = Resident("scaling", 1.0, 4, ALL, 1.0, 1000)
"""25 seconds alone on the small machine."""


def small() -> Host:
    return HOSTS.host("small")


@st.composite
def residents(draw: st.DrawFn, vcpus: int = 4) -> Resident:
    profile = draw(profiles())
    first = draw(st.integers(0, vcpus - 1))
    cores = draw(any_of(tuple(range(vcpus)), tuple(range(first, vcpus))))
    return Resident(
        profile.name,
        draw(any_of(0.01, 0.5, 1.0, 3.0)),
        profile.threads_for(len(cores)),
        cores,
        draw(any_of(0.1, 1.0, 2.0)),
        profile.memory_mib,
        draw(any_of(0.0, 0.3, 0.5, 0.95)),
        draw(any_of(0.0, 0.0, 1.0, 30.0)),
    )


@st.composite
def machines(draw: st.DrawFn) -> tuple[Host, list[Resident]]:
    type = draw(any_of(SMALL, LARGE))
    load = draw(any_of((), (ServiceLoad("cache", (0,), 1, 1.0, 25_000.0, "plain"),)))
    return HOSTS.host(type.name, load), draw(st.lists(residents(type.vcpus), max_size=4))


def run(machine: Execution[int]) -> dict[int, float]:
    ends: dict[int, float] = {}
    for _ in range(200):
        at = machine.next_event_s()
        if at == float("inf"):
            break
        for key in machine.advance(at):
            ends[key] = machine.now_s
    return ends


GIVEN = replace(
    CATALOGUE.jobs["serial"], name="given", work_s=1.0, serial_fraction=1.0, phase_order=PhaseOrder.SERIAL_FIRST,
    smt_gain=1.0, sensitivity=0.0,
)  # fmt: skip
"""A run time of one second, whatever runs beside it; it disturbs others."""
WITH_GIVEN = HostFactory(replace(CATALOGUE, jobs={**CATALOGUE.jobs, "given": GIVEN}))


@settings(max_examples=60)
@given(
    machines(),
    st.lists(st.tuples(any_of(0.25, 1.0, 3.0), st.integers(1, 4), st.integers(1, 8)), min_size=1, max_size=4),
)
def test_a_job_has_its_own_rate_where_its_neighbours_do_not_change_it(
    case: tuple[Host, list[Resident]], given_jobs: list[tuple[float, int, int]]
) -> None:
    like, beside = case
    host = Host(WITH_GIVEN.catalogue, like.machine_type, like.services)
    alone = [Resident("given", 1.0, threads, ALL[:cores], weight) for weight, cores, threads in given_jobs]
    occupants = [host.occupant(resident) for resident in (*beside, *alone)]

    rates = host.rates(tuple(occupants)).progress

    for occupant in occupants[: len(beside)]:
        assert host.own_rate(occupant) is None
    for occupant in occupants[len(beside) :]:
        assert host.own_rate(occupant) == pytest.approx(rates[occupant], rel=1e-15)


def test_rates_are_worked_out_together_only_where_one_job_changes_another() -> None:
    host = Host(WITH_GIVEN.catalogue, "small")
    machine: Execution[int] = Execution(host)
    for key in range(4):
        machine.start(key, Resident("given", 10.0 + key, 1, (key,), 1.0))

    assert run(machine) == {key: 10.0 + key for key in range(4)}
    assert host.remembered == 0

    machine.start(4, Resident("given", 5.0, 1, (0,), 1.0))
    machine.start(5, Resident("scaling", 0.1, 4, ALL, 1.0))
    assert run(machine)[4] == 18.0
    assert host.remembered > 0


@settings(max_examples=150)
@given(machines(), st.sampled_from((0.0, 1000.0)))
def test_a_forecast_is_the_execution_run_to_its_end(case: tuple[Host, list[Resident]], begin: float) -> None:
    host, here = case
    machine: Execution[int] = Execution(host, begin)
    for i, resident in enumerate(here):
        machine.start(i, replace(resident, ready_s=begin + resident.ready_s))

    ends = run(machine)
    ahead = forecast(host, here)

    assert sorted(ends) == list(range(len(here)))
    assert [ends[i] - begin for i in range(len(here))] == pytest.approx(ahead.residents_s, abs=1e-6)
    assert all(end >= r.ready_s for end, r in zip(ahead.residents_s, here, strict=True))
    assert ahead.waiting_s == ahead.starts_s == ()


@settings(max_examples=150)
@given(machines(), st.lists(st.floats(0.1, 20.0), max_size=10))
def test_looking_at_a_machine_changes_nothing(case: tuple[Host, list[Resident]], looks: list[float]) -> None:
    """Advancing in small steps comes to the same ends: work is conserved."""
    host, here = case
    machine: Execution[int] = Execution(host)
    for i, resident in enumerate(here):
        machine.start(i, resident)
    ends: dict[int, float] = {}
    for look in looks:
        target = machine.now_s + look
        while machine.now_s < target:
            ends |= dict.fromkeys(machine.advance(min(target, machine.next_event_s())), machine.now_s)
    ends |= run(machine)

    assert [ends[i] for i in range(len(here))] == pytest.approx(forecast(host, here).residents_s, rel=1e-6, abs=1e-6)


@settings(max_examples=100)
@given(machines())
def test_the_integral_of_the_rates_is_the_work(case: tuple[Host, list[Resident]]) -> None:
    """Progress is what the model's rates come to, event by event."""
    host, here = case
    machine: Execution[int] = Execution(host)
    for i, resident in enumerate(here):
        machine.start(i, resident)
    done = [r.progress for r in here]
    left = set(range(len(here)))
    for _ in range(200):
        at = machine.next_event_s()
        if at == float("inf"):
            break
        before = {i: machine.progress(i) for i in left}
        step = at - machine.now_s
        busy = busy_cpus(machine)
        finished = machine.advance(at)
        for i in left:
            gain = (1.0 if i in finished else machine.progress(i)) - before[i]
            done[i] += gain
            assert gain >= -1e-12
            assert i in busy or gain <= 1e-9
            assert not step or gain / step <= 1.0 / (0.99 * shortest_s(host, here[i])) + 1e-9
        left -= set(finished)

    assert not left
    assert done == pytest.approx([1.0] * len(here))


def busy_cpus(machine: Execution[Any]) -> dict[Any, float]:
    """CPUs that each job uses, now."""
    entries = machine._running()
    rates = machine.host.rates(tuple(sorted(e.now for e in entries.values())))
    return {key: rates.busy[entry.now] for key, entry in entries.items()}


def shortest_s(host: Host, resident: Resident) -> float:
    """Seconds for all of its work at the fastest rate of any of its stages."""
    job = CATALOGUE.jobs[resident.profile]
    times = []
    for progress in (0.0, job.serial_fraction):
        left = host.alone_s(resident.profile, resident.threads, resident.cores, resident.scale, progress)
        times.append(left / (1.0 - progress))
    return min(times)


def test_a_program_that_has_not_started_uses_nothing() -> None:
    machine: Execution[str] = Execution(small())
    machine.start("a", replace(ALONE, ready_s=5.0))
    machine.start("b", ALONE)

    assert set(busy_cpus(machine)) == {"b"}
    assert machine.next_event_s() == 5.0
    assert machine.advance(5.0) == []
    assert machine.progress("a") == 0.0
    assert machine.progress("b") == pytest.approx(0.2)
    assert set(busy_cpus(machine)) == {"a", "b"}


def test_a_phase_change_is_an_event_and_changes_the_neighbours_pace() -> None:
    machine: Execution[str] = Execution(small())
    machine.start("serial", Resident("serial", 1.0, 4, ALL, 1.0))

    assert machine.next_event_s() == pytest.approx(30.0)
    assert machine.advance(machine.next_event_s()) == []
    assert busy_cpus(machine)["serial"] == pytest.approx(4.0)
    assert machine.next_event_s() == pytest.approx(37.5)
    assert machine.advance(machine.next_event_s()) == ["serial"]
    assert machine.next_event_s() == float("inf")


def test_a_job_that_is_done_when_it_comes_ends_at_once() -> None:
    """Snapshots may say progress 1; a task that never ends makes a forecast run without end."""
    machine: Execution[int] = Execution(small())
    machine.start(0, replace(ALONE, progress=1.0))

    assert run(machine) == {0: 0.0}


def test_slowdown_multiplies_the_work() -> None:
    machine: Execution[str] = Execution(small())
    machine.start("a", ALONE, slowdown=1.5)

    assert machine.next_event_s() == pytest.approx(37.5)


def test_no_task_moves_past_an_event() -> None:
    machine: Execution[str] = Execution(small())
    machine.start("a", ALONE)

    with pytest.raises(ValueError, match="something happens at 25"):
        machine.advance(26.0)


def test_an_estimated_task_goes_on_beyond_its_forecast_and_uses_its_cores() -> None:
    """Each goes on at the pace of its last phase; one whose work is all serial stays in that."""
    machine: Execution[str] = Execution(small(), 0.0, ends=False)
    machine.start("a", ALONE)
    machine.start("b", Resident("serial", 3.0, 4, ALL, 1.0))
    while machine.next_event_s() < 1e6:
        assert machine.advance(machine.next_event_s()) == []
    begin = machine.now_s
    before = {name: machine.progress(name) for name in ("a", "b")}
    machine.advance(begin + 1e6)
    first = {name: machine.progress(name) for name in ("a", "b")}
    machine.advance(begin + 2e6)

    for name in first:
        done = machine.progress(name)
        assert first[name] > 1e3 and done - first[name] == pytest.approx(first[name] - before[name])
    assert set(busy_cpus(machine)) == {"a", "b"}


def test_a_wholly_serial_estimate_stays_on_one_core_beyond_its_forecast() -> None:
    serial = replace(CATALOGUE.jobs["serial"], serial_fraction=1.0 - 2.0**-40, phase_order=PhaseOrder.SERIAL_FIRST)
    host = HostFactory(replace(CATALOGUE, jobs={"fixed": replace(serial, name="fixed")})).host("small")
    machine: Execution[str] = Execution(host, 0.0, ends=False)
    machine.start("a", Resident("fixed", 1.0, 4, ALL, 1.0))
    whole_s = host.alone_s("fixed", 4, ALL)
    machine.advance(5.0 * whole_s)
    again: Execution[str] = Execution(host, 0.0, ends=False)
    again.start("a", Resident("fixed", 1.0, 4, ALL, 1.0, progress=machine.progress("a")))
    again.advance(whole_s)

    assert machine.progress("a") == pytest.approx(5.0) and again.progress("a") == pytest.approx(6.0)


@pytest.mark.parametrize("begin", [0.0, 1e6, 1.7e9])
@pytest.mark.parametrize("ends", [True, False])
def test_clocks_may_start_anywhere(begin: float, ends: bool) -> None:
    """Seconds since 1970 leave 0.2 microseconds to a float: every event must still be passed."""
    begin += 0.123
    machine: Execution[int] = Execution(small(), begin, ends=ends)
    for k in range(3):
        resident = Resident("serial", 0.37 + 0.11 * k, 4, ALL, 1.0, ready_s=begin + 1.0)
        machine.start(k, resident)
    for _ in range(20):
        at = machine.next_event_s()
        if at < float("inf"):
            machine.advance(at)

    assert machine.next_event_s() == float("inf")


# --- those who wait ---------------------------------------------------------------------------------------


def waiting(slot: int, weight: float = 1.0, memory_mib: int = 0, profile: str = "scaling") -> Waiting:
    return Waiting(Resident(profile, 1.0, 4, ALL, weight, memory_mib), slot)


@pytest.mark.parametrize("slot", [1, 2, 3])
def test_a_job_starts_after_as_many_completions_as_its_slot_says(slot: int) -> None:
    here = [replace(ALONE, scale=s) for s in (1.0, 2.0, 3.0)]

    ahead = forecast(small(), here, [waiting(slot)], free_cores=1.0, start_delay_s=2.0)

    assert ahead.starts_s[0] == pytest.approx(sorted(ahead.residents_s)[slot - 1])
    assert ahead.waiting_s[0] >= ahead.starts_s[0] + 2.0 + 25.0 - 1e-6


def test_a_job_waits_on_until_it_fits() -> None:
    here = [replace(ALONE, scale=s) for s in (1.0, 2.0, 3.0)]

    by_cpu = forecast(small(), here, [waiting(1, weight=3.0)], free_cores=1.0)
    by_memory = forecast(small(), here, [waiting(1, memory_mib=3000)], free_cores=4.0)

    assert by_cpu.starts_s[0] == pytest.approx(by_cpu.residents_s[1])
    assert by_memory.starts_s[0] == pytest.approx(by_memory.residents_s[2])


def test_an_idle_machine_starts_its_lowest_slot_at_once_and_in_turn() -> None:
    ahead = forecast(small(), [], [waiting(3), waiting(2), waiting(2)], free_cores=4.0)

    assert ahead.starts_s[1:] == (0.0, 0.0)
    assert ahead.starts_s[0] == pytest.approx(min(ahead.waiting_s[1:]))


def test_what_never_fits_never_starts() -> None:
    ahead = forecast(small(), [ALONE], [waiting(1, weight=9.0)], free_cores=3.0)

    assert ahead.waiting_s == ahead.starts_s == (float("inf"),)
    assert ahead.residents_s == pytest.approx((25.0,))


@pytest.mark.parametrize("slots", [(1, 1), (1, 2), (2, 1)])
def test_what_never_fits_keeps_no_other_from_starting(slots: tuple[int, int]) -> None:
    ahead = forecast(small(), [], [waiting(slots[0], weight=9.0), waiting(slots[1])], free_cores=4.0)

    assert ahead.starts_s == (float("inf"), 0.0)
    assert ahead.waiting_s[1] == pytest.approx(25.0)


@settings(max_examples=100)
@given(
    st.lists(residents(), max_size=3),
    st.lists(st.tuples(residents(), st.integers(1, 4)), min_size=1, max_size=3),
)
def test_waiting_jobs_start_at_completions_and_never_overcommit(
    here: list[Resident], queue: list[tuple[Resident, int]]
) -> None:
    here = [replace(r, progress=min(r.progress, 0.95)) for r in here]
    wait = [Waiting(replace(r, progress=0.0), slot) for r, slot in queue]
    free = 1.5
    memory = 8000.0
    ahead = forecast(small(), here, wait, free_cores=free, free_memory_mib=memory, start_delay_s=1.0)

    total = free + sum(r.weight for r in here)
    ends = [*ahead.residents_s, *ahead.waiting_s]
    for w, start, end in zip(wait, ahead.starts_s, ahead.waiting_s, strict=True):
        if start == float("inf"):
            continue
        assert end >= start + 1.0
        assert start == 0.0 or any(start == e for e in ends)
        alive = [e > start for e in ends]
        assert sum(e <= start for e in ends) >= w.slot or not any(alive[: len(here)])
        held = sum(r.weight for r, e in zip(here, ahead.residents_s, strict=True) if e > start)
        held += sum(
            o.resident.weight for o, s, e in zip(wait, ahead.starts_s, ahead.waiting_s, strict=True) if s <= start < e
        )
        assert held <= total + 1e-6
    assert (float("inf") in ahead.waiting_s) == any(
        w.resident.weight > total + 1e-6 or w.resident.memory_mib > memory + sum(r.memory_mib for r in here)
        for w in wait
    )


def test_the_peak_of_a_service_is_that_of_the_loudest_moment() -> None:
    host = HOSTS.host("small", (ServiceLoad("cache", (0,), 1, 1.0, 25_000.0, "plain"),))
    loud = Resident("hungry", 1.0, 2, (1, 2, 3), 1.0)

    idle = forecast(host, []).peak_p95_us[0]
    now = forecast(host, [loud]).peak_p95_us[0]
    later = forecast(host, [replace(ALONE, cores=(1, 2, 3), threads=3)], [Waiting(loud, 1)], free_cores=3.0)

    assert idle == host.rates(()).p95_us[0] < now
    assert later.peak_p95_us[0] == pytest.approx(now)


BUNDLED = load_catalogue()
FIXED = fixed_profile(BUNDLED, None)
MEASURED = HostFactory(replace(BUNDLED, jobs={**BUNDLED.jobs, FIXED.name: FIXED}))
"""Their numbers are such that sums depend on the order, in the last bit."""


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Host, list[Resident]]:
    """A machine and jobs for it, some of them equal, and some whose run time is given."""
    kind = BUNDLED.machine_types[draw(any_of("e2-standard-4", "e2-standard-8"))]
    load = draw(any_of((), (ServiceLoad("memcached", (0,), 1, 1.0, 20_000.0, "mcperf-sweep"),)))
    jobs = []
    for name in draw(st.lists(st.sampled_from((*sorted(BUNDLED.jobs), FIXED.name, FIXED.name)), max_size=5)):
        cores = tuple(range(draw(any_of(0, 1)), draw(any_of(2, kind.vcpus))))
        threads = MEASURED.catalogue.jobs[name].threads_for(len(cores))
        job = Resident(name, draw(any_of(0.013, 0.7, 3.1)), threads, cores, draw(any_of(0.3, 1.0, 1.7)), 64)
        job = replace(job, progress=draw(any_of(0.0, 0.0, 0.3)), ready_s=draw(any_of(0.0, 0.0, 2.2)))
        jobs += [job] * draw(any_of(1, 1, 3))
    return MEASURED.host(kind.name, load), jobs


@settings(max_examples=100, deadline=None)
@given(
    st.lists(crowds(), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.floats(0.0, 9.0) | st.just(0.0),
            st.sampled_from(("look", "start", "start", "stop", "leave", "ask", "add")),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_machines_that_move_together_do_bit_by_bit_what_each_would_do(
    given_machines: list[tuple[Host, list[Resident]]], steps: list[tuple[float, str]], short_of_room: bool
) -> None:
    """``short_of_room``: numbers of hosts and kinds become void all the time."""
    together = EstimatedExecutions()
    each: dict[str, Execution[int]] = {}
    waiting: list[tuple[str, Resident]] = []
    there: dict[int, str] = {}

    def moved(machine: Execution[int], ahead_s: float = 0.0) -> Execution[int]:
        while machine.now_s < now + ahead_s:
            machine.advance(min(now + ahead_s, machine.next_event_s()))
        return machine

    def add(number: int) -> None:
        host, jobs = given_machines[number % len(given_machines)]
        together.add(f"m{number}", host)
        each[f"m{number}"] = Execution(host, now, ends=False)
        waiting.extend((f"m{number}", job) for job in jobs)

    now = 0.0
    with pytest.MonkeyPatch.context() as small:
        if short_of_room:
            small.setattr(OrderedPaceTable, "begin_round", lambda self, _hosts, _kinds: self.__init__())
        for m in range(len(given_machines)):
            add(m)
        for number, (step, what) in enumerate(steps, len(given_machines)):
            now += step
            together.advance(now)
            if what == "start" and waiting:
                name, job = waiting.pop(0)
                key = min(set(range(len(there) + 1)) - there.keys())
                job = replace(job, ready_s=now + job.ready_s)
                moved(each[name]).start(key, job)
                together.start(name, key, job)
                there[key] = name
            elif what == "stop" and there:
                key = [*there][number % len(there)]
                name = there.pop(key)
                assert moved(each[name]).progress(key) == together.progress_of(name, key)
                together.stop(name, key)
                each[name].stop(key)
            elif what == "leave" and len(each) > 1:
                name = [*each][number % len(each)]
                del each[name]
                together.remove(name)
                there = {key: place for key, place in there.items() if place != name}
                waiting = [job for job in waiting if job[0] != name]
            elif what == "add":
                add(number)
            elif what == "ask":
                # What is asked of one job alone moves none of them, as the next look shows.
                for key, name in there.items():
                    alone = deepcopy(each[name], {id(each[name].host): each[name].host})
                    assert together.seen(name, key, now + 7.5) == pytest.approx(moved(alone, 7.5).progress(key))
            elif what == "look":
                progress = together.progress().of(np.array([*there], np.int64)).tolist()
                assert dict(zip(there, progress, strict=True)) == {
                    k: moved(each[name]).progress(k) for k, name in there.items()
                }
                for machine in each.values():
                    moved(machine)


@given(
    st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1e9) | st.floats(0.0, 1e-6))
    | st.tuples(st.just(1.0), st.integers(0, 2**34).map(lambda number: number / 1024))
)
def test_compiled_code_rounds_what_is_left_as_python_does(case: tuple[float, float]) -> None:
    assert execution_kernel.what_is_left(*case) == what_is_left(*case)


@settings(max_examples=30, deadline=None)
@given(machines(), st.lists(st.floats(0.0, 12.0), min_size=9, max_size=9), st.floats(5.0, 15.0))
def test_a_machine_that_is_seen_late_is_where_it_would_be(
    machine: tuple[Host, list[Resident]], starts: list[float], now_s: float
) -> None:
    host, jobs = machine
    began = sorted(zip(starts, range(len(jobs)), jobs, strict=False))[: len(jobs)]
    alone: Execution[int] = Execution(host, min([s for s, _, _ in began] + [now_s]), ends=False)
    for start_s, key, job in [*began, (now_s, -1, None)]:
        while alone.now_s < min(start_s, now_s):
            alone.advance(min(start_s, now_s, alone.next_event_s()))
        if job is not None:
            alone.start(key, job)
    together = EstimatedExecutions(now_s)
    together.add("m", host, began)
    progress = together.progress().by_row
    assert {key: progress[key] for _, key, _ in began} == {key: alone.progress(key) for _, key, _ in began}


GIVEN = Host(
    replace(
        CATALOGUE,
        jobs={
            **CATALOGUE.jobs,
            "given": JobProfile(
                "given",
                work_s=1.0,
                serial_fraction=1.0,
                phase_order=PhaseOrder.SERIAL_FIRST,
                smt_gain=1.0,
                sensitivity=0.0,
                pressure=0.0,
                oversubscription=0.0,
                memory_mib=1,
                speed={"small": 1.0},
                error=0.0,
            ),
        },
    ),
    "small",
)


@st.composite
def given_jobs(draw: st.DrawFn) -> list[tuple[int, int, int, int | None]]:
    """Seconds at which each starts, after which its program does, which it runs for, and at which it is stopped."""
    whole = st.integers(0, 20)
    stops = st.none() | st.integers(1, 25)
    jobs = draw(st.lists(st.tuples(whole, st.integers(0, 3), st.integers(1, 9), stops), max_size=6))
    return [(start, wait, run, stop if stop is None else start + stop) for start, wait, run, stop in jobs]


@settings(max_examples=60, deadline=None)
@given(given_jobs(), st.booleans())
def test_given_run_times_are_kept_whatever_comes_and_goes(
    jobs: list[tuple[int, int, int, int | None]], disturbed: bool
) -> None:
    """A neighbour whose rate depends on others makes all rates be worked out together; these jobs' stay their own."""
    machine: Execution[int] = Execution(GIVEN)
    if disturbed:
        machine.start(-1, Resident("scaling", 1e6, 1, (0,), 1.0, 1000))
    ends: dict[int, float] = {}

    def advance(to_s: float) -> None:
        while (event_s := machine.next_event_s()) <= to_s:
            ends.update((key, event_s) for key in machine.advance(event_s))
        machine.advance(to_s)

    moments = sorted({moment for start, _, _, stop in jobs for moment in (start, stop) if moment is not None})
    for moment in moments:
        advance(float(moment))
        for key, (start, wait, run, stop) in enumerate(jobs):
            if stop == moment and start + wait + run > stop:
                machine.stop(key)
            if start == moment:
                machine.start(key, Resident("given", float(run), 1, (1,), 1.0, ready_s=float(start + wait)))
    advance(100.0)
    assert ends == {
        key: start + wait + run
        for key, (start, wait, run, stop) in enumerate(jobs)
        if stop is None or start + wait + run <= stop
    }
