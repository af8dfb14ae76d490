"""The run time alone at the best number of cores, and how many numbers are tried to find it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, SCALING, any_of
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import HostFactory
from flowsched_simulator.world import shortest_s


def tried(profile: JobProfile, kind: MachineType, each: bool, allowed: tuple[int, ...] = ()) -> tuple[float, int]:
    """The least run time on any number of the cores, and on how many of these numbers it was worked out."""
    catalogue = replace(CATALOGUE, jobs={profile.name: profile}, services={}, machine_types={kind.name: kind})
    host, cores, count = HostFactory(catalogue).host(kind.name), tuple(range(kind.vcpus)), 0

    def alone_s(n: int) -> float:
        nonlocal count
        count += 1
        return host.alone_s(profile.name, profile.threads_for(n, allowed), cores[:n])

    found = shortest_s(kind.vcpus, alone_s, lambda n: profile.threading(profile.threads_for(n, allowed)), each)
    return found, count


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_shortest_run_is_that_of_all_numbers_of_cores(data: st.DataObject) -> None:
    profile = replace(
        SCALING,
        serial_fraction=data.draw(st.sampled_from((0.0, 0.01, 0.2, 0.7, 1.0))),
        phase_order=data.draw(st.sampled_from(PhaseOrder)),
        smt_gain=data.draw(st.sampled_from((0.0, 0.3, 1.0))),
        oversubscription=data.draw(st.sampled_from((0.0, 0.05, 0.2, 1.0))),
        threads_power_of_two=data.draw(st.booleans()),
    )
    kind = MachineType("kind", vcpus=2 * data.draw(st.integers(1, 24)), memory_mib=1, smt=data.draw(st.booleans()))
    allowed = data.draw(any_of((), (1, 4, 16), (3,)))
    assert tried(profile, kind, False, allowed)[0] == pytest.approx(tried(profile, kind, True, allowed)[0], rel=1e-11)


@pytest.mark.parametrize(
    "profile",
    [fixed_profile(CATALOGUE, None), SCALING, replace(SCALING, serial_fraction=0.1, oversubscription=0.2)],
    ids=["given run time", "parallel", "threads that cost"],
)
def test_a_wide_machine_is_not_tried_core_by_core(profile: JobProfile) -> None:
    found = [tried(profile, MachineType("wide", vcpus=cpus, memory_mib=1), False)[1] for cpus in (512, 4096)]
    assert found[0] <= 64
    assert found[1] <= found[0] + 8
