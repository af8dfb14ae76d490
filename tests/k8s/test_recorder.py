"""What pods are told: the in-tree wording, once, and never in floods."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched_k8s import names
from flowsched_k8s.instructions import PatchCondition, PodKey, PostEvent
from flowsched_k8s.notices.recorder import NOTE_BYTES, Recorder, cut, histogram
from flowsched_k8s.objects import Condition

HOUR_S = 3600


def key(name: str = "a") -> PodKey:
    return PodKey("default", name, f"uid-{name}")


def as_seen(patch: PatchCondition) -> Condition:
    """The condition in the cache once the patch has come back."""
    return Condition(names.POD_SCHEDULED, "False", patch.reason, patch.message)


def lacking(cpu: int, tainted: int = 0) -> str:
    return histogram(cpu + tainted, {names.insufficient("cpu"): cpu, names.TAINTS: tainted})


def test_the_histogram_reads_as_in_tree() -> None:
    assert lacking(3, 2) == "0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu."
    # The strings are sorted, so ten stands before two.
    assert lacking(2, 10) == "0/12 nodes are available: 10 node(s) had untolerated taint(s), 2 Insufficient cpu."
    assert histogram(0, {}) == "0/0 nodes are available."
    assert histogram(4, {names.CORDONED: 4, "zero": 0}) == "0/4 nodes are available: 4 node(s) were unschedulable."
    assert (
        histogram(4, {names.CORDONED: 4}, whole=names.UNBOUND_CLAIMS, more="Waiting for gang quorum 3/4.")
        == "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. Waiting for gang quorum 3/4."
    )


@given(st.text(), st.integers(3, 50))
def test_a_note_is_cut_to_whole_characters(text: str, most: int) -> None:
    short = cut(text, most, "...")

    assert len(short.encode()) <= most
    assert short == text or (short.endswith("...") and text.startswith(short[:-3]))


def test_a_long_note_fits() -> None:
    event = Recorder().failed(key(), "é" * 5000, 0.0)

    assert event is not None
    assert NOTE_BYTES - 4 < len(event.note.encode()) <= NOTE_BYTES


def test_events_have_the_names_that_people_know() -> None:
    recorder = Recorder()

    assert recorder.scheduled(key(), "node-1") == PostEvent(
        key(), "Scheduled", "Normal", "Binding", "Successfully assigned default/a to node-1"
    )
    assert recorder.failed(key(), "no", 0.0) == PostEvent(key(), "FailedScheduling", "Warning", "Scheduling", "no")
    assert recorder.preempted(key(), "by b", 0.0) == PostEvent(key(), "Preempted", "Normal", "Preempting", "by b")
    assert recorder.written == {"Scheduled": 1, "FailedScheduling": 1, "Preempted": 1}


def test_the_same_is_said_once_in_five_minutes_whatever_its_numbers() -> None:
    recorder = Recorder()
    assert recorder.failed(key(), lacking(5), 0.0)
    assert not recorder.failed(key(), lacking(5), 299.0)
    assert not recorder.failed(key(), lacking(1234), 299.9)
    assert recorder.failed(key("b"), lacking(5), 299.9)
    assert recorder.failed(key(), lacking(6), 300.0)
    assert recorder.suppressed == {"repeated": 2}


def test_texts_that_take_turns_are_no_way_around() -> None:
    recorder = Recorder()
    written = [now for now in range(600) if recorder.failed(key(), lacking(3, now % 2), float(now))]

    assert len(written) == 4
    changing = [now for now in range(600, 1200) if recorder.failed(key(), "x" * (now - 500), float(now))]
    assert len(changing) == 60


def test_a_bind_is_told_at_once_even_after_a_failure() -> None:
    recorder = Recorder(burst=1.0)
    assert recorder.failed(key(), "no", 0.0)
    assert recorder.scheduled(key(), "n")
    assert len(recorder) == 0


def test_what_there_is_no_token_for_is_counted_and_said_later() -> None:
    recorder = Recorder(events_per_s=2.0, burst=3.0)
    pods = [key(f"p{number}") for number in range(5)]

    assert [bool(recorder.failed(pod, "no", 0.0)) for pod in pods] == [True, True, True, False, False]
    assert recorder.suppressed == {"rate": 2}
    assert [bool(recorder.failed(pod, "no", 1.0)) for pod in pods] == [False, False, False, True, True]


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(0, 30)), max_size=200))
def test_events_never_exceed_the_bucket(attempts: list[tuple[float, int]]) -> None:
    recorder = Recorder(events_per_s=0.5, burst=4.0)
    now = 0.0
    written = 0
    for wait, pod in attempts:
        now += wait
        written += recorder.failed(key(str(pod)), "no", now) is not None
        assert written <= 4.0 + 0.5 * now


def test_a_thousand_unschedulable_pods_for_an_hour_are_told_a_bounded_number_of_times() -> None:
    recorder = Recorder()
    pods = [key(f"p{number}") for number in range(1000)]
    conditions: dict[PodKey, Condition] = {}
    events: Counter[PodKey] = Counter()
    patches: Counter[PodKey] = Counter()
    for now in range(0, HOUR_S, 15):
        message = lacking(1000 + now % 35, 3 + now % 10)
        for pod in pods:
            events[pod] += recorder.failed(pod, message, float(now)) is not None
            patch = recorder.condition(pod, names.UNSCHEDULABLE, message, float(now), current=conditions.get(pod))
            if patch is not None:
                patches[pod] += 1
                conditions[pod] = as_seen(patch)

    assert all(1 <= events[pod] <= 12 for pod in pods)
    assert all(1 <= patches[pod] <= 60 for pod in pods)
    assert all("0/" in condition.message for condition in conditions.values())


def test_memory_is_bounded() -> None:
    recorder = Recorder(pods=10)
    for number in range(100):
        recorder.failed(key(f"p{number}"), "no", 0.0)
        recorder.failed(key("p0"), f"no {'x' * number}", number * 20.0)
    assert len(recorder) == 10
    told = recorder._told[key("p0")]
    assert len(told.events) == Recorder.TEXTS
    recorder.forget(key("p0"))
    recorder.forget(key("p0"))
    assert len(recorder) == 9


def test_a_condition_is_patched_when_there_is_something_new() -> None:
    recorder = Recorder()
    first = recorder.condition(key(), names.UNSCHEDULABLE, lacking(3), 0.0, generation=2)
    assert first == PatchCondition(key(), "Unschedulable", lacking(3), 2)
    seen = as_seen(first)

    def again(reason: str, message: str, now: float) -> PatchCondition | None:
        return recorder.condition(key(), reason, message, now, current=seen)

    assert not again(names.UNSCHEDULABLE, lacking(3), 5000.0)
    assert not again(names.UNSCHEDULABLE, lacking(4), 59.0)
    assert not again(names.UNSCHEDULABLE, lacking(4, 1), 9.0)
    patch = again(names.UNSCHEDULABLE, lacking(4), 60.0)
    assert patch
    seen = as_seen(patch)
    patch = again(names.UNSCHEDULABLE, lacking(4, 1), 70.0)
    assert patch
    seen = as_seen(patch)
    assert again(names.SCHEDULER_ERROR, "broken", 70.1)


def test_what_the_pod_says_already_is_not_written_by_a_new_leader() -> None:
    seen = Condition(names.POD_SCHEDULED, "False", names.UNSCHEDULABLE, lacking(3))

    assert not Recorder().condition(key(), names.UNSCHEDULABLE, lacking(3), 0.0, current=seen)
    assert Recorder().condition(key(), names.UNSCHEDULABLE, lacking(4), 0.0, current=seen)


@pytest.mark.parametrize("current", [None, Condition(names.POD_SCHEDULED, "True", "", "")])
def test_a_cache_that_is_behind_does_not_cause_a_second_patch_but_a_lost_patch_does(current: Condition | None) -> None:
    recorder = Recorder()
    assert recorder.condition(key(), names.UNSCHEDULABLE, lacking(3), 0.0, current=current)
    assert not recorder.condition(key(), names.UNSCHEDULABLE, lacking(3), 9.9, current=current)
    assert recorder.condition(key(), names.UNSCHEDULABLE, lacking(3), 10.0, current=current)


def test_a_nominated_node_is_written_and_cleared_at_once_and_once() -> None:
    recorder = Recorder()
    patch = recorder.condition(key(), names.UNSCHEDULABLE, "no", 0.0, nominated_node="n1")
    assert patch
    assert patch.nominated_node == "n1"
    assert not recorder.condition(key(), names.UNSCHEDULABLE, "no", 1.0, nominated_node="n1")
    patch = recorder.condition(key(), names.UNSCHEDULABLE, "no", 2.0, nominated_node="", current_node="n1")
    assert patch
    assert patch.nominated_node == ""
    other = recorder.condition(key(), names.SCHEDULER_ERROR, "no", 3.0, current_node="n1")
    assert other
    assert other.nominated_node is None
