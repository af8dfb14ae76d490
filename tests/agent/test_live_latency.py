"""What pausing is worth: p95 of memcached beside a batch job that shares its core, against while that is paused.

Relative only, with a wide margin and the best of three tries; where the machine is too noisy or rights are missing it is
skipped, and says why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from requirements_on_machine import needs

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import native
from benchmarks.live_node import BatchWorker, LiveError, Memcached, fifo_refused, pin
from benchmarks.load_capacity import measure_capacity
from benchmarks.load_generator.running_load import LoadResult, run_load
from benchmarks.load_generator.self_check import bottleneck
from benchmarks.load_generator.steps import LoadStep
from benchmarks.node_calibration import ALONE_US, Site, find_site, p95_alone_us
from benchmarks.node_lessons import controlled, median

TRIES = 3
TIMES = 3.0
"""Measured on two virtual cores: 19 to 37 times."""
SHARE = 0.4
"""Of the capacity: well below the 80 % up to which a load is kept up whatever else happens."""
SECONDS = 2.0


@pytest.fixture(scope="module")
def site() -> Site:
    needs("memcached", "to be measured")
    if native.compiler() is None:
        pytest.skip("there is no C compiler; the load generator is written in C")
    if refused := fifo_refused():
        pytest.skip(f"{refused}; without it the generator measures its own waits")
    try:
        return find_site()
    except LiveError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def capacity(site: Site) -> float:
    """Requests per second of one core."""
    with Memcached() as memcached:
        pin(memcached.pid, site.cores(1))
        measured = measure_capacity(site.plan(port=memcached.port), SECONDS)
    alone = p95_alone_us(site, measured, 1.0)
    if alone > ALONE_US:
        pytest.skip(f"the machine is too noisy: memcached alone has a p95 of {alone:.0f} us, above {ALONE_US:g} us")
    return measured


def test_pausing_a_job_on_the_same_core_brings_p95_down(site: Site, capacity: float, tmp_path: Path) -> None:
    ratios = []
    with Memcached() as memcached, BatchWorker(tmp_path, cores=site.cores(1)) as batch:
        pin(memcached.pid, site.cores(1))
        control = controlled(batch)
        control.set_weight(1.0)

        def offered() -> LoadResult:
            return run_load(site.plan(LoadStep(SHARE * capacity, SECONDS), port=memcached.port))

        try:
            for _ in range(TRIES):
                beside = offered()
                control.pause()
                paused = offered()
                control.resume()
                for result in (beside, paused):
                    assert result.totals.answered == result.totals.due
                    if said := bottleneck(result):
                        print(said)
                ratios.append(median(beside.rows, "p95_us") / median(paused.rows, "p95_us"))
                if ratios[-1] >= TIMES:
                    return
        finally:
            control.restore()
    busy = os.getloadavg()[0]
    pytest.fail(f"p95 beside the job was only {ratios} times that while it was paused; load average {busy:.1f}")
