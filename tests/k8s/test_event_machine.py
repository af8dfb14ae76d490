"""Whatever happens, and in whatever order it becomes known: a file of events is played to the rounds that there were."""

from __future__ import annotations

import tempfile
from pathlib import Path

from events_recorded import Inputs, Recorded, differences, played_inputs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from test_state_machine import PICK, Loads, Neighbours, Preemptions, Wanted, pods

from flowsched_k8s.events.event_file import numbered
from flowsched_k8s.events.event_player import play
from flowsched_models.profiles import load_catalogue

FILES = 400


class RecordedHappenings(Preemptions):
    """The same, recorded; files are small, so that one is often followed by another in the middle of a run."""

    @initialize(
        count=st.sampled_from((3, 4, 2, 1, 0)),
        wanted=st.lists(pods(), max_size=6),
        most_bytes=st.sampled_from((2_000, 20_000, 1 << 30)),
    )
    def begin(self, count: int, wanted: list[Wanted], most_bytes: int = 1 << 30) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.most_bytes = most_bytes
        self.set_up(count, wanted)
        self.record()

    def record(self) -> None:
        name = f"events-{len(list(Path(self.folder.name).iterdir()))}.jsonl"
        self.recorded = Recorded(self.running, Path(self.folder.name) / name, self.most_bytes, FILES)

    @rule()
    def profiles(self) -> None:
        """They are read again, with what forecasts know."""
        self.running.state.use_catalogue(load_catalogue(), self.server.now)

    @rule()
    def restart(self) -> None:
        self.check_file()
        super().restart()
        self.record()

    @rule(pick=PICK)
    def tidy(self, pick: int) -> None:
        if pick == 0:
            self.running.state.tidy()

    def check_file(self) -> None:
        path = self.recorded.done()
        found: Inputs = {}
        for file in (path, *(numbered(path, number) for number in range(1, FILES))):
            if file.exists():
                found |= played_inputs(file)
                played = play(file)
                assert played.same, played.verdict()
        wrong = differences(found, self.recorded.inputs)
        assert not wrong, wrong[0]

    def teardown(self) -> None:
        if not hasattr(self, "recorded"):
            return
        super().teardown()
        self.check_file()
        self.folder.cleanup()


class RecordedNeighbours(RecordedHappenings):
    """With a cost model beside flow, which places all pods and looks at what they say of themselves."""

    configuration = Neighbours.configuration


class RecordedLoads(RecordedHappenings):
    """And with one that has settings of its own."""

    configuration = Loads.configuration.model_copy(update={"features": Neighbours.configuration.features})


TestRecordedHappenings = RecordedHappenings.TestCase
TestRecordedHappenings.settings = settings(max_examples=20, stateful_step_count=50)
TestRecordedNeighbours = RecordedNeighbours.TestCase
TestRecordedNeighbours.settings = settings(max_examples=15, stateful_step_count=50)
TestRecordedLoads = RecordedLoads.TestCase
TestRecordedLoads.settings = settings(max_examples=15, stateful_step_count=50)
