"""What a user wants measured, checked against this machine before anything runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flowsched_models.document import Problem, Problems, name_help
from flowsched_models.measurements.measurements import REFERENCE
from flowsched_models.measuring.aggressor import AGGRESSORS, HOW_TO_INSTALL, PROGRAM
from flowsched_models.measuring.run_plan import default_threads
from flowsched_models.measuring.topology import Topology
from flowsched_models.quantity import QuantityError, format_cores, parse_cores, parse_words, shown

ALL = "all"
DEFAULT_KINDS = "none,cpu,llc,membw"
_MOST_THREADS = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Request:
    """A measurement that can be made here."""

    topology: Topology
    """Of this machine, with the CPUs that were asked for."""
    job: str
    machine_type: str
    threads: tuple[int, ...]
    kinds: tuple[str, ...]
    """Aggressors; empty for no interference sweep."""
    stress_ng: str | None
    """Path of stress-ng."""


def check_request(
    topology: Topology,
    *,
    job: str,
    machine_type: str | None,
    threads: str | None,
    cores: str | None,
    interference: str | None,
    program: Sequence[str],
) -> Request:
    """Read the options as a user writes them; None stands for the default (of ``interference``: no sweep).

    Raises :class:`flowsched_models.document.InputError` with everything that is wrong.
    """
    found = Problems()
    topology = _with_cores(topology, cores, found)
    for option, name in (("--job", job), ("--machine-type", machine_type)):
        if name is not None and not _NAME.fullmatch(name):
            found.add(_wrong(option, f"{shown(name)} is not a name", "write letters, digits, '.', '_' and '-'"))
    if shutil.which(program[0]) is None:
        found.add(_wrong("PROGRAM", f"there is no program '{program[0]}' that can be run", _program_help(program[0])))
    request = Request(
        topology,
        job,
        machine_type or f"machine-{topology.vcpus}cpu",
        _threads(threads, found) or default_threads(topology),
        _kinds(interference, found),
        shutil.which(PROGRAM),
    )
    if request.kinds and request.stress_ng is None:
        help = f"{HOW_TO_INSTALL}, or leave the interference out: --no-interference"
        found.add(_wrong("--interference", f"{PROGRAM} makes the interference and is not installed", help))
    found.raise_any()
    return request


def _wrong(option: str, message: str, help: str = "") -> Problem:
    return Problem(option, None, "", message, help)


def _with_cores(topology: Topology, text: str | None, found: Problems) -> Topology:
    if text is None:
        return topology
    try:
        cores = parse_cores(text)
    except QuantityError as error:
        found.add(_wrong("--cores", error.message, error.help))
        return topology
    if missing := sorted(set(cores) - set(topology.cores)):
        there = f"there are {format_cores(topology.cores)}"
        found.add(_wrong("--cores", f"core {format_cores(missing)} cannot be used on this machine", there))
        return topology
    return replace(topology, cores=cores)


def _threads(text: str | None, found: Problems) -> tuple[int, ...]:
    numbers = []
    for word in parse_words(text):
        if not re.fullmatch("[0-9]{1,5}", word, re.ASCII) or not 1 <= int(word) <= _MOST_THREADS:
            found.add(_wrong("--threads", f"{shown(word)} is not a number of threads", "write them as 1,2,4"))
        else:
            numbers.append(int(word))
    if text is not None and not parse_words(text):
        found.add(_wrong("--threads", "must not be empty", "write numbers of threads as 1,2,4"))
    return tuple(sorted(set(numbers)))


def _kinds(text: str | None, found: Problems) -> tuple[str, ...]:
    """Aggressors in their own order. The reference needs no name: it is always measured with them."""
    words = parse_words(text)
    known = (REFERENCE, *AGGRESSORS, ALL)
    for word in words:
        if word not in known:
            found.add(_wrong("--interference", f"there is no interference '{word}'", name_help(word, known)))
    return tuple(kind for kind in AGGRESSORS if kind in words or ALL in words)


def _program_help(name: str) -> str:
    return f"write ./{name} for the file in this folder" if Path(name).is_file() and "/" not in name else ""
