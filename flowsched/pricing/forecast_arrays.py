"""What the kernels of forecasts take and fill: columns of jobs and variants, and named tuples of arrays."""

from __future__ import annotations

from typing import NamedTuple

from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.kernel import RunResult, RunSpace

# Columns of a job on a machine.
SCALE, DONE, READY_S, CORES, MEMORY_MIB, ELAPSED_S, GOAL_S, IMPORTANCE, LATEST_S, LONG_RUNNING = range(10)
LATE_SCALE, LATE_DONE = 10, 11
JOB_NUMBERS = 12
"""SCALE work relative to its kind's; DONE progress in [0, 1]; READY_S when its program runs, seconds from now; CORES and
MEMORY_MIB what it requests; ELAPSED_S since its submission; GOAL_S tau; IMPORTANCE w; LATEST_S the last useful completion,
seconds from now (infinity: any). LONG_RUNNING 0: it ends; -1: a running task without an end; > 0: an arriving one, the
seconds that a reference job would run at this place. LATE_SCALE and LATE_DONE: SCALE and DONE of a task that runs if it
ends late; services are guarded against that."""

# Columns of a variant: a class at a width on machines of one shape. The first JOB_NUMBERS are those of a job.
DELAY_NOW_S, LEAST_ALONE_S = JOB_NUMBERS, JOB_NUMBERS + 1
VARIANT_NUMBERS = JOB_NUMBERS + 2
"""DELAY_NOW_S from binding now to the program's start; LEAST_ALONE_S run time of the whole task that is never undercut."""

VARIANTS_PER_START = 1 << 10
STARTS_PER_CLASS = 1 << 6
"""Keys sort the arrivals of a machine by class, start and variant: the order in which those of one start are bound."""

MOST_USED = 0.99
"""Share of its p95 goal that a service is at most charged for: beyond it the price would have no end."""
FAR_S = 1e8
"""A start later than this waits for the end of a task that has none."""


class PriceSettings(NamedTuple):
    """Settings of a round that prices depend on."""

    eps: float
    """Penalty of a completion exactly at its goal."""
    beta: float
    """Further penalty for each goal's length of delay."""
    headroom_weight: float
    """Price of latency headroom."""
    slo_margin: float
    """Share of a p95 goal that arriving tasks may use up."""
    goal_factor: float
    """Goal of a task over its best run time."""
    start_delay_s: float
    """From binding a task after another one's completion to its program's start."""


class OneMachine(NamedTuple):
    """A machine with n jobs."""

    host: int
    """Row of its host in the memory of paces."""
    jobs: FloatArray
    """[n, JOB_NUMBERS]"""
    kinds: IntArray
    """[n] kind of each job, by the number of the pace table."""
    start_after: IntArray
    """[n] 0: it is there or starts now; k: it starts at the k-th completion or later."""
    free_cores: float
    """What is left beside all jobs with ``start_after`` 0."""
    free_memory: float
    """The same in MiB."""
    slo_us: FloatArray
    """[S] p95 goal of each service; infinity where there is none."""


class MachineJobs(NamedTuple):
    """What runs and is planned on many machines, or on one machine of each of many groups, by machine: see
    :class:`OneMachine`.
    """

    hosts: IntArray
    """[machines]"""
    size: IntArray
    """[machines] jobs of each."""
    jobs: FloatArray
    """[machines, most jobs, JOB_NUMBERS]"""
    kinds: IntArray
    """[machines, most jobs]"""
    start_after: IntArray
    """[machines, most jobs]"""
    free_cores: FloatArray
    """[machines]"""
    free_memory: FloatArray
    """[machines] MiB"""
    slo_us: FloatArray
    """[machines, S]"""


class MachineForecasts(NamedTuple):
    """What is forecast of machines as they are planned so far."""

    cost: FloatArray
    """[machines]"""
    peak: FloatArray
    """[machines, S] highest p95 of each service, microseconds."""
    ends: FloatArray
    """[machines, most jobs] completions, seconds from now."""
    bound: FloatArray
    """[machines, most jobs] bindings, seconds from now."""
    completions: FloatArray
    """[machines, starts - 1] when the k-th job ends after now; infinity for fewer. Long-running jobs never complete."""


class PlannedMachines(NamedTuple):
    """The machines of a round as they are planned so far."""

    there: MachineJobs
    keys: IntArray
    """[machines, most jobs] orders the arrivals of each machine: class, start and variant; -1 for what runs."""
    shape: IntArray
    """[machines] shape of machine, by the rows of the tables of variants."""
    representative: IntArray
    """[machines] the machine that stands for each: options are forecast on these only."""
    cost: FloatArray
    """[machines] as for :class:`MachineForecasts`."""
    completions: FloatArray
    """[machines, starts - 1] as for :class:`MachineForecasts`."""
    settled: FloatArray
    """[machines, S] p95 beside those tasks alone that run without an end, microseconds."""


class VariantArrays(NamedTuple):
    """Every way in which the types of a round may join machines."""

    numbers: FloatArray
    """[variants, VARIANT_NUMBERS]"""
    kinds: IntArray
    """[variants] kind of job, by the number of the pace table."""
    columns: IntArray
    """[variants] position among its type's variants of one shape."""


class TypeForecasts(NamedTuple):
    """What classes of one type share. Filled as it is asked for; NaN where nothing is forecast yet."""

    rows: IntArray
    """[types, shapes, columns] row of each variant, -1 where there is none."""
    known: BoolArray
    """[types] whether the rows of a type in the other arrays hold anything."""
    others: FloatArray
    """[types, machines, columns, starts] the exact change of what all else on the machine costs; infinity: not allowed."""
    own_end: FloatArray
    """[types, machines, columns, starts] when a task of the type would be done, seconds from now."""


class ClassArrays(NamedTuple):
    """Classes that are priced together."""

    numbers: IntArray
    """[classes] number of each in the round."""
    types: IntArray
    """[classes]"""
    tasks: FloatArray
    """[classes, 4] ELAPSED_S to LATEST_S."""
    wishes: FloatArray
    """[classes, machines] what a task pays on a machine beside all else, the same on all that one stands for."""
    open_now: BoolArray
    """[classes, machines] where a task may start now."""
    open_later: BoolArray
    """[classes, machines] where it may start after a completion."""


class PricingLimits(NamedTuple):
    """How far options are looked at."""

    wanted: int
    """Cheapest machines of each class whose prices must be exact."""
    forecasts: int
    """That may be made in all."""
    sharers: int
    """Of what is left when its turn comes a class gets one part in so many,"""
    least: int
    """but so many forecasts at least."""


class CheapestOptions(NamedTuple):
    """The cheapest option of each class on every machine."""

    price: FloatArray
    """[classes, machines] change of the total; infinity where there is no option or it was left out."""
    start_after: IntArray
    """[classes, machines] the completion that it waits for; 0: none."""
    variant: IntArray
    """[classes, machines] row of the variant; -1: no option."""


class ListedOptions(NamedTuple):
    """The options of one class, and room for the most that there may be."""

    machine: IntArray
    variant: IntArray
    after: IntArray
    """The completion that it waits for; 0: it starts now."""
    least: FloatArray
    """A lower bound of its price."""


class MachineSpace(NamedTuple):
    """Room for the forecast of a machine with so many jobs at most, used again for the next one."""

    rows: FloatArray
    """[jobs, JOB_COLUMNS] as a run takes them."""
    numbers: FloatArray
    """[4, jobs] work relative to its kind's; how many times slower than alone it is; completions and bindings if all end
    late."""
    at_a_completion: IntArray
    """[jobs] -1: none is bound at the end of a certain other one."""
    run: RunSpace
    asked: IntArray
    """[1] what it takes to go on with the forecast."""


class TrialMachine(NamedTuple):
    """Room for one machine's jobs with one more, and for what is forecast of them."""

    jobs: FloatArray
    """[most jobs, JOB_NUMBERS]"""
    kinds: IntArray
    start_after: IntArray
    place: IntArray
    """[1] of the additional one."""
    result: RunResult
    space: MachineSpace


class ArrivalSets(NamedTuple):
    """Sets of arrivals that may join one machine; set b has the arrivals ``first[b]`` to ``first[b + 1]``."""

    first: IntArray
    """[sets + 1]"""
    variant: IntArray
    """[arrivals] row of the variant."""
    after: IntArray
    """[arrivals] the completion that it waits for; 0: it starts now."""
    task: FloatArray
    """[arrivals, 4] ELAPSED_S to LATEST_S."""
