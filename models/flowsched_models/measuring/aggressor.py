"""Programs that disturb on purpose: one resource each, by one stressor of stress-ng.

The kinds and where they run follow Part 2a of the course project "Cloud Computing Architecture" (ETH Zurich), which uses
iBench (Delimitrou and Kozyrakis, IISWC 2013): those for the core's own resources on the core of the program, those for
what cores share on another core. The stressors are described in the manual page stress-ng(1).
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRAM = "stress-ng"
HOW_TO_INSTALL = "install it (Debian, Ubuntu: apt-get install stress-ng; Fedora: dnf install stress-ng)"


@dataclass(frozen=True)
class Aggressor:
    """One kind of interference."""

    kind: str
    stressor: tuple[str, ...]
    """Arguments of stress-ng that start one worker."""
    same_core: bool
    """Whether it runs on the program's core and takes half of its time, or on another core."""

    def command(self, program: str, limit_s: float, folder: str) -> tuple[str, ...]:
        """The command line. It ends by itself after ``limit_s``, should its parent be gone."""
        limit = f"{max(1, round(limit_s))}s"
        own = ("--quiet", "--oomable", "--no-rand-seed", "--timeout", limit, "--temp-path", folder)
        return (program, *self.stressor, *own)


AGGRESSORS = {
    a.kind: a
    for a in (
        Aggressor("cpu", ("--cpu", "1", "--cpu-method", "int64"), same_core=True),
        Aggressor("l1d", ("--l1cache", "1"), same_core=True),
        Aggressor("l1i", ("--icache", "1"), same_core=True),
        Aggressor("l2", ("--cache", "1", "--cache-level", "2", "--cache-no-affinity"), same_core=True),
        Aggressor("llc", ("--cache", "1", "--cache-level", "3", "--cache-no-affinity"), same_core=False),
        Aggressor("membw", ("--stream", "1"), same_core=False),
    )
}
"""By kind, in the order of the course's tables."""
