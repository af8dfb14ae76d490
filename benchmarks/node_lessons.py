"""What a real machine does that no model of this package knows: short experiments with memcached and a batch job."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.live_node import BatchWorker, Memcached, cpu_ns, make_fifo, pin
from benchmarks.load_capacity import measure_capacity
from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.rows import LoadRow
from benchmarks.load_generator.running_load import LoadResult, RunningLoad, run_load
from benchmarks.load_generator.steps import LoadStep
from benchmarks.node_calibration import KEYS, NodeCapacity, Site
from flowsched.node import LOWEST_WEIGHT
from flowsched_agent.controls.choice import control_of_process
from flowsched_agent.controls.control import Control
from flowsched_agent.controls.detected import detect
from flowsched_agent.system import System

LOADS = (0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
"""Of what one core serves at most."""
PROTECTED_LOADS = (0.15, 0.5)
QUOTA = 0.6
SETTLED_S = 0.4
"""After a change: what happens until then is told apart."""


@dataclass(frozen=True)
class Point:
    """One measurement; latencies are medians over windows of 100 ms."""

    lesson: str
    case: str
    offered: float
    """Requests per second; 0 in a closed loop."""
    answered: float
    p50_us: float
    p95_us: float
    p99_us: float
    cpu_per_request_us: float
    """Of memcached."""


def median(rows: Sequence[LoadRow], name: str) -> float:
    """Over the windows that have a value; nan without any."""
    values = sorted(value for row in rows if (value := getattr(row, name)) is not None)
    return values[len(values) // 2] if values else float("nan")


def curve(site: Site, capacity: NodeCapacity, seconds: float) -> Iterator[Point]:
    """p95 and CPU time per request against the load, alone on one core: gets of many keys, and of one."""
    with Memcached() as memcached:
        pin(memcached.pid, site.cores(1))
        one_key = measure_capacity(site.plan(port=memcached.port, keys=1), seconds)
        for keys, most in ((KEYS, capacity.closed[1]), (1, one_key)):
            case = f"get of {keys} key{'s' if keys > 1 else ''}"
            # The buffers of all connections are made by the first requests.
            run_load(site.plan(LoadStep(0.1 * most, 0.3), port=memcached.port, keys=keys))
            for share in LOADS:
                yield measured("curve", case, memcached, site.plan(LoadStep(share * most, seconds), keys=keys))


def loops(site: Site, capacity: NodeCapacity, seconds: float) -> Iterator[Point]:
    """The same server beside the same batch job at the same throughput, by a closed and by an open loop."""
    del capacity
    with beside(site) as (memcached, _):
        for connections in (1, 4, 32):
            case = f"{connections} connection{'s' if connections > 1 else ''}"
            plan = with_connections(site.plan(LoadStep(0.0, seconds), closed=True), connections)
            closed = measured("loops", f"closed loop, {case}", memcached, plan)
            yield closed
            if connections < 32:  # at 32 the closed loop runs at capacity, where an open loop has no steady state
                step = LoadStep(closed.answered, seconds)
                plan = with_connections(site.plan(step), connections)
                yield measured("loops", f"open loop, {case}", memcached, plan)


def protection(site: Site, capacity: NodeCapacity, seconds: float) -> Iterator[Point]:
    """Ways to protect memcached from a batch job on its own core."""
    steps = [LoadStep(share * capacity.closed[1], seconds) for share in PROTECTED_LOADS]
    with Memcached() as memcached:
        pin(memcached.pid, site.cores(1))
        for step in steps:
            yield measured("protection", "alone", memcached, site.plan(step))
    for case, protect in PROTECTIONS.items():
        if "FIFO" in case and not site.fifo:
            continue
        for step in steps:
            with beside(site) as (memcached, batch), protect(memcached, batch):
                yield measured("protection", case, memcached, site.plan(step))


def switching(site: Site, capacity: NodeCapacity, seconds: float) -> Iterator[Point]:
    """A change in the middle of a run: before it, right after it, and once it has settled."""
    rate = 0.6 * capacity.closed[1]
    with Memcached() as memcached:
        pin(memcached.pid, site.cores(2))
        yield from around("two cores to one", memcached, site, rate, seconds, lambda: pin(memcached.pid, site.cores(1)))
        yield from around("one core to two", memcached, site, rate, seconds, lambda: pin(memcached.pid, site.cores(2)))
    with beside(site) as (memcached, batch):
        control = controlled(batch)
        try:
            control.pause()
            yield from around("batch resumed on its core", memcached, site, rate, seconds, control.resume)
            yield from around("batch paused again", memcached, site, rate, seconds, control.pause)
        finally:
            control.restore()


LESSONS: Mapping[str, Callable[[Site, NodeCapacity, float], Iterator[Point]]] = {
    "curve": curve,
    "loops": loops,
    "protection": protection,
    "switching": switching,
}


@contextmanager
def beside(site: Site) -> Iterator[tuple[Memcached, BatchWorker]]:
    """Memcached and a batch job, both on the first core."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="node-lessons-")))
        memcached = stack.enter_context(Memcached())
        pin(memcached.pid, site.cores(1))
        yield memcached, stack.enter_context(BatchWorker(folder, cores=site.cores(1)))


def controlled(batch: BatchWorker) -> Control:
    """The batch job as the agent would steer it."""
    system = System()
    control: Control = control_of_process("batch", batch.pid, detect(system), system)
    return control


Protection = Callable[[Memcached, BatchWorker], contextlib.AbstractContextManager[None]]


def _by(act: Callable[[Control], None]) -> Protection:
    """The batch job steered meanwhile."""

    @contextmanager
    def steered(memcached: Memcached, batch: BatchWorker) -> Iterator[None]:
        del memcached
        control = controlled(batch)
        try:
            act(control)
            yield
        finally:
            control.restore()

    return steered


@contextmanager
def _fifo(memcached: Memcached, batch: BatchWorker) -> Iterator[None]:
    del batch
    make_fifo(memcached.pid)
    yield


PROTECTIONS: Mapping[str, Protection] = {
    "batch, equal weight": _by(lambda control: control.set_weight(1.0)),
    f"batch, quota of {QUOTA:g} cores": _by(lambda control: control.set_quota(QUOTA)),
    "batch, lowest weight": _by(lambda control: control.set_weight(LOWEST_WEIGHT)),
    "batch, memcached SCHED_FIFO": _fifo,
    "batch paused": _by(lambda control: control.pause()),
}


def with_connections(plan: LoadPlan, connections: int) -> LoadPlan:
    """The same load over fewer connections."""
    return replace(plan, connections=connections)


def measured(lesson: str, case: str, memcached: Memcached, plan: LoadPlan) -> Point:
    """One run of a plan whose port is still open."""
    before = cpu_ns(memcached.pid)
    result = run_load(to(plan, memcached))
    return point(lesson, case, result, result.rows, (cpu_ns(memcached.pid) - before) / 1e3)


def to(plan: LoadPlan, memcached: Memcached) -> LoadPlan:
    """A plan for this server."""
    return replace(plan, port=memcached.port)


def point(lesson: str, case: str, result: LoadResult, rows: Sequence[LoadRow], cpu_us: float | None = None) -> Point:
    """What some windows say."""
    answered = sum(row.answered for row in rows)
    seconds = sum(row.seconds for row in rows)
    return Point(
        lesson,
        case,
        0.0 if result.plan.closed else result.plan.steps[0].rate,
        answered / seconds,
        median(rows, "p50_us"),
        median(rows, "p95_us"),
        median(rows, "p99_us"),
        float("nan") if cpu_us is None else cpu_us / max(answered, 1),
    )


def around(
    case: str, memcached: Memcached, site: Site, rate: float, seconds: float, change: Callable[[], None]
) -> Iterator[Point]:
    """A run with a change in its middle."""
    moments: list[float] = []

    def act() -> None:
        change()
        moments.append(time.monotonic())

    with RunningLoad(site.plan(LoadStep(rate, 2 * seconds), port=memcached.port)) as load:
        timer = threading.Timer(max(0.0, load.start_s + seconds - time.monotonic()), act)
        timer.start()
        result = load.wait()
        timer.join()
    changed = moments[0] - result.start_s
    parts = {
        "before": [row for row in result.rows if row.t_s + row.seconds <= min(seconds, changed)],
        f"first {SETTLED_S:g} s": [row for row in result.rows if changed - 0.1 < row.t_s <= changed + SETTLED_S - 0.1],
        "after": [row for row in result.rows if row.t_s > changed + SETTLED_S],
    }
    for when, rows in parts.items():
        if rows:
            yield point("switching", f"{case}: {when}", result, rows)


def lessons_table(points: Sequence[Mapping[str, Any]]) -> str:
    """All of them as text; ``points`` as :func:`plain` makes them."""
    lines = [f"{'case':<42}{'offered/s':>10}{'answered/s':>11}{'p50 us':>9}{'p95 us':>9}{'p99 us':>9}{'CPU us':>8}"]
    lesson = ""
    for each in points:
        if each["lesson"] != lesson:
            lesson = each["lesson"]
            lines += ["", f"{lesson}: {(LESSONS[lesson].__doc__ or '').strip()}"]
        offered = f"{each['offered']:,.0f}" if each["offered"] else "closed"
        numbers = (_shown(each[name], width) for name, width in (("answered", 11), *_LATENCIES))
        cpu = each["cpu_per_request_us"]
        lines.append(f"{each['case']:<42}{offered:>10}{''.join(numbers)}{'-' if cpu is None else f'{cpu:.1f}':>8}")
    return "\n".join(lines)


_LATENCIES = (("p50_us", 9), ("p95_us", 9), ("p99_us", 9))


def _shown(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:,.0f}':>{width}}"


def plain(points: Sequence[Point]) -> list[dict[str, Any]]:
    """For a JSON file: what has no value is null."""
    return [{key: None if value != value else value for key, value in asdict(each).items()} for each in points]
