"""From measurements to profiles: fit, errors from groups that were left out, and all that is to be said about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from flowsched_models.calibration.assembly import LogErrors, assemble, with_errors
from flowsched_models.calibration.controlled_fit import (
    ControlledFit,
    fit_controlled,
    with_controlled,
    without_controlled,
)
from flowsched_models.calibration.latency_factors import INTERFERENCE_CLIENT
from flowsched_models.calibration.latency_fit import FittedLatency, fit_latency
from flowsched_models.calibration.load_fit import with_loads
from flowsched_models.calibration.observation import PRESSING, Observations, observe
from flowsched_models.calibration.parameter import parameters_of
from flowsched_models.calibration.runtime_fit import Fitted, Progress, fit_runtime
from flowsched_models.calibration.uncertainty import errors_of
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError, Problem, Problems, name_help
from flowsched_models.measurements.measurements import Finding, Measurements
from flowsched_models.profile import NEVER_MEASURED
from flowsched_models.validation.score import Quantity, Score
from flowsched_models.validation.validation import Question, validate

LEFT_OUT_STEPS = 40
"""Most steps of a fit without one group. It starts from what is assumed beforehand, not from a fit that saw the group."""
ONE_GROUP_ERROR = 0.15
"""``error`` of jobs that only one group ran beside others, at least: how hosts and groups differ is not known then."""
SWEPT_ERROR = 0.3
"""The same of jobs that were measured alone only: what they do beside others is assumed."""


@dataclass(frozen=True)
class FitRequest:
    """What to fit, and how."""

    reference: str | None = None
    """Machine type that speeds are relative to; the one with most thread sweeps by default."""
    client: str | None = None
    """Load client of services during runs."""
    leave_out: bool = True
    """Whether to fit once more without each group, for honest errors."""
    unmeasured: bool = False
    """Whether the result has machine types of the base that were not measured, too."""


@dataclass(frozen=True)
class Calibration:
    """Profiles fitted to measurements."""

    catalogue: Catalogue
    """The profiles, with the errors of predictions."""
    observed: Observations
    fitted: Fitted
    """The run-time model; its numbers with intervals by :meth:`Fitted.interval`."""
    latency: Mapping[str, FittedLatency]
    """By service."""
    in_sample: tuple[Score, ...]
    """Every execution, makespan and window against the fit of all groups."""
    left_out: tuple[Score, ...]
    """Executions and makespans, each by a fit that had not seen its group (the phases of jobs apart, which all groups
    together chose); empty with one group. For services see ``FittedLatency.scores``."""
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    """Parameters that the data does not identify, and what else a reader must know; one sentence each."""
    defaults: tuple[str, ...]
    """What was assumed because nothing measured it; one sentence each."""
    controlled: tuple[ControlledFit, ...] = ()
    """Machine types of their own for jobs under a controller."""


def calibrate(
    data: Measurements, base: Catalogue, request: FitRequest | None = None, tell: Progress = lambda _: None
) -> Calibration:
    """Profiles of everything that was measured.

    ``base`` gives what no time tells: virtual CPUs and memory of machine types, memory of jobs, services beside runs. Raises
    :class:`InputError` where nothing can be fitted or a machine type is in no profile.
    """
    request = request or FitRequest()
    base = without_controlled(base)
    check_types(data, base)
    if not data.thread_times and not data.runs:
        raise InputError.one("DATA", "there are neither thread sweeps nor executions", "add threads.csv")
    latency = _fit_services(data, base, request, tell)
    base = replace(base, services={**base.services, **{n: f.profile for n, f in latency.items()}})
    client = request.client
    observed = observe(data, base, _client_of(base, client))
    reference = request.reference or _reference(observed)
    if reference not in base.machine_types:
        known = sorted(m.name for m in observed.machine_types)
        raise InputError.one("--reference", f"'{reference}' was not measured", name_help(reference, known))
    parameters = parameters_of(observed, reference)
    fitted = fit_runtime(observed, parameters, progress=tell)
    first, _ = assemble(fitted, base, data, unmeasured=request.unmeasured)
    latency = {n: _on_fitted_machines(f, data, base, first) for n, f in latency.items()}
    base = replace(base, services={**base.services, **{n: f.profile for n, f in latency.items()}})
    first, assumed = assemble(fitted, base, data, unmeasured=request.unmeasured)
    question = Question(client=client)
    apart = _left_out(data, base, observed, fitted, tell) if request.leave_out else {}
    unseen = tuple(s for g, c in apart.items() for s in _run_times(data.only(g), c, question))
    errors = _errors(unseen, validate(data, first, question).scores, observed, fitted)
    # Scored once more with the errors that they gave, so that the share inside the intervals means something.
    left_out = tuple(s for g, c in apart.items() for s in _run_times(data.only(g), with_errors(c, errors), question))
    catalogue, _ = assemble(fitted, base, data, errors, unmeasured=request.unmeasured)
    if data.controlled_runs:
        tell("fitting speeds of jobs under a controller")
    controlled = fit_controlled(data.controlled_runs, catalogue, leave_out=request.leave_out)
    catalogue = with_controlled(catalogue, controlled)
    tell("scoring the fit")
    warnings, defaults = _said(fitted, latency, observed)
    if not request.unmeasured and set(base.machine_types) - set(parameters.machine_types):
        defaults = (
            *defaults,
            f"speeds are relative to {reference}: on machine types of other profiles files these jobs count as fast as on"
            f" it, so the files go together only where a machine type was measured for both",
        )
    if len(observed.groups) == 1:
        warnings = (
            *warnings,
            "only one group measured: how groups and hosts differ is not known, and errors are assumed",
        )
    return Calibration(
        catalogue,
        observed,
        fitted,
        latency,
        validate(data, catalogue, question).scores,
        left_out,
        data.findings,
        warnings,
        (*assumed, *defaults),
        controlled,
    )


def check_types(data: Measurements, base: Catalogue) -> None:
    """Raise :class:`InputError` for every machine type that no profile knows."""
    seen: dict[str, str] = {}
    for t in data.thread_times:
        seen.setdefault(t.machine_type, t.where.file)
    for run in data.runs:
        for e in run.executions:
            seen.setdefault(e.machine_type, e.where.file)
    problems = Problems()
    for name, file in sorted(seen.items()):
        if name not in base.machine_types:
            help = name_help(name, base.machine_types)
            message = f"machine type '{name}' is in no profiles: its vcpus, memory and smt must be known"
            problems.add(Problem(file, None, "machine_type", message, f"add a machine.yaml beside the tables; {help}"))
    problems.raise_any()


def _fit_services(data: Measurements, base: Catalogue, request: FitRequest, tell: Progress) -> dict[str, FittedLatency]:
    found = {}
    for service in sorted({p.service for p in data.latency_points}):
        tell(f"fitting the latency of {service}")
        fitted = fit_latency(
            data.latency_points,
            data.latency_interference,
            data.latency_windows,
            data.runs,
            service=service,
            cohort_of=data.years,
            bandwidth={n: m.bandwidth for n, m in base.machine_types.items()},
            vcpus={n: m.vcpus for n, m in base.machine_types.items()},
            fewest_groups=2 if len(data.groups) > 2 else 1,
            leave_out=request.leave_out,
        )
        fitted = with_loads(
            fitted, data.load_intervals, data.elsewhere_points, data.elsewhere_intervals, cohort_of=data.years
        )
        # The client of measurements beside aggressors belongs to no service: one that names none counts with the slowest.
        clients = {n: f for n, f in fitted.profile.clients.items() if n != INTERFERENCE_CLIENT}
        found[service] = replace(fitted, profile=replace(fitted.profile, clients=clients))
    return found


def _on_fitted_machines(fit: FittedLatency, data: Measurements, before: Catalogue, after: Catalogue) -> FittedLatency:
    """A service's sensitivity, found with the bandwidths known before the fit, for those that the fit has found."""
    groups: dict[str, set[str]] = {}
    for p in data.latency_interference:
        if p.service == fit.service:
            groups.setdefault(p.machine_type, set()).add(p.group)
    if not groups:
        return fit
    kind = max(groups, key=lambda name: (len(groups[name]), name))
    if kind not in before.machine_types or kind not in after.machine_types:
        return fit
    ratio = before.machine_types[kind].bandwidth / after.machine_types[kind].bandwidth
    scaled = tuple(
        replace(p, value=p.value * ratio, low=p.low * ratio, high=p.high * ratio) if p.name == "sensitivity" else p
        for p in fit.parameters
    )
    profile = replace(fit.profile, sensitivity=fit.profile.sensitivity * ratio)
    return replace(fit, profile=profile, parameters=scaled)


def _client_of(base: Catalogue, asked: str | None) -> str | None:
    known = {client for service in base.services.values() for client in service.clients}
    return asked if asked in known else None


def _reference(observed: Observations) -> str:
    """The machine type with most thread sweeps; of equals, the one with most executions, then the first by name."""
    sweeps = [0] * len(observed.machine_types)
    for s in observed.sweeps:
        sweeps[s.kind] += len(s.real_s)
    runs = [0] * len(observed.machine_types)
    for p in observed.played:
        runs[p.kind] += 1
    best = max(range(len(sweeps)), key=lambda k: (sweeps[k], runs[k], -k))
    return observed.machine_types[best].name


def _left_out(
    data: Measurements, base: Catalogue, observed: Observations, fitted: Fitted, tell: Progress
) -> dict[str, Catalogue]:
    """For every group that ran jobs, the profiles of a fit that had not seen it; empty with one group."""
    groups = sorted({p.group for p in observed.played})
    found: dict[str, Catalogue] = {}
    for i, group in enumerate(groups if len(groups) > 1 else []):
        tell(f"leaving out {group} ({i + 1} of {len(groups)})")
        again = fit_runtime(
            observed,
            parameters_of(observed, fitted.parameters.reference, without=(group,)),
            fitted.phase_order,
            without=(group,),
            most=LEFT_OUT_STEPS,
        )
        found[group], _ = assemble(again, base, data)
    return found


def _run_times(data: Measurements, catalogue: Catalogue, question: Question) -> tuple[Score, ...]:
    """Run times and makespans only: services were fitted to all groups, and their own fit has scores without each."""
    return tuple(s for s in validate(data, catalogue, question).scores if s.quantity is not Quantity.P95)


def _errors(
    left_out: Collection[Score], in_sample: Collection[Score], observed: Observations, fitted: Fitted
) -> LogErrors:
    """Errors as far as groups that were left out tell; else what is assumed of so little, and more where the fit is off."""
    if left_out:
        return errors_of(left_out)
    ran = {s.subject for s in in_sample if s.quantity is Quantity.DURATION}
    found = errors_of(in_sample).jobs if ran else {}
    serial = fitted.parameters.slices["serial_fraction"].start
    jobs = {}
    for j, name in enumerate(observed.jobs):
        assumed = ONE_GROUP_ERROR if name in ran else SWEPT_ERROR
        if not fitted.identified(serial + j):
            assumed = NEVER_MEASURED  # how it speeds up with threads is a guess
        jobs[name] = max(assumed, found.get(name, 0.0))
    return LogErrors(jobs, {})


def _said(
    fitted: Fitted, latency: Mapping[str, FittedLatency], observed: Observations
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Warnings and defaults: a block of which nothing is known is one sentence."""
    unknown: dict[str, list[str]] = {}
    names = fitted.parameters.names()
    for at, (block, key, _) in enumerate(names):
        if not fitted.identified(at):
            unknown.setdefault(block, []).append(key)
    warnings: list[str] = []
    defaults: list[str] = []
    for block, keys in unknown.items():
        whole = next(len(b.keys) for b in fitted.parameters.blocks if b.name == block)
        who = "all" if len(keys) == whole else ", ".join(keys)
        sentence = f"{block} is not identified for {who}: what was assumed beforehand decides"
        (defaults if block.startswith("type speed of a job") else warnings).append(sentence)
    if not observed.played:
        warnings.append("there are no executions beside others: phases and pressure are assumed")
    if not observed.slowdowns:
        warnings.append(f"there are no times beside the aggressor {PRESSING}, and without: sensitivity is assumed")
    for fit in latency.values():
        warnings += fit.warnings
        defaults += fit.defaults
    return tuple(warnings), tuple(defaults)
