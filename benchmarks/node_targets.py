"""What the controllers of one machine should reach, and whether they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

PUBLISHED_MAKESPAN_S = 673.46
"""Of `two-queue` at intervals of 10 s: group 048's report of parts 3 and 4, table of question 4.3, mean of three runs."""
PUBLISHED_ACTIVE_S: Mapping[str, float] = {
    "blackscholes": 94.33,
    "canneal": 247.35,
    "dedup": 38.04,
    "ferret": 372.39,
    "freqmine": 300.75,
    "radix": 50.73,
    "vips": 97.69,
}
"""Of its jobs, from the same table; pauses left out."""

MAKESPAN_WITHIN = 0.03
ACTIVE_WITHIN = 0.10
FEW_VIOLATIONS = 0.03
OF_BOUND = 1.10
STARVING = ("static-1",)
"""Policies that leave a service less CPU than its load needs: the bound does not speak of them."""

Row = Mapping[str, Any]


def checks(rows: Sequence[Row]) -> list[str]:
    """One sentence per target, `met` or `not met`; targets whose rows are not there are left out."""
    done = [r for r in rows if r.get("makespan_s") is not None]

    def of(setting: str, policy: str) -> dict[int, Row]:
        return {r["seed"]: r for r in done if r["setting"] == setting and r["policy"] == policy}

    return [*_two_queue(of), *_flow_node(of), *_bound(done)]


Of = Callable[[str, str], dict[int, Row]]


def _two_queue(of: Of) -> Iterator[str]:
    rows = list(of("published wave", "two-queue").values())
    if rows:
        mean = _mean(r["makespan_s"] for r in rows)
        error = mean / PUBLISHED_MAKESPAN_S - 1.0
        yield _line(
            abs(error) <= MAKESPAN_WITHIN,
            f"two-queue, published wave: makespan {mean:.1f} s, published {PUBLISHED_MAKESPAN_S} s: {error:+.1%} (3 %)",
        )
        for job, published_s in PUBLISHED_ACTIVE_S.items():
            mean = _mean(r["active_s"][job] for r in rows)
            error = mean / published_s - 1.0
            text = (
                f"two-queue, published wave: {job} active {mean:.1f} s, published {published_s} s: {error:+.1%} (10 %)"
            )
            yield _line(abs(error) <= ACTIVE_WITHIN, text)
        yield _points("two-queue, published wave: no point over the SLO", rows, 0.0)
    fast = list(of("published wave, 1.75s", "two-queue").values())
    if fast:
        yield _points("two-queue, published wave at 1.75 s: under 3 % of the points over the SLO", fast, FEW_VIOLATIONS)


def _flow_node(of: Of) -> Iterator[str]:
    rows = of("10s", "flow-node")
    if rows:
        worst = max(r["makespan_s"] / r["fluid_bound_s"] for r in rows.values())
        yield _line(
            worst <= OF_BOUND,
            f"flow-node, 10s: makespan at most {OF_BOUND:.2f} of the fluid bound: at worst {worst:.3f} of {len(rows)} seeds",
        )
        over = sum(r["feasible_violations"] for r in rows.values())
        model = sum(r["feasible_model_violations"] for r in rows.values())
        points = sum(r["feasible_points"] for r in rows.values())
        text = f"flow-node, 10s: no point over the SLO where the load is feasible: {over} of {points}, {model} without noise"
        yield _line(over == 0, text)
        for other, strict in (("low-weight", False), ("low-weight-all", False), ("two-queue", True)):
            theirs = of("10s", other)
            both = sorted(set(rows) & set(theirs))
            if not both:
                continue
            sooner = sum(_no_later(rows[k], theirs[k], strict) for k in both)
            fewer = sum(rows[k]["violations"] <= theirs[k]["violations"] for k in both)
            word = "faster than" if strict else "no slower than"
            counts = f"on {sooner}, no more points over the SLO on {fewer}, of {len(both)} seeds"
            text = f"flow-node, 10s: {word} {other} {counts}"
            yield _line(sooner == fewer == len(both), text)
    fast = list(of("1s", "flow-node").values())
    if fast:
        yield _points("flow-node, 1s: under 3 % of the points over the SLO", fast, FEW_VIOLATIONS)


def _bound(done: Sequence[Row]) -> Iterator[str]:
    held = [r for r in done if r["policy"] not in STARVING]
    if held:
        least = min(held, key=lambda r: r["makespan_s"] / r["fluid_bound_s"])
        ratio = least["makespan_s"] / least["fluid_bound_s"]
        text = f"no run is done before its bound: the nearest is {ratio:.3f} ({least['policy']}, {least['setting']})"
        yield _line(ratio >= 1.0, text)


def _points(what: str, rows: Sequence[Row], below: float) -> str:
    """Met if no seed has a larger share of its points over the SLO."""
    worst = max(r["violations"] / r["points"] for r in rows)
    over, points = sum(r["violations"] for r in rows), sum(r["points"] for r in rows)
    return _line(worst <= below, f"{what}: {over} of {points}, in the worst of {len(rows)} seeds {worst:.2%}")


def _no_later(ours: Row, theirs: Row, strict: bool) -> bool:
    if strict:
        return bool(ours["makespan_s"] < theirs["makespan_s"])
    return bool(ours["makespan_s"] <= theirs["makespan_s"])


def _mean(values: Any) -> float:
    known = list(values)
    return float(sum(known) / len(known))


def _line(met: bool, text: str) -> str:
    return f"{'met' if met else 'not met':<8} {text}"
