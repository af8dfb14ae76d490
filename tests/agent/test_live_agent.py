"""The real agent on real processes: memcached, our load, a batch job. What is asserted is what was done, never a latency."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from requirements_on_machine import give_up, needs

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import native
from benchmarks.live_node import (
    Agent,
    BatchWorker,
    Memcached,
    affinities,
    cpu_ns,
    is_stopped,
    settings_of,
    wait_for,
)
from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.running_load import LoadResult, run_load
from benchmarks.load_generator.steps import LoadStep
from benchmarks.node_modes import CONTROLLER_FAILED, READY_LIMIT_S

LOW, HIGH = 2000.0, 14000.0
"""Requests of one key per second: far below what this machine can serve. That one core cannot carry HIGH, and two only just,
is what the agent is told; so nothing here depends on how fast the machine is."""
CAPACITY = {"1": 6000, "2": 14500}
STEP_S = 3.0
ACT_S = 1.0
COURSES = 4
CLEAN_S = 15.0
REST_US = 1000
"""So that the batch job takes a tenth of a core, enough to be seen: other tests run beside these."""


@dataclass(frozen=True)
class Look:
    """What was true at one moment."""

    t_s: float
    service: set[tuple[int, ...]]
    batch: set[tuple[int, ...]]
    stopped: bool
    batch_ns: int


@dataclass
class Stage:
    """All programs on it."""

    folder: Path
    cores: tuple[int, int]
    memcached: Memcached
    batch: BatchWorker
    agent: Agent
    originals: dict[int, dict[str, object]]
    exit_code: int | None = None

    @property
    def state_file(self) -> Path:
        return self.folder / "agent-state.json"

    def ticks(self, kind: str) -> list[dict[str, str]]:
        """The record of the agent: of whole lines, whatever it is just writing."""
        path = self.folder / "record.csv"
        if not path.exists():
            return []
        text = path.read_text()
        return [row for row in csv.DictReader(text[: text.rfind("\n") + 1].splitlines()) if row["kind"] == kind]

    def look(self) -> Look:
        stopped = is_stopped(self.batch.pid)
        used = cpu_ns(self.batch.pid)
        return Look(
            time.monotonic(),
            affinities(self.memcached.pid),
            affinities(self.batch.pid),
            stopped and is_stopped(self.batch.pid),
            used,
        )

    def load(self, *steps: tuple[float, float]) -> LoadPlan:
        return LoadPlan(tuple(LoadStep(*step) for step in steps), port=self.memcached.port)

    def is_as_before(self) -> bool:
        """Whether every program has again what it had before the agent came."""
        return {pid: settings_of(pid) for pid in self.originals} == self.originals


OTHER_USER = "65534"
UNPRIVILEGED = (
    "setpriv",
    *("--reuid", OTHER_USER, "--regid", OTHER_USER, "--clear-groups"),
    # May read what root may read, as Python itself may be there, and nothing else that others may not.
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search"),
)


@pytest.fixture(scope="module", params=["as we are", "without privileges"])
def prefix(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """How programs are started."""
    if request.param == "as we are":
        return ()
    if os.geteuid() != 0:
        pytest.skip("the same as the other one: we have no privileges to drop")
    needs("setpriv", "to drop privileges")
    return UNPRIVILEGED


@pytest.fixture(scope="module")
def cores() -> tuple[int, int]:
    needs("memcached", "to be steered")
    if native.compiler() is None:
        give_up("there is no C compiler; the load generator is written in C")
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip(f"sharing cores needs two of them, and this process may use {len(allowed)}")
    return allowed[0], allowed[1]


@contextmanager
def stage(folder: Path, cores: tuple[int, int], prefix: tuple[str, ...] = ()) -> Iterator[Stage]:
    """Memcached and a batch job on both cores, and an agent that decides."""
    if prefix:
        folder.chmod(0o777)
        prefix = (*prefix, "env", f"XDG_CACHE_HOME={compiled_for_all(folder)}")
    with ExitStack() as stack:
        memcached = stack.enter_context(Memcached())
        batch = stack.enter_context(BatchWorker(folder, cores=cores, prefix=prefix, rest_us=REST_US))
        for pid in (memcached.pid, batch.pid):
            for tid in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                os.sched_setaffinity(int(tid), set(cores))
        configuration = {
            "apiVersion": "agent.flowsched.io/v1alpha1",
            "kind": "NodeAgent",
            "cores": list(cores),
            "services": [
                {
                    "name": "memcached",
                    "profile": "memcached",
                    "port": memcached.port,
                    "threads": memcached.threads,
                    "slo": {"p95": "1ms"},
                    "cores": list(cores),
                    "capacity": CAPACITY,
                }
            ],
            "tasks": [{"name": "batch", "find": {"pid": batch.pid}}],
            "server": "",
            "stateFile": str(folder / "agent-state.json"),
            "logging": {"verbosity": 1},
        }
        (folder / "agent.yaml").write_text(json.dumps(configuration))
        originals = {pid: settings_of(pid) for pid in (memcached.pid, batch.pid)}
        agent = start_agent(stack, folder, prefix)
        made = Stage(folder, cores, memcached, batch, agent, originals)
        await_decisions(made)
        yield made


def compiled_for_all(folder: Path) -> Path:
    """A cache folder that all users may use, with links to what we have compiled: compiling takes most of a minute."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    cache = folder / "cache"
    if (base / "flowsched" / "compiled").is_dir():
        kept = cache / "flowsched" / "compiled"
        shutil.copytree(base / "flowsched" / "compiled", kept, copy_function=os.symlink, ignore_dangling_symlinks=True)
    cache.mkdir(exist_ok=True)
    for path in (cache, *(path for path in cache.rglob("*") if path.is_dir())):
        path.chmod(0o777)
    return cache


def start_agent(stack: ExitStack, folder: Path, prefix: tuple[str, ...] = ()) -> Agent:
    (folder / "record.csv").unlink(missing_ok=True)
    arguments = ["--record", str(folder / "record.csv")]
    return stack.enter_context(Agent(folder / "agent.yaml", folder, arguments, prefix))


def await_decisions(on: Stage) -> None:
    def decided() -> bool:
        return not on.agent.running() or len(on.ticks("service")) >= 10

    wait_for(decided, READY_LIMIT_S, "the agent's first decisions", 0.1)
    assert on.agent.running(), on.agent.said()


@contextmanager
def looking(on: Stage) -> Iterator[list[Look]]:
    """Looks all the time, in a thread of its own."""
    looks: list[Look] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            looks.append(on.look())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()


Course = tuple[Stage, LoadResult, list[Look]]


@contextmanager
def steered(cores: tuple[int, int], prefix: tuple[str, ...]) -> Iterator[Course]:
    """Three jumps of the load, each up and down again, under the agent; then the agent is asked to go."""
    # Not below pytest's own folder: only we may look into that.
    with tempfile.TemporaryDirectory(prefix="course-") as folder, stage(Path(folder), cores, prefix) as on:
        with looking(on) as looks:
            result = run_load(on.load(*[(LOW, STEP_S), (HIGH, STEP_S)] * 3, (LOW, STEP_S)))
        # One more reading of everything; the record is complete only once the agent has ended.
        time.sleep(1.0)
        on.exit_code = on.agent.terminate(CLEAN_S)
        yield on, result, looks


@pytest.fixture(scope="module")
def course(cores: tuple[int, int], prefix: tuple[str, ...]) -> Iterator[Course]:
    with steered(cores, prefix) as made:
        yield made


def cores_of(row: dict[str, str]) -> tuple[int, ...]:
    """As the record writes them: 0-1, or 0,2."""
    found: list[int] = []
    for part in filter(None, row["cores"].split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def steady(rows: list[dict[str, str]], t_s: float, what: Callable[[dict[str, str]], Any]) -> Any:
    """What stood in the record from two ticks before a moment until one after it; None if it changed meanwhile."""
    before = [row for row in rows if float(row["t_s"]) <= t_s][-2:]
    after = [row for row in rows if float(row["t_s"]) > t_s][:1]
    found = [what(row) for row in before + after]
    return found[0] if len(found) == 3 and found.count(found[0]) == 3 else None


def test_the_controller_decided_every_time(course: Course) -> None:
    on, _, _ = course
    assert CONTROLLER_FAILED not in (on.folder / "record.csv").read_text(), on.agent.said()
    assert on.agent.said().count("Traceback") == 0, on.agent.said()
    # Not while it controls already: that would be half a minute without a decision where nothing is compiled yet.
    said = on.agent.said()
    assert 0 < said.index(": compiling what") < said.index(": compiled") < said.index(": controlling"), said


def test_every_thread_has_the_cores_of_the_decision(course: Course) -> None:
    on, _, looks = course
    services, tasks = on.ticks("service"), on.ticks("task")
    compared = 0
    for look in looks:
        service, batch = steady(services, look.t_s, cores_of), steady(tasks, look.t_s, cores_of)
        if service:
            assert look.service == {service}, f"at {look.t_s}"
            compared += 1
        if batch and not look.stopped:
            assert look.batch == {batch}, f"at {look.t_s}"
    assert compared > len(looks) / 3
    assert {cores for look in looks for cores in look.service} <= {on.cores, on.cores[:1], on.cores[1:]}


def test_the_batch_job_stands_still_exactly_while_it_is_paused(course: Course) -> None:
    on, _, looks = course
    states = {row["state"] for row in on.ticks("task")}
    assert states <= {"running", "paused"}
    # It counts as stopped already while its last microseconds are being added up: so the look before is left out.
    frozen = [
        (b, c) for a, b, c in zip(looks, looks[1:], looks[2:], strict=False) if a.stopped and b.stopped and c.stopped
    ]
    # With memcached so near to its capacity no job may disturb it.
    assert "paused" in states
    assert frozen
    for before, after in frozen:
        # Between two looks it may have gone on and stopped again only if the record says that it ran.
        ran = any(
            row["state"] == "running" and before.t_s - 0.2 <= float(row["t_s"]) <= after.t_s + 0.2
            for row in on.ticks("task")
        )
        assert ran or before.batch_ns == after.batch_ns
    assert looks[-1].batch_ns > looks[0].batch_ns


def test_the_load_that_the_agent_sees_is_the_load_that_was_offered(course: Course) -> None:
    on, result, _ = course
    services = on.ticks("service")
    for step in result.steps:
        end = result.start_s + step.end_s
        # The rate is of the last second, so the end of a step is all of one load. Best of its last second: on a busy
        # machine requests are sent late, and all at once, and memcached may not answer in time.
        seen = [float(row["qps"]) for row in services if row["qps"] and end - 1.0 <= float(row["t_s"]) <= end]
        assert min(seen, key=lambda qps: abs(qps - step.offered)) == pytest.approx(step.offered, rel=0.15), seen
    assert int(services[-1]["queries"]) == result.totals.answered


def reactions_s(course: Course) -> tuple[float, float]:
    """The least seconds from a step up until it is seen, and until something changes."""
    on, result, looks = course
    services = on.ticks("service")
    seen, acted = [], []
    for step in result.steps:
        if step.offered != HIGH:
            continue
        begun = result.start_s + step.start_s
        # Where memcached did not answer in time there is no rate.
        rates = [(float(row["t_s"]), float(row["qps"])) for row in services if row["qps"] and float(row["t_s"]) > begun]
        seen.append(next((t_s for t_s, qps in rates if qps > (LOW + HIGH) / 2), float("inf")) - begun)
        # What really is, not what was decided: cores of all threads, and whether the batch job stands still.
        before = [(look.service, look.batch, look.stopped) for look in looks if look.t_s <= begun][-1]
        after = [look for look in looks if look.t_s > begun]
        changed = [look.t_s for look in after if (look.service, look.batch, look.stopped) != before]
        acted.append(min(changed, default=float("inf")) - begun)
    return min(seen), min(acted)


def test_a_step_is_seen_and_acted_on_within_a_second(
    course: Course, cores: tuple[int, int], prefix: tuple[str, ...]
) -> None:
    """Best of three steps, and of up to four courses: a busy machine may keep the agent from its CPU."""
    tried = [reactions_s(course)]
    while max(tried[-1]) > ACT_S and len(tried) < COURSES:
        with steered(cores, prefix) as again:
            tried.append(reactions_s(again))
    assert max(tried[-1]) <= ACT_S, f"seen and acted on after {tried} s"


def test_it_leaves_everything_as_it_was_when_asked_to_go(course: Course) -> None:
    on, _, _ = course
    assert on.exit_code == 0, on.agent.said()
    assert on.is_as_before(), {pid: settings_of(pid) for pid in on.originals}
    assert not on.state_file.exists()


def under_load_of_both(on: Stage) -> None:
    """Until the agent has changed something of memcached and of the batch job."""
    run_load(on.load((HIGH, 1.0), (LOW, 0.5)))
    wait_for(lambda: not on.is_as_before(), CLEAN_S, "a change by the agent")


def test_a_killed_agent_leaves_nothing_behind(cores: tuple[int, int], tmp_path: Path) -> None:
    with stage(tmp_path, cores) as on:
        under_load_of_both(on)
        on.agent.kill()
        wait_for(on.is_as_before, CLEAN_S, "everything restored by the watchdog")
        units = on.batch.units()
        wait_for(lambda: on.batch.units() > units, CLEAN_S, "more work by the batch job")


def test_killed_with_its_watchdog_the_next_one_restores_and_goes_on(cores: tuple[int, int], tmp_path: Path) -> None:
    with ExitStack() as stack, stage(tmp_path, cores) as on:
        under_load_of_both(on)
        for pid in descendants(on.agent.pid):
            os.kill(pid, signal.SIGKILL)
        on.agent.kill()
        assert not on.is_as_before()
        on.agent = start_agent(stack, on.folder)
        await_decisions(on)
        assert "left behind by an earlier agent" in on.agent.said()
        run_load(on.load((LOW, 1.0)))
        assert on.agent.terminate(CLEAN_S) == 0
        assert on.is_as_before(), {pid: settings_of(pid) for pid in on.originals}


def descendants(pid: int) -> list[int]:
    """Children, and theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found += [int(entry.name), *descendants(int(entry.name))]
    return found


def test_a_restarted_memcached_is_taken_up_again(cores: tuple[int, int], tmp_path: Path) -> None:
    with ExitStack() as stack, stage(tmp_path, cores) as on:
        run_load(on.load((LOW, 1.0)))
        port = on.memcached.port
        on.memcached.end()
        time.sleep(0.5)
        assert on.agent.running(), on.agent.said()
        on.memcached = stack.enter_context(Memcached(port=port))
        run_load(on.load((HIGH, 1.5), (LOW, 3.0)))
        assert on.agent.running(), on.agent.said()

        def taken_up() -> bool:
            last = on.ticks("service")[-1]
            return last["state"] == "answers" and affinities(on.memcached.pid) == {cores_of(last)}

        wait_for(taken_up, CLEAN_S, "the new memcached to have the cores of a decision")


def test_jobs_that_vanish_are_let_go(cores: tuple[int, int], tmp_path: Path) -> None:
    with stage(tmp_path, cores) as on:
        on.batch.end()
        run_load(on.load((LOW, 0.5), (HIGH, 1.0)))
        assert on.agent.running(), on.agent.said()
        del on.originals[on.batch.pid]
        assert on.agent.terminate(CLEAN_S) == 0
        assert on.is_as_before()
