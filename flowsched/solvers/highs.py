"""HiGHS, a general solver of linear programs: an independent reference with potentials and a time limit of its own.

Huangfu and Hall, "Parallelizing the dual revised simplex method" (2018). The vertices of a min-cost flow polytope with whole
supplies and capacities are whole, so the linear program's answer is a flow. HiGHS computes with doubles: flows and
potentials are rounded, and an answer counts only if they prove each other optimal in whole numbers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flowsched.network.network import IntArray, Network
from flowsched.solvers.feasible import stopped
from flowsched.solvers.guards import common_divisor, divided, guarded, largest
from flowsched.solvers.solver import Capabilities, Requirement, Solution, Status, without_flow
from flowsched.solvers.worker import INSIDE, Worker

FloatArray = NDArray[np.float64]
_LARGEST = 1 << 40
"""Unit costs and flows beyond this are too coarse in doubles to tell a unit from rounding."""
_USUAL = 1 << 20
"""Costs are divided by a power of two so that the largest is about this: HiGHS' tolerances are absolute."""
_TOLERANCE = 1e-10
"""The finest that HiGHS takes."""


class HighsSolver:
    """The flow as a linear program, by scipy's copy of HiGHS, or by the module highspy where scipy is missing.

    highspy and OR-tools cannot be loaded into one process: each brings its own HiGHS, with the same symbols (google/or-tools
    5246; in 9.15 with highspy 1.15). So highspy gets a process of its own; scipy hides its copy, and needs none.
    """

    name = "highs"
    capabilities: ClassVar[Capabilities] = Capabilities(
        largest_cost=1 << 36,
        potentials=True,
        requires=(
            Requirement("scipy", "pip install scipy"),
            Requirement("highspy", "pip install highspy"),
        ),
    )

    def __init__(self) -> None:
        """Nothing is started."""
        self._worker = Worker(self.name)

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        """Solve from scratch."""
        given = guarded(network)
        if isinstance(given, Solution):
            return given
        by_scipy = find_spec("scipy") is not None
        if not by_scipy and INSIDE not in os.environ:
            return self._worker.solve(given, time_limit_s)
        given = divided(given, divisor := common_divisor(given))
        for what, most in (
            ("unit cost", largest(given.unit_costs)),
            ("supply", largest(given.supplies)),
        ):
            if most > _LARGEST:
                text = f"a {what} of {most} is beyond {_LARGEST}, more than doubles keep apart from rounding"
                return without_flow(network, Status.REFUSED, text)
        if time_limit_s is not None and time_limit_s <= 0.0:
            return stopped(network, self.name, 0.0)
        scale = 2.0 ** -max(0, largest(given.unit_costs).bit_length() - _USUAL.bit_length())
        solve = _by_scipy if by_scipy else _by_highspy
        answer = solve(given, scale, time_limit_s)
        if answer.status is Status.FEASIBLE:
            return stopped(network, self.name, time_limit_s or 0.0)
        if answer.status is not Status.OPTIMAL:
            return without_flow(network, answer.status, answer.report)
        flow = np.rint(answer.flow).astype(np.int64)
        potentials = np.rint(answer.prices / scale).astype(np.int64)
        if not _proven(given, flow, potentials):
            return without_flow(network, Status.REFUSED, "HiGHS' answer is not optimal once it is in whole numbers")
        return Solution(Status.OPTIMAL, flow, network.cost_of(flow), potentials=potentials * divisor)


@dataclass(frozen=True)
class _Answer:
    """What HiGHS says, unrounded; feasible: the time limit struck."""

    status: Status
    report: str
    flow: FloatArray
    prices: FloatArray
    """Potential of each node, times the scale of the costs."""


def _by_highspy(network: Network, scale: float, time_limit_s: float | None) -> _Answer:
    import highspy

    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("threads", 1)
    engine.setOptionValue("random_seed", 0)
    engine.setOptionValue("dual_feasibility_tolerance", _TOLERANCE)
    engine.setOptionValue("primal_feasibility_tolerance", _TOLERANCE)
    if time_limit_s is not None:
        engine.setOptionValue("time_limit", time_limit_s)
    program: Any = highspy.HighsLp()
    arcs, nodes = network.arc_count, len(network.supplies)
    program.num_col_, program.num_row_ = arcs, nodes
    program.col_cost_ = network.unit_costs * scale
    program.col_lower_ = np.zeros(arcs)
    program.col_upper_ = network.capacities.astype(np.float64)
    program.row_lower_ = program.row_upper_ = network.supplies.astype(np.float64)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts, index, value = _columns(network)
    program.a_matrix_.start_, program.a_matrix_.index_, program.a_matrix_.value_ = starts, index, value
    nothing = np.zeros(arcs), np.zeros(nodes)
    if engine.passModel(program) == highspy.HighsStatus.kError:
        return _Answer(Status.REFUSED, "HiGHS does not take the network", *nothing)
    engine.run()
    status = engine.getModelStatus()
    said = highspy.HighsModelStatus
    if status == said.kOptimal:
        solution = engine.getSolution()
        return _Answer(Status.OPTIMAL, "", np.array(solution.col_value), -np.array(solution.row_dual))
    if status in (said.kInfeasible, said.kUnboundedOrInfeasible):
        return _Answer(Status.INFEASIBLE, "the supplies cannot reach the demands", *nothing)
    if status == said.kTimeLimit:
        return _Answer(Status.FEASIBLE, "", *nothing)
    return _Answer(Status.REFUSED, f"HiGHS answers {engine.modelStatusToString(status)}", *nothing)


def _by_scipy(network: Network, scale: float, time_limit_s: float | None) -> _Answer:
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    starts, index, value = _columns(network)
    arcs, nodes = network.arc_count, len(network.supplies)
    options: dict[str, Any] = {"dual_feasibility_tolerance": _TOLERANCE, "primal_feasibility_tolerance": _TOLERANCE}
    if time_limit_s is not None:
        options["time_limit"] = time_limit_s
    said = linprog(
        network.unit_costs * scale,
        A_eq=csc_array((value, index, starts), shape=(nodes, arcs)),
        b_eq=network.supplies.astype(np.float64),
        bounds=np.stack([np.zeros(arcs), network.capacities.astype(np.float64)], axis=1),
        method="highs",
        options=options,
    )
    nothing = np.zeros(arcs), np.zeros(nodes)
    if said.status == 0:
        return _Answer(Status.OPTIMAL, "", said.x, -said.eqlin.marginals)
    if said.status == 1:
        return _Answer(Status.FEASIBLE, "", *nothing)
    if said.status == 2:
        return _Answer(Status.INFEASIBLE, "the supplies cannot reach the demands", *nothing)
    return _Answer(Status.REFUSED, f"HiGHS answers: {said.message}", *nothing)


def _columns(network: Network) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray]:
    """Incidence by arcs: 1 at the tail, -1 at the head, both at the same place (0) for a loop, which HiGHS refuses twice."""
    loops = network.tails == network.heads
    index = np.stack([network.tails, network.heads], axis=1)
    value = np.broadcast_to(np.array([1.0, -1.0]), index.shape)
    keep = np.stack([~loops, ~loops], axis=1)
    starts = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    return starts.astype(np.int32), index[keep].astype(np.int32), value[keep].copy()


def _proven(network: Network, flow: IntArray, potentials: IntArray) -> bool:
    """Whether the flow is feasible, and optimal by complementary slackness with the potentials."""
    if (flow < 0).any() or (flow > network.capacities).any():
        return False
    out = np.zeros(len(network.supplies), dtype=np.int64)
    np.add.at(out, network.tails, flow)
    np.subtract.at(out, network.heads, flow)
    reduced = network.unit_costs + potentials[network.tails] - potentials[network.heads]
    return bool(
        np.array_equal(out, network.supplies)
        and not flow[reduced > 0].any()
        and np.array_equal(flow[reduced < 0], network.capacities[reduced < 0])
    )
