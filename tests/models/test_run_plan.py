"""Measuring one's own job: the machine, and which runs are made on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from small_machines import FOUR, SMT

from flowsched_models.measuring.aggressor import AGGRESSORS
from flowsched_models.measuring.run_plan import ResultTable, default_threads, plan_runs
from flowsched_models.measuring.topology import read_topology


def machine(root: Path, siblings: Sequence[str], caches: Sequence[str], governor: str = "") -> Path:
    """The files in which Linux describes a machine; one entry per CPU."""
    cpus = root / "sys/devices/system/cpu"
    files = {cpus / "online": f"0-{len(siblings) - 1}", root / "proc/meminfo": "MemTotal:        8388608 kB\nX: 1 kB"}
    for k, (shared, cache) in enumerate(zip(siblings, caches, strict=True)):
        files[cpus / f"cpu{k}/topology/thread_siblings_list"] = shared
        files[cpus / f"cpu{k}/cache/index0/level"] = "1"
        files[cpus / f"cpu{k}/cache/index0/shared_cpu_list"] = shared
        files[cpus / f"cpu{k}/cache/index3/level"] = "3"
        files[cpus / f"cpu{k}/cache/index3/shared_cpu_list"] = cache
        if governor:
            files[cpus / f"cpu{k}/cpufreq/scaling_governor"] = governor
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_one_thread_of_every_physical_core_comes_first(tmp_path: Path) -> None:
    halves = machine(tmp_path / "a", ["0,4", "1,5", "2,6", "3,7"] * 2, ["0-7"] * 8)
    pairs = machine(tmp_path / "b", ["0-1", "0-1", "2-3", "2-3"], ["0-3"] * 4)
    assert read_topology(halves, range(8)).physical_first() == (0, 1, 2, 3, 4, 5, 6, 7)
    topology = read_topology(pairs, range(4))
    assert topology.physical_first() == (0, 2, 1, 3)
    assert (topology.vcpus, topology.smt, topology.halves, topology.memory_mib) == (4, True, False, 8192)
    assert read_topology(pairs, [1, 2, 3]).physical_first() == (1, 2, 3)


def test_the_other_core_shares_the_cache_and_not_the_physical_core(tmp_path: Path) -> None:
    sockets = machine(tmp_path / "a", ["0,4", "1,5", "2,6", "3,7"] * 2, ["0,2,4,6", "1,3,5,7"] * 4)
    assert read_topology(sockets, range(8)).other(0) == 2
    assert read_topology(sockets, [0, 1, 4]).other(0) == 1, "another cache is better than the same physical core"
    assert read_topology(sockets, [0, 4]).other(0) == 4
    assert read_topology(sockets, [0]).other(0) is None


def test_a_machine_that_tells_nothing_is_taken_as_simple(tmp_path: Path) -> None:
    topology = read_topology(tmp_path, [0, 1])
    assert (topology.siblings, topology.caches) == (((0,), (1,)), ((0, 1),))
    assert list(topology.warnings()) == []


def test_what_makes_times_unsteady_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0-1", "0-1", "2-3", "2-3"], ["0-3"] * 4, governor="powersave")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text("150000 100000\n")
    said = " ".join(read_topology(root, range(4)).warnings())
    assert "'powersave'" in said
    assert "the time of 1.5 CPUs" in said
    assert "not numbered k and k + vcpus/2" in said


def test_the_sweep_has_as_many_cores_as_threads() -> None:
    plan = plan_runs(SMT, [1, 2, 4, 8], [], runs=1, sharing=False)
    assert [str(r.setup) for r in plan.runs] == [
        "1 thread on core 0",
        "2 threads on cores 0-1",
        "4 threads on cores 0-3",
        "8 threads on cores 0-3",
    ]
    assert default_threads(FOUR) == (1, 2, 4)
    assert default_threads(replace(FOUR, cores=(0, 1, 2))) == (1, 2, 3)


def test_aggressors_on_the_core_and_beside_it() -> None:
    plan = plan_runs(FOUR, [1], list(AGGRESSORS), runs=1)
    places = {
        r.setup.interference: r.setup.aggressor_core for r in plan.runs if r.setup.table is ResultTable.INTERFERENCE
    }
    assert places == {"none": None, "cpu": 0, "l1d": 0, "l1i": 0, "l2": 0, "llc": 1, "membw": 1}
    assert plan.notes == ("two copies beside each other are left out: they need two cores",)


def test_what_a_machine_cannot_show_is_said() -> None:
    one = plan_runs(replace(FOUR, cores=(0,)), [1], ["cpu", "llc"], runs=1, sharing=False)
    assert [r.setup.interference for r in one.runs[1:]] == ["none", "cpu"]
    assert one.notes == ("llc is left out: it needs a second core, and there is only core 0 to use",)
    (note,) = plan_runs(replace(SMT, cores=(0, 2)), [1], ["llc"], runs=1, sharing=False).notes
    assert note.startswith("llc runs on core 2, a hardware thread of the program's core")


def test_two_copies_on_the_same_cores_and_apart_on_whole_physical_cores() -> None:
    pairs = [r.setup for r in plan_runs(SMT, [4], [], runs=1).runs if r.setup.table is ResultTable.EXECUTIONS]
    assert [[(c.threads, c.cores) for c in s.copies] for s in pairs] == [
        [(4, (0, 1, 2, 3)), (4, (0, 1, 2, 3))],
        [(2, (0, 2)), (2, (1, 3))],
    ]
    assert [s.bounds for s in pairs] == [(0.5, 2.0), (0.5, 1.0)]


def test_rounds_go_over_all_setups() -> None:
    plan = plan_runs(FOUR, [1, 2], ["llc"], runs=3)
    assert [r.number for r in plan.runs] == [1] * 6 + [2] * 6 + [3] * 6
    assert len({(r.setup, r.number) for r in plan.runs}) == 18
    low, high, rest_s = plan.bounds(2.0)
    assert 0 < low < high
    assert rest_s == 36
