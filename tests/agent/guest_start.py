"""What the emulated machine runs: tests where no controller is on yet, then all others in groups as systemd makes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from agent_under_fire import fork_ready

HERE = Path(__file__).parent
CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = CGROUP / "system.slice" / "tests.service"
OPTIONS = (
    "-v",
    "--noconftest",
    "-p",
    "no:cacheprovider",
    "--durations=0",
    "--durations-min=3",
    "-o",
    "junit_family=xunit1",
    # No faulthandler_timeout: to look at the frames of a thread that runs may crash the interpreter, and did.
)
BARE = (
    "test_control_real.py::test_every_thread_is_pinned_and_comes_back",
    "test_control_real.py::test_cpu_time_stands_still_while_paused",
    "test_control_real.py::test_weight_and_quota_of_an_own_group",
    "test_control_real.py::test_real_time_scheduling_is_not_inherited",
    "test_control_real.py::test_a_reservation_and_its_end",
    "test_control_real.py::test_pinning_and_reservations_exclude_one_another",
    "test_control_real.py::test_what_a_killed_agent_leaves_is_brought_back",
)
"""On a kernel as it is after the start: every process in the root group, every controller off below it."""
AS_UNDER_SYSTEMD = (
    "guest_deadlines.py",
    "guest_controls.py",
    "test_agent_restores.py::test_an_agent_that_is_killed_at_any_moment_leaves_nothing_behind",
    "test_agent_restores.py::test_an_agent_that_is_asked_to_end_puts_everything_back[15]",
    "test_agent_restores.py::test_restore_puts_back_what_an_agent_left_that_died_with_its_watchdog",
    "guest_agent.py",
)


def lay_out() -> None:
    """Groups as systemd makes them: services in a slice, no process in the root, controllers handed down."""
    for group in (CGROUP / "init.scope", OWN_GROUP):
        group.mkdir(parents=True, exist_ok=True)
    (CGROUP / "init.scope/cgroup.procs").write_text("1")
    (OWN_GROUP / "cgroup.procs").write_text(str(os.getpid()))
    for folder in (CGROUP, CGROUP / "system.slice"):
        (folder / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +pids")


def run(tests: Sequence[str], report: Path) -> int:
    """Exit code of pytest."""
    return int(pytest.main([*OPTIONS, f"--junitxml={report}", *(str(HERE / test) for test in tests)]))


def main() -> int:
    """0 if all passed."""
    reports = Path(sys.argv[1])
    only = sys.argv[2:]
    bare = 0 if only else run(BARE, reports / "bare.xml")
    lay_out()
    fork_ready()
    return run(only or AS_UNDER_SYSTEMD, reports / "systemd.xml") or bare


if __name__ == "__main__":
    sys.exit(main())
