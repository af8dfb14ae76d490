"""Measured throughputs of training jobs: by model of GPU, packed and spread over servers, alone and two on one GPU.

The file is Gavel's (``scheduler/simulation_throughputs.json`` of stanford-futuredata/gavel, MIT): D. Narayanan et al.,
"Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowsched_models.document import InputError

CITED = "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020"
"""The measurements are under the MIT licence."""
_NAMES = ("simulation_throughputs.json", "simulation_throughputs.json.gz")
_SPREAD = "_unconsolidated"
_KEY = re.compile(r"\('([\w -]+?)(?: \(batch size (\d+)\))?', (\d+)\)")


@dataclass(frozen=True, order=True)
class TrainingJob:
    """What is trained, and on how many GPUs."""

    network: str
    batch: int
    """0 where it has none to choose."""
    gpus: int

    @property
    def name(self) -> str:
        """As the name of a profile: ``resnet-18-b16``, on two GPUs ``resnet-18-b16-x2``."""
        parts = [self.network.lower().replace(" ", "-")]
        parts += [f"b{self.batch}"] * (self.batch > 0) + [f"x{self.gpus}"] * (self.gpus > 1)
        return "-".join(parts)

    def __str__(self) -> str:
        """For example ``ResNet-18, batch 16, 2 GPUs``."""
        batch = f", batch {self.batch}" if self.batch else ""
        return f"{self.network}{batch}, {self.gpus} GPU{'s' * (self.gpus > 1)}"


@dataclass(frozen=True)
class SharedGpu:
    """Two jobs on one GPU: how many times longer the first takes than alone."""

    gpu: str
    job: TrainingJob
    other: TrainingJob
    slowdown: float


@dataclass(frozen=True)
class GpuThroughputs:
    """Steps per second, by job and model of GPU. What was not measured, or does not fit, is missing."""

    packed: Mapping[TrainingJob, Mapping[str, float]]
    spread: Mapping[TrainingJob, Mapping[str, float]]
    """Over servers; of jobs with several GPUs."""
    pairs: tuple[SharedGpu, ...]

    @property
    def gpus(self) -> tuple[str, ...]:
        """Models, in alphabetical order."""
        return tuple(sorted({gpu for found in self.packed.values() for gpu in found}))


def throughputs_file(folder: Path) -> Path | None:
    """Where a folder has them; None if it does not."""
    return next((folder / name for name in _NAMES if (folder / name).is_file()), None)


def read_throughputs(path: Path) -> GpuThroughputs:
    """Read the file. Raises :class:`flowsched_models.document.InputError` if it is not of this form."""
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        data: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
        packed: dict[TrainingJob, dict[str, float]] = {}
        spread: dict[TrainingJob, dict[str, float]] = {}
        pairs = []
        for server, jobs in sorted(data.items()):
            gpu = server.removesuffix(_SPREAD).upper()
            found = packed if server == server.removesuffix(_SPREAD) else spread
            for job, measured in ((_job(key), row) for key, row in jobs.items()):
                alone = float(measured["null"])
                if alone <= 0.0 or (found is spread and job.gpus == 1):
                    continue
                found.setdefault(job, {})[gpu] = alone
                if found is packed:
                    for other, (a, b) in ((key, map(float, both)) for key, both in measured.items() if key != "null"):
                        if a > 0.0 and b > 0.0:
                            pairs.append(SharedGpu(gpu, job, _job(other), alone / a))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"cannot be read as Gavel's throughputs: {type(error).__name__}: {error}"
        raise InputError.one(path, message, "take the file as its authors publish it") from None
    return GpuThroughputs(packed, spread, tuple(pairs))


def _job(key: str) -> TrainingJob:
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} names no job and number of GPUs")
    return TrainingJob(found[1], int(found[2] or 0), int(found[3]))
