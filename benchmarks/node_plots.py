"""The pictures of docs/node-agent-run.md. They need matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.node_calibration import SLO_US
from benchmarks.node_run import Window
from flowsched_models.extras import install_extra

SIZE = (9.6, 6.4)
DOTS = 100
AGENT = "agent with flow-node"
STATIC = ("one core, batch always", "two cores, no batch", "two cores, batch at the lowest weight")


def draw_all(folder: Path, windows: Sequence[Window], points: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Draw what was measured; the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    if any(window.mode == AGENT for window in windows):
        drawn.append(_save(folder / "node-agent-run.png", lambda figure: agent_run(figure, windows), SIZE))
    if windows:
        drawn.append(_save(folder / "node-agent-modes.png", lambda figure: modes(figure, windows), (9.6, 4.0)))
    if any(point["lesson"] == "curve" for point in points):
        drawn.append(_save(folder / "node-agent-curve.png", lambda figure: curve(figure, points), (9.6, 3.8)))
    return drawn


def agent_run(figure: Any, windows: Sequence[Window]) -> None:
    """Load, p95, cores of memcached and the batch job over time: the agent's first run, fixed allocations behind it."""
    first = min(window.repetition for window in windows)
    load, p95, cores, batch = figure.subplots(4, 1, sharex=True, height_ratios=(1.2, 2.4, 1.0, 1.0))
    own = _of(windows, AGENT, first)
    times = [window.t_s for window in own]
    load.step(times, [window.offered / 1e3 for window in own], where="post", color="0.3")
    load.set_ylabel("load,\n1000/s")
    load.set_ylim(bottom=0.0)
    for color, mode in zip(("C1", "C2", "C4"), STATIC, strict=True):
        other = _of(windows, mode, first)
        p95.semilogy(
            [w.t_s for w in other], [_ms(w.p95_us) for w in other], color=color, alpha=0.5, linewidth=0.9, label=mode
        )
    p95.semilogy(times, [_ms(window.p95_us) for window in own], color="C0", linewidth=1.6, label=AGENT)
    p95.axhline(SLO_US / 1e3, color="red", linewidth=0.8)
    p95.set_ylabel("p95 of\n100 ms, ms")
    p95.legend(fontsize=7, ncols=2)
    cores.step(times, [window.service_cores for window in own], where="post", color="C0")
    cores.set_ylabel("cores of\nmemcached")
    cores.set_ylim(0.5, 2.5)
    cores.set_yticks([1, 2])
    batch.fill_between(times, [1000.0 * window.batch_cpu_s for window in own], step="post", color="C3", alpha=0.5)
    for window in own:
        if not window.batch_runs:
            batch.axvspan(window.t_s, window.t_s + 0.1, color="0.85", linewidth=0)
    batch.set_ylabel("batch CPU,\nms per 100 ms")
    batch.set_xlabel("seconds (grey: the batch job is paused)")
    for axes in (load, p95, cores, batch):
        axes.grid(True, alpha=0.3)


def modes(figure: Any, windows: Sequence[Window]) -> None:
    """Share of violations against the work that the batch job got, a dot per repetition."""
    axes = figure.subplots()
    for number, mode in enumerate(dict.fromkeys(window.mode for window in windows)):
        repetitions = sorted({window.repetition for window in windows if window.mode == mode})
        runs = [_of(windows, mode, repetition) for repetition in repetitions]
        axes.plot(
            [sum(window.batch_cpu_s for window in run) / (0.1 * len(run)) for run in runs],
            [100.0 * sum(window.violation for window in run) / len(run) for run in runs],
            "o",
            color=f"C{number}",
            label=mode,
        )
    axes.set_xlabel("CPU of the batch job, cores")
    axes.set_ylabel(f"windows with p95 over {SLO_US / 1e3:g} ms, %")
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(left=-0.02)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def curve(figure: Any, points: Sequence[Mapping[str, Any]]) -> None:
    """p95, and CPU time per request, against the load on one core."""
    left, right = figure.subplots(1, 2)
    cases = list(dict.fromkeys(point["case"] for point in points if point["lesson"] == "curve"))
    for case in cases:
        own = [point for point in points if point["lesson"] == "curve" and point["case"] == case]
        most = max(point["offered"] for point in own) / 0.9
        loads = [100.0 * point["offered"] / most for point in own]
        left.plot(loads, [point["p95_us"] for point in own], "o-", label=case)
        right.plot(loads, [point["cpu_per_request_us"] for point in own], "o-", label=case)
    left.set_ylabel("p95 (median window), us")
    right.set_ylabel("CPU of memcached per request, us")
    for axes in (left, right):
        axes.set_xlabel("% of what one core serves at most")
        axes.set_ylim(bottom=0.0)
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize=8)


def _of(windows: Sequence[Window], mode: str, repetition: int) -> list[Window]:
    return [window for window in windows if window.mode == mode and window.repetition == repetition]


def _ms(us: float | None) -> float:
    return float("nan") if us is None else us / 1e3


def _save(path: Path, draw: Callable[[Any], None], size: tuple[float, float]) -> Path:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit(f"the pictures need matplotlib; {install_extra('plots')}") from None
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    # No version in the file: the same results, the same picture.
    figure.savefig(path, dpi=DOTS, metadata={"Software": None})
    return path
