"""Which of a round's networks is asked for: that of the round, the first, a pass's, or the one that decided on a task."""

from __future__ import annotations

from dataclasses import dataclass

from flowsched.errors import RestoreError
from flowsched.inspector.graph import Graph
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.round_network import round_network
from flowsched.records.level_types import NETWORK_STAGE
from flowsched_models.document import InputError, name_help

OPTION = "--network"
ROUND, FIRST, PASS, OF = "round", "first", "pass:", "of:"
FORMS = f"{ROUND}, {FIRST}, {PASS}N or {OF}TASK"


@dataclass(frozen=True, eq=False)
class ChosenNetwork:
    """A network of a record."""

    part: Part
    graph: Graph
    title: str
    """What messages call it: ``network of the round``, ``network of pass 3``."""
    number: int | None = None
    """Of a pass."""
    notes: tuple[str, ...] = ()
    """Of the network of the round: how far what was decided is from an optimal flow, and what was left out."""

    @property
    def heading(self) -> str:
        """The title for files, with what was undone later of a pass."""
        undone = "" if self.number is None else self.part.undone(self.number)
        more = f"undone later: {undone}" if undone else "; ".join(self.notes)
        return f"{self.title} ({more})" if more else self.title


def choose_network(recorded: RecordView, asked: str | None, number: int | None) -> ChosenNetwork:
    """The network that ``asked`` names, one of ``FORMS``; None: that of the round, or the first where the policy has no such
    network. ``number``: of which part, where that is said.

    Raises :class:`InputError` with what there is, where it is not there.
    """
    parts = recorded.parts
    if not parts:
        raise InputError.one(recorded.source, "has no network: nothing was pending in this round")
    if number is not None and number >= len(parts):
        known = "only part 0" if len(parts) == 1 else f"parts 0 to {len(parts) - 1}"
        raise InputError.one("--part", f"there is no part {number}; {recorded.source} has {known}")
    if asked is None or asked == ROUND:
        found = _of_round(recorded, parts[number or 0], asked)
    elif asked.startswith(OF):
        found = _of_task(recorded, asked.removeprefix(OF), number)
    elif asked.startswith(PASS):
        found = _of_pass(recorded, parts[number or 0], asked.removeprefix(PASS))
    elif asked == FIRST:
        found = _first(recorded, parts[number or 0])
    else:
        raise InputError.one(OPTION, f"'{asked}' is not {FORMS}")
    try:
        _ = found.graph.potentials
    except ValueError as error:
        message = f"is damaged: the flow of the {found.title} of part {found.part.index}: {error}"
        raise InputError.one(recorded.source, message) from None
    return found


def _of_round(recorded: RecordView, part: Part, asked: str | None) -> ChosenNetwork:
    try:
        made = round_network(recorded, part)
    except RestoreError as error:
        if asked is None:
            return _first(recorded, part)
        message = f"part {part.index} of {recorded.source} has no network of the round: {error}"
        raise InputError.one(OPTION, message, f"{FIRST} is the network that the record has") from None
    return ChosenNetwork(part, made.graph, "network of the round", None, tuple(made.sentences()))


def _first(recorded: RecordView, part: Part) -> ChosenNetwork:
    if not part.by_forecasts:
        return _of_round(recorded, part, ROUND)
    drawn = next((one["number"] for one in part.passes if one["drawn"]), None)
    return ChosenNetwork(part, part.first, "first network", drawn)


def _of_pass(recorded: RecordView, part: Part, text: str) -> ChosenNetwork:
    graph = part.pass_graph(int(text)) if text.isdecimal() and len(text) < 10 else None
    if graph is None:
        raise InputError.one(
            OPTION, f"there is no pass {text} in part {part.index} of {recorded.source}, which has {_passes(part)}"
        )
    return ChosenNetwork(part, graph, f"network of pass {int(text)}", int(text))


def _passes(part: Part) -> str:
    if not part.by_forecasts:
        return f"one network, the {FIRST}"
    count = len(part.passes)
    return "no passes" if not count else "only pass 1" if count == 1 else f"passes 1 to {count}"


def _of_task(recorded: RecordView, task: str, number: int | None) -> ChosenNetwork:
    names = recorded.names_of(task)
    among = recorded.parts if number is None else recorded.parts[number : number + 1]
    found = next(((part, name) for part in among for name in part.tasks if name in names), None)
    if found is None:
        where = "" if number is None else f"part {number} of "
        known = [recorded.title(name) for part in among for name in part.tasks]
        raise InputError.one(OPTION, f"there is no task '{task}' in {where}{recorded.source}", name_help(task, known))
    part, name = found
    if not part.by_forecasts:
        return _first(recorded, part)
    entry = part.decided_by.get(name)
    if entry is not None and entry["stage"] == NETWORK_STAGE:
        return _of_pass(recorded, part, str(entry["pass"]))
    took_part = [str(one["number"]) for one in part.passes if name in one["batch"]]
    looked = f"pass{'' if len(took_part) == 1 else 'es'} {', '.join(took_part)}" if took_part else "no pass"
    by = "it waits without a place" if entry is None else f"the stage '{entry['stage']}' chose its place"
    raise InputError.one(OPTION, f"no network decided on '{task}': {by}; {looked} had it in the batch")
