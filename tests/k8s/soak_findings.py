"""What a soak has seen, and its table."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Findings:
    """Grows while the soak runs."""

    recovered_s: dict[str, list[float]] = field(default_factory=dict)
    """By disturbance, seconds until a pod that was created after it (or meanwhile) was bound."""
    violations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    peak_mib: float = 0.0
    """Resident memory of a replica."""

    def violated(self, what: str) -> None:
        """Keep it, and say it at once."""
        if what not in self.violations:
            self.violations.append(what)
            say(f"  VIOLATED: {what}")

    def table(self) -> str:
        """For people."""
        wide = max(map(len, self.recovered_s), default=0)
        lines = [f"{'disturbance':{wide}}  times  a new pod is bound after s: median   most"]
        for what, seconds in self.recovered_s.items():
            lines.append(f"{what:{wide}}  {len(seconds):5}  {statistics.median(seconds):34.1f}  {max(seconds):5.1f}")
        lines.append(", ".join(f"{what}: {n}" for what, n in sorted(self.counts.items())))
        lines.append(f"resident memory at most {self.peak_mib:.0f} MiB")
        lines += [f"skipped: {what}" for what in self.skipped]
        lines += [f"VIOLATED: {what}" for what in self.violations] or ["nothing was violated"]
        return "\n".join(lines)


def say(text: str) -> None:
    """One line at once."""
    print(time.strftime("%H:%M:%S"), text, flush=True)
