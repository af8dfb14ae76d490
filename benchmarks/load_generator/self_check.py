"""Whether a load was what was asked for, or the generator itself stood in the way."""

from __future__ import annotations

import math

from benchmarks.load_generator.running_load import LoadResult
from flowsched_models.quantity import format_duration_us

LATE_SHARE = 0.5
"""A window is spoiled where the generator's own lateness is more than this share of the latency..."""
LATE_US = 500.0
"""...and more than this: the wake-up of a process costs some 100 us on a virtual machine, and that is no fault."""
FULL = 0.9
"""From this share of a core on, a generator of one thread has nothing left."""
STARVED = 0.25
"""Share of a window that it may wait for a CPU. On a busy core of its own it waits some 5 %."""
WINDOWS = 0.05
"""So large a share of the windows must show one of these."""
UNLIKELY_DEVIATIONS = 5.0


def bottleneck(result: LoadResult) -> str:
    """One sentence if the generator was the bottleneck, and how; empty if it was not."""
    rows = result.rows
    late = [row for row in rows if (row.late_p95_us or 0.0) > max(LATE_US, LATE_SHARE * (row.p95_us or 0.0))]
    full = [row for row in rows if row.busy_ms > FULL * 1e3 * row.seconds]
    starved = [row for row in rows if row.waited_ms > STARVED * 1e3 * row.seconds]
    causes = []
    if late and len(late) >= WINDOWS * len(rows):
        worst = format_duration_us(max(row.late_p95_us or 0.0 for row in late))
        causes.append(
            f"most of the latency is its own lateness in {len(late)} of {len(rows)} windows (p95 up to {worst})"
        )
    if full and len(full) >= WINDOWS * len(rows):
        causes.append(f"it used a whole core in {len(full)} of {len(rows)} windows")
    if starved and len(starved) >= WINDOWS * len(rows):
        causes.append(
            f"it waited for a CPU for more than a quarter of the time in {len(starved)} of {len(rows)} windows"
        )
    if not causes:
        return ""
    help = "give it a core of its own (--cpus), a higher priority (--fifo), or less load"
    return f"the generator was the bottleneck: {'; '.join(causes)}; {help}"


def describe(result: LoadResult) -> list[str]:
    """Sentences: what was offered, sent and answered, and how far the generator itself can be trusted."""
    totals = result.totals
    planned = sum(row.offered * row.seconds for row in result.rows)
    lines = []
    counted = f"due {totals.due:,}, sent {totals.sent:,}, answered {totals.answered:,}"
    if result.plan.closed:
        lines.append(f"closed loop of {result.plan.connections} connections: {counted}")
    else:
        lines.append(f"planned {planned:,.0f} requests, {counted}")
        # Arrivals are Poisson: their number deviates by the square root of it.
        if abs(sum(row.due for row in result.rows) - planned) > UNLIKELY_DEVIATIONS * math.sqrt(planned) + 1.0:
            lines.append("the number of requests drawn is not what the plan makes likely: do not trust this run")
    for number, what in (
        (totals.lost, "lost with their connections"),
        (totals.unanswered, "not answered by the end; they count with the time until then"),
        (totals.errors, "answered by an error"),
        (totals.blocked, "sent late because the server did not read what came before"),
    ):
        if number:
            lines.append(f"{number:,} requests were {what}")
    late, worst = (format_duration_us(us or 0.0) for us in (totals.late_p95_us, totals.late_max_us))
    lines.append(
        f"the generator was late by {late} (p95; worst {worst}), busy {0.1 * totals.busy_ms / totals.took_s:.0f} % of a "
        f"core, and waited {totals.waited_ms / 1e3:.2f} s for a CPU"
    )
    if said := bottleneck(result):
        lines.append(said)
    return lines
