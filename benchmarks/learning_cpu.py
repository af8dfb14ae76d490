"""CPU time of rounds on Kubernetes with `learning: off`, `observe` and `on`, without an API server.

*Rounds*: pods of 12 owners that declare run times come to 40 nodes of 8 cores, wait, run and end; a run time is off by 15 %.
Each mode plays the same pods through the scheduler's state machine: what the watches tell, learning once a second, and the
rounds. Counted is all CPU time of that for each round. *Plain pods*: one round places 5,000 pods that no forecast is made of
on 5,000 nodes.

The modes take turns within one process, in an order that changes from repeat to repeat; ratios are of the same repeat.

    python -m benchmarks.learning_cpu
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median

import click

from benchmarks import k8s_rounds
from benchmarks.k8s_learning import drawn_pods
from benchmarks.machine import describe_machine, measured_on
from benchmarks.played_learning import CORES, FIRST_WAVE, OWNERS, Playing
from flowsched.support.collector import collect_seldom
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
MODES = ("off", "observe", "on")
MEDIAN_RUN_S = 30.0


def rounds_ms(mode: str, seed: int, pods: int, nodes: int) -> float:
    """CPU milliseconds of a round and all around it."""
    drawn = drawn_pods(seed, pods, OWNERS, FIRST_WAVE, nodes * CORES, MEDIAN_RUN_S, load=1.0)
    playing = Playing(mode, drawn, nodes, declared=True)
    playing.play()
    return 1e3 * playing.cpu_s / playing.rounds


def plain_ms(mode: str, pods: int, nodes: int) -> float:
    """CPU milliseconds of a round that places so many pods."""
    return 1e3 * sum(k8s_rounds.one_round("plain", pods, nodes, _configuration(mode)).values())


def in_turns(repeats: int, measure: Callable[[str, int], float]) -> dict[str, list[float]]:
    """What is measured of each mode, for each repeat; one before them counts for none."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for repeat in range(-1, repeats):
        turn = repeat % len(MODES)
        for mode in (*MODES[turn:], *MODES[:turn]):
            gc.collect()
            took = measure(mode, repeat)
            if repeat >= 0:
                found[mode].append(took)
    return found


def table(rows: dict[str, dict[str, list[float]]]) -> str:
    """A line for each case and mode."""
    lines = [("case", "learning", "ms of CPU", "of off", "least", "most")]
    for case, found in rows.items():
        for mode in MODES:
            ratios = [own / off for own, off in zip(found[mode], found["off"], strict=True)]
            shown = (geometric_mean(ratios), min(ratios), max(ratios))
            lines.append((case, mode, f"{median(found[mode]):.1f}", *(f"{ratio:.3f}" for ratio in shown)))
    return "\n".join(text_table(lines, left=(0, 1)))


@click.command()
@click.option("--repeats", default=7, show_default=True, type=click.IntRange(1))
@click.option("--pods", default=600, show_default=True, type=click.IntRange(OWNERS * FIRST_WAVE), help="Of the rounds.")
@click.option("--nodes", default=40, show_default=True, type=click.IntRange(1), help="Of the rounds.")
@click.option("--plain", default=5000, show_default=True, type=click.IntRange(1), help="Plain pods, and their nodes.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(repeats: int, pods: int, nodes: int, plain: int, keep: bool) -> None:
    """Measure and print a table."""
    collect_seldom()  # as the scheduler does
    rows = {
        f"round of {pods} pods that run and end": in_turns(
            repeats, lambda m, seed: rounds_ms(m, seed + 1, pods, nodes)
        ),
        f"{plain:,} plain pods on as many nodes": in_turns(repeats, lambda m, _: plain_ms(m, plain, plain)),
    }
    machine = describe_machine()
    text = f"{table(rows)}\n{repeats} repeats. {measured_on(machine)}"
    click.echo(text)
    if keep:
        result = {"rows": rows, "machine": machine}
        (RESULTS / "learning_cpu.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "learning_cpu.txt").write_text(text + "\n", encoding="utf-8")


def _configuration(mode: str) -> Configuration:
    return Configuration.model_validate({"learning": mode})


if __name__ == "__main__":
    main()
