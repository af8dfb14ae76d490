"""What differs between two records: one round solved in two ways, or two rounds. Tasks are matched by title or name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from flowsched.cluster.decision import NO_BOUND, proves_nothing
from flowsched.inspector.machine_forecasts import ServiceForecast, forecasts_of
from flowsched.inspector.plan_costs import RUNNING_COST, TWICE, Costs, costs_of
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.running_changes import changed_running
from flowsched.inspector.task_changes import (
    EVEN,
    PLACED,
    WAITING,
    Stand,
    TaskChange,
    classes_of,
    kind_of_change,
    stands_of,
    without_trades,
)
from flowsched.inspector.terms import POLICY, has_cost_model, has_own_costs
from flowsched.records.level_types import RecordedCertificate
from flowsched_models.picked_fields import picked
from flowsched_models.quantity import format_duration_us

K = TypeVar("K")
V = TypeVar("V")
_CERTIFIED: Final = ("method", "primal", "bound", "unconstrained", "gap_absolute", "gap_relative")
SHOWN = 20
"""Tasks of a kind that are told to people, unless they ask for more."""


_PRICES = (
    "objective", "eps", "beta", "goal_factor", "length_weight", "headroom_weight", "slo_margin", "waiting_weight",
    "due_age_s", "round_period_s",
)  # fmt: skip
"""Settings that change what things cost."""


_TITLES = {
    "moved": "moved",  # on a machine in both, on another one, at another width or on other cores
    "placed": "newly placed",  # on a machine now, waiting before
    "unplaced": "newly waiting",  # on a machine before
    "waits_otherwise": "waiting for another reason",  # in both
    "came": "only after",
    "gone": "only before",
}
"""How tasks may stand elsewhere, and what people are told of it."""
_REST_TITLES = {
    RUNNING_COST: "what runs already",
    TWICE: "counted twice above, what the round's own tasks do to each other",
}


@dataclass(frozen=True)
class Change:
    """A fact that both records state, differently; None where one does not state it."""

    what: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Difference:
    """Everything that differs, for people (``lines``) and for programs (``plain``)."""

    before: Costs
    after: Costs
    conditions: tuple[Change, ...]
    """Round, policy, solver, settings."""
    machines: tuple[Change, ...]
    """Machines that only one record has; ``what`` is the name."""
    counts: tuple[Change, ...]
    """``placed`` and ``waiting`` tasks, ``last_end_s``: numbers of both records, equal ones too."""
    reservations: tuple[Change, ...]
    """``what`` is the task."""
    services: tuple[Change, ...]
    """Latency services whose predicted peak p95 changes: a :class:`ServiceForecast` each."""
    certificates: tuple[Change, ...]
    """Of all parts, equal ones too; ``what`` is the part."""
    notes: tuple[str, ...]
    """What to bear in mind when comparing."""
    changes: Mapping[str, tuple[TaskChange, ...]]
    """Tasks that stand elsewhere, by how: a key of ``_TITLES``, in that order."""
    traded: int = 0
    """Tasks that only take the places of tasks of their class, as nothing tells them apart: they are not listed."""
    dearer: tuple[TaskChange, ...] = ()
    """Same place, another cost: what others do to it, and it to them, has changed."""

    @property
    def same(self) -> bool:
        """Whether the decisions and what they cost are the same, to the bit."""
        listed = (*self.changes.values(), self.dearer, self.conditions, self.machines, self.reservations, self.services)
        equal = all(c.before == c.after for c in self.counts) and all(c.before == c.after for c in self.certificates)
        return not (self.traded or any(listed)) and equal and self.before == self.after

    def lines(self, most: int | None = SHOWN) -> list[str]:
        """The difference as text; of each kind the first ``most`` (None: all)."""
        return list(self._lines(most))

    def plain(self) -> dict[str, Any]:
        """The difference as data."""
        tasks = {
            name: [{**asdict(change), "cost_delta": change.cost_delta} for change in changes]
            for name, changes in (*self.changes.items(), ("dearer", self.dearer))
        }
        return {
            "same": self.same,
            "cost": {
                "before": self.before.total,
                "after": self.after.total,
                "delta": self.after.total - self.before.total,
                "terms": [asdict(c) for c in _terms(self.before, self.after)],
            },
            "conditions": [asdict(c) for c in self.conditions],
            "machines": [asdict(c) for c in self.machines],
            "counts": [asdict(c) for c in self.counts],
            **tasks,
            "traded": self.traded,
            "reservations": [asdict(c) for c in self.reservations],
            "services": [
                {"service": c.what, "before": c.before and asdict(c.before), "after": c.after and asdict(c.after)}
                for c in self.services
            ],
            "certificates": [
                {"part": c.what, "before": _plain_certificate(c.before), "after": _plain_certificate(c.after)}
                for c in self.certificates
            ],
            "notes": list(self.notes),
        }

    def _lines(self, most: int | None) -> Iterator[str]:
        for c in self.conditions:
            yield f"{c.what}: {_shown(c.before)} -> {_shown(c.after)}"
        added = [c.what for c in self.machines if c.before is None]
        lost = [c.what for c in self.machines if c.after is None]
        for names, what in ((lost, "gone"), (added, "new")):
            if names:
                yield f"machines that are {what}: {_listed(names, most)}"
        for note in self.notes:
            yield f"note: {note}"
        yield f"total cost: {_move(self.before.total, self.after.total)}"
        for c in _terms(self.before, self.after):
            if abs(c.after - c.before) > EVEN:
                name = _REST_TITLES.get(c.what, c.what.replace("_", " "))
                yield f"  {name}: {_move(c.before, c.after)}"
        for c in self.counts:
            if c.before is None or c.after is None:
                continue
            unit = " s" if c.what.endswith("_s") else ""
            name = {"placed": "placed now", "waiting": "waiting", "last_end_s": "last completion"}[c.what]
            yield f"{name}: {_number(c.before)}{unit} -> {_number(c.after)}{unit}"
        for name, changes in self.changes.items():
            # Those who matter first; equal ones in the order of the record.
            ordered = sorted(changes, key=lambda change: -abs(change.cost_delta or 0.0))
            yield from _section(_TITLES[name], [change.line() for change in ordered], most)
        if self.traded:
            yield (
                f"only trading places with tasks of their class: {_tasks(self.traded)}; "
                "those told above are paired so that as few as possible move"
            )
        if self.dearer:
            delta = sum(c.cost_delta or 0.0 for c in self.dearer)
            yield f"in the same place at another cost: {_tasks(len(self.dearer))}, {delta:+.4g} in all"
        yield from _section("reservations", [_reserved(c) for c in self.reservations], most)
        yield from _section("latency services", [_service(c) for c in self.services], most)
        certificates = [c for c in self.certificates if c.before != c.after]
        certified = [f"{c.what}: {_certified(c.before)} -> {_certified(c.after)}" for c in certificates]
        yield from _section("certificates", certified, most)
        if self.same:
            yield "no difference"


def difference(before: RecordView, after: RecordView) -> Difference:
    """What differs between two records. Raises :class:`InputError` for a damaged one."""
    stands = [stands_of(recorded) for recorded in (before, after)]
    stands[1], traded = without_trades(stands[0], stands[1], classes_of(before), classes_of(after))
    groups: dict[str | None, list[TaskChange]] = {}
    for change in (TaskChange(*each) for each in _matched(*stands)):
        groups.setdefault(kind_of_change(change), []).append(change)
    futures = [forecasts_of(recorded) for recorded in (before, after)]
    # The models are asked about rounds of flow only.
    asked = before.policy == after.policy == POLICY
    services = [Change(*each) for each in _matched(*(f.services for f in futures)) if asked]
    counts = [_counts(stand, future.last_end_s) for stand, future in zip(stands, futures, strict=True)]
    return Difference(
        before=costs_of(before),
        after=costs_of(after),
        conditions=_conditions(before, after),
        machines=_machines(before, after),
        counts=tuple(Change(*each) for each in _matched(*counts)),
        changes={kind: tuple(groups.get(kind, ())) for kind in _TITLES},
        dearer=tuple(groups.get("dearer", ())),
        reservations=_reservations(before, after),
        services=tuple(c for c in services if c.before != c.after),
        certificates=_certificates(before, after),
        notes=_notes(before, after),
        traded=traded,
    )


def _matched(before: Mapping[K, V], after: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    """What both sides have under each key; None where one has nothing."""
    return ((key, before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after)))


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    return tuple(Change(what, a, b) for what, a, b in _matched(before, after) if a != b)


def _counts(stands: Mapping[str, Stand], last_end_s: float | None) -> dict[str, Any]:
    states = Counter(stand.state for stand in stands.values())
    return {"placed": states[PLACED], "waiting": states[WAITING], "last_end_s": last_end_s}


def _terms(before: Costs, after: Costs) -> list[Change]:
    names = [n for n in dict.fromkeys((*before.terms, *after.terms)) if n not in _REST_TITLES]
    return [Change(n, before.terms.get(n, 0.0), after.terms.get(n, 0.0)) for n in (*names, *_REST_TITLES)]


def _certificates(before: RecordView, after: RecordView) -> tuple[Change, ...]:
    sides = [{_part_key(recorded, part): part.certificate for part in recorded.parts} for recorded in (before, after)]
    return tuple(Change(_part_title(key), a, b) for key, a, b in _matched(*sides) if a is not None or b is not None)


def _part_key(recorded: RecordView, part: Part) -> tuple[str, int | None, int]:
    """Levels of two records are the same if prices and priority are; where there is none, the n-th at such prices."""
    alike = [p.index for p in recorded.parts if (p.prices, p.priority) == (part.prices, part.priority)]
    return part.prices, part.priority, alike.index(part.index)


def _part_title(key: tuple[str, int | None, int]) -> str:
    prices, priority, number = key
    return (
        f"{prices} prices"
        + ("" if priority is None else f" of priority {priority}")
        + (f" ({number + 1})" if number else "")
    )


def _conditions(before: RecordView, after: RecordView) -> tuple[Change, ...]:
    facts = [
        {
            **picked(a, "round", "now_s", "policy", "solver"),
            **{f"settings.{name}": value for name, value in a.settings.items()},
            **(_own_settings(a) if before.policy == after.policy else {}),
        }
        for a in (before, after)
    ]
    return _differing(*facts)


def _own_settings(recorded: RecordView) -> dict[str, Any]:
    """Those of a cost model beside ``flow``, as they are typed."""
    settings = recorded.plain["cost_model"]["settings"] if has_cost_model(recorded) else {}
    return {f"{recorded.policy}.{name}": value for name, value in settings.items()}


def _machines(before: RecordView, after: RecordView) -> tuple[Change, ...]:
    sides = [{name for part in a.parts for name in part.machines} for a in (before, after)]
    return tuple(
        Change(name, name if name in sides[0] else None, name if name in sides[1] else None)
        for name in sorted(sides[0] ^ sides[1])
    )


def _reservations(before: RecordView, after: RecordView) -> tuple[Change, ...]:
    sides = [{a.title(r["task"]): dict(r) for part in a.parts for r in part.reservations} for a in (before, after)]
    return _differing(*sides)


def _notes(before: RecordView, after: RecordView) -> tuple[str, ...]:
    own = [has_own_costs(a) for a in (before, after)]
    notes = [
        f"{name} is no flow: its costs are what flow says of the same placements, by each task's own goal"
        for name in dict.fromkeys(
            a.policy for a, its in zip((before, after), own, strict=True) if a.policy != POLICY and not its
        )
    ]
    if any(changed_running(a) for a in (before, after)):
        notes.append("total costs and certificates are those before anything was preempted or moved")
    if any(own) and before.policy != after.policy:
        notes.append(f"costs are not in the same units: each of {before.policy} and {after.policy} has its own")
        return tuple(notes)
    changed = [n for n in _PRICES if before.settings.get(n) != after.settings.get(n)]
    changed += [change.what for change in _differing(_own_settings(before), _own_settings(after))]
    if changed:
        notes.append(f"costs are not in the same prices: settings differ ({', '.join(changed)})")
    goals = [[part.plain.get("goal_s") for part in a.parts if part.by_forecasts] for a in (before, after)]
    if goals[0] != goals[1] and not changed:
        told = [", ".join("none" if g is None else f"{g:.4g} s" for g in side) for side in goals]
        notes.append(
            f"costs are not in the same prices: the goal for all tasks is {told[0]} before and {told[1]} after"
        )
    return tuple(notes)


def _section(title: str, lines: Sequence[str], most: int | None) -> Iterator[str]:
    if not lines:
        return
    yield f"{title}: {len(lines)}"
    shown = lines if most is None else lines[:most]
    yield from (f"  {line}" for line in shown)
    if len(shown) < len(lines):
        yield f"  and {len(lines) - len(shown)} more"


def _reserved(change: Change) -> str:
    def side(r: Any) -> str:
        if r is None:
            return "nothing"
        return f"{r['machine']}, which drains" if r["start_s"] is None else f"{r['machine']} at {r['start_s']:.4g} s"

    return f"{change.what}: {side(change.before)} -> {side(change.after)}"


def _service(change: Change) -> str:
    if change.after is None:
        return f"{change.what}: it is gone; it {_latency(change.before)}"
    if change.before is None:
        return f"{change.what} is new and {_latency(change.after)}"
    return f"{change.what}: {_peak(change.before)} -> {_peak(change.after)}{_goal(change.after)}"


def _latency(service: ServiceForecast | None) -> str:
    return "" if service is None else f"was predicted to peak at {_peak(service)} on {service.machine}"


def _peak(service: ServiceForecast) -> str:
    return "no answer" if service.peak_p95_us is None else f"p95 {format_duration_us(service.peak_p95_us)}"


def _goal(service: ServiceForecast) -> str:
    return f" at most on {service.machine}, goal {format_duration_us(service.goal_us)}"


def _certified(certificate: RecordedCertificate | None) -> str:
    if certificate is None:
        return "none"
    gap = f"gap {certificate['gap_absolute']:.4g} ({100 * certificate['gap_relative']:.2f} %)"
    if proves_nothing(certificate["gap_relative"]):
        gap = NO_BOUND
    return f"cost {certificate['primal']:.6g}, {certificate['method']} bound {certificate['bound']:.6g}, {gap}"


def _plain_certificate(certificate: RecordedCertificate | None) -> dict[str, Any] | None:
    return None if certificate is None else {key: certificate[key] for key in _CERTIFIED}


def _move(before: float, after: float) -> str:
    delta = after - before
    return f"{before:.6g} -> {after:.6g} ({delta:+.4g})" if abs(delta) > EVEN else f"{before:.6g}, unchanged"


def _number(value: float | int | None) -> str:
    return "none" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _listed(names: Iterable[str], most: int | None) -> str:
    all_names = list(names)
    shown = all_names if most is None else all_names[:most]
    return ", ".join(shown) + (f" and {len(all_names) - len(shown)} more" if len(shown) < len(all_names) else "")


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
