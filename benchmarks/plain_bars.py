"""Bars of `benchmarks.plain_traces`: what `flow` has to reach beside the rules, judged case by case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

RULES = ("easy", "conservative", "sjf", "best-fit", "tetris")
"""Those that `flow` is measured against."""
Figures = Mapping[str, Mapping[str, float]]
"""Means over the seeds, by policy and name of the figure."""


@dataclass(frozen=True)
class Bar:
    """A bar of a case, and how `flow` stands to it."""

    case: str
    what: str
    value: float
    limit: float
    beside: str
    """What the limit is made of."""

    @property
    def met(self) -> bool:
        """Whether the value is at most the limit."""
        return self.value <= self.limit + 1e-9

    @property
    def line(self) -> str:
        """As a line of text."""
        word = "met   " if self.met else "MISSED"
        return f"{word}  {self.case}: {self.what} {self.value:.3f}, at most {self.limit:.3f} ({self.beside})"


def bars_of(case: str, figures: Figures, *, sigma: float, relaxed: bool) -> Iterator[Bar]:
    """The bars of one case. ``figures`` has `flow` and all of ``RULES``. ``relaxed``: a case where only waiting has a bar,
    and a wider one.
    """
    flow, easy = figures["flow"], figures["easy"]
    best, waits = least(figures, "mean_waiting_s")
    if relaxed:
        limit, why = max(1.15 * waits, waits + 0.3), f"1.15 of {best} {waits:.3f}, or 0.3 s more"
        yield Bar(case, "mean waiting s", flow["mean_waiting_s"], limit, why)
        return
    share = 0.95 if sigma else 0.9
    if waits >= 1.0:
        limit, why = share * waits, f"{share:g} of {best} {waits:.3f}"
    else:
        limit, why = waits + 0.1, f"{best} {waits:.3f} + 0.1 s"
    yield Bar(case, "mean waiting s", flow["mean_waiting_s"], limit, why)

    first, slowdown = least(figures, "mean_bounded_slowdown")
    above = slowdown - 1.0
    if waits >= 1.0:
        limit, why = share * above, f"{share:g} of {first} {above:.3f}"
    else:
        limit, why = above + 0.01, f"{first} {above:.3f} + 0.01"
    yield Bar(case, "bounded slowdown above 1", flow["mean_bounded_slowdown"] - 1.0, limit, why)

    mean_s = easy["mean_waiting_s"]
    limit, why = 1.02 * mean_s + 0.1, f"1.02 of easy {mean_s:.3f} + 0.1 s"
    yield Bar(case, "mean waiting s beside easy", flow["mean_waiting_s"], limit, why)

    span_s = figures["sjf"]["makespan_s"]
    yield Bar(case, "makespan s", flow["makespan_s"], 1.05 * span_s, f"1.05 of sjf {span_s:.3f}")

    wide, widest = least(figures, "widest_waiting_s")
    # Where 5 % are less than a second, a second is what tells two rules apart.
    if 0.05 * widest >= 1.0:
        limit, why = 0.95 * widest, f"0.95 of {wide} {widest:.3f}"
    else:
        limit, why = widest + 1.0, f"{wide} {widest:.3f} + 1 s"
    yield Bar(case, "mean waiting s of the widest tenth", flow["widest_waiting_s"], limit, why)

    longest_s = figures["sjf"]["longest_waiting_s"]
    yield Bar(case, "longest waiting s", flow["longest_waiting_s"], longest_s, f"sjf {longest_s:.3f}")


def least(figures: Figures, name: str) -> tuple[str, float]:
    """The rule with the least of a figure, the first of equals, and the figure."""
    rule = min(RULES, key=lambda r: figures[r][name])
    return rule, figures[rule][name]
