"""What an operator may set about rounds. Defaults are the ones that the benchmarks were made with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Settings of the engine and of the ``flow`` policy."""

    objective: str = "completion"
    """``makespan``: one goal for all tasks, tightened step by step. ``completion``: every task has its own goal."""
    eps: float = 1.0
    """Slope of the penalty before the goal: those in time still want to be early."""
    beta: float = 20.0
    """Slope beyond the goal."""
    goal_factor: float = 3.0
    """Goal of a task that has none: this times its best predicted run time."""
    length_weight: float = 1.5
    """How much more a long task counts, with goals of their own: its penalty is multiplied by (best run time / 60 s) to
    this power. 0 weighs relative lateness (mean slowdown), 1 weighs every second alike (mean completion time); more favours
    the last to finish."""
    headroom_weight: float = 0.05
    """Price of a latency service's headroom: this times u/(1 - u), u = p95 over its goal."""
    slo_margin: float = 1.0
    """A placement predicted to bring p95 above this share of the goal is forbidden."""
    slots: int = 3
    """Columns per machine: now, and after each of the next completions there. 1 turns the horizon off."""
    passes: int = 12
    """Most re-pricing passes from one start."""
    exchanges: int = 6
    """Most exchange networks from one start."""
    goal_steps: int = 3
    """Most goals tried for a makespan."""
    goal_step: float = 0.04
    """How far below the best makespan seen the next goal is set, at first."""
    starts: int = 3
    """Starts of the search besides the plan carried over: the first network, then chains in several orders."""
    waiting_weight: float = 1.0
    """W of equation 13 at the due age; it grows linearly up to there and then stops."""
    due_age_s: float = 600.0
    """A task that has waited longer is due: the earliest one gets a reservation."""
    aging_crosses_priority: bool = False
    """Whether a due task comes before tasks of higher priority that are not due; otherwise the bound on waiting holds
    within a priority."""
    round_period_s: float = 1.0
    """Least further wait that an unscheduled task is charged for."""
    resolves: int = 3
    """How often leftovers of rounding are solved again."""
    exact_limit: int = 40_000
    """Rounds with at most so many machine companies are certified by CP-SAT; 0 turns that off."""
    exact_tasks: int = 20
    """Rounds with more pending tasks are never certified by CP-SAT."""
    refine_widths: bool = True
    """Choose the width of moldable tasks at prices; otherwise every task runs at its narrowest."""
    pricings: int = 20_000
    """Most forecasts per round; the search keeps the best plan when it runs out."""
    share_service_cores: bool = True
    """Give light tasks services' cores too where that is cheaper, and the snapshot lets."""
