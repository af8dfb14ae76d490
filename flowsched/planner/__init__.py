"""A planner for a known set of jobs: searches placements, threads, core sets, CPU weights and start order.

beat. Nothing here draws random numbers or reads a clock but what it is given.
"""

from __future__ import annotations

from flowsched.planner.rules import PlanRules

__all__ = ["PlanRules"]
