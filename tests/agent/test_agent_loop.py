"""The loop of the agent on a machine of memory: ticks, faults, what comes and goes."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

import pytest
from agent_fakes import COMMAND, SERVICE, TASK, FakeControl, FakeCounters, allocation, bench

from flowsched.node import LOWEST_WEIGHT, Deadline, TaskGrant, TaskState
from flowsched.node.flow_node import FlowNode
from flowsched_agent.configuration import Find, TaskDeadline, TaskSpec
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.state_file import StateFile


def test_ticks_are_absolute() -> None:
    b = bench()
    b.agent.run(ticks=5)
    assert b.clock.waits == pytest.approx([100.0, 100.1, 100.2, 100.3, 100.4])
    assert (b.agent.status.overruns, b.agent.status.missed) == (0, 0)


def test_a_tick_that_takes_too_long_is_counted_and_its_successors_stay_on_the_grid() -> None:
    b = bench()
    slow = iter([0.0, 0.25, 0.0])

    def answer() -> FakeCounters:
        b.clock.t += next(slow, 0.0)
        return FakeCounters(0)

    b.actuator.asked.answer = answer
    b.agent.run(ticks=4)
    assert b.clock.waits == pytest.approx([100.0, 100.1, 100.4, 100.5])
    assert (b.agent.status.overruns, b.agent.status.missed) == (1, 2)


def test_a_duration_ends_the_run() -> None:
    b = bench()
    b.agent.run(duration_s=0.3)
    assert b.agent.status.ticks == 4


def test_only_differences_are_carried_out_and_all_of_it_is_renewed_each_second() -> None:
    grant = TaskGrant(True, (1,), LOWEST_WEIGHT)
    b = bench(*[allocation((0,), batch=grant)] * 30)
    first = b.ticks(1)
    assert first == ["batch weight 0.00195312", "batch cores 1", "mc cores 0"]
    assert b.ticks(8) == []
    # New threads do not have the affinity of old ones.
    assert b.ticks(2) == ["mc cores 0", "batch cores 1", "batch weight 0.00195312"]


def test_none_leaves_everything_as_it_is() -> None:
    b = bench(allocation((0,), batch=TaskGrant(False)), None, None)
    assert b.ticks(1) == ["batch pause", "mc cores 0"]
    assert b.agent.status.tasks["batch"].state == "running"  # as read before the act
    assert b.ticks(2) == []
    assert b.agent.status.tasks["batch"].state == "paused"
    assert b.agent.status.pauses == 1


def test_readings_hold_counters_and_states() -> None:
    b = bench(allocation((0,), batch=TaskGrant(False)))
    b.actuator.controls["mc"].used_s = 1.5
    b.actuator.controls["batch"].used_s = 2.5
    b.actuator.asked.answer = lambda: FakeCounters(42, pid=7)
    b.ticks(2)
    first, second = b.controller.readings
    assert (first.t_s, second.t_s) == pytest.approx((100.0, 100.1))
    assert (first.services[0].queries, first.services[0].busy_s, first.services[0].pid) == (42, 1.5, 7)
    assert [t.state for r in (first, second) for t in r.tasks] == [TaskState.RUNNING, TaskState.PAUSED]
    assert (first.tasks[0].cpu_s, first.tasks[0].submitted_s) == (2.5, 100.0)


def test_no_answer_means_all_cores_and_the_lowest_weight_until_it_answers_again() -> None:
    b = bench(*[allocation((0,), batch=TaskGrant(True, (1,)))] * 10)
    b.ticks(1)
    b.actuator.asked.answer = lambda: None
    assert b.ticks(1) == ["batch weight 0.00195312", "mc cores 0,1,2,3"]
    assert b.controller.readings[-1].services[0].queries is None
    assert not b.agent.status.services["mc"].answers
    b.actuator.asked.answer = lambda: FakeCounters(5)
    assert b.ticks(1) == ["mc cores 0", "batch weight 1"]


def test_the_rate_begins_anew_when_the_counters_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    b = bench()
    counts = iter([FakeCounters(n) for n in (1000, 1100, 1200, 50, 150)])
    b.actuator.asked.answer = lambda: next(counts)
    b.ticks(3)
    assert b.agent.status.services["mc"].qps == pytest.approx(1000.0)
    b.ticks(1)
    assert b.agent.status.services["mc"].qps is None
    assert "the counters began anew" in caplog.text
    b.ticks(1)
    assert b.agent.status.services["mc"].qps == pytest.approx(1000.0)


def test_p95_and_headroom_are_those_of_the_stated_capacity() -> None:
    b = bench(allocation((0,)))
    b.actuator.asked.answer = lambda: FakeCounters(round(2500 * (b.clock.t - 100.0) / 0.1))
    b.ticks(3)
    service = b.agent.status.services["mc"]
    assert service.qps == pytest.approx(25_000.0)
    assert service.p95_us == pytest.approx(SERVICE.slo_us, rel=1e-6)
    assert service.headroom == pytest.approx(0.0, abs=1e-6)


# Faults


def test_a_fault_of_the_controller_gives_the_service_everything_and_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = allocation((0,), batch=TaskGrant(True, (1,)))
    b = bench(good, ZeroDivisionError("x"), ZeroDivisionError("x"), good)
    b.ticks(1)
    assert b.ticks(2) == ["batch pause", "mc cores 0,1,2,3"]
    assert b.ticks(1) == ["mc cores 0", "batch resume"]
    assert b.agent.status.errors == {"controller": 2}
    assert caplog.text.count("the controller failed") == 1


def test_a_task_that_vanishes_is_dropped_with_a_line_and_the_next_of_its_name_is_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    b = bench(allocation((0,), batch=TaskGrant(False)))
    b.ticks(2)
    b.actuator.controls["batch"].there = False
    b.ticks(2)
    assert b.controller.readings[-1].tasks == ()
    assert "gone" in caplog.text
    fresh = b.actuator.add("batch")
    b.ticks(10)
    (task,) = b.controller.readings[-1].tasks
    assert task.state is TaskState.RUNNING and not fresh.stopped
    assert task.submitted_s > 100.5


def test_a_pid_is_found_once() -> None:
    b = bench(tasks=(TaskSpec(name="batch", find=Find(pid=4)),))
    b.ticks(1)
    b.actuator.controls["batch"].there = False
    b.ticks(1)
    b.actuator.add("batch")
    b.ticks(30)
    assert b.controller.readings[-1].tasks == ()
    assert b.agent.status.tasks["batch"].state == "done"


def test_what_is_forbidden_is_said_once_and_done_without(caplog: pytest.LogCaptureFixture) -> None:
    b = bench(*[allocation((0,), batch=TaskGrant(True, (1,), LOWEST_WEIGHT))] * 30)
    b.actuator.controls["batch"].fails["weight"] = ControlError("the weight of batch", "EPERM")
    b.ticks(25)
    assert caplog.text.count("done without") == 1
    assert b.actuator.controls["batch"].now["cores"] == "1"
    assert b.agent.status.errors == {"control": 1}


def test_what_has_no_low_weight_is_decided_anew_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared, kept = TaskGrant(True, (0,), LOWEST_WEIGHT), TaskGrant(True, (1,), reason="because")
    b = bench(allocation((0,), batch=shared), allocation((0,), batch=kept), record=tmp_path / "record.csv")
    b.actuator.controls["batch"].fails["weight"] = ControlError("the weight of batch", "EPERM")
    assert b.ticks(1) == ["batch cores 0", "mc cores 0", "batch cores 1"]
    first, second = b.controller.readings
    assert [r.tasks[0].task.shares for r in (first, second)] == [True, False]
    assert (second.t_s, second.services) == (first.t_s, first.services)
    assert b.ticks(5) == []
    assert b.agent.status.tasks["batch"].weight == 1.0
    assert caplog.text.count("batch cannot be given a low weight, so it shares no core with a service") == 1
    assert b.agent._recorder is not None
    b.agent._recorder.close()
    rows = [r["reason"] for r in csv.DictReader((tmp_path / "record.csv").open()) if r["kind"] == "task"]
    assert set(rows) == {"because"}


def test_what_has_no_low_weight_shares_no_core_whatever_is_decided() -> None:
    b = bench(*[allocation((0, 1), batch=TaskGrant(True, (0, 1), LOWEST_WEIGHT))] * 5)
    b.actuator.controls["batch"].fails["weight"] = ControlError("the weight of batch", "EPERM")
    assert b.ticks(1)[-1] == "batch pause"
    assert b.ticks(3) == []


def test_flow_node_decides_with_who_has_no_low_weight_and_never_lets_it_share() -> None:
    capacity = {1: 20_000.0, 2: 40_000.0, 3: 60_000.0, 4: 80_000.0}
    b = bench(make=FlowNode, service=SERVICE.model_copy(update={"threads": 4, "capacity": capacity}))
    mc, batch = b.actuator.controls["mc"], b.actuator.controls["batch"]
    batch.fails["weight"] = ControlError("the weight of batch", "EPERM")
    count = 0.0

    def answer() -> FakeCounters:
        return FakeCounters(round(count))

    b.actuator.asked.answer = answer
    seen = set()
    for tick in range(240):
        count += 0.1 * (1_000.0, 75_000.0, 30_000.0)[tick // 40 % 3]
        b.ticks(1)
        held, own = (set(str(c.now.get("cores", "0,1,2,3")).split(",")) for c in (mc, batch))
        assert batch.stopped or not held & own
        seen.add((len(held), batch.stopped))
    assert any(cores < 4 and not paused for cores, paused in seen)
    assert (4, True) in seen


def test_a_service_that_is_gone_is_told_to_the_controller() -> None:
    b = bench()
    b.actuator.asked.answer = lambda: None
    b.ticks(1)
    b.actuator.controls["mc"].there = False
    b.ticks(12)
    assert [b.controller.readings[k].services[0].there for k in (0, -1)] == [True, False]


def test_what_cannot_be_paused_gets_the_lowest_weight() -> None:
    b = bench(allocation((0,), batch=TaskGrant(False)))
    b.actuator.controls["batch"].fails["pause"] = ControlError("batch", "EPERM")
    assert b.ticks(1) == ["batch weight 0.00195312", "mc cores 0"]


def test_whatever_one_control_throws_the_others_are_steered() -> None:
    b = bench(
        allocation((0,), batch=TaskGrant(True, (1,)), other=TaskGrant(True, (2,))),
        tasks=(TASK, TaskSpec(name="other", find=Find(command_line="other"))),
    )
    b.actuator.controls["batch"].fails["cores"] = RuntimeError("surprise")  # type: ignore[assignment]
    assert b.ticks(1) == ["other cores 2", "mc cores 0"]


def test_deadlines_are_asked_for_once_and_done_without_where_refused() -> None:
    task = TaskSpec(
        name="batch", find=Find(command_line="b"), deadline=TaskDeadline(runtime_us=4400.0, period_us=10_000.0)
    )
    grant = allocation(batch=TaskGrant(True, (1,)))
    b = bench(grant, tasks=(task,))
    # The kernel pins no task that has a deadline.
    assert b.ticks(9) == [f"batch deadline {Deadline(4400.0, 10_000.0)}"]
    b = bench(grant, tasks=(task,))
    b.actuator.controls["batch"].fails["deadline"] = ControlError("deadline of batch", "EBUSY")
    assert b.ticks(9) == ["batch cores 1"]
    assert b.agent.status.errors == {"control": 1}


def test_a_tick_with_an_unforeseen_failure_does_not_end_the_loop() -> None:
    b = bench(allocation((0,), batch=TaskGrant(True, (1,))))
    b.actuator.core_busy_s = lambda: [][1]  # type: ignore[method-assign]
    b.agent.run(ticks=3)
    del b.actuator.core_busy_s
    assert b.ticks(1) == ["batch cores 1", "mc cores 0"]
    assert b.agent.status.errors == {"tick": 3}


# Dry runs


@pytest.mark.parametrize("controller, dry_run", [("flow-node", True), ("observe", False)])
def test_hands_off_changes_nothing_and_writes_no_state(controller: str, dry_run: bool, tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    b = bench(
        *[allocation((0,), batch=TaskGrant(False), started=TaskGrant(True, (1,)))] * 15,
        tasks=(TASK, TaskSpec(name="started", command=COMMAND.command)),
        controller=controller,
        dry_run=dry_run,
        state_file=file,
    )
    b.actuator.controls["mc"].fails = {}
    assert b.ticks(15) == []
    assert b.agent.finish()
    assert b.actuator.log == []
    assert list(tmp_path.iterdir()) == []


# What is written down


class Watching(FakeControl):
    """Looks at the state file when anything is changed."""

    file: Path

    def _call(self, method: str, value: object = "") -> None:
        if method != "restore":
            assert self.name in json.loads(self.file.read_text())["saved"], f"{method} before it was written down"
        super()._call(method, value)


def test_everything_is_written_down_before_it_is_changed_and_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    b = bench(*[allocation((0,), batch=TaskGrant(False))] * 3, state_file=file)
    for name in ("mc", "batch"):
        control = Watching(name, b.actuator.log)
        control.file = file.path
        b.actuator.controls[name] = control
    assert b.ticks(2) == ["batch pause", "mc cores 0"]
    del b.actuator.log[:]
    assert b.agent.finish()
    assert b.actuator.log == ["batch restore", "mc restore"]
    assert not file.path.exists()


def test_what_cannot_be_written_down_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = StateFile(tmp_path / "folder" / "state.json")  # there is no such folder
    b = bench(*[allocation((0,), batch=TaskGrant(False))] * 15, state_file=file)
    assert b.ticks(15) == []
    assert caplog.text.count("cannot be written") == 1


def test_what_cannot_be_saved_is_left_alone(tmp_path: Path) -> None:
    b = bench(allocation((0,), batch=TaskGrant(False)), state_file=StateFile(tmp_path / "state.json"))
    b.actuator.controls["batch"].fails["saved"] = ControlError("batch", "its settings cannot be read")
    assert b.ticks(1) == ["mc cores 0"]


def test_the_state_stays_when_something_could_not_be_put_back(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    b = bench(allocation((0,), batch=TaskGrant(False)), state_file=file)
    b.ticks(1)
    b.actuator.controls["batch"].fails["restore"] = ControlError("batch", "EPERM")
    assert not b.agent.finish()
    state = file.read()
    assert state is not None and "batch" in state.saved


def test_a_record_has_a_line_for_each_target_and_tick(tmp_path: Path) -> None:
    path = tmp_path / "record.csv"
    b = bench(allocation((0, 1), batch=TaskGrant(True, (2,), 0.5, reason="because")), record=path)
    b.ticks(3)
    assert b.agent._recorder is not None
    b.agent._recorder.close()
    rows = list(csv.DictReader(path.open()))
    assert [(r["t_s"], r["kind"], r["name"]) for r in rows[-2:]] == [
        ("100.200", "service", "mc"),
        ("100.200", "task", "batch"),
    ]
    assert len(rows) == 6
    assert rows[-2]["cores"] == "0-1"
    assert (rows[-1]["cores"], rows[-1]["weight"], rows[-1]["reason"]) == ("2", "0.5", "because")
