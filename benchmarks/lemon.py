"""LEMON's network simplex as a peer: our small driver, compiled once into the user's cache folder where LEMON is there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flowsched.network.dimacs_file import render_network
from flowsched.network.network import Network

SOURCE = Path(__file__).parent / "lemon_driver.cpp"
COMPILE_S = 300.0


class LemonError(RuntimeError):
    """LEMON cannot be asked; the text is one sentence for the user."""


@dataclass(frozen=True)
class LemonAnswer:
    """An optimum and how long it took."""

    cost: int
    solve_ms: float
    """Of its graph and the solve; reading the file is apart."""


def compile_driver() -> Path:
    """The compiled driver. Raises :class:`LemonError` where it cannot be compiled.

    Headers are found where g++ looks for them: ``liblemon-dev`` puts them into /usr/include, others may stand in
    ``CPLUS_INCLUDE_PATH``.
    """
    if shutil.which("g++") is None:
        raise LemonError("LEMON is skipped, because there is no g++ to compile its driver")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    program = base / "flowsched" / f"lemon_driver-{digest}"
    if program.is_file():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = Path(folder) / "driver"
        done = subprocess.run(
            ["g++", "-O3", "-std=c++17", "-o", str(made), str(SOURCE)],
            capture_output=True,
            text=True,
            timeout=COMPILE_S,
        )
        if done.returncode:
            if "lemon/" in done.stderr and "No such file" in done.stderr:
                raise LemonError(
                    "LEMON is skipped, because its headers are not installed (apt-get install liblemon-dev)"
                )
            raise LemonError(
                f"LEMON is skipped, because its driver does not compile: {done.stderr.strip().splitlines()[0]}"
            )
        made.replace(program)
    return program


def solve_by_lemon(network: Network, limit_s: float) -> LemonAnswer:
    """Solve one network. Raises :class:`LemonError` where LEMON is not there, or has no answer in so many seconds."""
    program = compile_driver()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.dimacs"
        path.write_text(render_network(network), encoding="ascii")
        try:
            done = subprocess.run([str(program), str(path)], capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise LemonError(f"LEMON has no answer within {limit_s:g} s") from None
    if done.returncode:
        raise LemonError(f"LEMON's driver fails: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    if answer["status"] != "optimal":
        raise LemonError("LEMON finds no feasible flow")
    return LemonAnswer(int(answer["cost"]), float(answer["build_ms"]) + float(answer["solve_ms"]))
