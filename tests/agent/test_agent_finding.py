"""Which processes a target may be: never another's, never those that the agent itself hangs on."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from flowsched_agent.actuator import LinuxActuator
from flowsched_agent.commands.agent import agent
from flowsched_agent.configuration import Find
from flowsched_agent.controls.refusals import ControlError

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper():
    process = subprocess.Popen(SLEEP, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_process_of_one_target_is_not_another_s(sleeper):
    actuator = LinuxActuator()
    assert actuator.find("service", Find(pid=sleeper.pid), lambda _: None) is not None
    cores = os.sched_getaffinity(sleeper.pid)
    with pytest.raises(ControlError, match="belongs to service already"):
        actuator.find("job", Find(pid=sleeper.pid), lambda _: None)
    assert os.sched_getaffinity(sleeper.pid) == cores


def test_the_same_target_may_be_found_again(sleeper):
    actuator = LinuxActuator()
    for _ in range(2):
        assert actuator.find("service", Find(pid=sleeper.pid), lambda _: None) is not None


def test_no_pattern_means_the_agent_or_who_started_it(sleeper):
    found = LinuxActuator()._pid_of_command_line(__import__("re").compile("."))
    assert found not in {1, os.getpid(), os.getppid()}


def test_restoring_tells_scripts_what_came_of_it(tmp_path):
    missing = CliRunner().invoke(agent, ["restore", "--state", str(tmp_path / "none.json")], standalone_mode=False)
    assert missing.return_value == 0
    assert "there is no state file" in missing.output
    garbled = tmp_path / "state.json"
    garbled.write_text("{bad", encoding="utf-8")
    result = CliRunner().invoke(agent, ["restore", "--state", str(garbled)], standalone_mode=False)
    assert result.return_value == 1
    assert "nothing could be restored" in result.output
