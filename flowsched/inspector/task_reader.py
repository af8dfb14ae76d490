"""One task of a level, and what became of it: what readers of forecast prices and of linear ones have in common."""

from __future__ import annotations

from flowsched.inspector.record_view import Part, Placed, RecordView, Waits


class TaskReader:
    """A task of a part, exactly one of whose ``placed`` and ``waits`` is there."""

    def __init__(self, recorded: RecordView, part: Part, name: str) -> None:
        """Raises ``ValueError`` where the part does not say what became of it."""
        self.recorded, self.part, self.name = recorded, part, name
        self.placed, self.waits = part.outcome_of(name)

    @property
    def place(self) -> Placed:
        """Where it starts; only of one that does."""
        assert self.placed is not None, "it is placed"
        return self.placed

    @property
    def wait(self) -> Waits:
        """Why it waits; only of one that does."""
        assert self.waits is not None, "it waits"
        return self.waits
