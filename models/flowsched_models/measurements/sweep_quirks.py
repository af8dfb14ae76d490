"""What is suspicious in sweeps: times that cannot belong to their thread count, pinning that had no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from statistics import median

from flowsched_models.measurements.group import Group, threads_text
from flowsched_models.measurements.measurements import LatencyPoint, ThreadTime, Where

SAME = 1.05
"""Two times within this factor may be the same measurement under two labels."""
SLACK, SLACK_OF_MANY = 1.15, 1.5
"""A speed-up over one thread may exceed the ratio of the threads by the first factor, for caches and noise; one over two
threads or more by the second, as they may have been on one physical core."""
CUT_OFF = 0.5
"""A repeat below this share of its siblings' median did not run to its end."""
CUT_OFF_ALONE = 0.6
"""One thread below this share of the fastest time on more threads did not run to its end."""
CLEAR_GAIN = 1.3
"""A gain from more threads that no noise explains."""
SOME_GAIN = 1.12
"""If some other group gains no more than this, then this job may well not gain."""
NEARLY_LINEAR = 1.8
"""The gain of a doubling, for a job that still scales."""
NO_GAIN = 1.03
"""Less than this is no gain."""
FAR_OFF, FAR_BEYOND = 1.9, 1.4
"""Off the other groups' median by the first factor and beyond all of them by the second. Real hosts differ by up to 1.7."""
FEW_GROUPS = 2
"""So many other groups at least are needed to judge by them."""
SAME_CURVE = 1.05
"""One and two cores do not differ by more, in the median over the loads."""
LOADED, MISSED_CPU = 0.15, 4.0
"""From this share of the highest load on, the CPU for one query does not grow by this factor."""
COMMON_LOADS, LOAD_RANGE = 5, 4.0
"""So many common loads, with such a ratio of the highest to the lowest, are needed to compare two curves."""


@dataclass
class Sweep:
    """One job of one group on one machine type: its median time by thread count, and what others measured."""

    group: Group
    job: str
    machine_type: str
    times: dict[int, list[ThreadTime]]
    others: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """The medians of the other groups, by thread count."""
    other_gains: Mapping[tuple[int, int], Sequence[float]] = field(default_factory=dict)
    """How much faster the other groups are on more threads, by both counts."""

    def medians(self) -> dict[int, float]:
        """Seconds by thread count, ascending."""
        return {n: median(t.real_s for t in self.times[n]) for n in sorted(self.times) if self.times[n]}

    def typical(self, threads: int) -> float | None:
        """The other groups' median, if there are enough of them."""
        seen = self.others.get(threads, ())
        return median(seen) if len(seen) >= FEW_GROUPS else None

    def off(self, threads: int) -> float:
        """By what factor, either way, a time is off the other groups' median; 1 where that is unknown."""
        typical, own = self.typical(threads), self.medians()[threads]
        return 1.0 if typical is None else max(own / typical, typical / own)

    def leave_out(self, threads: int, text: str) -> None:
        """Leave out all times on so many threads."""
        for time in self.times.pop(threads):
            self.drop(time, text)

    def drop(self, time: ThreadTime, text: str) -> None:
        """Leave out one time."""
        self.group.thread_times.remove(time)
        self.group.leave_out(time.where, f"{self.job} takes {time.real_s:g} s on {threads_text(time.threads)}, {text}")


def leave_out_thread_quirks(groups: Sequence[Group]) -> None:
    """Leave out thread times that are cut off or stand under a wrong thread count."""
    sweeps = [sweep for group in groups for sweep in _sweeps(group)]
    for sweep in sweeps:
        _cut_off_repeats(sweep)
    # All are judged by the same view of the others, whatever the order.
    seen = {id(sweep): sweep.medians() for sweep in sweeps}
    for sweep in sweeps:
        others = [seen[id(o)] for o in sweeps if _comparable(sweep, o)]
        counts = sorted({n for other in others for n in other})
        sweep.others = {n: [o[n] for o in others if n in o] for n in counts}
        sweep.other_gains = {
            (n, m): [o[n] / o[m] for o in others if n in o and m in o] for n in counts for m in counts if n < m
        }
    for sweep in sweeps:
        _too_fast(sweep)
        _same_as_another_count(sweep)
        _far_from_others(sweep)
        _stops_scaling(sweep)


def _sweeps(group: Group) -> list[Sweep]:
    found: dict[tuple[str, str], Sweep] = {}
    for time in group.thread_times:
        sweep = found.setdefault((time.job, time.machine_type), Sweep(group, time.job, time.machine_type, {}))
        # Threads beyond the cores cannot speed anything up, so such times say nothing about labels.
        if time.cores is None or time.cores >= time.threads:
            sweep.times.setdefault(time.threads, []).append(time)
    return list(found.values())


def _comparable(sweep: Sweep, other: Sweep) -> bool:
    """Same job, machine type and inputs (which changed with the set of jobs), other group."""
    return (
        sweep.group is not other.group
        and (sweep.job, sweep.machine_type) == (other.job, other.machine_type)
        and sweep.group.jobs == other.group.jobs
    )


def _cut_off_repeats(sweep: Sweep) -> None:
    for times in sweep.times.values():
        for time in list(times):
            rest = [t.real_s for t in times if t is not time]
            if len(rest) >= FEW_GROUPS and time.real_s < CUT_OFF * median(rest):
                times.remove(time)
                sweep.drop(time, f"but {median(rest):g} s in the median of its repeats: it was cut off")


def _too_fast(sweep: Sweep) -> None:
    """One thread far below more threads, or a speed-up beyond the ratio of the threads."""
    own = sweep.medians()
    rest = [s for n, s in own.items() if n > 1]
    if 1 in own and rest and own[1] < CUT_OFF_ALONE * min(rest):
        sweep.leave_out(1, f"but {min(rest):g} s or more on more threads: it was cut off")
    while True:
        own = sweep.medians()
        excess = {(n, m): own[n] / own[m] / (m / n) for n in own for m in own if n < m}
        beyond = {pair: x for pair, x in excess.items() if x > (SLACK if pair[0] == 1 else SLACK_OF_MANY)}
        worst = max(beyond, key=lambda pair: beyond[pair], default=None)
        if worst is None:
            return
        n, m = worst
        gains = sweep.other_gains.get(worst, ())
        if len(gains) >= FEW_GROUPS and median(gains) > SLACK * m / n:
            return
        text = f"with a speed-up of {own[n] / own[m]:.2g} from {n} to {m} threads, which is more than threads can give"
        for count in _culprits(sweep, worst, excess):
            sweep.leave_out(count, text)


def _culprits(sweep: Sweep, pair: tuple[int, int], excess: Mapping[tuple[int, int], float]) -> list[int]:
    """Which of two times to leave out: what others contradict, else what contradicts more of the rest, else both."""
    by_others = {count: log(sweep.off(count)) for count in pair}
    if max(by_others.values()) > log(CLEAR_GAIN):
        return _largest(by_others)
    return _largest({c: sum(max(0.0, log(x)) for both, x in excess.items() if c in both) for c in pair})


def _largest(scores: Mapping[int, float]) -> list[int]:
    top = max(scores.values())
    return [count for count, score in scores.items() if score > top - 1e-9]


def _same_as_another_count(sweep: Sweep) -> None:
    """The same time on twice the threads or more, where all other groups are clearly faster on more."""
    own = sweep.medians()
    wrong: dict[int, str] = {}
    for n in own:
        for m in own:
            gains = sweep.other_gains.get((n, m), ())
            if m < 2 * n or len(gains) < FEW_GROUPS or not 1 / SAME < own[n] / own[m] < SAME:
                continue
            if median(gains) < CLEAR_GAIN or min(gains) < SOME_GAIN:
                continue
            for count in _largest({c: log(sweep.off(c)) for c in (n, m)}):
                other = n if count == m else m
                wrong.setdefault(
                    count,
                    f"like on {threads_text(other)} ({own[other]:g} s), but other groups' median is "
                    f"{sweep.typical(count) or 0:.4g} s: the thread count is wrong",
                )
    for count, text in wrong.items():
        sweep.leave_out(count, text)


def _far_from_others(sweep: Sweep) -> None:
    for count, own in sweep.medians().items():
        typical, seen = sweep.typical(count), sweep.others.get(count, ())
        if typical is None or len(seen) <= FEW_GROUPS or sweep.off(count) < FAR_OFF:
            continue
        if own > FAR_BEYOND * max(seen) or own < min(seen) / FAR_BEYOND:
            sweep.leave_out(count, f"but {typical:.4g} s in the median of {len(seen)} other groups")


def _stops_scaling(sweep: Sweep) -> None:
    """Without others to compare with: what no law of speed-up explains."""
    own = sweep.medians()
    alone = [n for n in own if sweep.typical(n) is None]
    if len(alone) < len(own):
        return
    for n in own:
        # No gain at first, and a clear one later: serial work does not become parallel with more threads.
        if (
            2 * n in own
            and 4 * n in own
            and 1 / SAME < own[n] / own[2 * n] < SAME
            and own[2 * n] / own[4 * n] > CLEAR_GAIN
        ):
            text = f"as {n} and {2 * n} threads take the same time but {4 * n} are faster: one of their labels is wrong"
            for count in (n, 2 * n):
                sweep.leave_out(count, text)
            return
    vcpus = sweep.group.machines.vcpus.get(sweep.machine_type, max(own, default=1))
    for n in own:
        more = [m for m in own if m > 2 * n]
        if 2 * n not in own or own[n] / own[2 * n] < NEARLY_LINEAR or not more:
            continue
        # Hardware threads may bring nothing, but not so the second half of the physical cores.
        if min(more) <= vcpus / 2 and all(own[2 * n] / own[m] < NO_GAIN for m in more):
            gain = own[n] / own[2 * n]
            for m in more:
                sweep.leave_out(
                    m, f"like on {2 * n}, after a speed-up of {gain:.2g} from {n} to {2 * n}: the thread count is wrong"
                )
            return


def leave_out_pinning_quirks(group: Group) -> None:
    """Leave out the sweep on one core where two cores, for two threads or more, show the same: pinning had no effect."""
    curves: dict[tuple[str, str, int, int], list[LatencyPoint]] = {}
    for point in group.latency_points:
        curves.setdefault((point.service, point.machine_type, point.threads, point.cores), []).append(point)
    for (service, machine_type, threads, cores), points in list(curves.items()):
        for more in (2 * cores, cores + 1):
            if threads > cores and _same_curve(points, curves.get((service, machine_type, threads, more), [])):
                gone = {p.where for p in points}
                group.latency_points = [p for p in group.latency_points if p.where not in gone]
                group.leave_out(
                    points[0].where,
                    f"the sweep of {service} with {threads_text(threads)} on {_cores_text(cores)} ({len(points)} rows) "
                    f"equals the one on {_cores_text(more)} at all loads: pinning had no effect",
                )
                break


def _same_curve(points: Sequence[LatencyPoint], more: Sequence[LatencyPoint]) -> bool:
    one, two = _by_load(points), _by_load(more)
    loads = sorted(one.keys() & two.keys())
    if len(loads) < COMMON_LOADS or loads[-1] < LOAD_RANGE * max(loads[0], 1):
        return False
    apart = exp(median(abs(log(_p95(one[q]) / _p95(two[q]))) for q in loads))
    served = _qps(one[loads[-1]]) / max(_qps(two[loads[-1]]), 1)
    return apart < SAME_CURVE and served > 1 / SAME_CURVE


def _by_load(points: Sequence[LatencyPoint]) -> dict[float, list[LatencyPoint]]:
    found: dict[float, list[LatencyPoint]] = {}
    for point in points:
        found.setdefault(point.qps if point.target_qps is None else point.target_qps, []).append(point)
    return found


def _p95(points: Sequence[LatencyPoint]) -> float:
    return median(p.p95_us for p in points)


def _qps(points: Sequence[LatencyPoint]) -> float:
    return median(p.qps for p in points)


def _cores_text(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def leave_out_cpu_quirks(group: Group) -> None:
    """Leave out the CPU figures of a sweep that miss most of the CPU at lower loads: the rest of its points stay."""
    curves: dict[tuple[str, str, int, int], list[LatencyPoint]] = {}
    for point in group.latency_points:
        if point.cpu_percent is not None and point.qps > 0:
            curves.setdefault((point.service, point.machine_type, point.threads, point.cores), []).append(point)
    for (service, _, threads, cores), points in curves.items():
        most = max(p.qps for p in points)
        per_kqps = [(p.qps, 1000 * (p.cpu_percent or 0) / p.qps) for p in points if p.qps >= LOADED * most]
        least_at, least = min(per_kqps, key=lambda pair: (pair[1], pair[0]))
        later = max(percent for qps, percent in per_kqps if qps >= least_at)
        if later <= MISSED_CPU * least:
            continue
        blind = {p.where for p in points}
        group.latency_points = [replace(p, cpu_percent=None) if p.where in blind else p for p in group.latency_points]
        first = points[0].where
        group.leave_out(
            Where(first.file, first.row, "cpu_util_pct"),
            f"the CPU of {service} with {threads_text(threads)} on {_cores_text(cores)} is {least:.2g} % per 1000 queries/s "
            f"at {least_at / 1000:.0f}K and {later:.2g} % at higher loads: not all of it was counted",
        )
