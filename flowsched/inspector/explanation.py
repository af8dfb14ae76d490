"""Why a task is where it is, or why it waits: sentences with numbers, and the same as data.

All numbers in the sentences are in the data, and all data is in the record or follows from its snapshot by the models.
Costs are in units of penalty; those of bulk rounds in units of relative slow-down, those of other cost models in units of
the policy. Keys that end in ``_s`` are seconds, in ``_milli`` thousandths of a core, in ``_ms`` milliseconds, in
``_percent`` hundredths. A value that is not known is null.

Every explanation has

- ``apiVersion``, ``kind`` (``Explanation``), ``round``, ``now_s``, ``policy``, ``solver``,
- ``task`` (as the record names it), ``title`` (as people do), ``titles`` (of all other tasks that are named, by name),
- ``part``: ``index``, ``prices`` (``forecast``, ``linear``), ``priority``; null for a task that only ``told`` knows,
- ``told``: on Kubernetes what a waiting pod was told: ``fate``, ``message``, ``counts``,
- ``fate``: ``placed``, ``waits`` or ``runs`` (it ran already),
- ``cause``: for one that waits ``planned`` (for a later start), ``cost``, ``capacity``, ``relation``, ``service`` (a latency
  goal), ``utility``, ``held`` (the machines are reserved for others), ``promised`` (to tasks that are planned), ``reserved``
  (it has a reservation itself), ``group``, ``not_allowed``, ``never`` (too large for every machine), ``fault`` or
  ``unknown``.

and, where they apply:

- ``models``: whether neighbours, services and constraints could be looked at; ``models_missing`` says why not;
- ``asks``: what it asks for;
- ``place``: ``machine``, ``width_milli``, ``threads``, ``cores``, ``cost``, ``terms`` (a list of ``term`` and ``cost``); of
  one that runs also ``bound_s``, ``since_s``, ``progress_percent``, ``end_s``;
- ``decided_by``: the stage that gave a task of a round of flow the place where it starts or is planned: ``stage``
  (:class:`flowsched.round.origin.PlanStage`), ``passes`` (of the round), and of a network ``pass`` (its number, from 1),
  ``batch`` (tasks of that pass), ``price`` (of its arc), ``runner_up`` (the cheapest arc to another machine, or null);
  ``early``: whether it starts before its turn;
- ``runner_up`` (the cheapest of all that it could have instead), ``waiting``, ``alternatives`` (the best option of each
  other machine, cheapest first), ``same_machine`` (other widths and later starts where it is, cheapest first), ``closest``
  (the cheapest place that would start now): ``kind`` (``place`` or ``waiting``), ``machine``, ``slot``,
  ``width_milli``, ``cost``, ``more`` (than what was decided; below 0 where it is cheaper), ``terms``, ``differences``
  (``term`` and ``more``, they add up to ``more``);
- ``tied``: machines that would cost it exactly as much: ``count``, ``by`` (what decided: ``gpus``, ``idle``, ``cpu``,
  ``memory``, ``number``), ``fullest`` (false: the emptiest), ``scoring``, ``free_milli`` and ``free_memory_mib`` of its
  machine without it, and ``idle_core_s`` (that it leaves idle there, where it has an end); null where there is none;
- ``why_now``: why it starts whatever that costs: ``due``, ``group``, ``repaired``, ``idle_machine``, ``nothing_runs``;
- ``search_ended_early``, ``makespan``: why something cheaper may have been left;
- ``neighbours``: ``task``, ``status`` (``runs``, ``starts``, ``planned``), ``end_s`` and ``end_without_s`` from now,
  ``later_s``; of those without an end ``slowdown`` and ``slowdown_without``;
- ``services``: ``service``, ``p95_ms``, ``p95_without_ms``, ``goal_ms``, ``headroom_percent``; ``latency``: ``machine``,
  ``service``, ``p95_ms``, ``goal_ms`` where the task would break the goal;
- ``shared``: services whose cores it may use too (:func:`flowsched.inspector.sharing.shared_services`);
- ``pressure`` (linear): ``with_it``, ``without_it``, ``cap``, ``slope``, ``cost``;
- ``when_placed`` (linear): ``cost``, ``terms``, as they were at that moment;
  ``open_machines``: others that could take it, ``as_cheap``: those of them that would cost no more; ``class``: what the
  first network did with its class;
- ``core_price``: ``machine``, ``group``, ``per_core``, ``per_task``: prices of the certificate's bound; in a
  level at linear prices, dual prices of its network;
- ``reason``, ``cost``, ``terms``, ``waited_s``, ``rounds_waited`` (this one included), ``planned`` (``likely``:
  between which moments from now start and end lie in four of five cases, ``start_s`` and ``end_s``), ``reservation``
  and ``other_reservations`` (as in the record; ``start_s`` is the cluster's clock, ``in_s`` from now, below 0 where it has
  passed), ``repairs``, ``group``; of one that is placed also ``due_age_s``, and rounds before this one;
- ``better_gpus``: of one that demands more utility of its GPUs than the best free ones of ``closest`` have: ``machine``,
  ``devices``, ``link_class`` (the slowest between them), ``communication``, ``interference``, ``fragmentation``,
  ``utility``, ``demanded``;
- ``came_later`` (of a round of flow): ``count`` of the tasks that were submitted after it and start now, or are planned to
  start before it, and ``rows`` by ``reason`` with ``count``, ``tasks`` (the first ones, each ``task`` and what shows the
  reason) and how many ``more``. Reasons, the first that holds: ``priority`` (``priority``, ``own_priority``), ``due``
  (``due_age_s``), ``group``, ``not_allowed`` (``machine``, also below), ``backfilled`` (``end_s``, ``reserved_s``, from
  now), ``smaller`` (``resource``, ``asks``, ``free`` there without what came later, ``own_asks``), ``no_place``,
  ``shorter`` (``run_s``, ``weight``, ``own_run_s``, ``own_weight``), ``wider`` (``width_milli``, ``run_s``,
  ``own_width_milli``), ``idle_machine``, ``nothing_runs``, ``cost``,
  ``cheaper``, ``plan`` (:class:`flowsched.inspector.overtaking.StartsFirst`);
- ``needed_waiting``: ``more`` that waiting would have to cost, ``w``, ``w_needed``, ``w_most``, ``reached_at_age_s``;
  ``limit`` (linear): the most that a place may cost;
- ``goal``: of a service on Kubernetes that would miss its p95 goal: ``goal_us``, ``qps``, ``cores``, and which p95 it could
  have alone: ``own_us``, ``enough_cores``, ``lowest_us``, ``lowest_cores``;
- ``refusals``: ``machines``, ``available``, ``message``, ``rows`` (:func:`flowsched.inspector.refusals.tabulate`);
  ``shortage``: ``never``, ``too_small``, ``largest``, ``lacking``, ``emptiest``, ``empty``
  (:func:`flowsched.inspector.refusals.shortage`), ``units``, ``started_there`` (on the emptiest), ``stays`` (``machine``,
  ``services``, and ``tasks`` without an end, of those machines);
- ``overrun``: of one that runs and is past its forecast, by how much, ``past_s``, and what is expected to be left of it:
  ``left_s``, in four of five cases from ``least_s`` to ``most_s``; None before;
- ``learnt``: what completions of its class taught (:func:`flowsched.inspector.learnt_facts.learnt_facts`); missing where
  nothing did;
- ``bound``: how long it can wait at most, if no run takes longer than ``longest_run_s``, an estimate: ``bounded``,
  ``why_not``, ``due_age_s``, ``due``, ``ahead``, ``group``, ``group_needs``, ``group_room``, ``longest_run_s``,
  ``round_s``, ``turns``, ``left_s``, ``most_s`` (:mod:`flowsched.inspector.waiting_bound`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flowsched.cluster.snapshot import Running, Snapshot
from flowsched.cluster.snapshot_dump import milli_of
from flowsched.errors import RestoreError
from flowsched.inspector.learnt_facts import learnt_facts
from flowsched.inspector.pod_facts import told as told_of
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.restored_round import restore
from flowsched.inspector.running_changes import change_facts, changes_of
from flowsched.inspector.sentences import sentences
from flowsched.inspector.sharing import shared_services
from flowsched.inspector.task_case import case_facts
from flowsched.inspector.wait_cause import WaitCause
from flowsched.records.record import RECORD_VERSION
from flowsched_models.document import InputError, Problem, name_help
from flowsched_models.quantity import parse_cores


@dataclass(frozen=True)
class Explanation:
    """What there is to say about one task of one round."""

    facts: Mapping[str, Any]

    def lines(self) -> list[str]:
        """Sentences, the most important one first."""
        return sentences(self.facts)

    def plain(self) -> dict[str, Any]:
        """The same as data; the keys are those of this module's docstring."""
        return dict(self.facts)


def explain(recorded: RecordView, task: str) -> Explanation:
    """Explain a task of a record by its name, or, on Kubernetes, by ``NAMESPACE/NAME`` or ``pod/NAMESPACE/NAME``.

    Raises :class:`InputError` where the record has no such task, or is damaged.
    """
    with _damaged(recorded):
        explanation = _explained(recorded, task)
        explanation.lines()
    return explanation


def _explained(recorded: RecordView, task: str) -> Explanation:
    found = recorded.find_task(task)
    for name in recorded.names_of(task):
        changed = change_facts(recorded, name)
        if changed is not None:
            return _explanation(recorded, name, None if found is None else found[0], changed)
    if found is not None:
        part, name = found
        facts = case_facts(recorded, part, name)
        told = None if facts["fate"] == "placed" else told_of(recorded, name)
        return _explanation(recorded, name, part, {"told": told, **facts})
    for name in recorded.names_of(task):
        told = told_of(recorded, name)
        if told is not None:
            facts = {
                "told": told,
                "fate": "waits",
                "cause": WaitCause.FAULT if told["fate"] == "error" else WaitCause.UNKNOWN,
            }
            return _explanation(recorded, name, None, facts)
        for part in reversed(recorded.parts):
            running = _running(recorded, part, name)
            if running is not None:
                return _explanation(recorded, name, part, {"told": None, "fate": "runs", "cause": None, **running})
    raise InputError([_unknown(recorded, task)])


@contextmanager
def _damaged(recorded: RecordView) -> Iterator[None]:
    """Faults in the values of a record become one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, StopIteration) as error:
        what = f"key {error} is missing" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        source = recorded.source or "record"
        raise InputError.one(source, f"is damaged: {what}") from error


def _explanation(recorded: RecordView, name: str, part: Part | None, facts: Mapping[str, Any]) -> Explanation:
    head: dict[str, Any] = {
        "apiVersion": RECORD_VERSION,
        "kind": "Explanation",
        "round": recorded.round,
        "now_s": recorded.now_s,
        "policy": recorded.policy,
        "solver": recorded.solver,
        "task": name,
        "title": recorded.title(name),
        "part": None if part is None else {"index": part.index, "prices": part.prices, "priority": part.priority},
    }
    named = sorted({n for n in _strings(facts) if recorded.titles.get(n)} - {name}) if recorded.titles else []
    learnt = learnt_facts(part, name, facts)
    more = {} if learnt is None else {"learnt": learnt}
    return Explanation({**head, "titles": {n: recorded.title(n) for n in named}, **facts, **more})


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [s for v in value.values() for s in _strings(v)]
    if isinstance(value, list | tuple):
        return [s for v in value for s in _strings(v)]
    return []


def _running(recorded: RecordView, part: Part, name: str) -> dict[str, Any] | None:
    """Where a task runs that was bound before this round."""
    entry = next((r for r in part.running if r["task"]["name"] == name), None)
    if entry is None:
        return None
    try:
        if not part.by_forecasts:
            raise RestoreError(f"rounds of {recorded.policy} make no forecasts of what runs")
        opened = restore(recorded, part)
        if entry["machine"] not in opened.group_number:
            raise RestoreError(f"{entry['machine']} was not among the machines that the round looked at")
    except RestoreError as reason:
        place = {"machine": entry["machine"], "width_milli": milli_of(entry["width"]), "threads": entry["threads"]}
        place |= {"cores": list(parse_cores(entry["cores"])), "bound_s": entry["bound_s"]}
        place["since_s"] = recorded.now_s - entry["bound_s"]
        return {"models": False, "models_missing": str(reason), "place": place}
    view = opened.model.view
    running = next(r for r in view.snapshot.running if r.task.name == name)
    names = [r.task.name for r in opened.residents(running.machine)]
    group, colocation = opened.group_number[running.machine], opened.colocation(running.machine)
    here = next(m for m in view.snapshot.machines if m.name == running.machine)
    share = view.snapshot.estimate(running.task, running.progress, here.type, running.factor).done
    predicted = None if running.task.endless else opened.model.prices.forecast(group, colocation)
    left_s = None if predicted is None else predicted.residents_s[names.index(name)]
    return {
        "models": True,
        "models_missing": None,
        "place": {
            "machine": running.machine,
            "width_milli": running.width_milli,
            "threads": running.threads,
            "cores": list(running.cores),
            "bound_s": running.bound_s,
            "since_s": view.snapshot.now_s - running.bound_s,
            "progress_percent": None if running.task.endless else 100.0 * share,
            "end_s": left_s,
        },
        "shared": shared_services(part, opened, running.machine, running.cores),
        "overrun": None if left_s is None else _overrun(view.snapshot, running, here.type, left_s),
    }


def _overrun(snapshot: Snapshot, running: Running, machine_type: str, left_s: float) -> dict[str, float] | None:
    """How far a run is past its forecast, and what is left of it, in seconds at the pace of the ``left_s`` predicted."""
    found = snapshot.past_forecast(running, machine_type)
    if found is None or found.left <= 0.0:
        return None
    past, left, least, most = (share * left_s / found.left for share in found)
    return {"past_s": past, "left_s": left, "least_s": least, "most_s": most}


def _unknown(recorded: RecordView, task: str) -> Problem:
    source = recorded.source or "record"
    if any(task in part.machines for part in recorded.parts):
        changes = changes_of(recorded)
        back = {taken["task"] for taken in changes["taken_back"]}
        placed = [(p.task, p.machine) for part in recorded.parts for p in part.placements if p.task not in back]
        placed += [(place["task"], place["machine"]) for place in changes["let_in"]]
        here = [recorded.title(name) for name, machine in placed if machine == task]
        help = f"this round placed {', '.join(here[:5])} there" if here else "this round placed no task there"
        return Problem(source, None, "", f"'{task}' is a machine; explain wants a task", help)
    known = [recorded.title(t) for part in recorded.parts for t in part.tasks]
    known += [r["task"]["name"] for part in recorded.parts for r in part.running]
    return Problem(source, None, "", f"there is no task '{task}' in round {recorded.round}", name_help(task, known))
