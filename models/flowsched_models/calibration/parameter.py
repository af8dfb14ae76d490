"""The parameters of the run-time model that are fitted: their names, scales and what is assumed of them beforehand.

Speeds have two levels: a family of machine types (the first word of the name: n2d) has a factor and one for each job, a type
of the family a small correction to both. What is measured on one type so tells something about its sisters.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from flowsched_models.calibration.observation import Observations
from flowsched_models.cell import Floats


class Scale(StrEnum):
    """How a parameter enters the fit."""

    LOG = "log"
    LOGIT = "logit"
    PLAIN = "plain"


@dataclass(frozen=True)
class Block:
    """Parameters of one kind. Means and standard deviations are on the fit's scale."""

    name: str
    scale: Scale
    keys: tuple[str, ...]
    mean: Floats
    deviation: Floats
    """How far from the mean a value may be before measurements are needed to say so."""

    def plain(self, values: Floats) -> Floats:
        """From the fit's scale to the profile's."""
        if self.scale is Scale.LOG:
            return np.exp(values)
        if self.scale is Scale.LOGIT:
            result: Floats = 1.0 / (1.0 + np.exp(-values))
            return result
        return values


PER_JOB = ("work_s", "serial_fraction", "smt_gain", "pressure", "sensitivity", "oversubscription")
"""Blocks with a number for each job, which are fields of :class:`Values`."""


@dataclass(frozen=True)
class Values:
    """Parameters as the model takes them: J jobs, T machine types."""

    work_s: Floats
    serial_fraction: Floats
    smt_gain: Floats
    pressure: Floats
    sensitivity: Floats
    oversubscription: Floats
    speed: Floats
    """[T, J] relative to the reference type."""
    type_speed: Floats
    """[T] of a job that nothing is known of."""
    bandwidth: Floats
    """[T]"""


def family_of(machine_type: str) -> str:
    """The first word of a machine type's name: n2d of n2d-highmem-4."""
    return machine_type.split("-", 1)[0]


@dataclass(frozen=True)
class Parameters:
    """All blocks, and where each stands in the vector of the fit."""

    jobs: tuple[str, ...]
    machine_types: tuple[str, ...]
    reference: str
    """The machine type that speeds are relative to; its whole family has its speed unless measured otherwise."""
    blocks: tuple[Block, ...]

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each block stands."""
        found = {}
        at = 0
        for block in self.blocks:
            found[block.name] = slice(at, at + len(block.keys))
            at += len(block.keys)
        return found

    @cached_property
    def mean(self) -> Floats:
        """Of all, on the fit's scale."""
        return np.concatenate([b.mean for b in self.blocks])

    @cached_property
    def deviation(self) -> Floats:
        """Of all, on the fit's scale."""
        return np.concatenate([b.deviation for b in self.blocks])

    @property
    def count(self) -> int:
        """Length of the vector."""
        return len(self.mean)

    @cached_property
    def lower(self) -> Floats:
        """Least values: an oversubscription below 0 would make many threads faster than the cores."""
        least = np.full(self.count, -np.inf)
        least[self.slices["oversubscription"]] = 0.0
        return least

    def start(self) -> Floats:
        """Where the fit begins."""
        return np.maximum(self.mean, self.lower + 1e-3)

    def names(self) -> tuple[tuple[str, str, Block], ...]:
        """(name of the block, key, block) of every number."""
        return tuple((b.name, key, b) for b in self.blocks for key in b.keys)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """Those other than the reference's, in the order of their parameters."""
        return next(b.keys for b in self.blocks if b.name == "family speed")

    def of_family(self, vector: Floats, family: str) -> tuple[float, Floats, float]:
        """Log of a family's speed, [J] what is added to it for each job, and bandwidth: 0, 0 and 1 of the reference's."""
        jobs = len(self.jobs)
        if family not in self.families:
            return 0.0, np.zeros(jobs), 1.0
        f = self.families.index(family)
        level, of_jobs, bandwidth = (
            vector[self.slices[n]] for n in ("family speed", "family speed of a job", "bandwidth")
        )
        return float(level[f]), of_jobs[f * jobs : (f + 1) * jobs], float(np.exp(bandwidth[f]))

    def values(self, vector: Floats) -> Values:
        """The parameters of a vector."""
        part = {b.name: b.plain(vector[self.slices[b.name]]) for b in self.blocks}
        logs = {b.name: vector[self.slices[b.name]] for b in self.blocks}
        others = [t for t in self.machine_types if t != self.reference]
        jobs = len(self.jobs)
        speed = np.ones((len(self.machine_types), jobs))
        typical = np.ones(len(self.machine_types))
        bandwidth = np.ones(len(self.machine_types))
        for t, name in enumerate(self.machine_types):
            base, level, bandwidth[t] = self.of_family(vector, family_of(name))
            if name != self.reference:
                o = others.index(name)
                base += logs["type speed"][o]
                level = level + logs["type speed of a job"][o * jobs : (o + 1) * jobs]
            speed[t] = np.exp(base + level)
            typical[t] = np.exp(base)
        return Values(**{name: part[name] for name in PER_JOB}, speed=speed, type_speed=typical, bandwidth=bandwidth)


def parameters_of(observed: Observations, reference: str, without: Collection[str] = ()) -> Parameters:
    """The parameters that these measurements ask for, with what is assumed of each; ``without`` some groups."""
    jobs = observed.jobs
    types = tuple(m.name for m in observed.machine_types)
    others = [t for t in types if t != reference]
    families = [f for f in dict.fromkeys(family_of(t) for t in types) if f != family_of(reference)]
    blocks = (
        _block("work_s", Scale.LOG, jobs, [np.log(_rough_work_s(observed, j, without)) for j in range(len(jobs))], 1.0),
        _block("serial_fraction", Scale.LOGIT, jobs, -2.5, 1.5),
        _block("smt_gain", Scale.LOGIT, jobs, 0.0, 1.5),
        _block("pressure", Scale.LOG, jobs, float(np.log(0.03)), 1.0),
        _block("sensitivity", Scale.LOG, jobs, float(np.log(0.9)), 0.5),
        _block("oversubscription", Scale.PLAIN, jobs, 0.0, 0.05),
        _block("family speed", Scale.LOG, families, 0.0, 0.5),
        _block("bandwidth", Scale.LOG, families, 0.0, 0.5),
        _block("family speed of a job", Scale.LOG, _pairs(families, jobs), 0.0, 0.2),
        _block("type speed", Scale.LOG, others, 0.0, 0.1),
        _block("type speed of a job", Scale.LOG, _pairs(others, jobs), 0.0, 0.05),
    )
    return Parameters(jobs, types, reference, blocks)


def _block(name: str, scale: Scale, keys: Sequence[str], mean: float | Sequence[float], deviation: float) -> Block:
    return Block(name, scale, tuple(keys), np.full(len(keys), mean, dtype=np.float64), np.full(len(keys), deviation))


def _pairs(machines: Sequence[str], jobs: Sequence[str]) -> list[str]:
    return [f"{m} {j}" for m in machines for j in jobs]


def _rough_work_s(observed: Observations, job: int, without: Collection[str]) -> float:
    """CPU-seconds of the cheapest measurement of a job: a start for the fit, and the middle of a wide assumption."""
    times = [s.threads**0.9 * m for s in observed.sweeps if s.job == job and (m := s.median_s(without)) is not None]
    times += [
        float(p.duration_s[i] * p.parallel[i] ** 0.9)
        for p in observed.played
        if p.group not in without
        for i in np.flatnonzero(p.jobs == job).tolist()
    ]
    # A job that no other group measured has no middle of its own: any will do, within so wide a spread.
    return float(min(times)) if times else 100.0
