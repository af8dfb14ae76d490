"""What some tests need beyond Python packages: present, or else the test is skipped, never in CI."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

ALSO_CALLED = {"chromium": ("chromium-browser", "google-chrome", "google-chrome-stable")}
"""Other names of the same tool; ``.ci/run`` looks for the same ones."""

PLAIN_PYTHON = (sys.executable, "-I", "-S", "-c")
"""Runs what asks for the standard library only: in the emulated machine, looking for packages takes a second."""


def needs(tool_name: str, why: str) -> str:
    """The path of a tool. Without it the test is skipped, or fails where ``FLOWSCHED_CI`` is set."""
    names = (tool_name, *ALSO_CALLED.get(tool_name, ()))
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        give_up(f"{tool_name} is not installed; it is needed {why}")
    return path


def patience() -> float:
    """How many times longer than usual to wait for something to come true: more where the machine is emulated."""
    return float(os.environ.get("FLOWSCHED_PATIENCE", "1"))


def cgroups(pattern: str) -> list[Path]:
    """Cgroups whose paths end so. ``Path.glob`` would fail where another test removes a group meanwhile."""
    return [path for folder, _, _ in os.walk("/sys/fs/cgroup") if (path := Path(folder)).match(pattern)]


def give_up(reason: str) -> NoReturn:
    """Skip the test that is running, or fail it where ``FLOWSCHED_CI`` is set."""
    if os.environ.get("FLOWSCHED_CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
