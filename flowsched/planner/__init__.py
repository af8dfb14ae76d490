"""A planner for a known set of jobs: searches placements, threads, core sets, CPU weights and start order.

beat. Nothing here draws random numbers or reads a clock but what it is given.
"""

from __future__ import annotations

from flowsched.planner.bound import Bound, lower_bound
from flowsched.planner.plan import LEVEL, Plan, PlannedTask, Spread
from flowsched.planner.problem import Problem, problem_of
from flowsched.planner.result import read_plan
from flowsched.planner.robust import Draws
from flowsched.planner.rules import PlanRules
from flowsched.planner.scope import outside
from flowsched.planner.search import Progress, Searched, search_plan
from flowsched.planner.start import Played, from_flow, from_played, greedy_start

__all__ = [
    "LEVEL",
    "Bound",
    "Draws",
    "Plan",
    "PlanRules",
    "PlannedTask",
    "Played",
    "Problem",
    "Progress",
    "Searched",
    "Spread",
    "from_flow",
    "from_played",
    "greedy_start",
    "lower_bound",
    "outside",
    "problem_of",
    "read_plan",
    "search_plan",
]
