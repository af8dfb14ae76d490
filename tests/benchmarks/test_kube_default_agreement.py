"""How decisions of the simulated kube-scheduler are compared with the real one's."""

from __future__ import annotations

from collections import Counter

import numpy as np

from benchmarks.kube_default_agreement import Decision, Tally, judge, read_scores, table, tallies
from benchmarks.pod_stream import STREAMS, draw_nodes, draw_steps

FIT = {"n1": 60, "n2": 50, "n3": 60}
LOG = """
I1125 04:00:00.1 1 schedule_one.go:982] "Plugin scored node for pod" pod="space/p" plugin="Fit" node="n1" score=61
I1125 04:00:00.1 1 schedule_one.go:982] "Plugin scored node for pod" pod="space/p" plugin="Fit" node="n2" score=51
I1125 04:00:00.1 1 schedule_one.go:1037] "Calculated node's final score for pod" pod="space/p" node="n1" score=61
I1125 04:00:00.1 1 schedule_one.go:982] "Plugin scored node for pod" pod="space/q" plugin="Taint" node="n1" score=300
"""


def decision(chosen: str, scores: dict[str, int] = FIT, pod: str = "p") -> Decision:
    return Decision(pod, "some", chosen, {"Fit": scores}, tuple(scores))


def test_scores_are_read_from_the_log() -> None:
    assert read_scores(LOG.splitlines()) == {"p": {"Fit": {"n1": 61, "n2": 51}}, "q": {"Taint": {"n1": 300}}}


def test_any_of_the_best_nodes_agrees() -> None:
    # All real scores are 10 higher, and a plug-in likes all nodes alike: that tells no nodes apart.
    real = {"Fit": {n: s + 10 for n, s in FIT.items()}, "Taint": dict.fromkeys(FIT, 300)}

    assert judge(decision("n1"), real) == judge(decision("n3"), real) == Tally(1, 1, 2 / 3, 1, 1, 1)
    assert judge(decision("n2"), real) == Tally(1, 0, 2 / 3, 1, 0, 1)


def test_a_plugin_that_prefers_what_was_chosen_is_named() -> None:
    real = {"Fit": FIT, "Taint": {"n1": 0, "n2": 300, "n3": 0}, "Image": {"n1": 5, "n2": 0, "n3": 5}}

    assert judge(decision("n2"), real).blamed == Counter(["Taint"])
    assert not judge(decision("n1"), real).blamed, "it agrees, whatever the scores"
    assert judge(decision("n1"), real).same_scores == 0


def test_nodes_where_the_pod_fits_must_be_the_same() -> None:
    real = {"Fit": {"n1": 60, "n2": 50}}

    assert judge(decision("n2"), real).blamed == Counter(["filter"])
    assert judge(decision(""), {}).blamed == Counter(["filter"])
    assert judge(decision("n9", {}), {}).blamed == Counter(["filter"])


def test_without_a_choice_there_is_nothing_to_score() -> None:
    assert judge(decision("", {}), {}) == Tally(1, 1, 1.0)
    assert judge(decision("n1", {"n1": 3}), {}) == Tally(1, 1, 1.0)


def test_the_table_has_a_line_for_each_kind_and_one_for_all() -> None:
    real = {"p": {"Fit": FIT}, "q": {"Taint": {"n1": 0, "n2": 300, "n3": 0}, "Fit": FIT}}
    found = tallies([decision("n1"), decision("n2", pod="q"), decision("", {}, "r")], real)

    _, kind, whole = table({"requests": found}).splitlines()
    assert len(table({"images": found}).splitlines()) == 2, "this kind is not what that stream is about"
    assert kind.split() == ["requests", "some", "3", "66.7", "2", "50.0", "77.8", "50.0", "Taint", "1"]
    assert whole.split() == ["requests", "all", *kind.split()[2:]]


def test_a_seed_draws_the_same_stream() -> None:
    for stream in STREAMS:
        drawn = []
        for _ in range(2):
            rng = np.random.default_rng(3)
            nodes = draw_nodes(stream, 5, rng)
            drawn.append((nodes, list(draw_steps(stream, 40, nodes, rng))))
        assert drawn[0] == drawn[1]
        created = [step.pod for step in drawn[0][1] if step.body is not None]
        gone = [step.pod for step in drawn[0][1] if step.body is None]
        assert len(created) == 40
        assert gone
        assert len(set(gone)) == len(gone)
