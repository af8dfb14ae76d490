"""All profiles against all measured runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError, Problem, Problems, name_help
from flowsched_models.measurements.measurements import Finding, Measurements, Run
from flowsched_models.uncertainty import rank
from flowsched_models.validation.latency import score_windows, windows_by_run
from flowsched_models.validation.part import Part, without
from flowsched_models.validation.play import PlayedMachine, Player
from flowsched_models.validation.playable import NotScored, playable
from flowsched_models.validation.score import Errors, Quantity, Score, errors
from flowsched_models.validation.sharing_kind import service_sharing_of, sharing_of

USUAL_CLIENT = "mcperf-30k"
"""The client of the measured runs that come with the course; a profile without it is read with its first one."""


@dataclass(frozen=True)
class Question:
    """What to score."""

    groups: tuple[str, ...] = ()
    """These only; all by default."""
    jobs: tuple[str, ...] = ()
    """Executions of these only, and makespans of all runs; all by default."""
    client: str | None = None
    """Load client of the services."""
    without: tuple[tuple[Part, ...], ...] = ()
    """Models to compare with: each lacks these parts."""


@dataclass(frozen=True)
class ScoreRow:
    """One line of a table: the scores of one kind of things, and what the models to compare with make of them."""

    table: str
    """``all``, ``job``, ``machine type``, ``sharing``, ``service`` or ``group``."""
    name: str
    errors: Errors
    compared: tuple[Errors, ...]


@dataclass(frozen=True)
class Validation:
    """How the profiles did."""

    profiles: str
    clients: Mapping[str, str]
    """Load client by service profile."""
    scores: tuple[Score, ...]
    compared: tuple[tuple[tuple[Part, ...], tuple[Score, ...]], ...]
    """For every model to compare with, its parts that are missing and the same scores in the same order."""
    not_scored: tuple[tuple[str, str, int], ...]
    """What, why and how many."""
    findings: tuple[Finding, ...]
    """Of the reader of the measurements."""

    def errors(self, quantity: Quantity) -> Errors | None:
        """Of all scores of a quantity; None where there is none."""
        return errors(score for score in self.scores if score.quantity is quantity)

    def rows(self, quantity: Quantity) -> tuple[ScoreRow, ...]:
        """The tables of a quantity: of all, by job, by machine type, by kind of sharing, by group."""
        own = [i for i, score in enumerate(self.scores) if score.quantity is quantity]
        cells: dict[tuple[str, str], list[int]] = {}
        for i in own:
            for cell in lines_of(self.scores[i]):
                cells.setdefault(cell, []).append(i)
        rows = []
        for (table, name), members in sorted(cells.items(), key=lambda item: _order(*item[0])):
            found = errors(self.scores[i] for i in members)
            others = tuple(errors(scores[i] for i in members) for _, scores in self.compared)
            assert found is not None
            rows.append(ScoreRow(table, name, found, tuple(o for o in others if o is not None)))
        return tuple(rows)


def validate(measurements: Measurements, catalogue: Catalogue, question: Question | None = None) -> Validation:
    """Play every run in the model and compare; raises :class:`InputError` for names that are nowhere."""
    question = question or Question()
    clients = _clients(catalogue, question.client)
    _check(measurements, question)
    if question.groups:
        measurements = measurements.only(*question.groups)
    not_scored = NotScored()
    scores = tuple(_scores(measurements, Player(catalogue, clients), question, not_scored))
    compared = []
    for parts in question.without:
        player = Player(without(catalogue, parts), clients, 0, shared=Part.SHARING not in parts)
        compared.append((parts, tuple(_scores(measurements, player, question, NotScored()))))
    told = tuple((what, why, count) for (what, why), count in sorted((+not_scored).items()))
    return Validation(catalogue.source, clients, scores, tuple(compared), told, measurements.findings)


def _clients(catalogue: Catalogue, asked: str | None) -> dict[str, str]:
    """The client of every service: the one asked for or the usual one where the profile has it, else its first."""
    known = sorted({client for service in catalogue.services.values() for client in service.clients})
    if asked is not None and asked not in known:
        message = f"no service profile has a client '{asked}'"
        raise InputError.one("--client", message, name_help(asked, known))
    wanted = asked or USUAL_CLIENT
    return {
        name: wanted if wanted in service.clients else next(iter(service.clients))
        for name, service in catalogue.services.items()
        if service.clients
    }


def _check(measurements: Measurements, question: Question) -> None:
    problems = Problems()
    groups = measurements.groups
    jobs = sorted({e.job for e in measurements.executions})
    for option, asked, known in (("--group", question.groups, groups), ("--job", question.jobs, tuple(jobs))):
        for name in asked:
            if name not in known:
                what = f"there is no {option.removeprefix('--')} '{name}' in the measurements"
                problems.add(Problem(option, None, "", what, name_help(name, known)))
    problems.raise_any()


def _scores(measurements: Measurements, player: Player, question: Question, not_scored: NotScored) -> Iterable[Score]:
    windows = windows_by_run(measurements.latency_windows)
    known = set()
    for whole in measurements.runs:
        known.add((whole.group, whole.schedule, whole.run))
        run = playable(whole, player.catalogue, not_scored)
        own = windows.get((whole.group, whole.schedule, whole.run), [])
        if not run.executions:
            not_scored["windows", "no machine of their run can be played"] += len(own)
            continue
        played = tuple(player.machines(run))
        for machine in played:
            yield from _durations(run, machine, player, question.jobs, not_scored)
        if len(run.executions) == len(whole.executions) and whole.makespan_s > 0.0:
            yield _makespan(run, played)
        yield from score_windows(run, whole, own, player, not_scored)
    strays = sum(len(found) for key, found in windows.items() if key not in known)
    not_scored["windows", "their run is not among the executions"] += strays


def _durations(
    run: Run, played: PlayedMachine, player: Player, jobs: Collection[str], not_scored: NotScored
) -> Iterable[Score]:
    machine = played.machine
    vcpus = player.catalogue.machine_types[machine.machine_type].vcpus
    services = [s for s in run.services if s.node == machine.node]
    for execution, predicted_s, drawn_s in played.durations():
        if jobs and execution.job not in jobs:
            continue
        if execution.duration_s <= 0.0:
            not_scored["executions", "they ended in the instant of their start: the clock is too coarse"] += 1
            continue
        others = [e for e in machine.executions if e is not execution]
        start_s, end_s = execution.start_s, execution.end_s
        yield Score(
            Quantity.DURATION,
            run.group,
            run.schedule,
            run.run,
            run.year,
            execution.duration_s,
            predicted_s,
            execution.job,
            execution.node,
            execution.machine_type,
            execution.cores,
            execution.threads,
            start_s,
            sharing_of(execution.cores, start_s, end_s, others, vcpus),
            service_sharing_of(execution, services, vcpus),
            rank(execution.duration_s, drawn_s) if len(drawn_s) else None,
        )


def _makespan(run: Run, played: Sequence[PlayedMachine]) -> Score:
    first_s = min(e.start_s for e in run.executions)
    predicted = max(float(machine.ends_s.max()) for machine in played) - first_s
    draws = len(played[0].drawn_ends_s)
    drawn = [max(float(m.drawn_ends_s[r].max()) for m in played) - first_s for r in range(draws)]
    name = (run.group, run.schedule, run.run, run.year)
    score = Score(Quantity.MAKESPAN, *name, run.makespan_s, predicted)
    return replace(score, rank=rank(run.makespan_s, drawn)) if drawn else score


_TABLES = ("all", "job", "machine type", "sharing", "service", "group")


def lines_of(score: Score) -> Iterable[tuple[str, str]]:
    """The tables and lines that a score counts in."""
    yield "all", ""
    if score.quantity is Quantity.DURATION:
        yield "job", score.subject
    if score.machine_type:
        yield "machine type", score.machine_type
    if score.sharing is not None:
        yield "sharing", score.sharing.value
    if score.service_sharing is not None:
        yield "service", score.service_sharing.value
    yield "group", score.group


def _order(table: str, name: str) -> tuple[int, str]:
    return _TABLES.index(table), name
