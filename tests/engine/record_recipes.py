"""Recipes that the processes of test_record_writer carry out: in a file without pytest, which each of them would import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.records import record_maker
from flowsched.records.record import record_head

PAUSE_S = 300.0
"""Only ends a test that has failed anyway: the process that makes records gets little of a busy machine."""

USUAL_PRIORITY = record_maker._START.replace("serve()", "serve.__globals__.update(NICENESS=0); serve()")
"""How the process is started here: one of the lowest priority would wait for whatever else the machine does."""


def plain(number: int, values: int = 0, **more: Any) -> dict[str, Any]:
    """A sound record without parts; random values cannot be compressed."""
    noise = np.random.default_rng(number).integers(2**62, size=values)
    return {**record_head(number, 0.0, "flow", "ortools", Settings()), "parts": [], "noise": noise, **more}


def where_it_is_made(number: int) -> dict[str, Any]:
    print("whatever a recipe prints is not part of a record")
    return plain(number, process=os.getpid(), niceness=os.nice(0))


def broken(number: int) -> dict[str, Any]:
    raise RuntimeError(f"no such thing as {number}")


def fatal() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def endless(begun: Path) -> dict[str, Any]:
    begun.touch()
    time.sleep(2.0 * PAUSE_S)
    return {}
