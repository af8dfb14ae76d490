"""The best arrangement of a moment: networks priced around each other's answers, then small changes by exact worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from flowsched.network.network import IntArray
from flowsched.node.arrangement import Arrangement
from flowsched.node.moment import Moment
from flowsched.node.network import SeatNetwork, build_network
from flowsched.solvers import Solver

_CLEARLY = 1e-6
MOST_TRIALS = 600
"""Single changes that one search looks at, at most: on large machines the networks have to do."""


@dataclass(frozen=True)
class Found:
    """An arrangement, its exact worth, and the last network on the way to it."""

    arrangement: Arrangement
    worth: float
    network: SeatNetwork
    flow: IntArray
    """Of the last network that was solved."""


def search(
    moment: Moment,
    start: Arrangement,
    solver: Solver,
    passes: int,
    steps: int,
    known: Sequence[Arrangement] = (),
) -> Found:
    """Prices networks around ``start`` and around their own answers, at most ``passes`` times, then takes up to ``steps``
    single changes that pay. Never worse than ``start`` or any ``known`` arrangement where they are allowed.
    """
    best = start
    worth = moment.worth(start) if moment.allowed(start) else float("-inf")
    if (better := _best_of(moment, known, worth)) is not None:
        best, worth = better, moment.worth(better)
    around = start
    seen = {start}
    for _ in range(max(1, passes)):
        network = build_network(moment, around)
        solution = solver.solve(network.network)
        if not solution.status.has_flow:
            raise ArithmeticError(f"no flow through the network of one machine: {solution.report or solution.status}")
        answer = network.arrangement(solution.flow, len(moment.candidates), len(moment.services))
        for trial in (moment.apart.put_right(answer), moment.apart.put_right(_spread(answer))):
            if moment.allowed(trial) and moment.worth(trial) > worth + _CLEARLY:
                best, worth = trial, moment.worth(trial)
        if answer in seen:
            break
        seen.add(answer)
        around = answer
    left = MOST_TRIALS
    for _ in range(steps):
        trials = [moment.apart.put_right(trial) for trial in islice(_changes(moment, best), left)]
        left -= len(trials)
        better = _best_of(moment, trials, worth)
        if better is None:
            break
        best, worth = better, moment.worth(better)
    return Found(best, worth, network, solution.flow)


def _spread(arrangement: Arrangement) -> Arrangement:
    """Every running task may use every core that any running task may use: what one leaves another takes."""
    every = tuple(sorted({c for cores in arrangement.tasks for c in cores}))
    return Arrangement(arrangement.services, tuple(every if cores else () for cores in arrangement.tasks))


def _best_of(moment: Moment, trials: Iterable[Arrangement], worth: float) -> Arrangement | None:
    """The arrangement that is worth most, or None where none beats ``worth``."""
    best, most = None, worth + _CLEARLY
    for trial in trials:
        if moment.allowed(trial) and (value := moment.worth(trial)) > most:
            best, most = trial, value
    return best


def _changes(moment: Moment, start: Arrangement) -> Iterator[Arrangement]:
    yield from moment.apart.making_room(start)
    cores = moment.node.cores
    used = {c for own in start.tasks for c in own}
    for k, own in enumerate(start.tasks):
        for core in cores:
            other = tuple(sorted(set(own) ^ {core}))
            yield start.with_task(k, other)
            # Seats of two tasks change hands.
            for j in range(k):
                theirs = start.tasks[j]
                if core in own and core not in theirs:
                    yield start.with_task(k, other).with_task(j, tuple(sorted({*theirs, core})))
                elif core in theirs and core not in own:
                    yield start.with_task(k, other).with_task(j, tuple(c for c in theirs if c != core))
        if own:
            yield start.with_task(k, ())
        every = tuple(sorted(used | set(own)))
        if every and every != own:
            yield start.with_task(k, every)
        for j in range(k):
            if own != start.tasks[j]:
                yield start.with_task(k, start.tasks[j]).with_task(j, own)
    for s, service in enumerate(moment.services):
        held = {c for t, o in enumerate(moment.service_cores(start)) if t != s for c in o}
        for n in range(1, len(service.cores) + 1):
            if n != start.services[s] and not held & set(service.cores[:n]):
                services = (*start.services[:s], n, *start.services[s + 1 :])
                yield Arrangement(services, start.tasks)
                yield Arrangement(services, _without(start.tasks, service.cores[:n]))
                # What a service gives up is worth most to a task that may not share it, alone.
                freed = tuple(c for c in service.cores[n : start.services[s]] if c not in held)
                others = _without(start.tasks, freed)
                for k in range(len(start.tasks) if freed else 0):
                    yield Arrangement(services, others).with_task(k, tuple(sorted({*others[k], *freed})))
        yield Arrangement(start.services, _without(start.tasks, service.cores[: start.services[s]]))


def without_cores(arrangement: Arrangement, cores: Sequence[int]) -> Arrangement:
    """The same with no task on these cores."""
    return Arrangement(arrangement.services, _without(arrangement.tasks, tuple(cores)))


def _without(tasks: Iterable[tuple[int, ...]], cores: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(c for c in own if c not in cores) for own in tasks)
