"""Checkouts of flowsched side by side: each has a process of its own that runs jobs in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import click

HERE = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).resolve().with_name("engine_worker.py")
SOURCE_ROOTS = (".", "models", "simulator", "k8s")
"""Where a checkout keeps its packages."""


class Tree:
    """A process that runs the code of one checkout. Use it as a context, so that the process ends."""

    def __init__(self, root: Path = HERE, worker: Path = WORKER) -> None:
        """Start it. ``worker``: the program that answers jobs.

        Raises :class:`click.ClickException` for a folder that holds no flowsched.
        """
        self.root = root.resolve()
        paths = os.pathsep.join(str(self.root / part) for part in SOURCE_ROOTS)
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(worker)],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = Path(self._read()["flowsched"])
        if found != self.root:
            self.close()
            raise click.ClickException(f"{root} is not a checkout of flowsched: Python found the package in {found}")

    def run(self, scenario: Path, scheduler: str, variant: str = "") -> dict[str, Any] | None:
        """Figures of one variant of a scheduler on a scenario file; None if the checkout has no such scheduler."""
        found = self.run_variants(scenario, scheduler, variant)
        if found is None:
            return None
        (row,) = found
        return row

    def run_variants(self, scenario: Path, scheduler: str, variant: str | None = None) -> list[dict[str, Any]] | None:
        """Figures of all variants of a scheduler, or of one; None if the checkout has no such scheduler."""
        found = self.ask({"scenario": str(scenario), "scheduler": scheduler, "variant": variant})
        return None if "unknown" in found else list(found["variants"])

    def ask(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the worker answers to a job."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended; reading says with which exit code
        return self._read()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self.close()

    def _read(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise click.ClickException(f"the process that runs {self.root} ended with exit code {code}")
        answer: Mapping[str, Any] = json.loads(line)
        return answer
