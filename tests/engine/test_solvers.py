"""Solvers by name, other packages' ones, limits for every solve, guards, potentials, scaling, and the file format."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from builders import read_anew
from flowsched.cli import flowsched
from flowsched.errors import SolverError
from flowsched.network.dimacs_file import parse_dimacs, render_network
from flowsched.network.network import COST_LIMIT, Network, NetworkBuilder, potentials
from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.scheduler import solve
from flowsched.solvers import SOLVERS, Capabilities, Requirement, Solution, Status, installed, make_solver
from flowsched.solvers.feasible import quick_flow
from flowsched.solvers.guards import guarded
from flowsched.solvers.limited import LimitedSolver, limited, take_stopped, unlimited
from flowsched.solvers.simplex import SpanningTree, spread
from flowsched_models.document import InputError

HOUSE = Path(__file__).parents[2]
SNAPSHOT = HOUSE / "docs" / "examples" / "snapshot.yaml"


def network(arcs: list[tuple[int, int, int, int]], supplies: list[int]) -> Network:
    columns = np.array(arcs, dtype=np.int64).reshape(-1, 4).T
    return Network(*columns, np.array(supplies, dtype=np.int64), 1.0)


DETOUR = network([(0, 1, 4, 2), (1, 2, 4, 2), (0, 2, 1, 9)], [5, 0, -5])


# By name


def test_importing_the_solvers_imports_no_library() -> None:
    code = "import sys, flowsched, flowsched.solvers as s; s.installed(); print([m for m in %r if m in sys.modules])"
    libraries = ["ortools", "networkx", "scipy.optimize", "highspy"]  # numba itself looks for scipy

    done = subprocess.run([sys.executable, "-c", code % libraries], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_an_unknown_solver_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(SolverError, match=r"there is no solver 'ortool'; did you mean 'ortools'\?") as caught:
        make_solver("ortool")

    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, InputError)


class Odd:
    """A solver of another package."""

    name = "odd"
    capabilities: ClassVar[Capabilities] = Capabilities(requires=(Requirement("no_such_module", "pip install odd"),))

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        return Solution(Status.REFUSED, np.zeros(network.arc_count, dtype=np.int64), 0, "never")


class Announced:
    """An entry point."""

    def __init__(self, name: str, loads: Any) -> None:
        self.name, self.value, self.dist, self._loads = name, f"odd:{name}", None, loads

    def load(self) -> Any:
        if isinstance(self._loads, Exception):
            raise self._loads
        return self._loads


def test_solvers_of_other_packages_are_found_and_none_takes_our_names(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Announced("odd", Odd), Announced("broken", ImportError("no odd")), Announced("ortools", Odd)]
    monkeypatch.setattr("flowsched.support.registry.entry_points", lambda group: entries)
    registry = read_anew(SOLVERS)

    assert {"odd", "broken"} <= set(registry)
    assert registry["odd"] is Odd
    assert registry["ortools"].__name__ == "OrtoolsSolver"
    with pytest.raises(SolverError, match="'broken' of another package cannot be loaded"):
        registry["broken"]


def test_a_solver_that_lacks_something_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Announced("odd", Odd), Announced("broken", ImportError("no odd"))]
    monkeypatch.setattr("flowsched.support.registry.entry_points", lambda group: entries)
    monkeypatch.setattr("flowsched.solvers.registry.SOLVERS", read_anew(SOLVERS))

    with pytest.raises(SolverError, match=r"'odd' needs the module no_such_module \(pip install odd\)"):
        make_solver("odd")
    assert {"odd", "broken"}.isdisjoint(installed())


class Fails(Odd):
    """A solver that cannot be made."""

    capabilities: ClassVar[Capabilities] = Capabilities()

    def __init__(self) -> None:
        raise OSError("no licence")


@pytest.mark.parametrize(
    ("loads", "message"),
    [
        (Odd(), "'bad' of another package is .*, which cannot be called"),
        (dict, "'bad' of another package has no capabilities"),
        (type("Idle", (), {"capabilities": Capabilities()}), "'bad' of another package has no method solve"),
        (Fails, "'bad' cannot be made \\(OSError: no licence\\)"),
    ],
)
def test_what_is_no_solver_is_told_to_those_who_ask_for_it(
    loads: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowsched.support.registry.entry_points", lambda group: [Announced("bad", loads)])
    monkeypatch.setattr("flowsched.solvers.registry.SOLVERS", read_anew(SOLVERS))

    with pytest.raises(SolverError, match=message):
        make_solver("bad")
    assert "ortools" in installed()


def test_one_of_several_requirements_is_enough() -> None:
    missing, there = Requirement("no_such_module", "x"), Requirement("json", "y")
    program = Requirement(Path(sys.executable).name, "z", program=True)

    assert not Capabilities(requires=(missing, there)).missing
    assert not Capabilities().missing
    assert Requirement("no_such_program", "z", program=True).present is False
    assert Capabilities(requires=(missing, replace(program, name="no_such_program"))).missing == (
        "needs the module no_such_module (x) or the program no_such_program (z)"
    )


@pytest.mark.parametrize("name", SOLVERS)
def test_names_and_keys_agree(name: str) -> None:
    assert SOLVERS[name].name == name  # type: ignore[comparison-overlap]


def test_the_documents_list_every_solver_with_what_it_can() -> None:
    rows = [
        line.strip("| \n").split(" | ") for line in (HOUSE / "docs" / "solvers.md").open() if line.startswith("| `")
    ]
    found = {row[0].strip("`"): row[1:] for row in rows if len(row) == 7}

    assert list(found) == [name for name in SOLVERS if name in found]
    for name, (largest, *flags) in found.items():
        can = SOLVERS[name].capabilities
        assert 2 ** int(largest.removeprefix("2^")) in (can.largest_cost, can.largest_cost + 1)
        told = (can.negative_costs, can.potentials, can.time_limit, can.repeatable, can.warm_start)
        assert [flag == "yes" for flag in flags] == list(told)
    assert {"ortools", "incremental", "simplex", "relay", "highs", "networkx"} <= set(found)


# Time limits


class Slow:
    """Answers with what a limit made of it."""

    name = "slow"
    capabilities: ClassVar[Capabilities] = Capabilities()

    def __init__(self) -> None:
        self.limits: list[float | None] = []

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        self.limits.append(time_limit_s)
        status = Status.OPTIMAL if time_limit_s is None else Status.FEASIBLE
        return Solution(status, np.zeros(network.arc_count, dtype=np.int64), 0, "stopped")


def test_a_limited_solver_passes_the_limit_on_and_remembers_what_it_stopped() -> None:
    slow = Slow()
    solver = limited(slow, 2.0)

    solver.solve(DETOUR)
    solver.solve(DETOUR, time_limit_s=5.0)
    solver.solve(DETOUR, time_limit_s=1.0)

    assert (solver.name, slow.limits) == ("slow", [2.0, 2.0, 1.0])
    assert take_stopped(solver) == ("stopped",) * 3
    assert take_stopped(solver) == ()
    assert unlimited(solver) is slow
    assert unlimited(slow) is limited(slow, None) is slow
    assert take_stopped(slow) == ()
    warm = make_solver("incremental")
    assert unlimited(warm) is not warm
    assert unlimited(warm).name == "incremental"


@given(st.integers(1, 6), st.integers(0, 8), st.data())
def test_the_quick_flow_brackets_the_optimum(nodes: int, supply: int, data: st.DataObject) -> None:
    node = st.integers(0, nodes)
    arcs = data.draw(st.lists(st.tuples(node, node, st.integers(0, 9), st.integers(-9, 1 << 40)), max_size=20))
    net = network(arcs, [supply, *[0] * (nodes - 1), -supply])
    optimum = make_solver("networkx").solve(net)
    if isinstance(guarded(net), Solution):
        return

    quick = quick_flow(net)

    assert (quick.unserved == 0) == (optimum.status is Status.OPTIMAL)
    if quick.unserved == 0:
        assert quick.bound <= optimum.cost <= net.cost_of(quick.flow)


def test_a_stopped_round_says_so_in_decision_and_record() -> None:
    snapshot = load_snapshot(SNAPSHOT)

    whole, cut = solve(snapshot, time_limit_s=600.0), solve(snapshot, time_limit_s=0.0)

    assert whole.stopped == ()
    assert whole.record is not None
    assert "reproducible" not in whole.record
    assert replace(whole, timings_ms={}) == replace(solve(snapshot), timings_ms={})
    assert cut.stopped
    assert "ortools was stopped after 0 s" in cut.stopped[0]
    assert cut.record is not None
    assert cut.record["reproducible"] is False
    assert cut.record["stopped"] == list(cut.stopped)
    assert {p.task for p in cut.placements} | {p.task for p in cut.postponements} == {t.name for t in snapshot.pending}
    assert cut.certificate is not None
    assert cut.certificate.bound <= cut.certificate.primal + 1e-9


def run(*args: str, path: str | None = None) -> Any:
    return CliRunner().invoke(flowsched, args, env={} if path is None else {"PATH": path})


def test_solve_takes_a_solver_and_a_limit() -> None:
    plain = json.loads(run("solve", str(SNAPSHOT), "--time-limit", "0s", "--json").stdout)
    assert plain["reproducible"] is False
    assert plain["stopped"]
    text = run("solve", str(SNAPSHOT), "--time-limit", "0").stdout
    assert "the time limit struck" in text
    assert "another run may decide otherwise" in text
    whole = run("solve", str(SNAPSHOT), "--time-limit", "10m").stdout
    assert whole == run("solve", str(SNAPSHOT)).stdout


@pytest.mark.parametrize("name", ["ortool", ""])
def test_a_solver_that_there_is_not_is_a_usage_error(name: str) -> None:
    for command in (("solve", str(SNAPSHOT)), ("simulate", "parsec-memcached-2024")):
        done = run(*command, "--solver", name)
        assert done.exit_code == 2
        assert f"there is no solver '{name}'" in done.stderr
        assert "known: ortools" in done.stderr


@pytest.mark.parametrize("limit", ["soon", "-1", "1w", "", "nan", "1e400"])
def test_a_limit_that_is_no_time_is_a_usage_error(limit: str) -> None:
    done = run("solve", str(SNAPSHOT), "--time-limit", limit)

    assert done.exit_code == 2
    assert "is not a time; write 10s, 500ms or 2m" in done.stderr


def test_simulate_tells_rounds_that_a_limit_stopped(tmp_path: Path) -> None:
    args = ("simulate", "parsec-memcached-2024", "--policy", "flow", "--out", str(tmp_path), "--time-limit")

    done = run(*args, "0")

    assert done.exit_code == 0
    assert "note: flow: the time limit struck in" in done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert all(r["stopped_rounds"] for r in result["runs"])


# Simplex, and the hand-over


def test_the_simplex_ends_where_ties_are_many() -> None:
    """Every pivot here moves nothing: without strongly feasible trees a simplex may turn in circles."""
    n = 30
    arcs = [(i, n + k, 1, 0) for i in range(n) for k in range(n)]
    net = network(arcs, [1] * n + [-1] * n)
    tree = SpanningTree.of(net)
    assert tree is not None

    assert tree.pivot(10_000_000)
    assert tree.pivot(1)
    assert tree.solution(net).cost == 0


@pytest.mark.parametrize("arcs", [1, 2, 3, 4, 89, 90, 1000])
def test_arcs_are_looked_at_in_an_order_that_has_each_once(arcs: int) -> None:
    assert sorted(spread(arcs).tolist()) == list(range(arcs))


def test_the_relay_hands_over_when_its_budget_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = 60
    arcs = [(i, j, 1 + (i * j) % 7, (i * 31 + j * 17) % 101) for i in range(nodes) for j in range(nodes) if i != j]
    net = network(arcs, [9, *[0] * (nodes - 2), -9])
    alone = make_solver("relay").solve(net)
    assert alone.report == ""

    monkeypatch.setattr("flowsched.solvers.relay.WORK_PER_ARC", 0)
    handed = make_solver("relay").solve(net)

    assert (handed.status, handed.cost) == (alone.status, alone.cost)
    assert handed.report.startswith("ortools answered: the simplex was not done after 0 steps")


# Guards, potentials, scaling


def test_a_common_divisor_lets_ortools_take_what_is_too_large_otherwise() -> None:
    large = 3 << 58
    net = network([(0, 1, 2, large), (0, 1, 2, large // 3), (0, 1, 2, 0)], [5, -5])

    assert make_solver("ortools").solve(net).cost == 2 * (large // 3) + large
    odd = network([(0, 1, 2, large + 1), (0, 1, 2, 3)], [3, -3])
    assert make_solver("ortools").solve(odd).status is Status.REFUSED


def test_costs_up_to_the_limit_of_networks_are_taken_in_any_network_that_fits_in_memory() -> None:
    assert all(COST_LIMIT * nodes * 4 < 1 << 63 for nodes in (1 << 20, 1 << 22))
    assert make_solver("ortools").solve(network([(0, 1, 1, COST_LIMIT)], [1, -1])).cost == COST_LIMIT


@pytest.mark.parametrize(
    ("arcs", "flow", "cost"),
    [
        pytest.param([(0, 1, 1 << 60, 1)] * 16, 1 << 60, 1 << 64, id="units beyond 64 bits"),
        pytest.param([(0, 1, 4, -(1 << 63))], 4, -(1 << 65), id="the least cost"),
        pytest.param([(0, 1, 9, 7)] * 2, 9, 126, id="usual"),
    ],
)
def test_the_cost_of_a_flow_is_exact(arcs: list[tuple[int, int, int, int]], flow: int, cost: int) -> None:
    assert network(arcs, [0, 0]).cost_of(np.full(len(arcs), flow, dtype=np.int64)) == cost


def test_the_bound_of_a_quick_flow_stays_below_the_optimum_at_the_largest_costs() -> None:
    net = network([(0, 1, 3, -5), (1, 0, 2, -(1 << 63))], [0, 0])
    optimum = make_solver("networkx").solve(net)

    quick = quick_flow(net)

    assert quick.bound <= optimum.cost <= net.cost_of(quick.flow)


def test_potentials_refuse_a_flow_that_is_not_optimal() -> None:
    net = network([(0, 1, 5, 1), (0, 1, 5, 4)], [5, -5])

    with pytest.raises(ValueError, match="not optimal"):
        potentials(net, [0, 5])


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.sampled_from((1, 2, 3, 7, 8, 100, 1500, 4001))), min_size=1, max_size=8)
)
def test_scaled_costs_stay_in_range_and_close_to_the_true_ones(arcs: list[tuple[float, int]]) -> None:
    builder = NetworkBuilder()
    source, sink = builder.node("source", 1), builder.node("sink")
    for cost, units in arcs:
        builder.arc(source, sink, 1, cost, units)

    net = builder.build(sink)

    assert net.supplies.sum() == 0
    assert np.abs(net.unit_costs).max() <= COST_LIMIT
    largest = max(abs(cost / units) for cost, units in arcs)
    for (cost, units), scaled in zip(arcs, net.unit_costs.tolist(), strict=True):
        assert abs(scaled / net.cost_scale - cost / units) <= max(1e-8 * largest, 1e-8)


# The file format


def test_what_is_written_is_read_again() -> None:
    again = parse_dimacs(render_network(DETOUR))

    for name in ("tails", "heads", "capacities", "unit_costs", "supplies"):
        assert getattr(again, name).tolist() == getattr(DETOUR, name).tolist()
        assert getattr(again, name).flags.c_contiguous
    assert parse_dimacs("c nothing\n\np min 0 0\n").arc_count == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no problem line"),
        ("a 1 2 0 1 1", "x:1: the problem line must come first"),
        ("p max 2 1", "of kind min"),
        ("p min 1 0\np min 1 0", "x:2: there must be one problem line"),
        ("p min 2 1", "there are 0 arcs; the problem line says 1"),
        ("p min -2 1", "at least 0"),
        ("p min 2 1\na 1 3 0 1 1", "x:2: there is no node 3; nodes are 1 to 2"),
        ("p min 2 1\nn 0 1", "there is no node 0"),
        ("p min 2 1\na 1 2 1 3 1", "the lower bound 1"),
        ("p min 2 1\na 1 2 0 3", "has 4 words after it, not 5"),
        ("p min 2 1\na 1 2 0 3 1.5", "'1.5' is not a whole number of 64 bits"),
        ("p min 2 1\na 1 2 0 3 9223372036854775808", "64 bits"),
        ("p min 2 1\nx 1", "a line begins with x; lines begin with c, p, n or a"),
    ],
)
def test_mistakes_in_files_are_told_with_their_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_dimacs(text, "x")

    assert message in str(caught.value)


def test_a_limited_solver_is_a_solver() -> None:
    assert LimitedSolver(Slow(), 1.0).capabilities.exact is False
