"""Many companies of one machine in one call: the same as one forecast each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, LARGE, SMALL, profiles, service
from flowsched.cluster import service_load
from flowsched_models.forecast import Waiting, forecast
from flowsched_models.forecaster import Forecaster
from flowsched_models.runtime import HostFactory, Resident


@st.composite
def jobs(draw: st.DrawFn) -> Resident:
    profile = draw(profiles())
    cores = draw(st.sampled_from(((0, 1, 2, 3), (1, 2, 3), (3,))))
    return Resident(
        profile.name,
        draw(st.sampled_from((0.1, 1.0))),
        profile.threads_for(len(cores)),
        cores,
        draw(st.sampled_from((0.1, 1.0, 2.0))),
        draw(st.sampled_from((10, 3000))),
        ready_s=draw(st.sampled_from((0.0, 2.0))),
    )


@settings(max_examples=60)
@given(
    st.sampled_from((SMALL, LARGE)),
    st.booleans(),
    st.lists(jobs(), max_size=2),
    st.lists(st.lists(st.tuples(jobs(), st.integers(0, 2)), max_size=4), min_size=1, max_size=4),
)
def test_a_batch_says_what_every_forecast_says(kind, served, standing, companies) -> None:  # type: ignore[no-untyped-def]
    host = HostFactory(CATALOGUE).host(kind.name, [service_load(service())] if served else [])
    standing = [replace(r, progress=0.4) for r in standing]
    asked = Forecaster(host, standing, free_cores=6.0, free_memory_mib=9000.0, start_delay_s=3.0)
    kinds = np.array([asked.kind(r) for company in companies for r, _ in company], np.int64)
    slots = np.array([slot for company in companies for _, slot in company], np.int64)
    first = np.cumsum([0, *(len(company) for company in companies)])

    for _ in range(2):  # the second time from memory
        futures = asked.run(kinds, slots, first)
        for b, company in enumerate(companies):
            now = [r for r, slot in company if slot == 0]
            later = [Waiting(r, slot) for r, slot in company if slot > 0]
            one = forecast(
                host,
                [*standing, *now],
                later,
                free_cores=6.0 - sum(r.weight for r in now),
                free_memory_mib=9000.0 - sum(r.memory_mib for r in now),
                start_delay_s=3.0,
            )
            joined, waited = iter(one.residents_s[len(standing) :]), iter(one.waiting_s)
            ends = [next(joined if slot == 0 else waited) for _, slot in company]
            assert futures.joiners_s[first[b] : first[b + 1]].tolist() == pytest.approx(ends, rel=1e-6)
            assert futures.standing_s[b].tolist() == pytest.approx(one.residents_s[: len(standing)], rel=1e-6)
            assert futures.peak_p95_us[b].tolist() == pytest.approx(one.peak_p95_us, rel=1e-6)


def test_the_order_of_joiners_changes_nothing() -> None:
    host = HostFactory(CATALOGUE).host("large")
    asked = Forecaster(host, [], free_cores=8.0, free_memory_mib=9000.0, start_delay_s=0.0)
    cores = tuple(range(8))
    a, b, c = (asked.kind(Resident(name, 1.0, 8, cores, 1.0)) for name in sorted(CATALOGUE.jobs))
    orders = np.array([a, b, c, c, a, b, b, c, a], np.int64)

    ends = asked.run(orders, np.zeros(9, np.int64), np.array([0, 3, 6, 9])).joiners_s

    by_kind = [{int(k): end for k, end in zip(orders[i : i + 3], ends[i : i + 3], strict=True)} for i in (0, 3, 6)]
    assert by_kind[0] == by_kind[1] == by_kind[2]
