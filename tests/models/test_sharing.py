"""The compiled model: what holds of any sharing of cores, and that it says what it said uncompiled."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, HUNGRY, SCALING, SERIAL
from flowsched_models.catalogue import Catalogue
from flowsched_models.execution import Execution
from flowsched_models.lookahead import Entry, Lookahead
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import Host, HostFactory, Occupant, Resident, ServiceLoad, Stage

HOSTS = HostFactory(CATALOGUE)
JOBS = (SCALING, SERIAL, HUNGRY)


def stage_of(profile: JobProfile) -> Stage:
    return HOSTS.host("large").stage(profile.name, 0.5)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(JOBS), st.integers(1, 8), st.sampled_from((0.1, 1.0, 4.0))), min_size=1, max_size=4
    ),
    st.sampled_from(JOBS),
    st.floats(0.2, 3.9),
    st.floats(1.01, 2.0),
)
@example([(HUNGRY, 6, 4.0), (SCALING, 7, 0.1)], SCALING, 2.567, 1.569)  # the second gains what the first leaves
def test_no_task_gains_by_what_a_neighbour_uses_but_cpu_that_another_leaves(
    here: list[tuple[JobProfile, int, float]], neighbour: JobProfile, limit: float, more: float
) -> None:
    host = HOSTS.host("large")
    mine = tuple(Occupant(p.name, stage_of(p), threads, (0, 1, 2, 3), weight) for p, threads, weight in here)

    def beside(allowed: float) -> tuple[dict[Occupant, float], dict[Occupant, float], float]:
        other = Occupant(neighbour.name, stage_of(neighbour), 4, (4, 5, 6, 7), 1.0, allowed)
        rates = host.rates((*mine, other))
        return {o: rates.progress[o] for o in mine}, {o: rates.busy[o] for o in mine}, rates.busy[other]

    little, cpus, used = beside(limit)
    much, cpus_then, used_more = beside(min(4.0, limit * more))

    assert used_more >= used - 1e-9
    for task in mine:
        # A mixed task that is slowed down spends more of its time on one CPU, and those beside it get the rest.
        left = any(cpus_then[o] < cpus[o] - 1e-9 for o in mine if o != task and o.stage is Stage.MIXED)
        assert left or much[task] <= little[task] * (1 + 1e-9)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(JOBS), st.integers(1, 12), st.floats(0.1, 8.0)), min_size=1, max_size=5))
def test_cores_that_all_may_use_are_used_as_far_as_any_task_wants_them(
    jobs: list[tuple[JobProfile, int, float]],
) -> None:
    host = HOSTS.host("small")
    cores = (0, 1, 2, 3)
    crowd = tuple(Occupant(p.name, stage_of(p), threads, cores, weight) for p, threads, weight in jobs)

    used = host.rates(crowd).busy
    alone = [host.rates((o,)).busy[o] for o in crowd]

    # Mixed jobs that get less are parallel for longer and want more on average than they do alone.
    assert sum(used[o] for o in crowd) >= min(4.0, sum(alone)) - 1e-6
    assert sum(used[o] for o in crowd) <= 4.0 + 1e-6


def test_two_mixed_jobs_use_each_others_serial_moments() -> None:
    """Against the exact answer: two equal jobs that alternate between a serial and a parallel state at random.

    With serial work f and n cores, leaving a state takes exponentially distributed work of mean f or 1 - f.
    """
    f, n = 0.072, 8
    job = JobProfile("alternating", 100.0, f, PhaseOrder.MIXED, 1.0, 0.0, 0.0, 0)
    host = HostFactory(
        Catalogue({job.name: job}, {}, {"m": replace(CATALOGUE.machine_types["large"], smt=False)})
    ).host("m")
    twin = Occupant(job.name, Stage.MIXED, n, tuple(range(n)), 1.0)

    # States: how many of the two are serial. Rates of leaving, from the CPU that each gets there.
    both, one_parallel, one_serial, none = 2 * (n / 2) / (1 - f), (n - 1) / (1 - f), 1 / f, 2 / f
    p1 = both / one_serial
    p2 = p1 * one_parallel / none
    exact = (n * 1 + n * p1 + 2 * p2) / (1 + p1 + p2) / 2
    speed = CATALOGUE.speed("scaling", "large")

    pace = host.rates((twin, twin)).progress[twin] * job.work_s / speed

    assert pace == pytest.approx(exact, rel=0.025)
    halves = [Occupant(job.name, Stage.MIXED, 4, cores, 1.0) for cores in ((0, 1, 2, 3), (4, 5, 6, 7))]
    assert pace > host.rates(tuple(halves)).progress[halves[0]] * job.work_s / speed


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.floats(0.2, 3.0))
def test_a_draw_runs_longer_by_its_factor(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    ahead = Lookahead(HOSTS.host("small"), 100.0, 100_000, 0.0)
    entries = [
        Entry(JOBS[int(rng.integers(3))].name, 0.1, int(rng.integers(1, 6)), (0, 1, 2, 3), 1.0) for _ in range(3)
    ]

    both = ahead.run(entries, np.array([[1.0] * 3, [factor] * 3]))

    assert both.ends_s[1] == pytest.approx(both.ends_s[0] * factor, rel=1e-9)
    assert both.ends_s[0] == pytest.approx(ahead.run(entries).ends_s[0], rel=1e-12)


def test_who_starts_after_another_starts_at_its_end_and_what_does_not_fit_is_told() -> None:
    host = HOSTS.host("small")
    first, second = (
        Entry("scaling", 1.0, 4, (0, 1, 2, 3), 3.0, 6000),
        Entry("serial", 1.0, 2, (0, 1), 2.0, 6000, after=0),
    )

    outcome = Lookahead(host, 4.0, 8000, 5.0).run([first, second])

    assert outcome.fits
    assert outcome.starts_s[0].tolist() == [0.0, outcome.ends_s[0, 0]]
    machine: Execution[int] = Execution(host, outcome.ends_s[0, 0] + 5.0)
    machine.start(1, Resident("serial", 1.0, 2, (0, 1), 2.0))
    while True:
        if machine.advance(machine.next_event_s()):
            break
    assert outcome.ends_s[0, 1] == pytest.approx(machine.now_s)
    assert not Lookahead(host, 4.0, 8000, 5.0).run([first, replace(second, after=-1)]).fits
    assert not Lookahead(host, 4.0, 5000, 5.0).run([first, second]).fits


@given(st.integers(1, 6), st.floats(0.1, 4.0))
def test_a_service_is_left_alone_while_threads_find_other_cores(threads: int, weight: float) -> None:
    service = ServiceLoad("cache", (0,), 1, 1.0, 25_000.0, "plain")
    host = HOSTS.host("small", (service,))
    occupant = Occupant("scaling", Stage.PARALLEL, threads, (0, 1, 2, 3), weight)

    alone, beside = host.rates(()).p95_us[0], host.rates((occupant,)).p95_us[0]

    assert beside >= alone
    if threads > 3:
        more = host.rates((occupant._replace(weight=weight * 2),)).p95_us[0]
        assert alone < beside < more


UNCOMPILED = """
import json, sys
sys.modules["numba"] = None
sys.path.insert(0, {tests!r})
from builders import CATALOGUE
from flowsched_models.lookahead import Entry, Lookahead
from flowsched_models.runtime import HostFactory, ServiceLoad
service = ServiceLoad("cache", (0, 4), 2, 1.0, 25000.0, "plain")
host = HostFactory(CATALOGUE).host("large", (service,))
cores = [(1, 2, 3, 5, 6, 7), (2, 3, 4, 5), (0, 1, 2, 3, 4, 5, 6, 7), (6, 7)]
names = ["scaling", "serial", "hungry", "hungry"]
entries = [Entry(n, 0.3, 4, c, 0.5, 100, after=-1 if i < 3 else 1) for i, (n, c) in enumerate(zip(names, cores))]
out = Lookahead(host, 100.0, 100000, 2.0).run(entries)
assert sys.modules.get("numba") is None
print(json.dumps([out.ends_s.tolist(), out.starts_s.tolist(), out.peak_p95_us.tolist()]))
"""


def test_the_model_says_the_same_without_the_compiler(request: pytest.FixtureRequest) -> None:
    code = UNCOMPILED.format(tests=str(request.config.rootpath / "tests"))
    compiled = code.replace('sys.modules["numba"] = None\n', "").replace(
        'get("numba") is None', 'get("numba") is not None'
    )

    plain, fast = (
        json.loads(subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout)
        for text in (code, compiled)
    )

    for one, other in zip(plain, fast, strict=True):
        assert np.array(one) == pytest.approx(np.array(other), rel=1e-12)


def test_a_host_remembers_nothing_that_depends_on_the_order_it_was_asked_in() -> None:
    occupants = [
        Occupant("hungry", Stage.MIXED, t, c, 1.0) for t, c in ((2, (0, 1)), (4, (0, 1, 2, 3)), (3, (1, 2, 3)))
    ]
    one, other = (HostFactory(CATALOGUE).host("small") for _ in range(2))

    assert isinstance(one, Host)
    there = one.rates(tuple(occupants)).progress
    back = other.rates(tuple(reversed(occupants))).progress

    assert {o: there[o] for o in occupants} == {o: back[o] for o in occupants}
