"""One run of an experiment: what it is, the digest of all that decides its result, and the run itself."""

from __future__ import annotations

import hashlib
import json
import platform
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import flowsched
import flowsched_models
import flowsched_simulator
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory
from flowsched_simulator.comparison import simulate
from flowsched_simulator.experiment.contender import Contender
from flowsched_simulator.experiment.finished_run import FinishedRun, RunFailure, finished_run
from flowsched_simulator.experiment.scenario_case import ScenarioCase
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import NO_LIMIT_S, Options

_UNSAID = ("source", "description")
"""Fields of scenarios and catalogues that decide nothing."""
_DECIDES_NOTHING = ("commands", "experiment", "report", "inspector", "calibration", "validation", "measuring")
"""Folders of packages whose code no run depends on."""
_MOST_HOSTS = 4
_VERSIONS = ("flowsched", "numpy", "numba", "ortools")


@dataclass(frozen=True)
class PlannedRun:
    """One contender on one case with one seed."""

    case: ScenarioCase
    contender: Contender
    seed: int
    max_time_s: float = NO_LIMIT_S
    variant_seeds: tuple[int, ...] = ()
    """The seeds by whose runs the variant is chosen; empty where there is none to choose, or nothing is drawn."""
    chosen: str | None = None
    """The variant, once it is chosen. What it is follows from the rest."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Case, label of the contender, seed: unique in an experiment, and the order of all tables."""
        return self.case.name, self.contender.label, self.seed

    def trials(self) -> tuple[PlannedRun, ...]:
        """The runs by which the variant is chosen."""
        return tuple(
            PlannedRun(self.case, contender, seed, self.max_time_s)
            for contender in (self.contender.variants(self.case.scenario) if self.variant_seeds else ())
            for seed in self.variant_seeds
        )

    @cached_property
    def digest(self) -> str:
        """Tells runs apart whose results may differ: scenario, policy, settings, variant or the seeds that it is chosen by,
        seed, and flowsched's own code.

        Names of cases and labels do not count, so that a renamed one is not run again.
        """
        decides = [
            code_digest(),
            scenario_digest(self.case.scenario),
            str(self.case.model_error),
            self.case.error_of,
            self.case.learning,
            self.contender.policy,
            self.contender.settings,
            self.contender.only_variant,
            self.seed,
            self.max_time_s,
            self.variant_seeds,
        ]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:32]


def execute(planned: PlannedRun, code: str = "") -> FinishedRun | RunFailure:
    """Run it. What is wrong with it is returned, so that other runs go on. ``code``: the digest that the asker has."""
    if code and code != code_digest():
        return RunFailure(planned.key, f"{platform.node()} has another version of flowsched than the asker")
    case = planned.case
    options = Options(
        seed=planned.seed,
        model_error=case.model_error,
        error_of=case.error_of,
        learning=case.learning,
        max_time_s=planned.max_time_s,
    )
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        run = simulate(
            planned.case.scenario,
            planned.contender.policy,
            options=options,
            engine=planned.contender.engine(),
            hosts=_HOSTS.of(planned.case.scenario),
            variant=planned.chosen or planned.contender.only_variant,
        )
    except InputError as error:
        return RunFailure(planned.key, str(error))
    timings = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "host": platform.node(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        **{name: package_version(name) for name in _VERSIONS},
        "code": code_digest(),
    }
    return finished_run(planned.digest, planned.case.scenario, run, timings)


class _KeptHosts(threading.local):
    """Rates that the runs of one worker thread share: of the scenarios that it ran last."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, HostFactory] = OrderedDict()

    def of(self, scenario: Scenario) -> HostFactory:
        digest = scenario_digest(scenario)
        if digest not in self._held:
            self._held[digest] = HostFactory(scenario.catalogue)
            while len(self._held) > _MOST_HOSTS:
                self._held.popitem(last=False)
        self._held.move_to_end(digest)
        return self._held[digest]


_HOSTS = _KeptHosts()
_DIGESTS: dict[int, tuple[Scenario, str]] = {}


def scenario_digest(scenario: Scenario) -> str:
    """Tells scenarios apart by all that a run depends on; it costs milliseconds once for each object."""
    known = _DIGESTS.get(id(scenario))
    if known is None or known[0] is not scenario:
        if len(_DIGESTS) > 200:
            _DIGESTS.clear()
        known = scenario, hashlib.sha256(json.dumps(_plain(scenario)).encode()).hexdigest()
        _DIGESTS[id(scenario)] = known
    return known[1]


def _plain(value: Any) -> Any:
    """A value as JSON has it, with the types of dataclasses."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.name not in _UNSAID}
        return [type(value).__name__, told]
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(inner)] for key, inner in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_plain(inner)) for inner in value)
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} has no digest")


@cache
def code_digest() -> str:
    """Tells versions of flowsched apart by all of its code that a run depends on."""
    digest = hashlib.sha256()
    for package in (flowsched_models, flowsched, flowsched_simulator):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder)
            if inside.parts[0] not in _DECIDES_NOTHING:
                digest.update(f"{package.__name__}/{inside.as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def package_version(name: str) -> str:
    """The version of a distribution; empty where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
