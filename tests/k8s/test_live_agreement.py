"""The simulated kube-scheduler beside the real one."""

from __future__ import annotations

from plane import require_executable

from benchmarks.kube_default_agreement import Tally, measure, table


def test_the_real_kube_scheduler_decides_the_same_by_the_same_scores() -> None:
    require_executable()

    found = measure("requests", nodes=10, pods=40, seed=1)

    whole = Tally()
    for tally in found.values():
        whole.add(tally)
    assert whole.decisions == 40
    assert whole.choices > 30
    assert (whole.agree, whole.same_scores) == (40, whole.choices), table({"requests": found})
