"""What is remembered decides nothing: whatever a pace table holds, its paces are those of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, LARGE, SMALL, profiles, service
from flowsched.cluster.occupied_machines import service_load
from flowsched_models import pace_table
from flowsched_models.forecast import forecast
from flowsched_models.ordered_pace_table import OrderedPaceTable
from flowsched_models.pace import STAGES, recall
from flowsched_models.pace_table import PaceTable
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import Host, HostFactory, Resident

HOSTS = HostFactory(CATALOGUE)
Question = tuple[Host, list[Resident]]


@st.composite
def residents(draw: st.DrawFn) -> Resident:
    """A job at its beginning; any of its numbers makes another kind."""
    profile = draw(profiles())
    cores = draw(st.sampled_from(((0, 1, 2, 3), (1, 2, 3), (3,))))
    return Resident(profile.name, 1.0, profile.threads_for(len(cores)), cores, draw(st.sampled_from((0.1, 1.0, 2.0))))


@st.composite
def questions(draw: st.DrawFn) -> tuple[Host, list[Resident]]:
    """A host, with a service or without, and who is there."""
    kind, served = draw(st.sampled_from((SMALL, LARGE))), draw(st.booleans())
    host = HOSTS.host(kind.name, [service_load(service())] if served else [])
    return host, draw(st.lists(residents(), min_size=1, max_size=4))


def ask(table: PaceTable, host: Host, who: Sequence[Resident]) -> tuple[list[float], list[float]]:
    """Progress per second of each in its first stage, and p95 of each service."""
    number = table.host(host)
    kinds = np.array([table.kind(number, r) for r in who], np.int64)
    stage = np.array([int(host.course(r)[0].stage) for r in who], np.int64)
    pace, p95 = np.zeros(len(who)), np.zeros(table.memory.services.shape[1])
    recall(table.memory, number, kinds, stage, np.arange(len(who)), np.zeros(len(who), np.int64), pace, p95)
    return pace.tolist(), p95[: len(host.services)].tolist()


@settings(max_examples=60)
@given(st.lists(questions(), min_size=1, max_size=6), st.data())
def test_growth_and_eviction_change_no_answer(asked: list[tuple[Host, list[Resident]]], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as small:
        small.setattr(pace_table, "_FIRST_ENTRIES", 1)
        small.setattr(pace_table, "_MOST_ENTRIES", 4)
        small.setattr(pace_table, "_MOST_KINDS", 3)
        table = PaceTable()
        for _ in range(3):  # again from memory, and again after what was remembered was thrown away
            for host, who in asked:
                occupants = [host.course(r)[0] for r in who]
                truth = host.rates(tuple(occupants))

                pace, p95 = ask(table, host, who)

                assert pace == pytest.approx([truth.progress[o] for o in occupants], rel=1e-12)
                assert p95 == pytest.approx(list(truth.p95_us), rel=1e-12)
                turn = data.draw(st.permutations(range(len(who))))
                turned = ask(table, host, [who[i] for i in turn])
                assert turned == ([pace[i] for i in turn], p95)
                if data.draw(st.booleans()):
                    table.begin_round()
                assert len(table.memory.counts) <= 4


MEASURED = HostFactory(load_catalogue())


@st.composite
def crowds(draw: st.DrawFn) -> Question:
    """Measured jobs, some of them equal: their sums depend on the order, in the last bit."""
    jobs = MEASURED.catalogue.jobs
    who = []
    for name in draw(st.lists(st.sampled_from(sorted(jobs)), min_size=2, max_size=6)):
        cores = tuple(range(draw(st.integers(0, 3)), 8))
        weight = draw(st.sampled_from((0.3, 1.0, 1.7)))
        who += [Resident(name, 1.0, jobs[name].threads_for(len(cores)), cores, weight)] * draw(
            st.sampled_from((1, 1, 3))
        )
    return MEASURED.host("e2-standard-8"), draw(st.permutations(who))


@settings(max_examples=60)
@given(st.lists(crowds(), min_size=1, max_size=4))
def test_an_ordered_table_has_the_paces_of_hosts_to_the_last_bit(asked: list[Question]) -> None:
    table = OrderedPaceTable()
    for _ in range(2):  # again from memory
        for host, who in asked:
            occupants = [host.course(r)[0] for r in who]
            truth = host.rates(tuple(occupants))
            assert ask(table, host, who)[0] == [truth.progress[o] for o in occupants]


def test_an_ordered_table_has_room_between_any_two_kinds() -> None:
    """Each new kind comes next to the last one, until no float is left between the ranks of the two."""
    table, host = OrderedPaceTable(), MEASURED.host("e2-standard-8")
    cores, name = tuple(range(8)), min(MEASURED.catalogue.jobs)
    weights = [1.0, 2.0, *(1.0 + 0.99**k for k in range(1, 150))]
    kinds = [table.kind(table.host(host), Resident(name, 1.0, 8, cores, weight)) for weight in weights]
    first = table.memory.rank[[STAGES * kind for kind in kinds]].tolist()
    assert [weight for _, weight in sorted(zip(first, weights, strict=True))] == sorted(weights)
    assert len(set(first)) == len(weights)


@settings(max_examples=60)
@given(st.lists(questions(), min_size=1, max_size=6), questions())
def test_what_was_asked_before_changes_no_digit(before: list[tuple[Host, list[Resident]]], last: Question) -> None:
    table = PaceTable()
    for host, who in before:
        ask(table, host, list(reversed(who)))
    for r in reversed(last[1]):
        ask(table, last[0], [r])
    pace, p95 = ask(table, *last)
    assert (pace, p95) == ask(PaceTable(), *last)


def test_a_full_memory_is_enlarged_and_then_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_table, "_FIRST_ENTRIES", 1)
    monkeypatch.setattr(pace_table, "_MOST_ENTRIES", 4)
    table, host = PaceTable(), HOSTS.host(SMALL.name)
    one = Resident("scaling", 1.0, 4, (0, 1, 2, 3), 1.0)
    sizes = []
    for count in range(1, 8):
        ask(table, host, [one] * count)
        sizes.append((len(table.memory.counts), int(table.memory.used[0])))
        table.begin_round()
    # One, enlarged to four, filled, emptied.
    assert sizes == [(1, 1), (4, 1), (4, 2), (4, 3), (4, 4), (4, 1), (4, 2)]


def test_too_many_kinds_start_a_table_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_table, "_MOST_KINDS", 1)
    table, host = PaceTable(), HOSTS.host(SMALL.name)
    for weight in (1.0, 2.0):
        ask(table, host, [Resident("scaling", 1.0, 4, (0, 1, 2, 3), weight)])
    table.begin_round()

    assert len(table.memory.rows) == 0
    again = Resident("serial", 1.0, 4, (0, 1, 2, 3), 1.0)
    assert ask(table, host, [again]) == ask(PaceTable(), host, [again])


def test_the_peak_of_a_lone_job_is_that_of_its_forecast() -> None:
    table, host = PaceTable(), HOSTS.host(SMALL.name, [service_load(service())])
    one = Resident("hungry", 3.0, 2, (2, 3), 1.0, 10, progress=0.5)

    peak = table.lone_peak_p95_us(table.host(host), one)

    whole = Resident("hungry", 1.0, 2, (2, 3), 1.0)
    assert peak == forecast(host, [whole]).peak_p95_us
    assert table.lone_peak_p95_us(table.host(host), whole) == peak
