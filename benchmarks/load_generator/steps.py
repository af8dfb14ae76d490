"""The load to offer, step by step, as a user writes it or as a wave file holds it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flowsched_models.document import Problem, Problems
from flowsched_models.quantity import QuantityError, parse_rate, parse_words, shown
from flowsched_models.wave_file import read_wave

MOST_RATE = 1e8
LONGEST_S = 1e6
_HOW = "write steps as RATE:SECONDS, so: 8K:3,34K:3"


@dataclass(frozen=True)
class LoadStep:
    """A constant rate for a while."""

    rate: float
    """Requests per second."""
    seconds: float


def parse_steps(text: str, source: str = "--steps") -> tuple[LoadStep, ...]:
    """Steps as ``8K:3,34K:3``: requests per second, seconds. Raises :class:`InputError` with everything that is wrong."""
    problems = Problems()
    steps = []
    for word in parse_words(text):
        rate, colon, seconds = word.partition(":")
        if not colon:
            problems.add(Problem(source, None, "", f"{shown(word)} is not a step", _HOW))
            continue
        try:
            steps.append(LoadStep(_rate(rate), _seconds(seconds)))
        except QuantityError as error:
            problems.add(Problem(source, None, shown(word), error.message, error.help))
    if not steps and not problems.found:
        problems.add(Problem(source, None, "", "there is no step", _HOW))
    problems.raise_any()
    return tuple(steps)


def steps_of_wave(path: Path, interval_s: float) -> tuple[LoadStep, ...]:
    """The steps of a wave file, one for each of its intervals. Raises :class:`InputError` with everything that is wrong."""
    problems = Problems()
    rates = read_wave(problems, path, MOST_RATE)
    problems.raise_any()
    return tuple(LoadStep(rate, interval_s) for rate in rates)


def total_s(steps: Iterable[LoadStep]) -> float:
    """How long all of them take, in seconds."""
    return math.fsum(step.seconds for step in steps)


def _rate(text: str) -> float:
    rate = parse_rate(text)
    if rate > MOST_RATE:
        raise QuantityError(f"no load is beyond {MOST_RATE:g} requests per second, but this is {rate:g}")
    return rate


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise QuantityError(f"{shown(text)} is not a number of seconds", _HOW) from None
    if not 0.0 < seconds <= LONGEST_S:
        raise QuantityError(f"a step lasts more than 0 and at most {LONGEST_S:g} s, but this one {text}", _HOW)
    return seconds
