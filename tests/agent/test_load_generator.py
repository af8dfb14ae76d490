"""The load generator: what it sends, what it counts as latency, and that it accuses itself where it must."""

from __future__ import annotations

import csv
import math
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripted_memcached import ScriptedMemcached

from requirements_on_machine import give_up, needs

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import native
from benchmarks.live_node import Memcached, statistics
from benchmarks.load import DISTURBED, load
from benchmarks.load_capacity import measure_capacity
from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.rows import LoadRow, Totals, write_rows
from benchmarks.load_generator.running_load import LoadError, LoadResult, RunningLoad, run_load
from benchmarks.load_generator.self_check import bottleneck, describe
from benchmarks.load_generator.steps import LoadStep, parse_steps, steps_of_wave
from flowsched_models.document import InputError

PAUSE_S = 0.4
WINDOW_S = 0.1


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if native.compiler() is None:
        give_up("there is no C compiler; the load generator is written in C")


def plan_for(port: int, *steps: tuple[float, float], **others: object) -> LoadPlan:
    return replace(LoadPlan(tuple(LoadStep(*step) for step in steps), port=port, connections=4), **others)  # type: ignore[arg-type]


def pausing(at: int) -> ScriptedMemcached:
    """Stops for a while before it answers one request."""

    def answer(number: int) -> bytes:
        if number == at:
            time.sleep(PAUSE_S)
        return b"END\r\n"

    return ScriptedMemcached(answer)


def test_requests_due_while_the_server_pauses_have_the_pause_in_their_latency() -> None:
    with pausing(at=500) as server:
        result = run_load(plan_for(server.port, (1000.0, 1.5)))
    totals = result.totals
    assert totals.due == totals.sent == totals.answered == server.requests
    assert totals.max_us is not None
    assert totals.max_us >= 1e6 * PAUSE_S
    # Somewhere a whole window lies in the first half of the pause: the requests due in it waited for the second half.
    assert max(row.p50_us or 0.0 for row in result.rows) >= 1e6 * (PAUSE_S - 2 * WINDOW_S)
    # No request waits for another: arrivals go on through the pause.
    assert min(row.due for row in result.rows) > 50


def test_a_closed_loop_hides_the_same_pause() -> None:
    with pausing(at=500) as server:
        result = run_load(plan_for(server.port, (0.0, 1.5), closed=True))
    assert result.totals.max_us is not None
    assert result.totals.max_us >= 1e6 * PAUSE_S
    # A whole window without a request.
    assert min(row.due for row in result.rows) == 0


def test_same_seed_same_arrivals_whatever_the_server_does() -> None:
    steps = ((800.0, 0.25), (0.0, 0.2), (3000.0, 0.4))
    with ScriptedMemcached() as quick:
        first = run_load(plan_for(quick.port, *steps))
        other = run_load(plan_for(quick.port, *steps, seed=2))
    with pausing(at=100) as slow:
        second = run_load(plan_for(slow.port, *steps))
    assert [row.due for row in first.rows] == [row.due for row in second.rows]
    assert [row.due for row in first.rows] != [row.due for row in other.rows]
    assert [step.due for step in first.steps][1] == 0
    assert [row.offered for row in first.rows] == pytest.approx([800, 800, 400, 0, 1500, 3000, 3000, 3000, 3000])
    assert first.rows[-1].seconds == pytest.approx(0.05)
    for step in (first.steps[0], first.steps[2]):
        expected = step.offered * (step.end_s - step.start_s)
        assert abs(step.due - expected) < 5 * math.sqrt(expected)


def test_windows_steps_and_totals_add_up() -> None:
    with ScriptedMemcached() as server:
        result = run_load(plan_for(server.port, (500.0, 0.3), (1500.0, 0.3)))
    for name in ("due", "answered", "lost", "unanswered", "errors"):
        total = getattr(result.totals, name)
        assert sum(getattr(row, name) for row in result.rows) == total
        assert sum(getattr(step, name) for step in result.steps) == total
    assert [row.t_s for row in result.rows] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    ordered = [result.totals.p50_us, result.totals.p95_us, result.totals.p99_us, result.totals.max_us]
    assert ordered == sorted(ordered, key=lambda us: us or 0.0)


def test_a_generator_that_is_held_up_says_so_itself() -> None:
    with ScriptedMemcached() as server, RunningLoad(plan_for(server.port, (1000.0, 1.5))) as running:
        time.sleep(0.3)
        os.kill(running.pid, signal.SIGSTOP)
        time.sleep(0.4)
        os.kill(running.pid, signal.SIGCONT)
        result = running.wait()
    totals = result.totals
    assert totals.due == totals.answered == server.requests
    assert (totals.late_max_us or 0.0) >= 3e5
    said = bottleneck(result)
    assert "its own lateness" in said
    assert said in describe(result)


def test_a_server_that_is_slow_is_not_taken_for_a_slow_generator() -> None:
    row = LoadRow(0.0, 0.1, 1e3, 100, 100, 0, 0, 0, 0, 100, 4e4, 4e4, 9e4, 9e4, 9e4, 80.0, 120.0, 20.0, 3.0)
    totals = Totals(1.0, 1000, 1000, 0, 0, 0, 0, 1000, 4e4, 4e4, 9e4, 9e4, 9e4, 80.0, 120.0, 200.0, 30.0)
    result = LoadResult(LoadPlan((LoadStep(1e3, 1.0),)), 0.0, (row,) * 10, (), totals)
    assert bottleneck(result) == ""
    for spoiled, said in (
        (replace(row, late_p95_us=6e4), "its own lateness in 1 of 10"),
        (replace(row, busy_ms=95.0), "a whole core in 1 of 10"),
        (replace(row, waited_ms=30.0), "waited for a CPU"),
    ):
        assert said in bottleneck(replace(result, rows=(*result.rows[:9], spoiled)))
    assert bottleneck(replace(result, rows=(row,) * 40 + (replace(row, busy_ms=95.0),))) == ""


def test_what_is_never_answered_counts_with_the_time_that_it_waited() -> None:
    with ScriptedMemcached(lambda number: b"END\r\n" if number < 10 else b"") as server:
        result = run_load(plan_for(server.port, (200.0, 0.5), drain_s=0.3))
    totals = result.totals
    assert totals.answered == 10
    assert totals.unanswered == totals.due - 10 > 0
    assert (totals.max_us or 0.0) >= 3e5
    assert any("not answered by the end" in line for line in describe(result))


def test_errors_are_counted_and_values_are_skipped_byte_by_byte() -> None:
    def answer(number: int) -> bytes:
        # A value that looks like the end of an answer is none.
        value = b"END\r\nEND\r\n"
        return b"SERVER_ERROR busy\r\n" if number % 2 else b"VALUE k 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)

    with ScriptedMemcached(answer) as server:
        totals = run_load(plan_for(server.port, (500.0, 0.4))).totals
    assert totals.answered == totals.due == server.requests
    assert totals.errors == server.requests // 2


def test_a_connection_that_breaks_costs_its_requests_and_comes_back() -> None:
    with ScriptedMemcached(lambda number: None if number == 50 else b"END\r\n") as server:
        totals = run_load(plan_for(server.port, (500.0, 1.2), connections=1)).totals
    assert totals.lost > 0
    assert totals.answered > 50
    assert totals.answered + totals.lost + totals.unanswered == totals.due


@pytest.mark.parametrize("closed", [False, True])
def test_a_run_that_is_stopped_reports_what_was_until_then(closed: bool) -> None:
    with (
        ScriptedMemcached() as server,
        RunningLoad(plan_for(server.port, (500.0, 30.0), (9.0, 5.0), closed=closed)) as run,
    ):
        while len(run.rows) < 2:
            time.sleep(0.01)
        result = run.stop()
    assert 2 <= len(result.rows) < 300
    assert result.totals.took_s < 30.0
    assert len(result.steps) == 1


def test_no_server_at_the_port_and_another_server_at_the_port() -> None:
    with socket.socket() as unused:  # and kept, so that nothing else comes to listen there
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(LoadError, match=f"nothing can be reached at 127.0.0.1:{port}: Connection refused"):
            run_load(plan_for(port, (1.0, 1.0)))
    with pytest.raises(LoadError, match="the host 'no such host' is not known"):
        run_load(plan_for(port, (1.0, 1.0), host="no such host"))

    class Other(ScriptedMemcached):
        def _answer_all(self, connection: socket.socket, lines: list[bytes]) -> bool:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            return True

    with Other() as server, pytest.raises(LoadError, match=r"is not memcached: it says 'HTTP/1\.1 400 Bad Request'"):
        run_load(plan_for(server.port, (1.0, 1.0)))


def test_a_core_that_is_not_there_is_said() -> None:
    with pytest.raises(LoadError, match="may not run on the cores 1000"):
        run_load(plan_for(1, (1.0, 1.0), cpus=(1000,)))


def test_pinned_and_of_its_own_class_only_if_asked() -> None:
    core = min(os.sched_getaffinity(0))
    with ScriptedMemcached() as server:
        with RunningLoad(plan_for(server.port, (10.0, 5.0), cpus=(core,))) as run:
            assert os.sched_getaffinity(run.pid) == {core}
            assert os.sched_getscheduler(run.pid) == os.SCHED_OTHER
        try:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            with RunningLoad(plan_for(server.port, (10.0, 5.0), fifo=7)) as run:
                assert os.sched_getscheduler(run.pid) == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
                assert os.sched_getparam(run.pid).sched_priority == 7
        except LoadError as error:
            assert "may not run as SCHED_FIFO: Operation not permitted" in str(error)


def test_memcached_counts_what_was_sent() -> None:
    needs("memcached", "to be loaded")
    with Memcached() as memcached:
        missing = run_load(plan_for(memcached.port, (300.0, 0.5), keys_per_get=200))
        before = statistics(memcached.port)
        assert int(before["cmd_get"]) == int(before["get_misses"]) == 200 * missing.totals.due
        found = run_load(plan_for(memcached.port, (300.0, 0.5), keys_per_get=3, values=500, value_bytes=10_000))
        after = statistics(memcached.port)
    assert int(after["get_hits"]) == 3 * found.totals.answered == 3 * found.totals.due
    assert int(after["curr_items"]) == 500
    assert missing.totals.errors == found.totals.errors == 0


def test_a_closed_loop_obeys_the_interactive_law() -> None:
    """Without think time: requests in the system = throughput x mean latency."""
    with ScriptedMemcached() as server:
        totals = run_load(plan_for(server.port, (0.0, 1.0), closed=True, connections=8)).totals
    assert totals.mean_us is not None
    assert totals.answered / totals.took_s * totals.mean_us / 1e6 == pytest.approx(8, rel=0.05)
    with ScriptedMemcached() as server:
        assert measure_capacity(plan_for(server.port), seconds=0.5) > 0


def test_steps_as_text_name_every_mistake() -> None:
    assert parse_steps("8K:3, 34000:0.5") == (LoadStep(8000.0, 3.0), LoadStep(34000.0, 0.5))
    with pytest.raises(InputError) as caught:
        parse_steps("8K,34K:x,1Q:3,5:0,5:-1")
    text = str(caught.value)
    for part in ("'8K' is not a step", "'x' is not a number of seconds", "'Q' is not a multiple", "'5:0'", "'5:-1'"):
        assert part in text
    assert len(caught.value.problems) == 5
    with pytest.raises(InputError, match="there is no step"):
        parse_steps("")


def test_a_wave_file_is_read_by_its_column(tmp_path: Path) -> None:
    file = tmp_path / "wave.csv"
    file.write_text("interval,qps\n0,8K\n\n1,34000\n")
    assert steps_of_wave(file, 2.5) == (LoadStep(8000.0, 2.5), LoadStep(34000.0, 2.5))
    file.write_text("interval,qps\n0,many\n1\n2,-5\n")
    with pytest.raises(InputError) as caught:
        steps_of_wave(file, 1.0)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4]
    file.write_text("rate\n5\n")
    with pytest.raises(InputError, match="there must be one column 'qps'"):
        steps_of_wave(file, 1.0)
    with pytest.raises(InputError, match="there is no such file"):
        steps_of_wave(tmp_path / "none.csv", 1.0)


def test_rows_are_written_with_names_and_empty_cells(tmp_path: Path) -> None:
    row = LoadRow.parse(["0.1", "0.1", "0.0", *"0000000", *["-1.0"] * 7, "0.500", "0.000"])
    assert row.p95_us is None
    write_rows(tmp_path / "rows.csv", [row])
    with (tmp_path / "rows.csv").open() as file:
        (read,) = csv.DictReader(file)
    assert (read["t_s"], read["due"], read["p95_us"], read["busy_ms"]) == ("0.1", "0", "", "0.5")


def test_the_command(tmp_path: Path) -> None:
    def answer(number: int) -> bytes:
        time.sleep(0.002)
        return b"END\r\n"

    with ScriptedMemcached(answer) as server:
        out = tmp_path / "rows.csv"
        port = str(server.port)
        ran = CliRunner().invoke(
            load,
            ["--port", port, "--steps", "50:0.3,100:0.3", "--slo", "1ms", "--out", str(out)],
            standalone_mode=False,
        )
        assert ran.exception is None, ran.output
        assert ran.return_value in (0, DISTURBED)
        assert "p95 over 1000 us in 6 of 6 windows of 100 ms (100.0 %)" in ran.output
        assert len(out.read_text().splitlines()) == 7
        both = CliRunner().invoke(load, ["--port", port, "--rate", "5", "--closed"])
        assert both.exit_code == 2
        assert "give one of --rate, --steps, --wave and --closed" in both.output
    without_server = CliRunner().invoke(load, ["--port", port, "--rate", "5"], standalone_mode=False)
    assert isinstance(without_server.exception, InputError)
