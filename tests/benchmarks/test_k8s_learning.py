"""Benchmarks of learnt run times on Kubernetes, without a control plane: what is said of answers, and what is counted."""

from __future__ import annotations

import pytest

from benchmarks import played_learning
from benchmarks.k8s_learning import Answer, Seen, TruePod, drawn_pods, judged
from benchmarks.learning_cpu import MODES
from benchmarks.played_learning import ALL_DRAWN, DRAWN, NO_MORE, START_S, TOLD, Playing


def pod(name: str, arrives_s: float) -> TruePod:
    return TruePod(name, 0, 1, arrives_s, 40.0)


def test_each_answer_counts_alike_and_beside_that_each_pod() -> None:
    """One pod is asked for three times and starts 40 s later than told; three are asked for once, and it is as told."""
    pods = [pod("first", 0.0), pod("asked-often", 1.0), *(pod(f"asked-once-{i}", 1.0) for i in range(3))]
    seen = Seen()
    for p in pods:
        late_s = 40.0 if p.name == "asked-often" else 0.0
        seen.created_s[p.name] = 0.0
        seen.started_s[p.name], seen.ended_s[p.name] = 100.0 + late_s, 140.0 + late_s
    seen.ended_s["first"] = 10.0
    for name, asked in (("asked-often", (5.0, 60.0, 70.0, 80.0)), *((f"asked-once-{i}", (60.0,)) for i in range(3))):
        seen.answers[name] += [Answer(at_s, (90.0, 100.0, 110.0), (130.0, 140.0, 150.0), 40.0) for at_s in asked]

    row = judged(pods, seen)

    # Before the first pod of the owner had ended nothing counts.
    assert (row["pods"], row["no_answer"], row["answers"]) == (4, 0, 6)
    assert (row["starts_held"], row["pods_starts_held"]) == (pytest.approx(0.5), pytest.approx(0.75))
    assert (row["ends_held"], row["pods_ends_held"]) == (pytest.approx(0.5), pytest.approx(0.75))
    assert row["pods_error_of_end"] == row["error_of_run"] == 0.0
    assert row["late_s"] == pytest.approx(20.0)


@pytest.mark.parametrize("mode", MODES)
def test_pods_of_every_mode_run_and_end_and_are_learnt_from(mode: str) -> None:
    pods = drawn_pods(1, 40, 4, 2, 32, 20.0, load=1.0)
    playing = Playing(mode, pods, 4, declared=False)

    playing.play()

    assert len(playing.seen.ended_s) == len(pods) and playing.rounds > 4 and playing.cpu_s > 0.0
    assert playing.learnt == (0 if mode == "off" else len(pods))
    assert bool(playing.seen.answers) == (mode == "on"), "nothing else forecasts pods that declare nothing"


def test_what_is_played_on_without_further_pods_is_the_truth_once_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the run that is asked goes on as without being asked."""
    monkeypatch.setattr(played_learning, "INFORM_EVERY_S", 6.0)
    monkeypatch.setattr(played_learning, "DRAWS", 1)
    pods = drawn_pods(3, 60, 4, 2, 16, 20.0, load=2.0)
    playing, other = (Playing("on", pods, 2, declared=False, informed=informed) for informed in (True, False))
    playing.play()
    other.play()

    assert playing.seen.ended_s == other.seen.ended_s and not any(other.compared.values())
    last_s = START_S + pods[-1].arrives_s
    told = {of: [(uid, a) for uid, answers in found.items() for a in answers] for of, found in playing.compared.items()}
    assert [(uid, a.asked_s) for uid, a in told[TOLD]] == [(uid, a.asked_s) for uid, a in told[NO_MORE]]
    after = [(uid, a.start_s[1], a.end_s[1]) for uid, a in told[NO_MORE] if a.asked_s > last_s]
    assert after == [(uid, playing.seen.started_s[uid], playing.seen.ended_s[uid]) for uid, _, _ in after] and after
    assert any(a.end_s[1] != playing.seen.ended_s[uid] for uid, a in told[DRAWN] if a.asked_s < last_s)
    assert any(a.end_s[1] != playing.seen.ended_s[uid] for uid, a in told[ALL_DRAWN] if a.asked_s > last_s)
