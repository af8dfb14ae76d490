"""A planner for a known set of jobs: searches placements, threads, core sets, CPU weights and start order.

beat. Nothing here draws random numbers or reads a clock but what it is given.
"""

from __future__ import annotations

from flowsched.planner.bound import Bound, lower_bound
from flowsched.planner.plan import Plan, PlannedTask
from flowsched.planner.problem import Problem, problem_of
from flowsched.planner.result import read_plan
from flowsched.planner.robust import Draws
from flowsched.planner.rules import PlanRules
from flowsched.planner.scope import outside
from flowsched.planner.search import Progress, Searched, search_plan
from flowsched.planner.start import from_flow, greedy_start

__all__ = [
    "Bound",
    "Draws",
    "Plan",
    "PlanRules",
    "PlannedTask",
    "Problem",
    "Progress",
    "Searched",
    "from_flow",
    "greedy_start",
    "lower_bound",
    "outside",
    "problem_of",
    "read_plan",
    "search_plan",
]
