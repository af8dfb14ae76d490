"""Writes docs/disaggregation.md and its pictures from the kept results: every number has its command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.disaggregation import (
    RATIOS_OF_SWEEP,
    RESULTS,
    cells_of,
    ratios_of,
    table_of_cells,
    table_of_fit,
    table_of_joint,
    table_of_sweep,
    table_of_warm_up,
)
from benchmarks.disaggregation_cells import EIGHTH, EXPERIMENTS, GPUS, PUBLISHED_S, ROOMY, SHARES, WARM_UP_S, Cell
from benchmarks.machine import measured_on
from flowsched_models.extras import install_extra
from flowsched_models.text_table import text_table

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "disaggregation.md"
PICTURES = {"1": "disaggregation-1", "4a": "disaggregation-4a", "4b": "disaggregation-4b"}
SWEPT_ON = {
    "4a": "4 machines, 64 jobs, means of 5 seeds",
    EIGHTH: "an eighth of the experiment with 128 machines",
    ROOMY: "the same where the warm-up leaves what it leaves in experiment 1",
}
WIDTH, HEIGHT = 8.0, 3.2

INTRODUCTION = """# GPU disaggregation

A job may use GPUs of other machines than its CPU ([how to say so](scenarios.md#gpus-on-other-machines)). Three policies
place such jobs, after DRMaestro: M. Amaral, *Improving Resource Efficiency in Virtualized Datacenters*, PhD thesis,
Universitat Politècnica de Catalunya 2019, chapter 5; Journal of Cloud Computing 2021, doi 10.1186/s13677-021-00238-6.

Written by `python -m benchmarks.disaggregation_page` from the results kept under
[benchmarks/results](../benchmarks/results).

## The policies

```sh
flowsched simulate SCENARIO --policy drmaestro --set drmaestro.remote_price=2 --round-interval 2s
```

A job is a sub-task for CPU and memory and one for each GPU; all start or none does. The oldest jobs that together ask
for no more than is free take part in a round (algorithm 4). What runs is not moved.

| Policy | What it does |
|---|---|
| `drmaestro` | Two networks: sub-tasks for CPU and memory to machines, then GPUs, with a preference for their job's \
machine. A job of which a GPU stays unscheduled waits. |
| `drmaestro-network` | The same; the price of a machine also has the load of its network relative to the most loaded \
machine's, times what the job suffers by it. A placement that is predicted to run beyond its goal is postponed, ten \
times at most. |
| `drmaestro-joint` | One network for jobs with one GPU: job, GPU of a machine, CPU of the same or another machine. \
Other jobs go in phases. |

`--records FOLDER` keeps the networks of each round, as of [other policies](records.md).

A place costs (1 - utility) P (equation 12); waiting costs 1 - utility + W (equation 13), where W grows by `wait_step`
with every round. Utility is 1 - run time / goal, times (10 - z)/9 beyond the goal (equation 11). A job whose profile
has no `gpus` costs 1.

| Setting | Default | Meaning |
|---|---|---|
| `remote_price` | 1.5 | P of a GPU on another machine; 1 on its own. |
| `wait_step` | 1 | What W grows by each round. |
| `importance` | 1 | z. |
| `slack` | 1.5 | Goal of a run relative to its run time alone, for jobs without `goal_s`. |
| `most_postponements` | 10 | How often `drmaestro-network` postpones a job. |

These defaults are not fitted. Time that a job waited does not count towards its goal.

## What is simplified

- Each sub-task carries the whole run time of its job, and is slowed down by the network of its own machine: by
  `sensitivity` times the sum of the `pressure` of other jobs there that have sub-tasks elsewhere. The job ends with
  the last of them, and holds all that it has until then.
- A sub-task for a GPU keeps one virtual CPU of its machine busy and asks for none.
- Two GPUs of a job on one remote machine feel each other as two jobs do.
- Flow counts sub-tasks. The thesis's equation 10 adds up resources into one quantity of flow, which may stand for places
  that do not exist.
- The price of the network's load is added to equation 12; in the thesis it stands alone, which would make remote places on
  an idle network as good as local ones.
- W counts the present round too.
- The joint network has one price for being remote: where it differs between jobs, their mean.
"""


EXPERIMENTS_TEXT = """
## The experiments

The thesis gives makespans, and few of the values that they depend on. Four cells are fitted: experiment 1, and the two
of table 9 without the policy; what the warm-up leaves in 4b is fitted to the first row of table 10. One set of values
serves all cells and policies. The fit only says that such values are possible.

```text
{inputs}
```

```sh
python -m benchmarks.disaggregation fit
python -m benchmarks.disaggregation warm-up
```

The error is the root mean square of the logarithm over the cells that are shown. (`1 remote plain`: experiment 1, with
disaggregation, without the policy.)

```text
{fit}

{warm_up}
```

```sh
python -m benchmarks.disaggregation run
```

Experiment 2 is the simulation of 1, and 3 the first row of 4b (table 10). `remote %` are jobs whose GPU was on another
machine. The slow-down is of the run, without waiting. A makespan is derived where the policy changes nothing, so that it is
the fitted one again, and ours where the thesis has none; the other [kinds](thesis.md) are fitted and predicted.

```text
{cells}
```

What else the thesis says of the curves:

```text
{facts}
```

GPUs in use, and times of decisions:

{pictures}
"""
SWEEP_TEXT = """
## Cells that no value reaches

```sh
python -m benchmarks.disaggregation sweep
```

All combinations of four values: whether jobs go through the network with local GPUs too (`local`), their pressure on it,
the slack of their goals, and the time between rounds. The ratios of makespans, and the published ones:

```text
{ranges}
```

{said}
{sweeps}"""
JOINT_TEXT = """
## One network against phases

```sh
python -m benchmarks.disaggregation joint --experiment 4a --experiment 4b/8 --experiment 4b/8+
```

Same jobs, prices and seeds; differences with 95 % intervals (Student's, paired). `4b/8` and `4b/8+`: as above.

```text
{joint}
```

{verdict}
"""


def page(kept: Mapping[str, Any]) -> str:
    """The whole page."""
    experiments = EXPERIMENTS_TEXT.format(
        inputs="\n".join(text_table(_inputs(kept), left=(0, 1, 2))),
        fit=table_of_fit(kept["fit"]),
        warm_up=table_of_warm_up(kept["warm-up"]),
        cells=table_of_cells(kept["cells"]),
        facts="\n".join(text_table(_facts(kept), left=(0, 1))),
        pictures="\n\n".join(f"![Experiment {e}](images/{name}.png)" for e, name in PICTURES.items()),
    )
    sweeps = "".join(
        f"\n`{name}`: {about}.\n\n```text\n{table_of_sweep(kept[f'sweep {name}'])}\n```\n"
        for name, about in SWEPT_ON.items()
    )
    ranges = "\n".join(text_table(_ranges(kept)))
    joint = JOINT_TEXT.format(joint=table_of_joint(kept["joint"]), verdict=_verdict(kept["joint"]))
    measured = f"\n{measured_on(kept['machine'])} Other work ran beside it: decision times are upper bounds.\n"
    return "".join(
        [
            INTRODUCTION,
            experiments,
            SWEEP_TEXT.format(ranges=ranges, said=_reached(kept), sweeps=sweeps),
            joint,
            measured,
        ]
    )


def _inputs(kept: Mapping[str, Any]) -> list[list[str]]:
    """What a run depends on, and where each value is from."""
    values, feet = kept["fit"]["values"], kept["cells"]["footprints"]
    prices = f"{values['remote_price']:g}, {values['slack']:g}, 1"
    return [
        ["what", "value", "is"],
        ["machines", f"4 or 128, {GPUS} GPUs and 160 virtual CPUs each", "input (table 6)"],
        ["jobs, arrivals", "512, 64 or 4,096; Poisson, 16 a second", "input (section 5.6)"],
        ["types", f"{len(SHARES)} Rodinia applications, drawn alike", "input"],
        ["sensitivity", "(1 - f0) / (1 - f1) - 1 of figure 14; HotSpot: medians", "input, derived"],
        ["remote GPU, idle network", "1 / (1 - f0) times", "assumed: local GPUs use no network"],
        ["warm-up", "800 s, CPU and memory only", "input"],
        ["GPUs of a job", "1", "assumed"],
        *([f"warm-up leaves, {e}", f"CPU for {feet[e]} jobs, repeated over all machines", _foot(e)] for e in PICTURES),
        ["mean run time", f"{values['mean_s']:g} s", "fitted"],
        ["spread of run times", f"lognormal, sigma {values['sigma']:g}", "fitted"],
        ["pressure of a remote job", f"{values['pressure']:g} of the network benchmark's", "fitted"],
        ["rounds", f"every {values['interval_s']:g} s", "fitted"],
        ["step of W", f"{values['wait_step']:g}", "fitted"],
        ["P, slack, z", prices, "assumed"],
    ]


def _foot(experiment: str) -> str:
    if experiment == "1":
        return "input: 6 of 16 GPUs usable (figure 23)"
    return "fitted" if experiment == "4a" else "fitted to the first row of table 10"


def _facts(kept: Mapping[str, Any]) -> list[list[str]]:
    """GPUs in use and decision times, beside what the thesis says of its figures."""
    row = {each["cell"]: each for each in kept["cells"]["rows"]}

    def used(cell: Cell, begin_s: float, end_s: float) -> str:
        return f"{median(n for t, n in row[cell.key]['gpus'] if begin_s <= t < end_s):g}"

    def ratio(experiment: str) -> str:
        remote, local = (row[Cell(experiment, d).key]["decision_ms"][0] for d in (True, False))
        return f"{remote / local:.2f}"

    def most(cell: Cell) -> str:
        return str(max(n for _, n in row[cell.key]["gpus"]))

    one, other = Cell("1", False), Cell("1", True)
    late = row[one.key]["makespan_s"] * 0.9
    return [
        ["fact", "published", "simulated"],
        ["1 local: GPUs in use before the warm-up ends, median", "mostly 6", used(one, 100, WARM_UP_S)],
        ["1 local: afterwards", "16", used(one, WARM_UP_S + 50, late)],
        ["1 remote: GPUs in use, median", "nearly always 16", used(other, 100, late)],
        ["1: time of decisions, remote / local", "2 (figure 24)", ratio("1")],
        ["4b: the same", "slightly below 1 (figure 27)", ratio("4b")],
        ["4a remote policy: most GPUs in use", "never all 16 (figure 28)", most(Cell("4a", True, True))],
    ]


def _ranges(kept: Mapping[str, Any]) -> list[list[str]]:
    """Least and largest ratio of each sweep."""
    rows = [["ratio", "published", *(f"{name} from" if k == 0 else "to" for name in SWEPT_ON for k in range(2))]]
    published = {e: tuple(ratios_of(PUBLISHED_S, e)) for e in ("4a", "4b")}
    for k, ratio in enumerate(RATIOS_OF_SWEEP):
        cells = []
        for name in SWEPT_ON:
            found = [
                tuple(ratios_of({c: row["makespans_s"][c.key] for c in cells_of(name)}, name))[k]
                for row in kept[f"sweep {name}"]
            ]
            cells += [f"{min(found):.3f}", f"{max(found):.3f}"]
        rows.append([ratio, f"{published['4a'][k]:.3f}, {published['4b'][k]:.3f}", *cells])
    return rows


def _reached(kept: Mapping[str, Any]) -> str:
    """What the sweeps show of the policy's effect on many machines."""
    rows = [
        (row, ratios_of({c: row["makespans_s"][c.key] for c in cells_of(name)}, name))
        for name in (EIGHTH, ROOMY)
        for row in kept[f"sweep {name}"]
    ]
    local = max(ratios[2] for _, ratios in rows)
    gains = [row for row, ratios in rows if ratios[3] > 1.05]
    pressure = min((row["pressure"] for row in gains), default=0.0)
    fit = {row["assumed"]["pressure"]: row["error"] for row in kept["fit"]["sensitivity"]["pressure"]}
    return (
        f"The policy's gain of 1.134 on 128 machines without disaggregation is not reached: at most {local:.3f} in all\n"
        f"{len(rows)} combinations. Without disaggregation a job uses no network unless `local` is on, so there is nothing\n"
        "to avoid; where it is on, postponed jobs leave GPUs idle. With disaggregation "
        f"{len(gains)} of {len(rows)} combinations gain\nmore than 1.05 (published 1.128), all with a pressure of "
        f"{pressure:g} or more; but the error of the fitted cells\nis {100 * min(fit.values()):.1f} % at the fitted one, "
        f"{100 * fit[0.2]:.1f} % at 0.2 and {100 * fit[0.5]:.1f} % at 0.5. No set of values that gives\nall cells was found."
    )


def _verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether one network gives shorter makespans, for any result."""
    makespans = [row for row in rows if row["figure"] == "makespan_s"]
    said = []
    for row in makespans:
        relative = 100 * row["mean"] / row["reference_mean"]
        proven = "" if row["low"] > 0.0 or row["high"] < 0.0 else ", which proves no difference"
        said.append(f"on `{row['experiment']}` by {relative:+.1f} %{proven}")
    longer, shorter = (any(row[end] * sign > 0.0 for row in makespans) for end, sign in (("low", 1), ("high", -1)))
    if shorter and not longer:
        rest = (
            "One network is better on the larger clusters, and nowhere proven to be worse: take `drmaestro-joint` for\n"
        )
        rest += "jobs with one GPU. `drmaestro` stays as the thesis has it, phase after phase."
    else:
        rest = "One network is not better, so `drmaestro` stays as the thesis has it, phase after phase."
    return f"One network changes the makespan {'; '.join(said)}.\n{rest}"


def draw(kept: Mapping[str, Any]) -> None:
    """The pictures."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit(f"the pictures need matplotlib; {install_extra('plots')}") from None
    by_key = {row["cell"]: row for row in kept["cells"]["rows"]}
    for experiment, name in PICTURES.items():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        left, right = figure.subplots(1, 2)
        for disaggregated in (False, True):
            for aware in (False, True):
                row = by_key.get(Cell(experiment, disaggregated, aware).key)
                if row is None:
                    continue
                label = f"{'remote' if disaggregated else 'local'} GPUs{', network-aware' if aware else ''}"
                color, dashes = f"C{int(disaggregated)}", "--" if aware else "-"
                left.plot(*zip(*row["gpus"], strict=True), label=label, color=color, linestyle=dashes)
                ms = sorted(value for _, value in row["decisions"])
                right.plot(ms, [(k + 1) / len(ms) for k in range(len(ms))], color=color, linestyle=dashes)
        left.set(xlabel="s", ylabel="GPUs in use", ylim=(0, GPUS * EXPERIMENTS[experiment].machines * 1.05))
        right.set(xlabel="ms", ylabel="share of rounds", xscale="log", ylim=(0, 1))
        left.legend(fontsize=7, frameon=False)
        figure.savefig(DOCS / "images" / f"{name}.png", dpi=110, metadata={"Software": None})


def main() -> None:
    """Write page and pictures."""
    kept = json.loads(RESULTS.read_text())
    PAGE.write_text(page(kept), encoding="utf-8")
    draw(kept)


if __name__ == "__main__":
    main()
