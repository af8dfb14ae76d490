"""The share of its run time alone that a job takes to get to a progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import CATALOGUE, LARGE, SMALL, any_of, profiles
from flowsched_models.execution import Execution
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile
from flowsched_models.runtime import HostFactory, Resident


@given(profiles(), any_of(SMALL, LARGE), st.integers(1, 4), st.floats(0.05, 3.0))
def test_it_is_what_an_execution_takes_beyond_its_end_too(
    profile: JobProfile, kind: MachineType, cores: int, share: float
) -> None:
    host = HostFactory(CATALOGUE).host(kind.name)
    mine = tuple(range(cores))
    threads = profile.threads_for(cores)
    execution: Execution[str] = Execution(host, ends=False)
    execution.start("job", Resident(profile.name, 2.0, threads, mine, float(cores)))
    until_s = share * host.alone_s(profile.name, threads, mine, 2.0)
    while execution.now_s < until_s:
        execution.advance(min(until_s, execution.next_event_s()))

    assert host.share_of_time(profile.name, threads, mine, execution.progress("job")) == pytest.approx(share, rel=1e-6)
