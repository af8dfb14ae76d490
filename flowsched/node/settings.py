"""Settings of the controller ``flow-node``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeSettings:
    """What ``flow-node`` may be told. Seconds and shares; the defaults are for one machine with a latency service."""

    period_s: float = 0.1
    """Seconds between decisions."""
    calm_s: float = 0.6
    """How long a load must stay lower before the controller believes it: up at once, down slowly."""
    load_margin: float = 2.0
    """Standard deviations of a counted number of queries that are added to the load."""
    violation_price: float = 20.0
    """Seconds of batch work that one second with p95 beyond its goal is worth."""
    window_s: float = 10.0
    """Length of the windows over which p95 is judged: the shorter, the more it scatters."""
    headroom_price: float = 0.02
    """Seconds of batch work per second that a p95 right at its goal costs, beyond the chance to break it; grows with the
    fourth power of p95."""
    crowd_price: float = 0.003
    """Seconds of work per second that each further task on a core costs: caches and switches that no model counts."""
    switch_s: float = 0.02
    """Seconds of work lost with each task that is paused, resumed or moved: the reason for hysteresis."""
    payback_s: float = 1.0
    """A change must earn its price within so many seconds."""
    due_s: float = 600.0
    """A task that has waited or been paused for longer is due: from then on it runs, on one core at least, whatever a
    latency goal says."""
    waiting_growth: float = 0.1
    """Seconds of work per second that it is worth that a task runs at last, when it is due; grows evenly from 0."""
    short_first: float = 0.05
    """Value added to tasks that are nearly done, relative to their own: among schedules of one length the mean completion
    decides."""
    short_s: float = 30.0
    """A task is nearly done when so many seconds alone on the machine are left; longer ones gain less in proportion."""
    plan_s: float = 10.0
    """Prices of progress are made anew after so many seconds, and whenever a task comes, ends or changes its phase."""
    schedule_slack: float = 0.005
    """Seconds per second that an arrangement of the shortest schedule may be worth less than the best one of the moment."""
    passes: int = 4
    """Times that the network is priced anew around its own answer."""

    def __post_init__(self) -> None:
        """Raises ValueError for what makes no sense."""
        for name in ("period_s", "window_s", "payback_s", "due_s", "short_s", "plan_s"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be more than 0, but is {getattr(self, name):g}")
        for name in ("calm_s", "load_margin", "violation_price", "headroom_price", "crowd_price", "switch_s",
                     "waiting_growth", "short_first", "schedule_slack"):  # fmt: skip
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} must be at least 0, but is {getattr(self, name):g}")
        if self.passes < 1:
            raise ValueError(f"passes must be at least 1, but is {self.passes}")
