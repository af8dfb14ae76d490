"""One way to draw examples for all tests: the same ones in every run, however slow the machine. And one promise about every
record that any test makes or writes: its flows are optimal flows, and its terms add up.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings

# Read when numpy is imported, here and in the processes of tests. Matrices are small: with two threads, which wait for each
# other, a fit took six times as much of the CPU.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import flowsched.round.linear.bulk_round
import flowsched.round.linear.level_record
import flowsched.round.scheduler
import tiers
from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import ARCHIVE_SUFFIX, load_record, looks_like_record
from flowsched.support.collector import collect_seldom
from flowsched_models.document import InputError

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("ci")

collect_seldom()  # as programs of ours do

LONGEST_S, LONGEST_EXPLORING_S = 1200.0, 7200.0
"""Of a test, of what it asks for, and of what it leaves: each of them ends then. None took a fifth of it."""
AGAIN_S = 10.0


class OverdueError(BaseException):
    """A test hangs. Not an :class:`Exception`: Hypothesis would try the example again."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays to the end: it is not looked at for garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What a file leaves stays too, such as libraries and what is kept of them: or collections take longer file by file."""
    with bounded(item):
        yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with bounded(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with bounded(item):
        return (yield)


@contextmanager
def bounded(item: pytest.Item) -> Iterator[None]:
    """End what hangs, so that the other tests are run and CI tells which one it was."""
    longest_s = LONGEST_EXPLORING_S if explores(item.config) else LONGEST_S

    def end(number: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(sys.__stderr__.fileno())
        raise OverdueError(f"not done after {longest_s:g} s")

    before = signal.signal(signal.SIGALRM, end)
    # Again and again: a task of asyncio may have swallowed the first one.
    signal.setitimer(signal.ITIMER_REAL, longest_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.mark(items)
    if hasattr(config, "workerinput"):  # of several processes
        items[:] = tiers.longest_first(items)


@pytest.fixture(scope="session")
def exploring(pytestconfig: pytest.Config) -> bool:
    """Whether a test may take the time that ``make explore`` has; else its smaller version is to run."""
    return explores(pytestconfig)


def explores(config: pytest.Config) -> bool:
    return bool(config.getoption("--hypothesis-profile", None) == "explore")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Twice as many as there are processors where tests of real components are among them, which mostly wait."""
    return None if config.option.markexpr else 2 * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files are handed out whole, so that what a file makes once is made in one process only, and in the order given."""
    if config.option.dist != "load":
        return None  # chosen already
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def _records_that_are_made_are_sound() -> Iterator[None]:
    """Conservation, capacities, complementary slackness, sums of terms: for every record that this process makes."""
    patch = pytest.MonkeyPatch()
    make_round, make_levels = flowsched.round.scheduler.round_record, flowsched.round.linear.level_record.linear_levels

    def round_record(trace: Any) -> Any:
        record = make_round(trace)
        check(record["parts"], "a record")
        return record

    @wraps(make_levels)  # so that it crosses to other processes by its name
    def linear_levels(trace: Any, priority: int | None = None) -> Any:
        made = make_levels(trace, priority)
        check(made, "levels at linear prices")
        return made

    patch.setattr(flowsched.round.scheduler, "round_record", round_record)
    for module in (flowsched.round.linear.level_record, flowsched.round.linear.bulk_round):
        patch.setattr(module, "linear_levels", linear_levels)
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _records_that_are_written_are_sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same for every file that a test leaves in its folder, by any writer; not where it tampers with them."""
    yield
    folder = request.node.funcargs.get("tmp_path")
    if folder is None or request.node.get_closest_marker("tampers"):
        return
    for path in sorted(Path(folder).rglob("*")):
        if path.suffix in (ARCHIVE_SUFFIX, ".json") and path.is_file() and looks_like_record(path):
            try:
                record = load_record(path)
            except InputError:
                continue
            check(record["parts"], path.name)


def check(parts: list[Mapping[str, Any]], whose: str) -> None:
    """Fail with what is wrong."""
    for part in RecordView({"parts": parts}).parts:
        for name, graph in part.graphs.items():
            faults = list(graph.faults())
            assert not faults, f"{whose}, part {part.index}, {name} network: {faults[:3]}"
