"""The pictures of docs/performance.md. They need matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowsched_models.extras import install_extra

SIZE = (6.4, 3.8)
DOTS = 100
OTHERS = {
    "greedy": "plain greedy",
    "uncompacted_ortools": "uncompacted, OR-tools",
    "uncompacted_lemon": "uncompacted, LEMON",
    "uncompacted_networkx": "uncompacted, networkx",
}


def draw_all(folder: Path, scaling: Mapping[str, Any]) -> None:
    """Draw what was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    _save(folder / "performance-latency.png", lambda figure: latency(figure, scaling["rows"]))
    _save(folder / "performance-phases.png", lambda figure: phases(figure, scaling["rows"]), (9.6, 3.8))


def latency(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Time against machines, both logarithmic."""
    axes = figure.subplots()
    sizes = [row["machines"] for row in rows]
    axes.loglog(sizes, [row["p50_ms"] for row in rows], "o-", label="whole round, p50")
    axes.loglog(sizes, [row["p95_ms"] for row in rows], "o--", color="C0", alpha=0.5, label="whole round, p95")
    for color, (name, label) in enumerate(OTHERS.items(), 1):
        points = [(r["machines"], r["peers"]["ms"][name]) for r in rows if name in r["peers"].get("ms", {})]
        if points:
            axes.loglog(*zip(*points, strict=True), "s-", color=f"C{color}", markersize=4, label=label)
    axes.set_xlabel("machines")
    axes.set_ylabel("ms")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8)


def phases(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Shares of the phases, and memory."""
    left, right = figure.subplots(1, 2)
    stages = list(dict.fromkeys(stage for row in rows for stage in row["phases_ms"]))
    names = [f"{row['machines']:,}" for row in rows]
    base = [0.0] * len(rows)
    for number, stage in enumerate(stages):
        shares = [100.0 * row["phases_ms"].get(stage, 0.0) / sum(row["phases_ms"].values()) for row in rows]
        left.bar(names, shares, bottom=base, color=f"C{number % 10}", alpha=1.0 if number < 10 else 0.5, label=stage)
        base = [b + s for b, s in zip(base, shares, strict=True)]
    left.set_ylabel("% of a round (medians of phases)")
    left.tick_params(axis="x", labelrotation=35, labelsize=8)
    left.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    right.semilogx([row["machines"] for row in rows], [row["rss_mib"] for row in rows], "o-")
    right.set_ylim(bottom=0.0)
    right.set_xlabel("machines")
    right.set_ylabel("peak memory, MiB")
    right.grid(True, which="major", alpha=0.3)


def _save(path: Path, draw: Callable[[Any], None], size: tuple[float, float] = SIZE) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit(f"the pictures need matplotlib; {install_extra('plots')}") from None
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    # No version in the file: the same results, the same picture.
    figure.savefig(path, dpi=DOTS, metadata={"Software": None})
