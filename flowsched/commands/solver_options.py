"""The options of commands that solve networks: which solver, and how long it may take."""

from __future__ import annotations

from typing import Any

import click

from flowsched.errors import SolverError
from flowsched.solvers import SOLVERS, installed, make_solver
from flowsched_models.command_line import Seconds


class SolverName(click.ParamType[str]):
    """The name of a solver that can be used here."""

    name = "solver"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        """The solvers that are installed."""
        del param, ctx
        return f"[{'|'.join(installed())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself; a usage error that says what is known, or what must be installed."""
        name = str(value)
        if param is not None and name == param.default and name in SOLVERS:
            return name  # the usual one need not be loaded to be checked
        try:
            make_solver(name)
        except SolverError as error:
            problem = error.problems[0]
            self.fail(f"{problem.message}; {problem.help}", param, ctx)
        return name


SOLVER = SolverName()
TIME_LIMIT = Seconds()
TIME_LIMIT_HELP = (
    "Stop each solve after so long, such as 500ms or 2s, with the best flow known. "
    "Rounds that it stops are not reproducible."
)
