"""What a result was measured on, without naming anybody's machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, str | int]:
    """Processor, cores, memory, Python: what a reader needs to place a time."""
    info = Path("/proc/cpuinfo")
    model = platform.processor() or platform.machine()
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30 if hasattr(os, "sysconf") else 0
    return {
        "processor": model,
        "cores": os.cpu_count() or 1,
        "memory_gib": memory,
        "system": platform.system(),
        "python": platform.python_version(),
    }


def measured_on(machine: Mapping[str, Any]) -> str:
    """The sentence under a table."""
    return (
        f"Measured on {machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}."
    )
