"""One task of a round of flow as its record has it, and the models restored where that can be."""

from __future__ import annotations

from functools import cached_property

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.errors import RestoreError
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.restored_round import RestoredRound, remembered, restore
from flowsched.inspector.task_reader import TaskReader
from flowsched.pricing.arrival import Colocation
from flowsched.records.snapshot_types import RecordedTask


class FlowTask(TaskReader):
    """A task of a part that flow decided, or a baseline."""

    def __init__(self, recorded: RecordView, part: Part, name: str) -> None:
        """Restore the models, where that can be; ``closed_because`` says why they cannot say more than the record."""
        super().__init__(recorded, part, name)
        self.opened: RestoredRound | None = None
        self.closed_because: str | None = None
        try:
            self.opened = restore(recorded, part)
        except RestoreError as reason:
            self.closed_because = str(reason)

    @cached_property
    def plain(self) -> RecordedTask:
        """The task as the snapshot has it."""
        return next(t for t in self.part.forecast["snapshot"]["pending"] if t["name"] == self.name)

    @property
    def restored(self) -> RestoredRound:
        """The models; only where they are there."""
        assert self.opened is not None, "this needs the models"
        return self.opened

    @property
    def due_age_s(self) -> float | None:
        """After how many seconds of waiting it is overdue; the setting where the models are not there."""
        return self.recorded.settings.get("due_age_s") if self.opened is None else self.opened.overdue_age_s(self.name)

    @property
    def number(self) -> int:
        """Its index in the view."""
        return self.restored.task_number[self.name]

    @property
    def task_class(self) -> int:
        """Its class in the view."""
        return self.restored.model.view.class_of[self.number]

    @property
    def width_milli(self) -> int:
        """The narrowest width that it may have."""
        if self.opened is not None:
            return self.opened.task(self.name).widths_milli[0]
        return round(1000 * float(min(self.plain["widths"])))

    @property
    def ended_early(self) -> bool:
        """Whether the round had used up its forecasts."""
        return int(self.part.counts.get("forecasts", 0)) >= int(self.recorded.settings.get("pricings", 1 << 62))

    @property
    def rounds_waited(self) -> int:
        """Rounds before this one."""
        return int(self.plain.get("rounds_waited", 0))

    @property
    def makespan(self) -> bool:
        """Whether the round's objective was the makespan."""
        return self.recorded.settings.get("objective") == "makespan"

    def others_on(self, machine: int) -> Colocation:
        """What starts on a machine or is planned there beside it."""
        return self.restored.decided.colocation(machine, without=self.number)

    @property
    def own_machine(self) -> int | None:
        """The machine where it starts or is planned, if there is one."""
        option = self.restored.decided.options[self.number]
        return None if option is None else option.machine

    @property
    def starting(self) -> int | None:
        """Its index in the view, if it starts now."""
        option = self.restored.decided.options[self.number]
        return self.number if option is not None and option.start_after == 0 else None


@remembered
def counts_without(opened: RestoredRound, task: int | None) -> DomainCounts:
    """What relations count once all that starts now has started, one task left out if it does; not to be changed."""
    model, starting = opened.model, opened.decided.starting()
    return model.view.counted_with((t, m) for t, m in starting if t != task and model.related(t))
