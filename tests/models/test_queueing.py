"""Queueing models: known closed forms, each other, and a published experiment with a middleware in front of memcached."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.middleware import (
    FITTED_CLIENTS,
    FITTED_PER_S,
    FITTED_THREADS,
    INSIDE_S,
    PUBLISHED,
    SERVERS,
    TRACE_CLIENTS,
    TRACE_PER_S,
    TRACE_SERVERS,
    TRACE_THREADS,
    comparison,
    fitted,
    main,
)
from benchmarks.queueing import (
    OpenQueue,
    Station,
    bounds,
    erlang_c,
    interactive_response_s,
    mean_value_analysis,
    normalisation_constants,
)

stations = st.lists(
    st.builds(
        Station,
        name=st.just("s"),
        demand_s=st.floats(1e-4, 1.0),
        servers=st.integers(1, 4),
        delay=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def test_erlang_c_has_its_known_values():
    # One server: arrivals that find it busy wait. Two: 2 rho^2 / (1 + rho). Ten: from tables.
    assert erlang_c(1, 0.6) == pytest.approx(0.6)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=5e-5)
    assert erlang_c(3, 0.0) == 0.0
    assert erlang_c(3, 3.0) == 1.0
    assert 0.0 < erlang_c(2000, 1950.0) < 1.0


def test_one_server_is_the_exponential_queue():
    queue = OpenQueue(arrival_rate=60.0, service_s=0.01)
    assert queue.mean_response_s == pytest.approx(1 / 40)
    assert queue.response_quantile_s(0.95) == pytest.approx(-math.log(0.05) / 40)


@given(st.floats(0.01, 0.99), st.integers(1, 60), st.floats(0.5, 0.999))
def test_the_quantile_is_where_the_tail_says(rho, servers, p):
    queue = OpenQueue(rho * servers / 0.02, 0.02, servers)
    t = queue.response_quantile_s(p)
    assert queue.response_tail(t) == pytest.approx(1 - p, rel=1e-6)
    assert queue.wait_quantile_s(p) <= t


@given(st.integers(1, 40), st.floats(0.05, 0.95))
def test_mean_response_is_the_area_under_the_tail(servers, rho):
    queue = OpenQueue(rho * servers, 1.0, servers)
    step, end = 0.01, 40.0 / min(1.0, servers * (1 - rho))
    count = int(end / step)
    area = step * (0.5 + math.fsum(queue.response_tail(k * step) for k in range(1, min(count, 20_000))))
    if count < 20_000:
        assert area == pytest.approx(queue.mean_response_s, rel=1e-3)


def test_an_overloaded_queue_has_no_finite_wait():
    queue = OpenQueue(101.0, 0.01)
    assert queue.mean_wait_s == queue.mean_response_s == math.inf
    assert queue.wait_quantile_s(0.5) == queue.response_quantile_s(0.5) == math.inf
    assert queue.response_tail(1e9) == 1.0


@given(st.integers(1, 6), st.integers(1, 30))
def test_balanced_networks_have_their_closed_form(count, customers):
    solution = mean_value_analysis([Station("s", 0.1)] * count, customers)
    assert solution.throughput == pytest.approx(customers / (0.1 * (customers + count - 1)))


@settings(deadline=None)
@given(stations, st.integers(1, 12), st.floats(0.0, 5.0))
def test_the_recursion_and_the_constants_agree(network, customers, think_s):
    by_recursion = mean_value_analysis(network, customers, think_s)
    by_constants = normalisation_constants(network, customers, think_s)
    assert by_recursion.throughput == pytest.approx(by_constants.throughput, rel=1e-6)
    assert by_recursion.residence_s == pytest.approx(by_constants.residence_s, rel=1e-5, abs=1e-12)


@settings(deadline=None)
@given(stations, st.integers(1, 40), st.floats(0.0, 5.0))
def test_laws_and_bounds_hold(network, customers, think_s):
    solution, limits = mean_value_analysis(network, customers, think_s), bounds(network, customers, think_s)
    assert limits.throughput_low * (1 - 1e-9) <= solution.throughput <= limits.throughput_high * (1 + 1e-9)
    assert solution.response_s >= limits.response_low_s * (1 - 1e-9) - 1e-12
    # Little's law over the whole network; the interactive response time law.
    assert sum(solution.queue) + solution.throughput * think_s == pytest.approx(customers)
    assert solution.response_s == pytest.approx(
        interactive_response_s(customers, solution.throughput, think_s), abs=1e-9
    )
    more = mean_value_analysis(network, customers + 1, think_s)
    assert more.throughput >= solution.throughput * (1 - 1e-6)


def test_as_many_servers_as_customers_are_a_delay():
    rest = Station("rest", 0.05)
    many = mean_value_analysis([Station("pool", 0.2, servers=64), rest], 40)
    delay = mean_value_analysis([Station("pool", 0.2, delay=True), rest], 40)
    assert many.throughput == pytest.approx(delay.throughput, rel=1e-9)


def test_thirty_two_servers_lose_no_digits():
    solution = mean_value_analysis([Station("pool", 0.32, servers=32), Station("net", 0.01, delay=True)], 400)
    assert solution.throughput == pytest.approx(100.0, rel=1e-9)
    assert sum(solution.queue) == pytest.approx(400, rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mean_value_analysis([], 3),
        lambda: mean_value_analysis([Station("s", 0.0)], 3),
        lambda: mean_value_analysis([Station("s", 1.0)], 0),
        lambda: mean_value_analysis([Station("s", 1.0)], 10**9),
        lambda: mean_value_analysis([Station("s", 1.0)], 3, -1.0),
        lambda: Station("s", -1.0),
        lambda: Station("s", math.nan),
        lambda: Station("s", 1.0, servers=0),
        lambda: OpenQueue(-1.0, 1.0),
        lambda: OpenQueue(1.0, 0.0),
        lambda: OpenQueue(1.0, 1.0, 1).wait_quantile_s(1.0),
        lambda: erlang_c(0, 1.0),
        lambda: interactive_response_s(10, 0.0),
    ],
)
def test_what_is_no_queue_is_refused(wrong):
    with pytest.raises(ValueError, match=r"must be|needs"):
        wrong()


def test_a_part_of_a_network_stands_as_one_station():
    """Flow equivalence: exact for networks whose solution is a product."""
    inner, rest = [Station("a", 0.02), Station("b", 0.05, delay=True)], Station("rest", 0.1)
    alone_s = mean_value_analysis(inner, 1).response_s
    speeds = tuple(mean_value_analysis(inner, n).throughput * alone_s for n in range(1, 25))
    one = mean_value_analysis([Station("inner", alone_s, speeds=speeds), rest], 24)
    whole = mean_value_analysis([*inner, rest], 24)
    assert one.throughput == pytest.approx(whole.throughput, rel=1e-9)
    assert one.residence_s[0] == pytest.approx(sum(whole.residence_s[:2]), rel=1e-9)


def test_more_than_half_of_a_request_is_outside_the_middleware():
    cycle_s = interactive_response_s(FITTED_CLIENTS, FITTED_PER_S)
    assert 1000 * cycle_s == pytest.approx(9.78, abs=0.005)
    assert cycle_s - INSIDE_S > cycle_s / 2


def test_the_model_splits_a_request_as_measured():
    solution = fitted().solved(FITTED_CLIENTS, FITTED_THREADS)
    assert solution.throughput == pytest.approx(FITTED_PER_S, rel=1e-5)
    assert sum(solution.residence_s[:SERVERS]) == pytest.approx(INSIDE_S, rel=1e-3)


@pytest.mark.parametrize(("clients", "threads"), [key for key in PUBLISHED if key != (FITTED_CLIENTS, FITTED_THREADS)])
def test_other_maxima_are_predicted_within_five_per_cent(clients, threads):
    measured, predicted = PUBLISHED[clients, threads], fitted().solved(clients, threads).throughput
    assert predicted == pytest.approx(measured, rel=0.05)
    assert predicted < measured  # Longer batches help a little, which the model does not know.


def test_with_few_threads_the_threads_are_what_requests_wait_for():
    few = fitted().solved(TRACE_CLIENTS, TRACE_THREADS, TRACE_SERVERS)
    assert few.throughput == pytest.approx(TRACE_PER_S, rel=0.15)
    many = fitted().solved(TRACE_CLIENTS, FITTED_THREADS, TRACE_SERVERS)
    assert many.throughput > 1.2 * few.throughput
    # At the best point requests wait for memcached: more threads bring nothing.
    assert fitted().solved(FITTED_CLIENTS, 64).throughput == pytest.approx(FITTED_PER_S, rel=1e-3)
    by_threads = [fitted().solved(180, threads).throughput for threads in (1, 4, 16, 32)]
    assert by_threads == sorted(by_threads)


def test_the_page_shows_what_the_command_prints():
    page = (Path(__file__).parents[2] / "docs" / "middleware.md").read_text(encoding="utf-8")
    assert comparison() in page
    printed = CliRunner().invoke(main, ["--clients", "180", "--threads", "1", "--threads", "32"]).output
    (row,) = (line for line in printed.splitlines() if line.startswith("  180 ") and len(line.split()) == 5)
    shown = next(line for line in page.splitlines() if line.startswith("  180 ") and len(line.split()) == 9)
    assert row.split()[1:3] == shown.split()[1:3] and row.split()[3:] == shown.split()[5:7]


@pytest.mark.parametrize(("throughput", "response_us"), [(79_949, 822), (119_360, 508), (100_081, 652)])
def test_a_saturated_sweep_is_a_closed_system_of_64_connections(throughput, response_us):
    # Mean response times that the published sweeps show beyond saturation, with one and two threads, in 2023 and 2024.
    assert interactive_response_s(64, throughput) * 1e6 == pytest.approx(response_us, rel=0.06)
