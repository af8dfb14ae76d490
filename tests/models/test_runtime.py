"""What the run-time model must hold to, whatever shares a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders import CACHE, CATALOGUE, HUNGRY, LARGE, SCALING, SERIAL, SMALL, any_of, profiles
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import Host, HostFactory, Occupant, ServiceLoad, Stage

HOSTS = HostFactory(CATALOGUE)
TYPES = {t.name: t for t in (SMALL, LARGE)}
LOAD = ServiceLoad("cache", (0,), 1, 1.0, 25_000.0, "plain")


def stages(profile: JobProfile) -> tuple[Stage, ...]:
    return (Stage.MIXED,) if profile.phase_order is PhaseOrder.MIXED else (Stage.SERIAL, Stage.PARALLEL)


def batch_cores(host: Host) -> tuple[int, ...]:
    taken = {c for s in host.services for c in s.cores}
    return tuple(c for c in range(TYPES[host.machine_type].vcpus) if c not in taken)


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    services = draw(any_of((), (LOAD,), (replace(LOAD, cores=(1, 2), threads=2, weight=2.0),)))
    return HOSTS.host(draw(st.sampled_from(sorted(TYPES))), services)


@st.composite
def occupants(draw: st.DrawFn, cores: tuple[int, ...], shared: bool = False) -> Occupant:
    profile = draw(profiles())
    subset = st.lists(st.sampled_from(cores), min_size=1, unique=True).map(sorted).map(tuple)
    return Occupant(
        profile.name,
        draw(st.sampled_from(stages(profile))),
        draw(st.integers(1, 12)),
        cores if shared else draw(st.one_of(st.just(cores), subset)),
        draw(any_of(0.1, 0.25, 1.0, 2.0, 4.0)),
        draw(any_of(None, None, 0.5, 2.0)),
    )


@st.composite
def companies(draw: st.DrawFn, max_size: int = 5) -> tuple[Host, tuple[Occupant, ...]]:
    """All tasks on any cores, or, as the engine binds, all on all batch cores."""
    host = draw(hosts())
    shared = draw(st.booleans())
    one = occupants(batch_cores(host), shared)
    return host, tuple(draw(st.lists(one, min_size=1, max_size=max_size)))


def alike_or_apart(company: tuple[Occupant, ...]) -> bool:
    """Whether core sets are equal or have nothing in common."""
    sets = {o.cores for o in company}
    return sum(map(len, sets)) == len({c for cores in sets for c in cores})


def share(host: Host, occupant: Occupant, *others: Occupant) -> float:
    return host.rates((occupant, *others)).progress[occupant]


# --- the cores are all there is ---------------------------------------------------------------------------


@settings(max_examples=300)
@given(companies())
def test_no_task_uses_cores_that_are_not_there(case: tuple[Host, tuple[Occupant, ...]]) -> None:
    host, company = case
    busy = host.rates(company).busy

    assert all(busy[o] > 0.0 for o in company)
    assert all(busy[o] <= o.parallelism + 1e-9 for o in company)
    for cores in {o.cores for o in company} | {batch_cores(host)}:
        inside = [o for o in company if set(o.cores) <= set(cores)]
        assert sum(busy[o] for o in inside) <= len(cores) + 1e-9


@settings(max_examples=300)
@given(companies())
def test_no_task_is_faster_with_neighbours_than_alone(case: tuple[Host, tuple[Occupant, ...]]) -> None:
    """What the engine's lower bounds rest on."""
    host, company = case
    together = host.rates(company).progress

    for o in company:
        assert together[o] <= share(host, o) * (1 + 1e-9)
        assert together[o] > 0.0


@settings(max_examples=300)
@given(companies())
def test_time_alone_is_a_bound_on_every_stage(case: tuple[Host, tuple[Occupant, ...]]) -> None:
    host, company = case
    together = host.rates(company).progress

    for o in company:
        begin = CATALOGUE.jobs[o.profile].serial_fraction if o.stage is Stage.PARALLEL else 0.0
        end = CATALOGUE.jobs[o.profile].serial_fraction if o.stage is Stage.SERIAL else 1.0
        alone = host.alone_s(o.profile, o.threads, o.cores, 1.0, begin) - host.alone_s(
            o.profile, o.threads, o.cores, 1.0, end
        )
        assert (end - begin) / together[o] >= alone * (1 - 1e-9)


@settings(max_examples=200)
@given(hosts(), st.data())
def test_a_neighbour_on_cores_of_its_own_speeds_no_task_up(host: Host, data: st.DataObject) -> None:
    """Where core sets overlap in part, a sibling that gets busy may shift the others' threads in either direction."""
    cores = data.draw(st.permutations(batch_cores(host)))
    assume(len(cores) > 1)
    cut = data.draw(st.integers(1, len(cores) - 1))
    mine, left = tuple(sorted(cores[:cut])), tuple(sorted(cores[cut:]))
    company = tuple(data.draw(st.lists(occupants(mine, shared=True), min_size=1, max_size=4)))
    before = host.rates(company).progress
    after = host.rates((*company, data.draw(occupants(left)))).progress

    assert all(after[o] <= before[o] * (1 + 1e-9) for o in company)


@settings(max_examples=150)
@given(companies(), st.data())
def test_order_carries_no_meaning(case: tuple[Host, tuple[Occupant, ...]], data: st.DataObject) -> None:
    host, company = case
    fresh = HostFactory(CATALOGUE).host(host.machine_type, host.services)

    assert fresh.rates(tuple(data.draw(st.permutations(company)))) == host.rates(company)


@settings(max_examples=100)
@given(companies(3), st.integers(2, 4))
def test_equals_share_equally(case: tuple[Host, tuple[Occupant, ...]], count: int) -> None:
    """Rates are by kind of occupant; weights that differ by nothing that counts must not tell equals apart."""
    host, company = case
    assume(alike_or_apart(company))
    first, *others = company
    twins = [first._replace(weight=first.weight * (1 + k * 1e-12)) for k in range(count)]
    rates = host.rates((*twins, *others)).progress
    mean = sum(rates[t] for t in twins) / count

    assert all(rates[t] == pytest.approx(mean, rel=1e-6) for t in twins)


# --- what a job needs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [SCALING, SERIAL, HUNGRY], ids=lambda p: p.name)
def test_one_thread_on_the_reference_machine_needs_its_work(profile: JobProfile) -> None:
    host = HOSTS.host("small")

    assert host.alone_s(profile.name, 1, (0,)) == pytest.approx(profile.work_s)
    assert host.alone_s(profile.name, 1, (0, 1, 2, 3)) == pytest.approx(profile.work_s)
    assert host.alone_s(profile.name, 1, (2,), scale=0.5, progress=0.25) == pytest.approx(0.375 * profile.work_s)


def test_threads_speed_up_the_parallel_part_only() -> None:
    host = HOSTS.host("small")

    assert host.alone_s("scaling", 4, (0, 1, 2, 3)) == pytest.approx(25.0)
    assert host.alone_s("serial", 4, (0, 1, 2, 3)) == pytest.approx(30.0 + 30.0 / 4)
    assert host.alone_s("hungry", 4, (0, 1, 2, 3)) == pytest.approx(20.0 + 180.0 / 4)


def test_hardware_threads_give_what_the_profile_says() -> None:
    host = HOSTS.host("large")

    assert host.alone_s("scaling", 4, (0, 1, 2, 3)) == pytest.approx(100 / 1.25 / 4)
    assert host.alone_s("scaling", 2, (0, 4)) == pytest.approx(100 / 1.25 / 1.5)
    assert host.alone_s("scaling", 8, tuple(range(8))) == pytest.approx(100 / 1.25 / 6)


@given(st.sampled_from(("scaling", "serial", "hungry")), st.sampled_from(sorted(TYPES)), st.data())
def test_more_threads_up_to_the_cores_never_slow_a_job_down_alone(name: str, type: str, data: st.DataObject) -> None:
    host = HOSTS.host(type)
    n = data.draw(st.integers(1, TYPES[type].vcpus - 1))
    cores = tuple(range(TYPES[type].vcpus))

    assert host.alone_s(name, n + 1, cores) <= host.alone_s(name, n, cores) * (1 + 1e-9)


@given(st.integers(4, 32))
def test_more_threads_than_cores_give_no_larger_share(threads: int) -> None:
    host = HOSTS.host("small")
    cores = (0, 1, 2, 3)
    rival = Occupant("scaling", Stage.MIXED, 4, cores, 1.0)
    few = Occupant("scaling", Stage.MIXED, 4, cores, 1.0 + 1e-9)
    many = few._replace(threads=threads)

    assert share(host, many, rival) == pytest.approx(share(host, few, rival))


@pytest.mark.parametrize("weight", [1.0, 2.0, 3.0])
def test_contended_cores_are_split_by_weight(weight: float) -> None:
    host = HOSTS.host("small")
    cores = (0, 1, 2, 3)
    heavy = Occupant("scaling", Stage.MIXED, 4, cores, weight)
    light = Occupant("hungry", Stage.MIXED, 4, cores, 1.0)
    parallel = light._replace(profile="serial", stage=Stage.PARALLEL)

    busy = host.rates((heavy, parallel)).busy

    assert busy[heavy] / busy[parallel] == pytest.approx(weight)
    assert sum(busy.values()) == pytest.approx(4.0)


def test_a_serial_phase_leaves_its_neighbours_nearly_everything() -> None:
    host = HOSTS.host("small")
    cores = (0, 1, 2, 3)
    worker = Occupant("scaling", Stage.MIXED, 4, cores, 1.0)
    serial = Occupant("serial", Stage.SERIAL, 4, cores, 1.0)

    assert share(host, serial, worker) == pytest.approx(share(host, serial), rel=0.05)
    assert share(host, worker, serial) >= 0.74 * share(host, worker)
    parallel = serial._replace(stage=Stage.PARALLEL)
    assert share(host, worker, parallel) < 0.55 * share(host, worker)


def test_a_limit_caps_what_is_used() -> None:
    host = HOSTS.host("small")
    capped = Occupant("scaling", Stage.MIXED, 4, (0, 1, 2, 3), 1.0, 1.5)

    assert host.rates((capped,)).busy[capped] == pytest.approx(1.5)
    assert share(host, capped) == pytest.approx(1.5 / 100)


def test_oversubscription_costs_what_the_profile_says() -> None:
    job = replace(SCALING, oversubscription=0.15)
    host = HostFactory(replace(CATALOGUE, jobs={"scaling": job})).host("small")

    assert host.alone_s("scaling", 8, (0, 1, 2, 3)) == pytest.approx(25.0 * 1.15)
    assert host.alone_s("scaling", 4, (0, 1, 2, 3)) == pytest.approx(25.0)


# --- services ---------------------------------------------------------------------------------------------


@given(
    st.floats(0.0, 150_000.0),
    st.floats(0.0, 30_000.0),
    st.floats(0.0, 4.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 0.9),
    st.floats(0.0, 0.09),
    st.sampled_from(CACHE.curves),
)
def test_p95_grows_with_load_pressure_and_weight_share(
    qps: float, more_qps: float, pressure: float, more: float, weight: float, heavier: float, curve: object
) -> None:
    assert curve in CACHE.curves
    known = next(c for c in CACHE.curves if c == curve)
    here = CACHE.p95_us(known, qps, "plain", pressure, weight)

    assert here > 0.0
    assert CACHE.p95_us(known, qps + more_qps, "plain", pressure, weight) >= here * (1 - 1e-12)
    assert CACHE.p95_us(known, qps, "plain", pressure + more, weight) >= here
    assert CACHE.p95_us(known, qps, "plain", pressure, weight + heavier) >= here * (1 - 1e-12)


def test_p95_beyond_capacity_is_a_backlog_not_a_plateau() -> None:
    curve = CACHE.curves[0]

    assert curve.p95_us(2 * curve.qcap) > 9e6
    assert curve.p95_us(3 * curve.qcap) > curve.p95_us(2 * curve.qcap) + 9e6


@given(st.floats(0.0, 150_000.0), st.integers(1, 3))
def test_a_machine_and_a_profile_say_the_same_p95(qps: float, threads: int) -> None:
    cache = replace(CACHE, sensitivity=0.3, latency_factor={"small": 1.3}, capacity_factor={"small": 0.7})
    small = replace(SMALL, bandwidth=0.8)
    catalogue = replace(CATALOGUE, services={"cache": cache}, machine_types={"small": small})
    host = HostFactory(catalogue).host("small", (replace(LOAD, qps=qps),))
    neighbour = Occupant("hungry", Stage.PARALLEL, threads, (1, 2, 3), 1.0)
    pressure = HUNGRY.pressure * host.rates((neighbour,)).busy[neighbour] * small.bandwidth
    alone, beside = (
        cache.p95_us(cache.curves[0], qps, "plain", felt, machine_type="small") for felt in (0.0, pressure)
    )

    assert beside > alone
    assert host.rates(()).p95_us[0] == pytest.approx(alone, rel=1e-12)
    assert host.rates((neighbour,)).p95_us[0] == pytest.approx(beside, rel=1e-12)


@settings(max_examples=100)
@given(companies(4), st.data())
def test_a_neighbour_never_lowers_a_services_p95_beside_others_on_cores_of_their_own(
    case: tuple[Host, tuple[Occupant, ...]], data: st.DataObject
) -> None:
    host, company = case
    assume(host.services)
    quiet = host.rates(()).p95_us
    loud = host.rates(company).p95_us

    assert all(a >= b - 1e-9 for a, b in zip(loud, quiet, strict=True))


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_p95_grows_with_the_weight_on_a_services_cores(weight: float, more: float) -> None:
    host = HOSTS.host("small", (LOAD,))
    intruder = Occupant("serial", Stage.PARALLEL, 1, (0,), weight)

    heavier = host.rates((intruder._replace(weight=weight + more),)).p95_us

    assert heavier[0] >= host.rates((intruder,)).p95_us[0] - 1e-9
    assert host.rates((intruder,)).p95_us[0] > host.rates(()).p95_us[0]


def test_a_place_that_was_never_measured_has_an_estimate_between_its_neighbours() -> None:
    def alone(threads: int, cores: tuple[int, ...]) -> float:
        return HOSTS.host("large", (replace(LOAD, cores=cores, threads=threads),)).rates(()).p95_us[0]

    assert alone(3, (0, 1, 2)) <= alone(2, (0, 1)) <= alone(1, (0,))


def test_equal_hosts_are_one_host() -> None:
    assert HOSTS.host("small", (LOAD,)) is HOSTS.host("small", [LOAD])
    assert isinstance(TYPES["small"], MachineType)
