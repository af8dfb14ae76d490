"""Every way in which the task types of a round may join machines, as arrays that forecasts take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI, Estimate
from flowsched.gpu.devices import use_of
from flowsched.pricing.arrival import Arrival
from flowsched.pricing.forecast_arrays import (
    CORES,
    DELAY_NOW_S,
    DONE,
    GOAL_S,
    LATE_DONE,
    LATE_SCALE,
    LATEST_S,
    LEAST_ALONE_S,
    LONG_RUNNING,
    MEMORY_MIB,
    SCALE,
    VARIANT_NUMBERS,
    VariantArrays,
)
from flowsched.pricing.forecast_cache import ForecastCache
from flowsched.pricing.goals import Goals
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.gpu_profile import NO_GPU_PROFILE
from flowsched_models.runtime import Resident

_TypeKey = tuple[object, ...]
_Variant = tuple[tuple[int, bool], FloatArray, int, int]


@dataclass(frozen=True)
class Variants:
    """Every way in which the types of a round may join machines."""

    arrays: VariantArrays
    """As the kernels take them."""
    ways: tuple[tuple[int, bool], ...]
    """[variants] width in milli-CPU, and whether services' cores are used."""
    shared: BoolArray
    """[variants] whether services' cores are used."""


@dataclass(frozen=True)
class _TypeVariants:
    """The ways of one type alone: of classes that differ in age, goal and importance only, which share forecasts."""

    rows: IntArray
    """[shapes, columns] row of each variant, counted from 0; -1 where there is none."""
    variants: Variants


class VariantBuilder:
    """Makes the variants of a round. Types whose shapes of machines were there before are remembered."""

    def __init__(self, forecasts: ForecastCache, goals: Goals, settings: Settings) -> None:
        """Nothing is built yet."""
        self.forecasts = forecasts
        self.goals = goals
        self.settings = settings

    def build(self) -> tuple[IntArray, IntArray, Variants]:
        """[classes] the type of each; [types, shapes, columns] the rows of each type's variants on every shape of machine,
        -1 where there is none; and the variants.
        """
        view = self.forecasts.view
        number: dict[_TypeKey, int] = {}
        type_of: list[int] = []
        parts: list[_TypeVariants] = []
        for c, cls in enumerate(view.classes):
            t = cls.task
            fresh = view.snapshot.is_new(t)
            # Where GPUs make a difference to its speed, how many it asks for does too.
            gpus = None if view.snapshot.catalogue.jobs[t.profile].gpus is NO_GPU_PROFILE else t.gpus
            work = (*self.forecasts.scales(t), *self._kept_work(c))
            job = (t.profile, *work, t.widths_milli, t.memory_mib, t.threads, t.endless, t.machines)
            key = (*job, fresh, gpus)
            if key not in number:
                number[key] = len(parts)
                reference = self.goals.whole_run_s[c] if t.endless else 0.0
                depends = (*key, self.forecasts.delay_s(c, 0), reference, self.settings.slo_margin)
                parts.append(self.forecasts.remembered(c, depends, partial(self._type_variants, c)))
            type_of.append(number[key])
        rows = np.full((len(parts), len(view.shapes), max((p.rows.shape[1] for p in parts), default=0)), -1, np.int64)
        first = 0
        for i, part in enumerate(parts):
            rows[i, :, : part.rows.shape[1]] = np.where(part.rows >= 0, part.rows + first, -1)
            first += len(part.variants.ways)
        arrays = VariantArrays(
            np.concatenate([np.zeros((0, VARIANT_NUMBERS)), *(p.variants.arrays.numbers for p in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(p.variants.arrays.kinds for p in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(p.variants.arrays.columns for p in parts)]),
        )
        variants = Variants(
            arrays,
            tuple([way for p in parts for way in p.variants.ways]),
            np.concatenate([np.zeros(0, np.bool_), *(p.variants.shared for p in parts)]),
        )
        return np.array(type_of, np.int64), rows, variants

    def _kept_work(self, task_class: int) -> list[Estimate]:
        """What is left of a class that kept work, on each shape of machine."""
        view = self.forecasts.view
        t = view.classes[task_class].task
        return [view.snapshot.estimate(t, t.done, view.groups[g].machine.type) for g in view.shapes] if t.done else []

    def _type_variants(self, task_class: int) -> _TypeVariants:
        """The variants of one class's type, counted from 0."""
        found: list[_Variant] = []
        by_shape: list[range] = []
        for g in self.forecasts.view.shapes:
            make = partial(self._variants_of, g, task_class)
            here = self.forecasts.table.remembered(self._place_key(g, task_class), make)
            by_shape.append(range(len(found), len(found) + len(here)))
            found += here
        rows_of = np.full((len(by_shape), max(map(len, by_shape), default=0)), -1, np.int64)
        for s, rows in enumerate(by_shape):
            rows_of[s, : len(rows)] = rows
        arrays = VariantArrays(
            np.array([row for _, row, _, _ in found]).reshape(-1, VARIANT_NUMBERS),
            np.array([kind for _, _, kind, _ in found], np.int64),
            np.array([column for *_, column in found], np.int64),
        )
        shared = np.array([way[1] for way, *_ in found], np.bool_)
        return _TypeVariants(rows_of, Variants(arrays, tuple([way for way, *_ in found]), shared))

    def _place_key(self, group: int, task_class: int) -> tuple[object, ...]:
        """What the variants of a class on a group's machines depend on."""
        here, t = self.forecasts.view.groups[group], self.forecasts.view.classes[task_class].task
        now = self.forecasts.view.snapshot
        delay_s = self.forecasts.delay_s(task_class, 0)
        allowed = self.forecasts.view.allowed(task_class, here.members[0])
        work = t.scale, *now.estimate(t, t.done, here.machine.type)
        job = (t.profile, *work, t.widths_milli, t.memory_mib, t.threads, delay_s, allowed)
        goals = tuple(s.slo_us for s in here.services)
        reference = self.goals.whole_run_s[task_class] if t.endless else 0.0
        place = (int(self.forecasts.hosts[group]), here.batch_cores, here.machine.vcpus, goals, now.share_service_cores)
        use = use_of(now.catalogue, t.profile, here.machine.gpus, t.gpus)
        return (*job, reference, *place, use, self.settings.slo_margin, self.forecasts.shares)

    def _variants_of(self, group: int, task_class: int) -> list[_Variant]:
        """Way, row, kind and column of each variant of a class on a group's machines."""
        forecasts = self.forecasts
        found = []
        for column, (width, shared) in enumerate(forecasts.ways(group, task_class)):
            arrival = Arrival(task_class, 0, width, shared)
            if self._breaks_alone(group, arrival):
                continue
            resident = forecasts.resident(group, arrival)
            kind = forecasts.table.kind(int(forecasts.hosts[group]), resident)
            found.append(((width, shared), self._variant(group, arrival, resident), kind, column))
        return found

    def _breaks_alone(self, group: int, arrival: Arrival) -> bool:
        """Whether an arriving task breaks a p95 goal on a machine of the group that runs nothing else."""
        services = self.forecasts.view.groups[group].services
        peaks = self.forecasts.lone_peak_p95_us(group, arrival)
        return any(p > self.settings.slo_margin * s.slo_us for p, s in zip(peaks, services, strict=True))

    def _variant(self, group: int, arrival: Arrival, resident: Resident) -> FloatArray:
        row = np.zeros(VARIANT_NUMBERS)
        row[SCALE], row[DONE] = row[LATE_SCALE], row[LATE_DONE] = resident.scale, resident.progress
        row[CORES], row[MEMORY_MIB] = arrival.width_milli / MILLI, resident.memory_mib
        row[GOAL_S], row[LATEST_S] = 1.0, np.inf
        row[DELAY_NOW_S] = self.forecasts.delay_s(arrival.task_class, 0)
        row[LEAST_ALONE_S] = self.goals.reference_run_s(group, arrival.task_class)
        if self.forecasts.view.classes[arrival.task_class].task.endless:
            row[LONG_RUNNING] = row[LEAST_ALONE_S]
        elif arrival.shared:
            row[LEAST_ALONE_S] = self.forecasts.least_alone_s(group, arrival.task_class)
        return row
