"""How far the truth may be from the profiles, as draws: run-time factors by job and machine, p95 factors by service.

A draw multiplies the run time of a job on a machine by ``exp(e_job z_job + e_type z_machine)``: ``e_job`` is the profile's
``error``, ``e_type`` that of the machine's type, whose factor all jobs on the machine share. p95 of a service is multiplied
by ``exp(e z)`` and its capacity by ``exp(e_capacity z')``. All z are standard normal. Each depends on the seed, the name and
the number of the draw only: two plans that are drawn with one seed meet the same machines, and more draws begin with the
same ones.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowsched_models.catalogue import Catalogue
from flowsched_models.cell import Floats
from flowsched_models.runtime import ServiceLoad
from flowsched_models.service import ServiceProfile

INNER, OUTER = 0.5, 0.9
"""The intervals that are checked against measurements: shares of the draws that lie inside."""


def normals(seed: int, kind: str, name: str, count: int) -> Floats:
    """[count] standard normal numbers of one thing; ``kind`` keeps a job and a machine of the same name apart."""
    words = [seed, zlib.crc32(kind.encode()), zlib.crc32(name.encode())]
    return np.random.default_rng(words).standard_normal(count)


def factors(error: float, normal: Floats) -> Floats:
    """``exp(error z)`` of each z. Not by numpy's, whose last bit depends on the processor, and a run on the last bit."""
    return np.array([math.exp(error * z) for z in normal.tolist()])


def machine_factors(catalogue: Catalogue, machine: str, machine_type: str, seed: int, count: int) -> Floats:
    """[count] factors of one machine on the run times of all its jobs."""
    return factors(catalogue.machine_types[machine_type].error, normals(seed, "machine", machine, count))


def job_factors(catalogue: Catalogue, job: str, profile: str, seed: int, count: int) -> Floats:
    """[count] factors of one job on its own run time, wherever it runs."""
    return factors(catalogue.jobs[profile].error, normals(seed, "job", job, count))


def drawn_services(
    catalogue: Catalogue, service: str, load: ServiceLoad, machine_type: str, seed: int, count: int
) -> tuple[ServiceProfile, ...]:
    """The profile of one placed service in each of ``count`` draws."""
    profile = catalogue.services[load.profile]
    error = profile.error_of(profile.curve_or_estimate(load.threads, len(load.cores)))
    latency = factors(error, normals(seed, "latency", service, count)).tolist()
    capacity = factors(profile.capacity_error, normals(seed, "capacity", service, count)).tolist()
    known = profile.capacity_factor.get(machine_type, 1.0)
    return tuple(
        replace(
            profile,
            clients={client: factor * more for client, factor in profile.clients.items()},
            sharing_us=profile.sharing_us * more,
            capacity_factor={**profile.capacity_factor, machine_type: known * room},
        )
        for more, room in zip(latency, capacity, strict=True)
    )


def interval(draws: Floats, level: float) -> tuple[float, float]:
    """The middle ``level`` (a share) of the draws: its two ends."""
    low, high = np.quantile(draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def rank(measured: float, draws: Sequence[float] | Floats) -> float:
    """Share of the draws below what was measured, those that equal it as a half: near 0 or 1 for a surprise."""
    values = np.asarray(draws)
    slack = 1e-9 * abs(measured)
    below = np.count_nonzero(values < measured - slack)
    above = np.count_nonzero(values > measured + slack)
    return float(0.5 * (below + len(values) - above) / len(values))


def inside(rank: float, level: float) -> bool:
    """Whether a measurement of this rank lies in the middle ``level`` (a share) of the draws."""
    return abs(rank - 0.5) <= level / 2.0
