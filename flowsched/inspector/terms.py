"""How the round of a record is decided again: by its policy, settings and solver, or by others that a what-if gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from flowsched.cluster.decision import Scheduler
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHOICES, RANGES, WORDS, Readers, apply_settings
from flowsched.disaggregation.registry import DISAGGREGATION_POLICIES, chosen_settings, make_disaggregation
from flowsched.disaggregation.settings import DisaggregationSettings
from flowsched.errors import PolicyError
from flowsched.inspector.record_view import RecordView
from flowsched.records.record import COST_MODEL, writer
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import SOLVERS, make_solver
from flowsched_models.document import InputError, Problem, name_help
from flowsched_models.picked_fields import picked

if TYPE_CHECKING:
    from flowsched.pricing.linear.policy import CostModel

ROWS_SETTINGS = ("due_age_s", "scoring")
"""Those of the engine that a round on Kubernetes with a cost model beside ``flow`` reads."""
_DECIDED = "its round was decided by {}"
POLICY = COST_MODEL
"""The policy whose levels at forecast prices can be explained by its models."""


@dataclass(frozen=True)
class Terms:
    """What decides the round of a record again, and what had to be assumed about it."""

    settings: Settings
    """Those of the engine, as far as its policy reads them."""
    solver: str
    scheduler: Scheduler
    """Decides a snapshot, and keeps the record."""
    plain: Mapping[str, Any]
    """``settings`` as a record has them, and the ``cost_model`` where there is one beside ``flow``."""
    notes: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    """That another version wrote the record, where that is known."""


def has_cost_model(recorded: RecordView) -> bool:
    """Whether a cost model beside ``flow`` decided it."""
    return "cost_model" in recorded.plain


def has_own_costs(recorded: RecordView) -> bool:
    """Whether its costs are in units of its policy, not of ``flow``."""
    return has_cost_model(recorded) or recorded.policy in DISAGGREGATION_POLICIES


def read_terms(recorded: RecordView, assignments: Sequence[str] = (), solver: str | None = None) -> Terms:
    """Those of a record; ``assignments``: settings as ``KEY=VALUE`` that replace its own; ``solver``: another one.

    Raises :class:`InputError` for a record that does not hold what its round depended on, for a policy or a solver that
    there is not, and for settings that the policy does not read.
    """
    _check_solvable(recorded)
    solver = solver or recorded.solver
    if solver not in SOLVERS:
        help = f"{name_help(solver, SOLVERS)}; whatif --solver NAME takes another one"
        raise InputError.one(recorded.source, f"there is no solver '{solver}'", help, key="solver")
    if recorded.policy in DISAGGREGATION_POLICIES:
        terms = _of_phases(recorded, assignments, solver)
    elif not has_cost_model(recorded):
        terms = _of_flow(recorded, assignments, solver)
    elif recorded.parts[0].snapshot is None:
        terms = _of_rows(recorded, assignments, solver)
    else:
        terms = _of_cost_model(recorded, assignments, solver)
    notes = list(terms.notes)
    version: tuple[str, ...] = ()
    theirs, ours = recorded.plain.get("writer"), writer()
    if theirs != ours:
        who = theirs or "a flowsched that did not say its version"
        version = (f"the record was written by {who}, this is {ours}: decisions may differ for that alone",)
    if recorded.plain.get("reproducible") is False:
        notes.append("a time limit stopped the solver in this round: decisions may differ for that alone")
    return replace(terms, notes=tuple(notes), version=version)


def _check_solvable(recorded: RecordView) -> None:
    known = recorded.policy == POLICY or recorded.policy in DISAGGREGATION_POLICIES or has_cost_model(recorded)
    if not known:
        message = f"its round was decided by {recorded.policy}, which decides no recorded round again"
        help = "flowsched solve RECORD solves its snapshot with flow"
        raise InputError.one(recorded.source, message, help, key="policy")
    if not recorded.parts:
        raise InputError.one(recorded.source, "the record has no parts: nothing was pending", key="parts")


def _of_flow(recorded: RecordView, assignments: Sequence[str], solver: str) -> Terms:
    settings, notes = read_settings(recorded)
    settings = apply_settings(settings, assignments)
    return Terms(settings, solver, _flow(solver, settings), {"settings": asdict(settings)}, notes)


def _flow(solver: str, settings: Settings) -> FlowScheduler:
    return FlowScheduler(make_solver(solver), settings, keep_records=True)


def _of_rows(recorded: RecordView, assignments: Sequence[str], solver: str) -> Terms:
    """Of a round on Kubernetes with a cost model beside ``flow``: the record has its prices, and what runs as sums of what
    the cost model said of it.
    """
    if "upkeep" in recorded.plain:
        message = "has no snapshot of its round: an older flowsched wrote it"
        raise InputError.one(recorded.source, message, "decide the round again: flowsched solve, or flowsched simulate")
    own = [text for text in assignments if "." in text.partition("=")[0]]
    if own:
        message = f"what {recorded.policy} says is kept as it was: what runs is known to its round as sums only"
        raise InputError.one("--set", message, f"what is read: {', '.join(ROWS_SETTINGS)}", key=", ".join(own))
    settings, notes = read_settings(recorded)
    settings = apply_settings(settings, assignments, readers=Readers((recorded.policy,), ROWS_SETTINGS))
    plain = {"settings": asdict(settings), "cost_model": recorded.plain["cost_model"]}
    return Terms(settings, solver, _flow(solver, settings), plain, notes)


def _of_cost_model(recorded: RecordView, assignments: Sequence[str], solver: str) -> Terms:
    # Compiled code takes a while to load, and only records of this kind need it.
    from flowsched.pricing.linear.policies import describe_cost_model
    from flowsched.round.linear.choice import own_settings, plain_settings
    from flowsched.round.linear.network_scheduler import NetworkScheduler
    from flowsched.round.linear.recorded import read_round_settings

    model = cost_model_of(recorded)
    rest, typed = _apart(recorded, assignments)
    if typed:
        model = cost_model_of(recorded, typed)
    name, known = recorded.policy, recorded.plain["cost_model"]["settings"]
    lacking = sorted({setting.name for setting in describe_cost_model(name).settings} - known.keys())
    notes = [f"settings of {name} that the record does not have are at their defaults: {', '.join(lacking)}"]
    usable = _usable(recorded)
    try:
        round_settings = read_round_settings(recorded.settings)
    except ValueError as error:
        raise InputError.one(recorded.source, f"is damaged: {error}", key="settings") from error
    read = [*plain_settings(model.features), *(["exact_tasks"] if round_settings.exact_tasks else [])]
    settings = apply_settings(Settings(**usable), rest, readers=Readers((name,), tuple(read), own_settings(name)))
    round_settings = replace(round_settings, **picked(settings, *(k for k in usable if hasattr(round_settings, k))))
    scheduler = NetworkScheduler(
        model,
        make_solver(solver),
        round_settings,
        keep_records=True,
        **picked(settings, "headroom_weight", "slo_margin"),
        changes=settings,
    )
    plain = {"settings": scheduler.read_settings(), "cost_model": scheduler.model}
    return Terms(settings, solver, scheduler, plain, tuple(notes if lacking else ()))


def _apart(recorded: RecordView, assignments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Settings of the engine, and those of the cost model itself by name, which are checked."""
    from flowsched.round.linear import choice

    name = recorded.plain["cost_model"]["name"]
    rest, theirs = choice.apart(assignments, (name,), _DECIDED.format(name))
    typed = {key.replace("-", "_"): value for key, value in theirs.get(name, ())}
    choice.chosen(name, list(typed.items()))
    return rest, typed


def cost_model_of(recorded: RecordView, typed: Mapping[str, str] | None = None) -> CostModel:
    """The cost model of a record, with these of its own settings changed. Raises :class:`InputError` where it is not
    installed, or has other settings by now.
    """
    from flowsched.round.linear.choice import configured

    plain = recorded.plain["cost_model"]
    try:
        return configured(plain["name"], {**plain["settings"], **(typed or {})})
    except InputError as error:
        key = "cost_model.name" if isinstance(error, PolicyError) else "cost_model.settings"
        told = [(f"{key}.{p.key}" if p.key else key, p.message, p.help) for p in error.problems]
        raise InputError([Problem(recorded.source, None, *each) for each in told]) from error


def _of_phases(recorded: RecordView, assignments: Sequence[str], solver: str) -> Terms:
    from flowsched.round.linear import choice

    name = recorded.policy
    rest, theirs = choice.apart(assignments, (name,), _DECIDED.format(name))
    known = [f.name for f in fields(DisaggregationSettings)]
    apply_settings(Settings(), rest, readers=Readers((name,), (), tuple(f"{name}.{setting}" for setting in known)))
    given = [(key, str(value)) for key, value in recorded.settings.items() if key in known]
    settings = chosen_settings(name, [*given, *theirs.get(name, ())])
    scheduler = make_disaggregation(name, make_solver(solver), settings, keep_records=True)
    return Terms(Settings(), solver, scheduler, {"settings": asdict(settings)})


def read_settings(recorded: RecordView) -> tuple[Settings, tuple[str, ...]]:
    """A record's settings of the engine, and what is odd about them."""
    known = {f.name for f in fields(Settings)}
    notes = []
    foreign = sorted(recorded.settings.keys() - known)
    if foreign:
        notes.append(f"settings that this flowsched does not have are left out: {', '.join(foreign)}")
    missing = sorted(known - recorded.settings.keys())
    if missing:
        notes.append(f"settings that the record does not have are at their defaults: {', '.join(missing)}")
    return Settings(**_usable(recorded)), tuple(notes)


def _usable(recorded: RecordView) -> dict[str, Any]:
    """The settings of the engine among those of a record."""
    known = {f.name for f in fields(Settings)}
    usable = {name: value for name, value in recorded.settings.items() if name in known}
    _check_settings(recorded, usable)
    return usable


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
