"""How steady and how late critical tasks run beside others: ``SCHED_DEADLINE`` against CPU shares, by models of both."""

from flowsched_simulator.isolation.comparison import run
from flowsched_simulator.isolation.page import render_report
from flowsched_simulator.isolation.policies import POLICIES
from flowsched_simulator.isolation.scenario_file import (
    KIND,
    load_isolation_scenario,
    read_isolation_scenario,
)
from flowsched_simulator.isolation.scenario_form import IsolationForm
from flowsched_simulator.isolation.table import render_table

__all__ = [
    "KIND",
    "POLICIES",
    "IsolationForm",
    "load_isolation_scenario",
    "read_isolation_scenario",
    "render_report",
    "render_table",
    "run",
]
