"""Solving a part of a record again, from what the record holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHOICES, RANGES, WORDS
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.snapshot_dump import read_plain_snapshot
from flowsched.disaggregation.registry import DISAGGREGATION_POLICIES, make_disaggregation
from flowsched.disaggregation.settings import DisaggregationSettings
from flowsched.inspector.consistency import FAULTS, told
from flowsched.inspector.record_view import Part, RecordView
from flowsched.records.level_types import LinearLevel
from flowsched.records.record import COST_MODEL, writer
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import SOLVERS, make_solver
from flowsched_models.document import InputError, Problem, name_help

if TYPE_CHECKING:
    # Compiled code takes a while to load, and only records with parts of this kind need it.
    from flowsched.pricing.linear.policy import CostModel
    from flowsched.round.linear.cluster_rows import ClusterRows
    from flowsched.round.linear.linear_round import RoundSettings

POLICY = COST_MODEL
"""The policy whose levels at forecast prices can be solved again."""


@dataclass(frozen=True)
class Terms:
    """Settings and solver that a record's round is solved again with, and what had to be assumed about them."""

    settings: Settings
    solver: str
    notes: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    """That another version wrote the record, where that is known."""


def check_solvable(recorded: RecordView) -> None:
    """Whether the record holds all that its round depended on. Raises :class:`InputError` where it does not."""
    problems = []
    if recorded.policy != POLICY and not (of_networks(recorded) or of_model(recorded) or of_phases(recorded)):
        message = f"its round was decided by {recorded.policy}; only rounds of {POLICY} can be solved again"
        help = "flowsched solve RECORD solves its snapshot with flow"
        problems.append(Problem(recorded.source, None, "policy", message, help))
    elif not recorded.parts:
        problems.append(Problem(recorded.source, None, "parts", "the record has no parts: nothing was pending"))
    if problems:
        raise InputError(problems)


def of_networks(recorded: RecordView) -> bool:
    """Whether a record is of a cost model other than ``flow``, with the settings of its rounds: the model is not asked."""
    linear = bool(recorded.parts) and not any(part.by_forecasts for part in recorded.parts)
    return linear and recorded.policy != POLICY and not of_model(recorded)


def of_phases(recorded: RecordView) -> bool:
    """Whether a record is of one of DRMaestro's policies."""
    return recorded.policy in DISAGGREGATION_POLICIES


def of_model(recorded: RecordView) -> bool:
    """Whether a record is of a round on Kubernetes with a cost model beside ``flow``."""
    return "cost_model" in recorded.plain


def _make_model(recorded: RecordView) -> CostModel:
    """The cost model of a record. Raises :class:`InputError` where it is not installed, or has other settings by now."""
    from flowsched.round.linear.choice import configured

    plain = recorded.plain["cost_model"]
    return configured(plain["name"], plain["settings"])


def read_terms(recorded: RecordView) -> Terms:
    """Settings and solver of a record. Raises :class:`InputError` for a solver that there is not."""
    version: tuple[str, ...] = ()
    theirs, ours = recorded.plain.get("writer"), writer()
    if theirs != ours:
        who = theirs or "a flowsched that did not say its version"
        version = (f"the record was written by {who}, this is {ours}: decisions may differ for that alone",)
    foreign = of_networks(recorded) or of_phases(recorded)
    settings, odd = (Settings(), ()) if foreign else read_settings(recorded)
    notes = list(odd)
    if recorded.plain.get("reproducible") is False:
        notes.append("a time limit stopped the solver in this round: decisions may differ for that alone")
    solver = recorded.solver
    if solver not in SOLVERS:
        message = f"there is no solver '{solver}'"
        help = f"{name_help(solver, SOLVERS)}; whatif --solver NAME takes another one"
        raise InputError.one(recorded.source, message, help, key="solver")
    return Terms(settings, solver, tuple(notes), version)


def read_settings(recorded: RecordView) -> tuple[Settings, tuple[str, ...]]:
    """A record's settings, and what is odd about them."""
    known = {f.name for f in fields(Settings)}
    given = dict(recorded.settings)
    notes = []
    foreign = sorted(given.keys() - known)
    if foreign:
        notes.append(f"settings that this flowsched does not have are left out: {', '.join(foreign)}")
    missing = sorted(known - given.keys())
    if missing:
        notes.append(f"settings that the record does not have are at their defaults: {', '.join(missing)}")
    usable = {k: v for k, v in given.items() if k in known}
    _check_settings(recorded, usable)
    return Settings(**usable), tuple(notes)


def _check_settings(recorded: RecordView, given: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for values of another type than a setting's, and for counts with which no round ends."""
    problems = []
    for key, value in given.items():
        usual = getattr(Settings(), key)
        if isinstance(usual, bool):
            good, must = isinstance(value, bool), "true or false"
        elif key in WORDS:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            good, must = number or value == WORDS[key], f"'{WORDS[key]}' or a number"
        elif isinstance(usual, str):
            good, must = value in CHOICES[key], " or ".join(CHOICES[key])
        elif isinstance(usual, int):
            least, most = RANGES[key]
            good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
            must = f"a whole number from {least} to {most}"
        else:
            good, must = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        if not good:
            problems.append(Problem(recorded.source, None, f"settings.{key}", f"is damaged: it must be {must}"))
    if problems:
        raise InputError(problems)


def snapshot_of(recorded: RecordView, part: Part) -> Snapshot:
    """The snapshot of a level at forecast prices. Raises :class:`InputError` for a damaged one."""
    with damaged(recorded, part):
        return read_plain_snapshot(part.forecast["snapshot"])


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
        ask = partial(_make_model, recorded) if of_model(recorded) else None
        settings = read_round_settings(parts[0].linear["given"]["settings"])
        return read_linear_cluster(_plain(parts), ask), settings


def _plain(parts: Sequence[Part]) -> list[LinearLevel]:
    return [part.linear for part in parts]


@contextmanager
def damaged(recorded: RecordView, part: Part, verb: str = "read") -> Iterator[None]:
    """Whatever goes wrong with the values of a part is said in one sentence: that they cannot be read, or solved."""
    try:
        yield
    except FAULTS as error:
        message = f"is damaged, it cannot be {verb}: {told(error)}"
        raise InputError.one(recorded.source, message, key=f"parts[{part.index}]") from error


def forecast_again(snapshot: Snapshot, settings: Settings, solver: str, priority: int | None) -> dict[str, Any]:
    """The part of a record that a round of ``flow`` on a snapshot is."""
    scheduler = FlowScheduler(make_solver(solver), settings, keep_records=True)
    record = scheduler.decide(snapshot).record
    assert record is not None, "the scheduler keeps records"
    return {**record["parts"][0], **({} if priority is None else {"priority": priority})}


def phases_again(recorded: RecordView, part: Part, solver: str) -> dict[str, Any]:
    """The part of a record that a round of one of DRMaestro's policies is."""
    settings = DisaggregationSettings(**recorded.settings)
    scheduler = make_disaggregation(recorded.policy, make_solver(solver), settings, keep_records=True)
    record = scheduler.decide(snapshot_of(recorded, part)).record
    assert record is not None, "the scheduler keeps records"
    return dict(record["parts"][0])


def place_again(
    cluster: ClusterRows, settings: RoundSettings, solver: str, parts: Sequence[Part]
) -> list[dict[str, Any]]:
    """The parts of a record that a decision on a cluster is; ``parts``: those that it was."""
    from flowsched.round.linear.recorded import decided

    return decided(cluster, settings, make_solver(solver), _plain(parts))


def solve_all_again(recorded: RecordView, terms: Terms) -> list[dict[str, Any]]:
    """All parts as the round had them, solved again. Raises :class:`InputError` for damaged ones."""
    return [part for parts in decisions_of(recorded) for part in _solve_again(recorded, parts, terms)]


def change_all_again(recorded: RecordView, terms: Terms) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What a decision at linear prices says that it changed of running tasks, and what is changed now; None where nothing
    may be. Raises :class:`InputError` for a damaged record.
    """
    for parts in decisions_of(recorded):
        if parts[0].by_forecasts or "changes" not in parts[0].linear["given"]:
            continue
        from flowsched.round.linear.recorded import change_again, told_changes

        with damaged(recorded, parts[0], "solved again"):
            return told_changes(parts[0].plain), change_again(_plain(parts), make_solver(terms.solver))
    return None


def _solve_again(recorded: RecordView, parts: Sequence[Part], terms: Terms) -> list[dict[str, Any]]:
    """A decision as the round had it, solved again. Raises :class:`InputError` for a damaged one."""
    part = parts[0]
    if not part.by_forecasts:
        cluster, settings = linear_round_of(recorded, parts)
        with damaged(recorded, part, "solved again"):
            return place_again(cluster, settings, terms.solver, parts)
    if of_phases(recorded):
        with damaged(recorded, part, "solved again"):
            return [phases_again(recorded, part, terms.solver)]
    snapshot = snapshot_of(recorded, part)
    with damaged(recorded, part, "solved again"):
        return [forecast_again(snapshot, terms.settings, terms.solver, part.priority)]
