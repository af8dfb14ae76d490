"""Rounds of clusters of which little changes between two of them: what a round costs, and what it decides.

`flow` on 60 and on 12,500 machines; Kubernetes' state machine on 1,000 and 5,000 nodes, with pods that have profiles of
their own and with pods that are all alike. With `--before` and a checkout of another commit a process for each measures
every case, in turn, the first of the two alternating.

    python -m benchmarks.kept_state
    python -m benchmarks.kept_state --before ../flowsched-before --times 3
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.engine_trees import HERE, Tree
from benchmarks.machine import describe_machine, measured_on
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
WORKER = Path(__file__).resolve().with_name("kept_state_worker.py")
CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "flow, 60 machines": ("flow", {"machines": 60, "running": 150, "waiting": 3, "kinds": 20}),
    "flow, 323 arrive": ("flow", {"machines": 12_500, "running": 32_000, "waiting": 323, "kinds": 150}),
    "flow, 1,500 arrive": ("flow", {"machines": 12_500, "running": 32_000, "waiting": 1500, "kinds": 150}),
    "measured pods, 1,000 nodes": ("kubernetes", {"nodes": 1000, "running": 3, "waiting": 200, "measured": True}),
    "measured pods, 5,000 nodes": ("kubernetes", {"nodes": 5000, "running": 3, "waiting": 200, "measured": True}),
    "plain pods, 5,000 nodes": ("kubernetes", {"nodes": 5000, "running": 10, "waiting": 200, "measured": False}),
}
"""By name: what the worker runs, and with what."""
FIRST = 1
"""Rounds that are not counted: the first looks at everything."""


@click.command()
@click.option("--case", "names", type=click.Choice([*CASES]), multiple=True, help="Only these.")
@click.option("--rounds", default=30, show_default=True, help="Of each case.")
@click.option(
    "--before", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A checkout to compare with."
)
@click.option("--times", default=1, show_default=True, help="Runs of each case, in turn.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(names: tuple[str, ...], rounds: int, before: Path | None, times: int, keep: bool) -> None:
    """Measure and print a table."""
    with ExitStack() as stack:
        trees = [stack.enter_context(Tree(root, WORKER)) for root in (HERE, before) if root is not None]
        rows = [measure(name, rounds, times, trees) for name in names or CASES]
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        machine = describe_machine()
        outcome = {"rows": rows, "rounds": rounds, "times": times, "machine": machine}
        (RESULTS / "kept_state.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "kept_state.txt").write_text(f"{text}\n{measured_on(machine)}\n", encoding="utf-8")
    click.echo(text)


def measure(name: str, rounds: int, times: int, trees: Sequence[Tree]) -> dict[str, Any]:
    """Medians and maxima of a case's stages, in CPU ms, in each tree; and whether they decided alike."""
    case, of = CASES[name]
    job = {"case": case, "of": {**of, "rounds": rounds + FIRST}}
    taken: list[dict[str, list[float]]] = [{} for _ in trees]
    decided: set[str] = set()
    for run in range(times):
        for which in range(len(trees)) if run % 2 == 0 else reversed(range(len(trees))):
            answer = trees[which].ask(job)
            decided.add(answer["decided"])
            for stage, ms in answer["taken"].items():
                taken[which].setdefault(stage, []).extend(ms[FIRST:])
            every = [sum(stages) for stages in zip(*(ms[FIRST:] for ms in answer["taken"].values()), strict=True)]
            taken[which].setdefault("round", []).extend(every)
    stages = {
        stage: {"p50_ms": [median(t[stage]) for t in taken], "max_ms": [max(t[stage]) for t in taken]}
        for stage in taken[0]
    }
    return {"case": name, "stages": stages, "same_decisions": len(decided) == 1}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each stage of each case."""
    compared = len(rows[0]["stages"]["round"]["p50_ms"]) > 1
    lines = [["case", "stage", "p50 ms", "max ms", *(["before: p50", "max", "p50 of before", "decided"] * compared)]]
    for row in rows:
        for stage, figures in row["stages"].items():
            now, *then = zip(figures["p50_ms"], figures["max_ms"], strict=True)
            line = [row["case"], stage, f"{now[0]:.1f}", f"{now[1]:.0f}"]
            for p50, most in then:
                alike = "alike" if row["same_decisions"] else "otherwise"
                line += [f"{p50:.1f}", f"{most:.0f}", f"{now[0] / p50:.2f}", alike if stage == "round" else ""]
            lines.append(line)
    return "\n".join(text_table(lines, left=(0, 1), indent=""))


if __name__ == "__main__":
    main()
