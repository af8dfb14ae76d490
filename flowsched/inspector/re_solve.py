"""Solving the parts of a record again, from what the record holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.snapshot_dump import read_plain_snapshot
from flowsched.inspector.consistency import FAULTS, told
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.terms import Terms, cost_model_of, has_cost_model
from flowsched.records.level_types import LinearLevel
from flowsched.records.record import LINEAR
from flowsched.solvers import make_solver
from flowsched_models.document import InputError

if TYPE_CHECKING:
    # Compiled code takes a while to load, and only records with parts of this kind need it.
    from flowsched.round.linear.cluster_rows import ClusterRows
    from flowsched.round.linear.linear_round import RoundSettings


def snapshot_of(recorded: RecordView, part: Part) -> Snapshot:
    """The snapshot of a level that has one. Raises :class:`InputError` for a damaged one."""
    assert part.snapshot is not None, "it has one"
    with damaged(recorded, part):
        return read_plain_snapshot(part.snapshot)


def snapshots_of(recorded: RecordView) -> dict[int, Snapshot]:
    """By the index of their level, all that there are. Raises :class:`InputError` for a damaged one."""
    return {part.index: snapshot_of(recorded, part) for part in recorded.parts if part.snapshot is not None}


def decisions_of(recorded: RecordView) -> list[list[Part]]:
    """The parts that were decided together: one after the other, but for the levels of a decision at linear prices."""
    found: list[list[Part]] = []
    for part in recorded.parts:
        before = found[-1][0] if found else None
        linear = before is not None and not (before.by_forecasts or part.by_forecasts)
        if before is not None and linear and _decision(before) == _decision(part):
            found[-1].append(part)
        else:
            found.append([part])
    return found


def _decision(part: Part) -> int:
    return part.linear["given"]["decision"]


def linear_round_of(recorded: RecordView, parts: Sequence[Part]) -> tuple[ClusterRows, RoundSettings]:
    """The cluster that a decision at linear prices began with, and its settings. Raises :class:`InputError` for damaged
    ones.
    """
    from flowsched.round.linear.recorded import read_linear_cluster, read_round_settings

    with damaged(recorded, parts[0]):
        ask = partial(cost_model_of, recorded) if has_cost_model(recorded) else None
        settings = read_round_settings(parts[0].linear["given"]["settings"])
        return read_linear_cluster(_plain(parts), ask), settings


def _plain(parts: Sequence[Part]) -> list[LinearLevel]:
    return [part.linear for part in parts]


@contextmanager
def damaged(recorded: RecordView, part: Part, verb: str = "read") -> Iterator[None]:
    """Whatever goes wrong with the values of a part is said in one sentence: that they cannot be read, or solved."""
    try:
        yield
    except InputError:
        # Some are errors of a lookup too.
        raise
    except FAULTS as error:
        message = f"is damaged, it cannot be {verb}: {told(error)}"
        raise InputError.one(recorded.source, message, key=f"parts[{part.index}]") from error


def decide_again(terms: Terms, snapshot: Snapshot, priority: int | None) -> list[dict[str, Any]]:
    """The parts of a record that a round on a snapshot is. ``priority``: of all its tasks, where they go by it."""
    record = terms.scheduler.decide(snapshot).record
    assert record is not None, "the scheduler keeps records"
    return [
        dict(part) if priority is None or part["prices"] == LINEAR else {**part, "priority": priority}
        for part in record["parts"]
    ]


def place_again(
    cluster: ClusterRows, settings: RoundSettings, solver: str, parts: Sequence[Part]
) -> list[dict[str, Any]]:
    """The parts of a record that a decision on rows is; ``parts``: those that it was."""
    from flowsched.round.linear.recorded import decided

    return decided(cluster, settings, make_solver(solver), _plain(parts))


def solve_all_again(recorded: RecordView, terms: Terms) -> list[dict[str, Any]]:
    """All parts as the round had them, solved again. Raises :class:`InputError` for damaged ones."""
    return [part for parts in decisions_of(recorded) for part in _solve_again(recorded, parts, terms)]


def _solve_again(recorded: RecordView, parts: Sequence[Part], terms: Terms) -> list[dict[str, Any]]:
    """A decision as the round had it, solved again. Raises :class:`InputError` for a damaged one."""
    part = parts[0]
    if part.snapshot is None:
        cluster, settings = linear_round_of(recorded, parts)
        with damaged(recorded, part, "solved again"):
            return place_again(cluster, settings, terms.solver, parts)
    snapshot = snapshot_of(recorded, part)
    with damaged(recorded, part, "solved again"):
        return decide_again(terms, snapshot, part.priority)
