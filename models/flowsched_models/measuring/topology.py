"""The CPUs of this machine: which share a physical core, which share the last-level cache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flowsched_models.quantity import QuantityError, parse_cores

_CPUS = "sys/devices/system/cpu"
_SETTLED_GOVERNOR = "performance"


@dataclass(frozen=True)
class Topology:
    """What Linux says about the machine. CPUs are numbered as in ``/proc/cpuinfo``."""

    cores: tuple[int, ...]
    """The virtual CPUs that measurements may use, ascending."""
    siblings: tuple[tuple[int, ...], ...]
    """All virtual CPUs of the machine, grouped by physical core."""
    caches: tuple[tuple[int, ...], ...]
    """The same, grouped by last-level cache."""
    memory_mib: int
    """Installed memory (``MemTotal``)."""
    governors: tuple[str, ...] = ()
    """The different frequency governors of the CPUs; empty where there is no choice, as in most virtual machines."""
    model: str = ""
    """The name of the processor; empty if it is not told."""
    quota: float | None = None
    """CPUs' worth of time that the control group of this machine or container grants; None without a limit."""

    @property
    def vcpus(self) -> int:
        """Virtual CPUs of the whole machine."""
        return sum(map(len, self.siblings))

    @property
    def smt(self) -> bool:
        """Whether physical cores have more than one hardware thread."""
        return any(len(group) > 1 for group in self.siblings)

    @property
    def halves(self) -> bool:
        """Whether siblings are ``k`` and ``k + vcpus/2``, which is how a machine type with ``smt`` numbers them."""
        half = self.vcpus // 2
        return all(group == (group[0], group[0] + half) for group in self.siblings)

    def physical_first(self) -> tuple[int, ...]:
        """The usable CPUs, one of each physical core before the second of any."""
        return tuple(core for _, core in sorted((self._place(core), core) for core in self.cores))

    def by_physical_core(self) -> tuple[int, ...]:
        """The usable CPUs, siblings beside each other."""
        return tuple(core for group in self.siblings for core in group if core in self.cores)

    def other(self, core: int) -> int | None:
        """The CPU to disturb ``core`` from without taking its time: one that shares its cache, not its physical core."""
        mine, cache = _group(self.siblings, core), _group(self.caches, core)
        others = [c for c in self.physical_first() if c != core]
        return min(others, key=lambda c: (c in mine, c not in cache), default=None)

    def are_siblings(self, one: int, other: int) -> bool:
        """Whether two CPUs are hardware threads of one physical core."""
        return other in _group(self.siblings, one)

    def share_cache(self, one: int, other: int) -> bool:
        """Whether two CPUs have the same last-level cache."""
        return other in _group(self.caches, one)

    def warnings(self) -> Iterator[str]:
        """What makes times on this machine less repeatable, one sentence each."""
        unsettled = [g for g in self.governors if g != _SETTLED_GOVERNOR]
        if unsettled:
            yield (
                f"the frequency governor is '{', '.join(unsettled)}', so that the clock follows the load; "
                "for steadier times: cpupower frequency-set -g performance"
            )
        if self.quota is not None and self.quota < len(self.cores):
            yield f"a control group limits this machine to the time of {self.quota:g} CPUs: runs on more are throttled"
        if self.smt and not self.halves:
            yield (
                "hardware threads of one core are not numbered k and k + vcpus/2 here, as the run-time model has them: "
                "read core numbers in executions.csv with that in mind"
            )

    def _place(self, core: int) -> int:
        """How many siblings of a CPU come before it among the usable ones."""
        return [c for c in _group(self.siblings, core) if c in self.cores].index(core)


def read_topology(root: Path = Path("/"), allowed: Iterable[int] | None = None) -> Topology:
    """Read ``/sys`` and ``/proc`` below ``root``.

    ``allowed`` are the CPUs that this process may use, by default those of its affinity. What a machine does not tell
    is taken as simple as possible: no siblings, one cache.
    """
    may = set(os.sched_getaffinity(0) if allowed is None else allowed)
    online = _core_list(root / _CPUS / "online") or tuple(sorted(may))
    return Topology(
        cores=tuple(c for c in online if c in may),
        siblings=_groups(online, (_core_list(_cpu(root, c) / "topology/thread_siblings_list") or (c,) for c in online)),
        caches=_groups(online, (_last_cache(root, c) or online for c in online)),
        memory_mib=int((_named(root / "proc/meminfo", "MemTotal") or "0").split()[0]) // 1024,
        governors=tuple(sorted({g for c in online if (g := _text(_cpu(root, c) / "cpufreq/scaling_governor"))})),
        model=_named(root / "proc/cpuinfo", "model name"),
        quota=_quota(root),
    )


def _cpu(root: Path, core: int) -> Path:
    return root / _CPUS / f"cpu{core}"


def _groups(online: Sequence[int], sets: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    known = set(online)
    return tuple(sorted({tuple(sorted(set(s) & known)) for s in sets}))


def _group(groups: Sequence[tuple[int, ...]], core: int) -> tuple[int, ...]:
    return next((g for g in groups if core in g), (core,))


def _last_cache(root: Path, core: int) -> tuple[int, ...]:
    found = [
        (int(_text(index / "level") or 0), _core_list(index / "shared_cpu_list"))
        for index in sorted((_cpu(root, core) / "cache").glob("index*"))
    ]
    return max(found, default=(0, ()))[1]


def _named(path: Path, wanted: str) -> str:
    """The first value of this name in a file of lines ``name: value``; empty if there is none."""
    named = (line.partition(":") for line in _text(path).splitlines())
    return next((value.strip() for name, _, value in named if name.strip() == wanted), "")


def _quota(root: Path) -> float | None:
    words = _text(root / "sys/fs/cgroup/cpu.max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _core_list(path: Path) -> tuple[int, ...]:
    try:
        return parse_cores(_text(path)) if _text(path) else ()
    except QuantityError:
        return ()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
