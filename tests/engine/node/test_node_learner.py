"""What completions on one machine teach, and what flow-node expects of the next task of a class."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from test_flow_node import CATALOGUE, NODE, TYPE, Drive, job

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.node import NodeLearner, Reading, TaskReading, TaskState
from flowsched.node.flow_node import FlowNode
from flowsched.node.node_learner import LEAST_RUN_S, run_class_of
from flowsched.node.progress import MOST_STRETCHES, Pace, ProgressBook, factor_of
from flowsched_models.runtime import Stage


def jumps(t_s):
    return 90_000.0 if t_s % 20.0 >= 10.0 else 10_000.0


def of_class(name, profile, scale=1.0):
    return job(name, profile, scale, run_class=run_class_of(name))


def driven(learner, load=jumps):
    return Drive([], FlowNode(NODE, learner=learner), load=load)


def until_ended(drive, *names):
    while not set(names) <= set(drive.ends):
        assert drive.machine.now_s < 3_000.0
        drive.tick()
    # The end is told with the next reading.
    drive.tick()


@pytest.mark.parametrize(
    ("name", "run_class"),
    [("encode-12", "encode"), ("encode", "encode"), ("a-1-2", "a-1"), ("a-x", "a-x"), ("a1", "a1")],
)
def test_a_class_is_the_name_without_the_number_of_a_copy(name: str, run_class: str) -> None:
    assert run_class_of(name) == run_class


@pytest.mark.parametrize("slowdown", [0.6, 1.0, 1.8])
def test_a_completion_teaches_its_factor_whatever_ran_beside_it(slowdown: float) -> None:
    """Beside others, moved, paused and resumed by a load that jumps: none of that is taken for the class."""
    learner = NodeLearner(TYPE)
    drive = driven(learner)
    drive.submit(of_class("vips-1", "vips", 0.4), slowdown)
    drive.submit(of_class("ferret-1", "ferret", 0.3))
    drive.run(4.0).submit(job("canneal", scale=0.2))
    until_ended(drive, "vips-1", "ferret-1")

    learnt = {entry.run_class: entry for entry in learner.learnt.classes}
    assert {name: entry.runs for name, entry in learnt.items()} == {"vips": 1, "ferret": 1}
    assert learnt["vips"].log_sum == pytest.approx(math.log(slowdown), abs=0.05)
    assert learnt["ferret"].log_sum == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("slowdown", [0.5, 2.5])
def test_a_serial_phase_that_is_taken_for_another_biases_no_factor(slowdown: float) -> None:
    """canneal begins on one core. Until something is known, its second phase is thought to begin too soon, or too late."""
    learner = NodeLearner(TYPE)
    drive = driven(learner, load=lambda t_s: 5_000.0)
    drive.submit(of_class("canneal-1", "canneal", 0.4), slowdown)
    until_ended(drive, "canneal-1")
    (entry,) = learner.learnt.classes
    assert math.exp(entry.log_sum) == pytest.approx(slowdown, rel=0.03)


@pytest.mark.parametrize("serial", [0.0, 0.02, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_factor_of_a_run_follows_from_its_paces(serial: float, seed: int) -> None:
    """Paces that are drawn anew at each step; the task is in its second phase once it has done the first one."""
    random = np.random.default_rng([seed, round(100 * serial)])
    factor = float(random.uniform(0.2, 5.0))
    first, last, stretches = factor * serial, factor * (1.0 - serial), []
    while first + last > 1e-12:
        paces = [float(x) for x in random.uniform(0.001, 0.05, 2)]
        # The step ends early where the phase, or the task, does.
        step = min(1.0, first / paces[0] if first > 1e-12 else last / paces[1])
        first, last = (first - step * paces[0], last) if first > 1e-12 else (0.0, last - step * paces[1])
        stretches.append((step * paces[0], step * paces[1]))
    assert factor_of(stretches, serial) == pytest.approx(factor, rel=1e-6)


def test_no_run_grows_without_end() -> None:
    book = ProgressBook(CATALOGUE, NodeLearner(TYPE))
    task = of_class("canneal-1", "canneal")
    book.queued(task)
    for k in range(3 * MOST_STRETCHES):
        book.add(task, Pace(1e-5, 1e-5 * (1 + k % 3), 1e-5 * (1 + k % 5)), 0.1)
    assert len(book._work[task.name].stretches) <= MOST_STRETCHES
    assert math.fsum(last for _, last in book._work[task.name].stretches) == pytest.approx(3e-6 * 3 * MOST_STRETCHES)


def told(classes: dict[str, float], runs: int = 10, applied: bool = True) -> NodeLearner:
    learnt = LearntRunTimes(applied=applied)
    for _ in range(runs):
        for run_class, factor in classes.items():
            learnt = learnt.with_end(run_class, TYPE, factor)
    return NodeLearner(TYPE, learnt)


def test_what_is_left_is_as_long_as_the_class_was() -> None:
    plain, slow, observed = (
        driven(learner) for learner in (None, told({"vips": 2.0}), told({"vips": 2.0}, applied=False))
    )
    for drive in (plain, slow, observed):
        drive.submit(of_class("vips-7", "vips"))
        drive.tick()
    assert slow.controller.makespan_s == pytest.approx(2.0 * plain.controller.makespan_s, rel=0.02)
    assert observed.controller.makespan_s == plain.controller.makespan_s


def test_estimated_progress_is_nearer_to_the_truth_with_learning() -> None:
    off = []
    for learner in (None, told({"vips": 2.0})):
        drive = driven(learner, load=lambda t_s: 20_000.0)
        task = of_class("vips-7", "vips", 0.5)
        drive.submit(task, 2.0)
        errors = []
        while "vips-7" not in drive.ends:
            drive.tick()
            if "vips-7" in drive.machine.tasks():
                errors.append(abs(drive.controller.progress(task) - drive.machine.progress("vips-7")))
        off.append(max(errors))
    assert off[1] < 0.1 < 0.4 < off[0]


def test_a_phase_lasts_as_much_longer_as_the_class_does() -> None:
    """canneal begins with a serial phase: told that its class runs for twice as long, so does that."""
    serial_s = []
    for learner in (None, told({"canneal": 2.0})):
        drive = driven(learner, load=lambda t_s: 5_000.0)
        drive.submit(of_class("canneal-3", "canneal", 0.5), 2.0)
        drive.tick()
        while drive.controller.moment.candidates[0].stage is Stage.SERIAL:
            drive.tick()
        serial_s.append(drive.machine.now_s)
    assert serial_s[1] == pytest.approx(2.0 * serial_s[0], rel=0.05)


def test_past_what_was_expected_more_than_nothing_is_left() -> None:
    """Given that it still runs, with the spread of the class: not 2 % of the work, round after round."""
    drive = driven(told({"vips": 1.0}), load=lambda t_s: 5_000.0)
    task = of_class("vips-7", "vips", 0.5)
    drive.submit(task, 4.0)
    book = drive.controller._progress
    while book.length(task) < 2.0:
        drive.tick()
    assert drive.controller.progress(task) < 0.97


def all_ended(learner: NodeLearner | None) -> Drive:
    drive = driven(learner)
    for k, profile in enumerate(("vips", "ferret", "vips", "ferret")):
        drive.submit(of_class(f"{profile}-{k}", profile, 0.2), 1.0 + k)
    until_ended(drive, *drive.tasks)
    return drive


def test_learning_changes_nothing_where_it_is_observed() -> None:
    learner = NodeLearner(TYPE, replace(NOTHING_LEARNT, applied=False))
    assert all_ended(learner).allocations == all_ended(None).allocations
    assert {entry.run_class: entry.runs for entry in learner.learnt.classes} == {"vips": 2, "ferret": 2}


def test_until_something_is_known_of_a_class_nothing_changes() -> None:
    plain, learning = all_ended(None), all_ended(told({"other": 5.0}))
    first_s = min(plain.ends.values())
    before = [a for a in plain.allocations if a[0] <= first_s]
    assert before == [a for a in learning.allocations if a[0] <= first_s] and before


def reading(t_s: float, task, state: TaskState | None, ended=()) -> Reading:
    tasks = () if state is None else (TaskReading(task, state, 0.0),)
    return Reading(t_s, (), tasks, ended=ended)


def run_of(
    learner: NodeLearner, states: list[tuple[float, TaskState]], end_s: float, completed: bool = True
) -> FlowNode:
    controller = FlowNode(NODE, learner=learner)
    task = of_class("vips-1", "vips")
    for t_s, state in states:
        controller.decide(reading(t_s, task, state))
    last = reading(end_s, task, None, (task,) if completed else ())
    for _ in range(2):  # the same reading may be decided again
        controller.decide(last)
    return controller


WHOLE = [(0.0, TaskState.QUEUED), *((0.1 * k, TaskState.RUNNING) for k in range(1, 200))]


def test_a_run_counts_once() -> None:
    learner = NodeLearner(TYPE)
    run_of(learner, WHOLE, 20.0)
    assert [entry.runs for entry in learner.learnt.classes] == [1]


@pytest.mark.parametrize(
    ("states", "completed"),
    [
        (WHOLE, False),
        (WHOLE[1:], True),
        (WHOLE[: round(0.9 * LEAST_RUN_S / 0.1)], True),
    ],
    ids=["it failed", "it ran before", "it was short"],
)
def test_what_says_nothing_teaches_nothing(states: list, completed: bool) -> None:
    learner = NodeLearner(TYPE)
    run_of(learner, states, states[-1][0] + 0.1, completed)
    assert learner.learnt.classes == ()


def test_those_that_completed_last_are_shown() -> None:
    learner = NodeLearner(TYPE)
    for name in ("a", "c", "b", "a"):
        learner.learn(job(name, "vips", run_class=name), 2.0, 60.0)
    assert list(learner.latest(2)) == ["a", "b"]
    assert learner.latest(9)["c"].factor > 1.0
    assert NodeLearner("another", learner.learnt).latest(9) == {}
