"""What a long simulation says of itself while it runs."""

from __future__ import annotations

from threading import Event

import pytest

from flowsched.commands import status_line
from flowsched.commands.status_line import StepLine
from flowsched_simulator.commands.run_progress import RunProgress


class Told:
    """What a progress has written, at times that the test sets."""

    def __init__(self, terminal: bool) -> None:
        self.now_s = 1000.0
        self.written: list[str] = []
        self.progress = RunProgress(terminal=terminal, clock=lambda: self.now_s, write=self.written.append)


def test_into_a_pipe_a_beat_tells_simulated_and_wall_time() -> None:
    told = Told(terminal=False)
    with told.progress as progress:
        progress.beat()
        assert told.written == [], "nothing is known yet"
        progress.show("flow", "", 0.0, 0, 40)
        told.now_s += 12.0
        progress.show("flow", "", 532.4, 12, 40)
        assert told.written == [], "only a beat tells"
        progress.beat()
        told.now_s += 10.0
        progress.beat()  # a round that takes long: the same, later
    assert told.written == [
        "flow: 12 of 40 jobs done, simulated 532 s, after 12 s\n",
        "flow: 12 of 40 jobs done, simulated 532 s, after 22 s\n",
    ]


def test_into_a_pipe_each_policy_has_a_line_when_it_is_done() -> None:
    told = Told(terminal=False)
    with told.progress as progress:
        progress.show("flow", "", 138.8, 7, 7)
        told.now_s += 3.0
        progress.show("fcfs", "1, own", 10.0, 1, 7)
        progress.show("fcfs", "1, own", 200.0, 7, 7)
        progress.show("fcfs", "2, own", 180.0, 7, 7)
        progress.beat()
    assert told.written == [
        "flow: 7 jobs done, simulated 139 s, after 3 s\n",
        "fcfs: 7 jobs done, 2 runs, after 0 s\n",
    ]


def test_on_a_terminal_one_line_is_written_over() -> None:
    told = Told(terminal=True)
    with told.progress as progress:
        progress.show("flow", "", 100.0, 10, 40)
        told.now_s += 5.0
        progress.show("flow", "", 3.0, 1, 2)
    first, second, cleared = told.written
    assert first == "\rflow: 10 of 40 jobs done, simulated 100 s, after 0 s"
    assert second.rstrip() == "\rflow: 1 of 2 jobs done, simulated 3 s, after 5 s"
    assert len(second) == len(first), "nothing is left of the longer line"
    assert cleared.strip() == ""


def test_a_step_tells_a_terminal_once_it_takes_long_and_clears_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    shown = Event()

    def write(text: str) -> None:
        told.append(text)
        shown.set()

    with StepLine("writing", terminal=True, clock=lambda: 7.0, write=write):
        pass
    assert "".join(told).strip() == "", "it was done at once"
    shown.clear()
    monkeypatch.setattr(status_line, "PATIENCE_S", 0.0)
    with StepLine("writing", terminal=True, clock=lambda: 7.0, write=write):
        assert shown.wait(60.0)
    line = "writing, after 0 s"
    assert told[1] == f"\r{line}" and told[-1] == "\r" + " " * len(line) + "\r"
