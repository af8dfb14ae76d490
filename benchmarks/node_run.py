"""One real run: a load in steps on memcached, a batch job beside it, and what both had at every moment."""

from __future__ import annotations

import bisect
import csv
import itertools
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.live_node import Agent, BatchWorker, Memcached, affinities, cpu_ns, is_stopped
from benchmarks.load_generator.running_load import LoadResult, run_load
from benchmarks.load_generator.self_check import bottleneck
from benchmarks.load_generator.steps import LoadStep
from benchmarks.node_calibration import NodeCapacity, Site, over_slo
from benchmarks.node_modes import Mode, set_up
from flowsched_models.text_table import text_table

LOW, HIGH = 0.26, 0.8
"""Of what one core serves at most: 8,000 and 25,000 of 31,000. A core of its own is enough for both, a shared one is not."""
PATTERN = (LOW, HIGH, LOW, HIGH, LOW)
SAMPLE_S = 0.025


@dataclass(frozen=True)
class Sample:
    """What was true at one moment."""

    t_s: float
    """On the clock of :func:`time.monotonic`."""
    service_cores: int
    batch_runs: bool
    batch_cpu_s: float
    service_cpu_s: float
    agent_cpu_s: float


@dataclass(frozen=True)
class Window:
    """100 ms of a run, as they are kept."""

    mode: str
    repetition: int
    t_s: float
    offered: float
    answered: int
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    late_p95_us: float | None
    violation: int
    service_cores: int
    batch_runs: int
    batch_cpu_s: float
    """CPU time of the batch job in this window."""


@dataclass(frozen=True)
class Outcome:
    """One run as a whole. Shares are of its windows; what is counted, is counted while the load ran."""

    mode: str
    repetition: int
    seed: int
    violations: float
    violations_high: float
    """Of the windows of high load."""
    worst_p95_us: float
    batch_cpu_s: float
    batch_units: int
    pauses: int
    core_changes: int
    service_cpu_s: float
    agent_cpu_s: float
    """0 without an agent."""
    due: int
    answered: int
    doubt: str
    """What the generator says of itself where it was the bottleneck."""


class Watch:
    """Looks at everybody's cores and CPU time, some dozen times a second, in a thread of its own."""

    def __init__(self, memcached: Memcached, batch: BatchWorker | None, agent: Agent | None) -> None:
        self._memcached, self._batch, self._agent = memcached, batch, agent
        self.samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            self.samples.append(self.sample())
            self._over.wait(SAMPLE_S)

    def sample(self) -> Sample:
        """Now."""
        cores = affinities(self._memcached.pid)
        batch = self._batch
        return Sample(
            time.monotonic(),
            max((len(each) for each in cores), default=0),
            batch is not None and not is_stopped(batch.pid),
            0.0 if batch is None else cpu_ns(batch.pid) / 1e9,
            cpu_ns(self._memcached.pid) / 1e9,
            0.0 if self._agent is None else cpu_ns(self._agent.pid) / 1e9,
        )


def steps_for(capacity: NodeCapacity, seconds: float, pattern: Sequence[float] = PATTERN) -> tuple[LoadStep, ...]:
    """The load of a run: low, high, low, high, low."""
    return tuple(LoadStep(share * capacity.closed[1], seconds) for share in pattern)


def run_mode(
    mode: Mode, site: Site, capacity: NodeCapacity, steps: Sequence[LoadStep], repetition: int, seed: int
) -> tuple[Outcome, list[Window]]:
    """One run. Raises :class:`LiveError` and :class:`LoadError`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="node-run-")))
        memcached = stack.enter_context(Memcached())
        batch = stack.enter_context(BatchWorker(folder)) if mode.batch else None
        agent = stack.enter_context(set_up(mode, site, capacity, folder, memcached, batch))
        units = 0 if batch is None else batch.units()
        with Watch(memcached, batch, agent) as watch:
            result = run_load(site.plan(*steps, seed=seed, port=memcached.port))
        done = 0 if batch is None else batch.units() - units
    return summarise(mode.name, repetition, result, watch.samples, done)


def summarise(
    mode: str, repetition: int, result: LoadResult, samples: Sequence[Sample], units: int
) -> tuple[Outcome, list[Window]]:
    """What is kept of one run."""
    times = [sample.t_s - result.start_s for sample in samples]

    def at(t_s: float) -> Sample:
        return samples[max(0, bisect.bisect_right(times, t_s) - 1)]

    windows = []
    for row in result.rows:
        middle, end = at(row.t_s + row.seconds / 2), row.t_s + row.seconds
        windows.append(
            Window(
                mode,
                repetition,
                row.t_s,
                row.offered,
                row.answered,
                row.p50_us,
                row.p95_us,
                row.p99_us,
                row.late_p95_us,
                int(over_slo(row)),
                middle.service_cores,
                int(middle.batch_runs),
                round(at(end).batch_cpu_s - at(row.t_s).batch_cpu_s, 4),
            )
        )
    length = result.rows[-1].t_s + result.rows[-1].seconds
    first, last = at(0.0), at(length)
    during = [sample for sample, t_s in zip(samples, times, strict=True) if 0.0 <= t_s <= length]
    top = max(row.offered for row in result.rows)
    high = [window.violation for window in windows if window.offered > 0.9 * top]
    outcome = Outcome(
        mode,
        repetition,
        result.plan.seed,
        _mean([window.violation for window in windows]),
        _mean(high),
        max(window.p95_us or 0.0 for window in windows),
        last.batch_cpu_s - first.batch_cpu_s,
        units,
        sum(1 for a, b in _pairs(during) if a.batch_runs and not b.batch_runs),
        sum(1 for a, b in _pairs(during) if a.service_cores != b.service_cores),
        last.service_cpu_s - first.service_cpu_s,
        last.agent_cpu_s - first.agent_cpu_s,
        result.totals.due,
        result.totals.answered,
        bottleneck(result),
    )
    return outcome, windows


def table(outcomes: Iterable[Outcome]) -> str:
    """One line per mode; repetitions side by side."""
    by_mode: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_mode.setdefault(outcome.mode, []).append(outcome)
    head = (
        "mode",
        "windows over 1 ms, %",
        "at high load, %",
        "worst p95, ms",
        "batch CPU, s",
        "batch units, k",
        "pauses",
        "core changes",
        "memcached CPU, s",
        "agent CPU, s",
    )
    lines = [head]
    for mode, runs in by_mode.items():
        lines.append(
            (
                mode,
                _listed([100.0 * run.violations for run in runs], "{:.1f}"),
                _listed([100.0 * run.violations_high for run in runs], "{:.0f}"),
                _listed([run.worst_p95_us / 1e3 for run in runs], "{:.3g}"),
                _listed([run.batch_cpu_s for run in runs], "{:.1f}"),
                _listed([run.batch_units / 1e3 for run in runs], "{:.1f}"),
                _listed([run.pauses for run in runs], "{:d}"),
                _listed([run.core_changes for run in runs], "{:d}"),
                _listed([run.service_cpu_s for run in runs], "{:.1f}"),
                _listed([run.agent_cpu_s for run in runs], "{:.2f}"),
            )
        )
    return "\n".join(text_table(lines, left=range(len(head)), indent=""))


def write_windows(path: Path, windows: Iterable[Window]) -> None:
    """A CSV file, a line per window."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Window)], lineterminator="\n")
        writer.writeheader()
        for window in windows:
            writer.writerow({key: _cell(value) for key, value in asdict(window).items()})


def read_windows(path: Path) -> list[Window]:
    """What :func:`write_windows` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_window(row) for row in csv.DictReader(file)]


def _window(row: Mapping[str, str]) -> Window:
    made: dict[str, Any] = {}
    for field in fields(Window):
        text = row[field.name]
        made[field.name] = (
            text if field.type == "str" else int(text) if field.type == "int" else float(text) if text else None
        )
    return Window(**made)


def _cell(value: Any) -> Any:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _pairs(samples: Sequence[Sample]) -> Iterable[tuple[Sample, Sample]]:
    return itertools.pairwise(samples)


def _listed(values: Sequence[float], form: str) -> str:
    return ", ".join(form.format(value) for value in values)
