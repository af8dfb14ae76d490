"""What an operator may set about rounds. Defaults are the ones that the benchmarks were made with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WORTH, TOPOLOGY, TOPOLOGY_WORTH = "worth", "topology", "topology-worth"
"""Values of ``gpu_sets``."""
QUIET_S = 600.0
"""A task that moved less long ago moved a short while ago."""
HYSTERESIS = 2.0
"""How many times as high the price of a move is for it."""
PATIENCE_S, LATEST_OVERDUE_S = 60.0, 86_400.0
"""With ``due_runs`` no task is overdue before the first, and every task after the second, where its due age is less."""
MEASURED_LENGTH_WEIGHT = 1.5
"""``length_weight`` of measured jobs, where it is ``auto``."""
AUTO, SPREAD, PACK = "auto", "spread", "pack"
"""Values of ``scoring``, and ``auto`` where a number may be left to the kind of task."""


def _word(default: str, *choices: str) -> Any:
    return field(default=default, metadata={"choices": choices})


def _number(default: float, least: float, most: float) -> Any:
    """Wide enough for any experiment, narrow enough that a round ends and costs stay in range."""
    return field(default=default, metadata={"range": (least, most)})


def _number_or_auto(least: float, most: float) -> Any:
    return field(default=AUTO, metadata={"range": (least, most), "word": AUTO})


@dataclass(frozen=True)
class Settings:
    """Settings of the engine and of the ``flow`` policy."""

    objective: str = _word("completion", "makespan", "completion")
    """``makespan``: one goal for all tasks, tightened step by step. ``completion``: every task has its own goal."""
    eps: float = _number(1.0, 0.0, 1e6)
    """Slope of the penalty before the goal: those in time still want to be early."""
    beta: float = _number(20.0, 0.0, 1e6)
    """Slope beyond the goal."""
    goal_factor: float = _number(3.0, 1e-3, 1e6)
    """Goal of a task that has none: this times its best predicted run time."""
    length_weight: float | str = _number_or_auto(0.0, 10.0)
    """How much more a long task counts, with goals of their own: its penalty is multiplied by (best run time / 60 s) to
    this power. 0 weighs relative lateness (mean slowdown), 1 weighs every second alike (mean completion time); more favours
    the last to finish. ``auto``: 1.5, and 0 for plain jobs, whose run time is the same at every place, where only such ones
    wait."""
    headroom_weight: float = _number(0.05, 0.0, 1e6)
    """Price of a latency service's headroom: this times u/(1 - u), u = p95 over its goal."""
    gpu_weight: float = _number(1.0, 0.0, 1e6)
    """Price of the value that GPUs lose for the demand that is expected: this for each device."""
    gpu_sets: str = _word(WORTH, WORTH, TOPOLOGY, TOPOLOGY_WORTH)
    """What devices make a place cost: ``worth``, what they are worth to the demand; ``topology``, how far they are from one
    another, how their jobs disturb each other and what is left free of the sockets; ``topology-worth``, with what the sets
    that are left are worth to the demand in place of the last."""
    gpu_postpones: bool = False
    """Whether waiting costs a task 1 less the utility that it demands of its devices (``min_utility``), beside what its
    completion costs; by topology only."""
    slo_margin: float = _number(1.0, 1e-3, 1e3)
    """A placement predicted to bring p95 above this share of the goal is forbidden."""
    slots: int = _number(3, 1, 16)
    """Starts that a machine offers: now, and after each of the next completions there. 1 turns the horizon off."""
    pass_share: float = _number(0.0, 0.0, 1.0)
    """Arrivals of a pass as a share of the machines; 0: a half of them, a quarter where more tasks wait than there are
    machines, 0.6 of them on at most eight machines."""
    assign: str = _word("flow", "flow", "greedy", "none")
    """What assigns the tasks of a pass: ``flow``. For ablations ``greedy``, one task after the other to its cheapest option
    at the same prices, or ``none``: no passes, so that the improvement alone decides."""
    improved_tasks: int = _number(64, 0, 10_000)
    """Most waiting tasks for which moves and swaps follow the passes; 0 turns them off."""
    improvement_forecasts: int = _number(400, 0, 1_000_000_000)
    """Most forecasts of the moves and swaps of one level."""
    goal_steps: int = _number(3, 0, 100)
    """Most goals tried for a makespan."""
    goal_step: float = _number(0.04, 1e-6, 0.5)
    """How far below the best makespan seen the next goal is set, at first."""
    waiting_weight: float = _number(1.0, 0.0, 1e6)
    """W of equation 13 at the due age; it grows linearly up to there, and then stops if it is bounded."""
    waiting_bounded: bool = True
    """Whether W stops at the due age. Equation 13 has no end of it: any place becomes cheaper than waiting at last."""
    wishes_multiply: bool = False
    """Whether what a wish costs is P - 1 of equation 12, times what the task's completion costs alone there (1 - U), instead
    of a price that is added; waiting then costs nothing for wishes."""
    due_age_s: float = _number(600.0, 0.0, 1e9)
    """A task that has waited longer is overdue, unless ``due_runs`` says later: the earliest ones get a reservation."""
    due_runs: float = _number(10.0, 0.0, 1e6)
    """A task with a known end is not overdue before 60 s and so many times its own estimated run time, or 24 hours if that
    is less. 0: ``due_age_s`` alone."""
    fairness: float = _number(0.0, 0.0, 1.0)
    """How much first come counts beside shortest first: the more, the sooner a task with a known end is overdue, and its
    waiting counts more before. At 1 all that wait are overdue, and the earliest ones have reservations."""
    aging_crosses_priority: bool = False
    """Whether a due task comes before tasks of higher priority that are not due; otherwise the bound on waiting holds
    within a priority."""
    kept_per_core: float = _number(4.0, 0.0, 1e6)
    """On Kubernetes: so many CPUs of its node a latency service keeps from overdue pods for each CPU that it requests, its
    own request included."""
    drain: bool = False
    """Whether a due task for which no machine has a known end, because tasks that run until they are deleted leave too
    little room, gets a machine that takes no other task until it has room."""
    preemption: str = _word("none", "none", "lower-priority")
    """What a task that has no room may do about it: ``none``, or ``lower-priority``: running tasks of strictly lower
    priority wait again."""
    preemption_limit: int = _number(2, 0, 1_000_000)
    """A task with an end that was preempted so often runs to its end."""
    preempted_work: str = _word("lost", "lost", "kept")
    """What becomes of the work that a preempted task has done: ``lost``, it starts anew, or ``kept``."""
    migration_moves: int = _number(0, 0, 1_000_000)
    """Most running tasks that a round moves to another machine; 0: none."""
    migration_price: float = _number(0.1, 0.0, 1e9)
    """What a move must gain beside its pause, in the unit of costs; twice as much for a task that moved in the last ten
    minutes."""
    migration_pause_s: float = _number(10.0, 0.0, 1e9)
    """How long the program of a moved task stands still. It holds its room on the new machine."""
    migrated_work: str = _word("kept", "kept", "lost")
    """What becomes of the work that a moved task has done: ``kept``, it goes on where it stopped, or ``lost``, it starts
    anew, which its price has."""
    scoring: str = _word(AUTO, AUTO, SPREAD, PACK)
    """Which of the machines that cost a task the same it takes: ``spread`` the emptiest, ``pack`` the one with least CPU
    left, ``auto`` that for tasks with a known end, and the emptiest for services and pods without one; in rounds at cluster
    scale that where all that wait in a level are plain jobs, and else the emptiest."""
    round_period_s: float = _number(1.0, 0.0, 1e9)
    """Least further wait that an unscheduled task is charged for."""
    resolves: int = _number(3, 0, 100)
    """How often leftovers of rounding are solved again, for tasks without a profile."""
    exact_limit: int = _number(40_000, 0, 10_000_000)
    """Rounds with at most so many machine companies are certified by CP-SAT; 0 turns that off."""
    exact_tasks: int = _number(20, 0, 100)
    """Rounds with more pending tasks are never certified by CP-SAT."""
    pricings: int = _number(20_000, 1, 1_000_000_000)
    """Most forecasts per round. Where they run short each class gets its share of what is left: options that are less likely
    to matter are left out."""
    candidates: int = _number(32, 0, 1_000_000)
    """Machines that a kind of task is priced on where the cluster has more than 128, beside one for each task that may draw
    the same: those of a thousand drawn ones that are the cheapest by a price without a forecast. 0: all machines, always."""
    share_service_cores: bool = True
    """Give light tasks services' cores too where that is cheaper, and the snapshot lets."""

    @property
    def prices_completions(self) -> bool:
        """Whether it matters when tasks are done; if not, the oldest comes first."""
        return self.eps > 0.0 or self.beta > 0.0

    def overdue_age_s(self, run_s: float | None) -> float:
        """After how many seconds of waiting a task is overdue that is estimated to run so long; None: no known end."""
        if run_s is None:
            return self.due_age_s
        own_s = min(PATIENCE_S + self.due_runs * run_s, LATEST_OVERDUE_S) if self.due_runs > 0.0 else 0.0
        return (1.0 - self.fairness) ** 3 * max(self.due_age_s, own_s)

    def length_exponent(self, plain: bool) -> float:
        """The exponent of a task's length; ``plain``: whether its run time is the same at every place, as that of all that
        waits.
        """
        if isinstance(self.length_weight, str):
            return 0.0 if plain else MEASURED_LENGTH_WEIGHT
        return self.length_weight

    @property
    def preempts(self) -> bool:
        """Whether running tasks are preempted."""
        return self.preemption == "lower-priority"

    @property
    def keeps_work(self) -> bool:
        """Whether a preempted task goes on where it stopped."""
        return self.preempted_work == "kept"

    @property
    def keeps_migrated_work(self) -> bool:
        """Whether a moved task goes on where it stopped."""
        return self.migrated_work == "kept"

    @property
    def changes_running(self) -> bool:
        """Whether rounds preempt or move anything at all."""
        return self.preempts or self.migration_moves > 0
