"""Plain processes on a made-up machine: every thread of the tree, signals, groups of their own, and all of it back."""

from __future__ import annotations

import errno
import json
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched.node.deadline import Deadline
from flowsched_agent.controls.choice import control_of_process
from flowsched_agent.controls.detected import detect
from flowsched_agent.controls.own_group import own_folders, remove_empty_groups
from flowsched_agent.controls.process import ProcessControl
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.original_groups import origin_of, restore
from flowsched_agent.system import RESET_ON_FORK, Attributes, Policy

KINDS = pytest.mark.parametrize("kind", ["v1", "hybrid", "v2"])


def machine_with_job(folder: Path, kind: str = "none", **made: str) -> FakeMachine:
    """A job of two processes, the first with two threads, beside a stranger."""
    machine = FakeMachine(folder, kind, **made)
    machine.spawn(100, (101,))
    machine.spawn(110, parent=100, group=100, session=100)
    machine.spawn(200, name="stranger")
    return machine


def control_on(machine: FakeMachine, name: str = "job") -> ProcessControl:
    return control_of_process(name, 100, detect(machine, machine.subject), machine)


JOB = (100, 101, 110)


# Cores


def test_every_thread_of_the_tree_is_pinned_and_no_other(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.set_cores((1, 2))
    assert {tid: machine.affinities[tid] for tid in JOB} == dict.fromkeys(JOB, (1, 2))
    assert machine.affinities[200] == (0, 1, 2, 3)
    assert control.sentences() == []


def test_what_appears_meanwhile_is_pinned_too(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    pin, late = machine.set_affinity, [(120, 100), (130, 120)]

    def pin_while_it_forks(tid: int, cores: tuple[int, ...]) -> None:
        pin(tid, cores)
        if late:
            pid, parent = late.pop(0)
            machine.spawn(pid, parent=parent, group=100, session=100)

    machine.set_affinity = pin_while_it_forks  # type: ignore[method-assign]
    control.set_cores((3,))
    assert {machine.affinities[tid] for tid in (*JOB, 120, 130)} == {(3,)}


def test_a_thread_that_vanishes_is_no_error(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    machine.refusals["set_affinity", "101"] = errno.ESRCH
    control.set_cores((0,))
    assert machine.affinities[100] == machine.affinities[110] == (0,)


def test_a_tree_that_has_vanished_is_gone(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    machine.end(100)
    machine.end(110)
    assert not control.alive()
    for ask in (lambda: control.set_cores((0,)), control.pause, control.resume, lambda: control.set_weight(2.0)):
        with pytest.raises(ControlError) as caught:
            ask()
        assert caught.value.gone
    control.restore()


def test_the_rest_of_a_tree_lives_on_without_its_first(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    machine.end(100)
    assert control.alive()
    control.set_cores((2,))
    assert machine.affinities[110] == (2,)


def test_fewer_cores_than_asked_are_said(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    for tid in JOB:
        machine.cpuset_of[tid] = (0, 1)
    control.set_cores((1, 2))
    assert control.sentences() == ["job was to run on the CPUs 1-2 and runs on 1: its cpuset has no more"]
    assert control.sentences() == []


def test_no_core_in_common(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    for tid in JOB:
        machine.cpuset_of[tid] = (0,)
    with pytest.raises(
        ControlError, match=r"^job was to run on the CPUs 2-3 \(thread 100\): EINVAL, none of these .*; take"
    ):
        control.set_cores((2, 3))


def test_no_cores_at_all_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    control = control_on(machine_with_job(tmp_path))
    with pytest.raises(ControlError, match="empty list"):
        control.set_cores(())


# A recycled number


def test_a_recycled_number_is_never_touched(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.set_cores((1,))
    machine.end(100)
    machine.end(110)
    machine.spawn(100, start=99999, name="another")
    machine.calls.clear()
    for ask in (lambda: control.set_cores((0,)), control.pause, control.resume, lambda: control.set_weight(2.0)):
        with pytest.raises(ControlError) as caught:
            ask()
        assert caught.value.gone
    control.restore()
    assert not control.alive()
    assert {call for call, _ in machine.calls} <= {"read"}
    assert machine.signals == []


def test_a_number_recycled_between_look_and_signal_gets_none(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)

    def hold(pid: int) -> None:
        """The process ends and another one gets its number right before the signal."""
        machine.end(pid)
        machine.spawn(pid, start=99999)

    machine.hold = hold  # type: ignore[method-assign]
    control.pause()
    assert machine.signals == []


# Pause


def test_pause_and_resume(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    assert not control.paused()
    control.pause()
    assert control.paused()
    assert sorted(machine.signals) == [(100, signal.SIGSTOP), (110, signal.SIGSTOP)]
    control.resume()
    assert not control.paused()
    assert sorted(machine.signals[2:]) == [(100, signal.SIGCONT), (110, signal.SIGCONT)]


def test_one_process_that_runs_is_no_pause(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.pause()
    machine.state(110, "R")
    assert not control.paused()


def test_what_was_stopped_before_stays_so(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    for pid in (100, 110):
        machine.state(pid, "T")
    control = control_on(machine)
    control.restore()
    assert machine.signals == []


def test_a_refused_signal(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    machine.refusals["signal", "110"] = errno.EPERM
    with pytest.raises(
        ControlError, match=r"^job was to get SIGSTOP \(process 110\): EPERM, permission is missing; run"
    ):
        control.pause()


# Weight without groups


def test_weights_are_nice_values(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    machine.classes[101] = Attributes(Policy.BATCH)
    control = control_on(machine)
    control.set_weight(0.5)
    assert machine.classes[100] == machine.classes[110] == Attributes(nice=3)
    assert machine.classes[101] == Attributes(Policy.BATCH, nice=3)
    control.set_weight(LOWEST_WEIGHT)
    assert {machine.classes[tid].policy for tid in JOB} == {Policy.IDLE}
    control.set_weight(1.0)
    assert machine.classes[100] == Attributes()
    assert machine.classes[101] == Attributes(Policy.BATCH)
    assert control.sentences() == []


def test_a_weight_beyond_nice_values_is_said(tmp_path: Path) -> None:
    control = control_on(machine_with_job(tmp_path))
    control.set_weight(1000.0)
    (said,) = control.sentences()
    assert "was to have weight 1000 and has 86.7, nice -20" in said


def test_real_time_threads_keep_their_class(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    machine.classes[101] = Attributes(Policy.FIFO, priority=5)
    control = control_on(machine)
    control.set_weight(LOWEST_WEIGHT)
    assert machine.classes[101] == Attributes(Policy.FIFO, priority=5)
    assert "keeps real-time scheduling in 1 of its threads" in control.sentences()[0]


def test_becoming_more_urgent_without_the_right(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.set_weight(LOWEST_WEIGHT)
    machine.refusals["set_attributes", "OTHER"] = errno.EPERM
    with pytest.raises(
        ControlError, match=r"SCHED_OTHER, nice 0 .*EPERM, .* made less urgent, and not again more; run"
    ):
        control.set_weight(1.0)


@pytest.mark.parametrize(
    ("forbidden", "weight", "why"),
    [
        ("OTHER", LOWEST_WEIGHT, "SCHED_IDLE is needed, and it can be set and not taken back, EPERM"),
        ("IDLE", LOWEST_WEIGHT, "SCHED_IDLE is needed, and EPERM"),
        ("OTHER", 0.5, "a nice value of 3 is needed, and EPERM"),
    ],
)
def test_what_could_not_be_taken_back_is_not_set(tmp_path: Path, forbidden: str, weight: float, why: str) -> None:
    machine = machine_with_job(tmp_path)
    machine.classes[110] = Attributes(Policy.IDLE)
    before = dict(machine.classes)
    machine.refusals["set_attributes", forbidden] = errno.EPERM
    control = control_on(machine)
    with pytest.raises(ControlError, match=f"^job was to have weight .* .thread 10[01].: {why}"):
        control.set_weight(weight)
    assert {tid: machine.classes[tid] for tid in (100, 101)} == {tid: before[tid] for tid in (100, 101)}
    control.restore()
    assert machine.classes == before


def test_a_session_of_its_own_is_weighed_as_one(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    (machine.proc / "sys/kernel/sched_autogroup_enabled").write_text("1\n")
    (machine.proc / "100/autogroup").write_text("/autogroup-7 nice 4\n")
    control = control_on(machine)
    control.set_weight(LOWEST_WEIGHT)
    assert (machine.proc / "100/autogroup").read_text() == "19"
    assert control.saved()["autogroup"] == 4
    control.restore()
    assert (machine.proc / "100/autogroup").read_text() == "4"


def test_a_shared_session_is_left_alone_and_said(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100, session=90, group=90)
    (machine.proc / "sys/kernel/sched_autogroup_enabled").write_text("1\n")
    control = control_on(machine)
    control.set_weight(0.5)
    assert "count only within its session" in control.sentences()[0]
    assert (machine.proc / "100/autogroup").read_text() == "/autogroup-100 nice 0\n"


def test_no_quota_without_groups(tmp_path: Path) -> None:
    control = control_on(machine_with_job(tmp_path))
    control.set_quota(None)
    with pytest.raises(ControlError, match=r"1\.5 CPUs at most: .* no quota; make the cpu controller writable"):
        control.set_quota(1.5)


# Groups of their own


@KINDS
def test_the_tree_gets_a_group_of_its_own_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    machine = machine_with_job(tmp_path, kind)
    before = machine.snapshot()
    control = control_on(machine, "job/one")
    folder = machine.cgroup / ("" if kind == "v2" else "cpu") / "flowsched/job-one.100"
    assert sorted((folder / "cgroup.procs").read_text().split()) == ["100", "110"]
    control.set_weight(0.5)
    control.set_quota(1.5)
    file, quota = ("cpu.weight", "cpu.max") if kind == "v2" else ("cpu.shares", "cpu.cfs_quota_us")
    assert (folder / file).read_text() == ("50" if kind == "v2" else "512")
    assert (folder / quota).read_text() == ("150000 100000" if kind == "v2" else "150000")
    assert (folder.parent / file).read_text() == ("400" if kind == "v2" else "4096")
    assert machine.classes[100] == Attributes()
    control.restore()
    assert machine.snapshot() == before


@KINDS
def test_two_trees_share_the_parent(tmp_path: Path, kind: str) -> None:
    machine = machine_with_job(tmp_path, kind)
    machine.spawn(300)
    before, detected = machine.snapshot(), detect(machine, machine.subject)
    first = control_of_process("a", 100, detected, machine)
    second = control_of_process("b", 300, detected, machine)
    first.restore()
    second.set_weight(2.0)
    second.restore()
    assert machine.snapshot() == before


@KINDS
def test_processes_go_back_to_the_groups_that_they_came_from(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    tree = "" if kind == "v2" else "cpu,cpuacct"
    for path in ("/user/a", "/user/b"):
        machine.group(tree, path)
    machine.spawn(100, at={tree: "/user/a"})
    machine.spawn(110, parent=100, at={tree: "/user/b"})
    before = machine.snapshot()
    control = control_on(machine)
    machine.spawn(120, parent=100, at={tree: "/flowsched/job.100"})
    control.restore()
    assert machine._folder(tree, "/user/a/cgroup.procs").read_text().split() == ["100", "120"]
    machine.end(120)
    assert machine.snapshot() == before


@KINDS
def test_empty_groups_of_ended_processes_are_swept_away(tmp_path: Path, kind: str) -> None:
    machine = machine_with_job(tmp_path, kind)
    before, detected = machine.snapshot(), detect(machine, machine.subject)
    for pid in (300, 310, 320):
        machine.spawn(pid, group=300)
        control_of_process("job", pid, detected, machine)
    machine.end(300)
    machine.end(320)
    said = remove_empty_groups(machine, detected.hierarchies)
    assert [path.name for path in machine.cgroup.glob("flowsched/*.*0" if kind == "v2" else "cpu/flowsched/*.*0")] == [
        "job.310"
    ]
    assert len(said) == 2
    machine.end(310)
    remove_empty_groups(machine, detected.hierarchies)
    assert machine.snapshot() == before
    assert remove_empty_groups(machine, detected.hierarchies) == []


@KINDS
def test_what_an_agent_tried_with_is_swept_away_once_it_has_ended(tmp_path: Path, kind: str) -> None:
    machine = machine_with_job(tmp_path, kind)
    before, hierarchies = machine.snapshot(), detect(machine, machine.subject).hierarchies
    root = next(iter(hierarchies.trees().values()))
    machine.make_folder(root / "flowsched.probe.999")
    machine.make_folder(root / "flowsched.probe.200")
    (said,) = remove_empty_groups(machine, hierarchies)
    assert "flowsched.probe.999" in said
    machine.end(200)
    assert len(remove_empty_groups(machine, hierarchies)) == 1
    machine.spawn(200, name="stranger")
    assert machine.snapshot() == before


@KINDS
def test_a_group_is_waited_for_while_its_last_process_is_ending_and_not_while_one_lives(
    tmp_path: Path, kind: str
) -> None:
    machine = machine_with_job(tmp_path, kind)
    detected = detect(machine, machine.subject)
    control_of_process("job", 100, detected, machine)
    machine.end(100)
    begun_s = machine.now_s()
    assert remove_empty_groups(machine, detected.hierarchies, 2.0) == []
    assert machine.now_s() == begun_s
    machine.state(110, "Z")
    assert remove_empty_groups(machine, detected.hierarchies, 2.0) == []
    assert machine.now_s() == pytest.approx(begun_s + 2.0, abs=0.1)


@KINDS
@pytest.mark.parametrize("ended", ["none", "the first", "all", "before it was moved"])
def test_a_process_that_was_only_moved_leaves_no_group(tmp_path: Path, kind: str, ended: str) -> None:
    machine = machine_with_job(tmp_path, kind)
    before, detected = machine.snapshot(), detect(machine, machine.subject)
    saved = json.loads(json.dumps(origin_of(machine, detected.hierarchies, "job", 100)))
    if ended == "before it was moved":
        # The agent died when the group was just made.
        for folder in own_folders(detected.hierarchies, "job", 100).values():
            for path in (folder.parent, folder):
                if not path.exists():
                    machine.make_folder(path)
    else:
        control_of_process("job", 100, detected, machine)
    for pid in {"the first": (100,), "all": (100, 110)}.get(ended, ()):
        machine.end(pid)
    assert restore(saved, machine) == ["job is in its former group again (process 100)"]
    assert "flowsched" not in (machine.proc / "200/cgroup").read_text()
    assert set(machine.snapshot()) == set(before)
    assert restore(saved, machine) == []


def test_v2_switches_the_controller_on(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path, "v2", v2_given="")
    control = control_on(machine)
    control.set_weight(0.5)
    assert (machine.cgroup / "flowsched/job.100/cpu.weight").read_text() == "50"


@pytest.mark.parametrize(
    ("kind", "call", "part", "code", "why"),
    [
        ("v1", "write", "cgroup.procs", "EINVAL", "real-time scheduling and the group no real-time run time"),
        ("v2", "write", "cgroup.procs", "EBUSY", "takes no processes"),
        ("v2", "write", "subtree_control", "EBUSY", "processes are in that group itself"),
        ("v1", "make_folder", "flowsched/", "EROFS", "mounted read-only"),
    ],
)
def test_without_the_group_nice_values_do(tmp_path: Path, kind: str, call: str, part: str, code: str, why: str) -> None:
    machine = machine_with_job(tmp_path, kind, v2_given="")
    detected = detect(machine, machine.subject)
    machine.refusals[call, part] = getattr(errno, code)
    control = control_of_process("job", 100, detected, machine)
    (said,) = control.sentences()
    assert said.startswith("job is weighed by nice values and has no quota: ")
    assert code in said
    assert why in said
    control.set_weight(0.5)
    assert machine.classes[100].nice == 3
    assert not list(machine.cgroup.glob("**/job.100"))


def test_cpu_seconds_go_on_from_before_the_group(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path, "v1")
    control = control_on(machine)
    before = (100 + 101 + 110) * 1000e-9
    assert control.cpu_s() == pytest.approx(before)
    (machine.cgroup / "cpu/flowsched/job.100/cpuacct.usage").write_text("3000000000")
    assert control.cpu_s() == pytest.approx(before + 3.0)


def test_cpu_seconds_never_shrink(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    before = control.cpu_s()
    machine.end(110)
    machine.end_thread(100, 101)
    assert control.cpu_s() == before == pytest.approx((100 + 101 + 110) * 1000e-9)
    machine.spawn(140, parent=100)
    machine.clock_s += 2.0
    assert control.cpu_s() == pytest.approx(before + 140 * 1000e-9)


# Deadlines


def test_a_deadline_is_for_the_busiest_thread_and_widens_its_affinity(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.set_cores((1,))
    control.set_weight(0.5)
    control.set_deadline(Deadline(4400, 10_000))
    assert machine.classes[110] == Attributes(Policy.DEADLINE, 0, 0, 4_400_000, 10_000_000, 10_000_000, RESET_ON_FORK)
    assert machine.affinities[110] == (0, 1, 2, 3)
    assert machine.affinities[100] == (1,)
    assert machine.classes[100].nice == 3
    assert "3 threads, and a reservation is for one: thread 110" in control.sentences()[0]
    control.set_deadline(None)
    assert machine.classes[110] == Attributes(nice=3)
    assert len(machine.affinities[110]) == 1


def test_a_deadline_may_change_and_stays_with_its_thread(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.set_deadline(Deadline(4400, 10_000))
    (machine.proc / "100/task/100/schedstat").write_text("99999999 0 1\n")
    control.set_deadline(Deadline(2000, 10_000))
    assert machine.classes[110].runtime_ns == 2_000_000
    assert machine.classes[100] == Attributes()
    control.set_deadline(None)
    assert machine.classes[110] == Attributes()


def test_a_reservation_is_made_small_before_it_is_ended(tmp_path: Path) -> None:
    """Linux 6.1 never gives away again what a thread had that was asleep when its reservation ended."""

    class Watched(FakeMachine):
        given: list[Attributes]

        def set_attributes(self, tid: int, wanted: Attributes) -> None:
            self.given = [*getattr(self, "given", []), wanted]
            super().set_attributes(tid, wanted)

    machine = Watched(tmp_path, "v2")
    machine.spawn(100)
    detected = detect(machine, machine.subject)
    control = control_of_process("job", 100, detected, machine)
    control.set_deadline(Deadline(4400, 10_000))
    control.set_deadline(None)
    control.set_deadline(Deadline(4400, 10_000))
    control.restore()
    for before, after in pairwise(machine.given):
        if before.policy is Policy.DEADLINE and after.policy is not Policy.DEADLINE:
            assert before.runtime_ns * 2**20 < before.period_ns
    assert machine.given.count(Attributes(Policy.DEADLINE, 0, 0, 1024, 4 * 10**9, 4 * 10**9, RESET_ON_FORK)) == 3


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("EPERM", "permission is missing .* cpuset or affinity leaves out a CPU.*keeps its weight"),
        ("EBUSY", "more than the kernel admits; shorten .*keeps its weight"),
        ("EINVAL", "periods from 100 us to 4.19 s.*keeps its weight"),
        ("ENOSYS", "no such call"),
    ],
)
def test_a_refused_deadline_leaves_the_thread_as_it_was(tmp_path: Path, code: str, why: str) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.set_cores((1,))
    machine.refusals["set_attributes", "DEADLINE"] = getattr(errno, code)
    with pytest.raises(ControlError, match=f"job was to have 4400 us in every 10000 us .thread 110.: {code}, .*{why}"):
        control.set_deadline(Deadline(4400, 10_000))
    assert machine.affinities[110] == (1,)
    assert machine.classes[110] == Attributes()


@pytest.mark.parametrize(
    ("runtime_us", "period_us"),
    [(1.0, 10_000), (10, 20), (1000, 5e6), (20_000, 10_000), (0, 1000), (float("nan"), 1000)],
)
def test_what_no_kernel_takes_is_refused_without_asking(tmp_path: Path, runtime_us: float, period_us: float) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    machine.calls.clear()
    with pytest.raises(ControlError, match="no kernel takes that, for "):
        control.set_deadline(Deadline(runtime_us, period_us))
    assert "set_attributes" not in {call for call, _ in machine.calls}


def test_pinning_a_reserved_thread_is_refused_and_the_others_are_pinned(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    control = control_on(machine)
    control.set_deadline(Deadline(4400, 10_000))
    machine.refusals["set_affinity", "110"] = errno.EBUSY
    with pytest.raises(ControlError, match=r"thread 110\): EBUSY, it has a SCHED_DEADLINE reservation.*; end the"):
        control.set_cores((1,))
    assert machine.affinities[100] == machine.affinities[101] == (1,)


# Restore


def test_restore_gives_each_thread_its_own_and_new_ones_the_first(tmp_path: Path) -> None:
    machine = machine_with_job(tmp_path)
    machine.affinities[101] = (2,)
    machine.classes[101] = Attributes(Policy.BATCH, nice=7)
    classes, affinities = dict(machine.classes), dict(machine.affinities)
    control = control_on(machine)
    control.set_weight(LOWEST_WEIGHT)
    control.set_cores((0,))
    control.set_deadline(Deadline(1000, 10_000))
    control.pause()
    machine.spawn(120, parent=100)
    machine.classes[120] = replace(machine.classes[100])
    machine.affinities[120] = (0,)
    control.restore()
    control.restore()
    assert {**classes, 120: Attributes()} == machine.classes
    assert {**affinities, 120: (0, 1, 2, 3)} == machine.affinities
    assert not control.paused()


def test_what_is_saved_is_plain_json(tmp_path: Path) -> None:
    control = control_on(machine_with_job(tmp_path, "hybrid"))
    saved = control.saved()
    assert json.loads(json.dumps(saved)) == saved


def test_a_process_that_is_gone_is_not_steered(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    before = machine.snapshot()
    with pytest.raises(ControlError, match=r"vanished|gone") as caught:
        control_on(machine)
    assert caught.value.gone
    assert machine.snapshot() == before
