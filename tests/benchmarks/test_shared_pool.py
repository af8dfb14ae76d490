"""What the benchmark of a shared pool counts as refused."""

from __future__ import annotations

import pytest

from benchmarks.k8s_throughput import Sight
from benchmarks.shared_pool import Kubelets, figures, table


def test_a_kubelet_takes_what_fits_in_the_order_in_which_it_was_bound() -> None:
    kubelets = Kubelets({"n": 1000})
    assert kubelets.see("a", "n", 600)
    assert not kubelets.see("b", "n", 500)
    assert kubelets.see("c", "n", 400)
    kubelets.gone("b")
    assert not kubelets.see("d", "n", 100), "who was refused has taken nothing that it could give back"
    kubelets.gone("a")
    assert kubelets.see("e", "n", 600)
    assert kubelets.refused == {"b", "d"}


def test_only_pods_that_came_in_the_span_are_counted() -> None:
    sight = Sight()
    for number, (created, bound) in enumerate([(0.0, 0.1), (1.0, 1.5), (1.5, 1.7), (1.9, None)]):
        name = f"flowsched-{number}"
        sight.created[name] = created
        if bound is not None:
            sight.bound[name] = bound
    sight.created["kube-scheduler-0"] = 1.2
    kubelets = Kubelets({})
    kubelets.refused = {"flowsched-0", "flowsched-2"}
    found = figures(sight, kubelets, "flowsched", 1.0, 2.0)
    assert (found["pods"], found["bound"], found["refused"], found["refused_percent"]) == (3, 2, 1, 50.0)
    assert found["p50_s"] == pytest.approx(0.35)
    (line,) = table([{"rate": 10.0, "found": {"flowsched": found}}]).splitlines()[1:]
    assert line.split() == ["10", "flowsched", "nobody", "2", "1", "50.00", "0.350", "0.497"]
