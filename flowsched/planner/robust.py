"""The models' uncertainty as draws that are common to all plans: differences between plans are not noise of the draws.

The draws are those of :mod:`flowsched_models.uncertainty`, by names of jobs, machines and services: what a plan says of its
interval is what ``flowsched predict`` says of the schedule with the same seed and as many draws. Only a service's capacity
is taken as the profile says: the search runs a machine forward once for all draws, and p95 is multiplied afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.cluster.occupied_machines import service_load
from flowsched.planner.problem import Problem, Site
from flowsched.support.arrays import FloatArray
from flowsched_models.uncertainty import drawn_services, job_factors, machine_factors


class Draws:
    """Run-time factors of R draws for every job and machine of a problem."""

    def __init__(self, problem: Problem, count: int, seed: int, quantile: float) -> None:
        """``quantile`` is the one that services are held to as well."""
        self.count = count
        catalogue = problem.catalogue
        self._site = np.stack(
            [machine_factors(catalogue, s.machine.name, s.machine.type, seed, count) for s in problem.sites]
        )
        self._job = np.stack(
            [job_factors(catalogue, job.task.name, job.task.profile, seed, count) for job in problem.jobs]
            or [np.ones(count)]
        )
        self._latency: dict[str, FloatArray] = {}
        for site in problem.sites:
            for service in site.services:
                load = service_load(service)
                known = catalogue.services[service.profile].clients[load.client]
                drawn = drawn_services(catalogue, service.name, load, site.machine.type, seed, count)
                self._latency[service.name] = np.array([profile.clients[load.client] / known for profile in drawn])
        self._quantile = quantile

    def factors(self, site: int, jobs: Sequence[int]) -> FloatArray:
        """[R, jobs] run-time factors of these jobs on a machine."""
        return np.ascontiguousarray((self._job[list(jobs)] * self._site[site]).T)

    def p95_us(self, site: Site, service: int, peaks: FloatArray) -> float:
        """The quantile of a service's peak p95, over the draws [R] and the error of its own model."""
        return quantile_of(peaks * self._latency[site.services[service].name], self._quantile)


def quantile_of(values: FloatArray, quantile: float) -> float:
    """The quantile of the values [R], linear between two of them, as ``numpy.quantile`` has it but faster."""
    ordered = np.sort(values)
    at = quantile * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (at - low) * (ordered[high] - ordered[low]))
