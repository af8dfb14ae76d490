"""Writes docs/gpus.md and its pictures from the kept results of the openb study: every number has its command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.openb_trace import VARIABLE
from flowsched_models.extras import install_extra

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "gpus.md"
LISTS = {
    "default": "8,152 pods, 3,078 of them with a share of a GPU, 75 with several GPUs.",
    "gpuspec33": "The same pods; 2,388 of them may run on some models of GPU only.",
    "multigpu50": "9,061 pods with more whole GPUs; the list alone asks for more than 130 %, so pods are left out.",
}
SHOWN = ("gpu-value", "gpu-value-online", "FGD", "BestFit", "GpuPacking", "Random")
"""In the pictures."""
SIZE = (6.4, 3.8)
DOTS = 100

INTRODUCTION = f"""# Tasks that share GPUs

The placement rule `gpu-value` against FGD and five others, in the experiment of FGD's authors: Weng et al., "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023. Written by
`python -m benchmarks.openb_page` from the results kept under [benchmarks/results](../benchmarks/results).

## The study

1,213 machines with 6,212 GPUs are empty at first. Pods arrive one at a time, in the published orders (seeds 42 to 51), until
they have asked for 130 % of all GPUs. Each is placed at once or dropped for good, and none ever leaves. What fits is never
dropped. The figure is allocated GPUs in % of all, at so many % that have arrived.

The trace is Alibaba's (cluster-trace-gpu-v2023, Apache-2.0), and not part of this repository. `{VARIABLE}` names its folder:
node list, pod lists, and optionally the published orders and curves.

`gpu-value` is told the shares of the list's shapes, as FGD is. `gpu-value-online` is told nothing: the first 100 tasks go
where they fit first, then prices are learnt at 100, 200, 400, ... arrivals. "No policy exceeds" is a linear program over the
same arrivals that pools the machines that are alike: an upper bound. Times are CPU times of one core; working out prices is
shown apart, since it can be done beside the decisions.
"""

METHOD = """
## The method

**Prices.** A linear program packs 1.2 times the arrivals that the machines hold into the empty machines. Each shape's gain
is concave, so that all shapes get their part. Devices are cut into shares by column generation, as in the cutting-stock
problem (P. C. Gilmore, R. E. Gomory, Operations Research 9, 1961). The dual of a shape's row is its price: a share of 810
milli costs as much as a whole GPU, since only 190 are left beside it.

**The value of a machine** is the most that what is left on it could bring at these prices: the Lagrangian of its own
knapsack, the least over prices of its CPU and memory.

**The price of a place** is the value that the machine loses. It is never less than the task's own price; the rest is waste.
A task goes where it costs least, and to the device where it costs least.

**Futures.** Prices are the mean over eight draws of the arrivals; in each, only shapes among the next 150 arrivals have a
price, so that a machine's value does not count on rare tasks.

**Ties.** Prices that differ by less than 0.04 devices are equal. Of equal machines the first is taken, in an order by a hash
of their names.
"""

ORDERS = """
## However machines are listed

With ties by a hash of names, decisions are the same however machines are listed. FGD as published takes the first in a
random order (`nodes random`); listed by their number of GPUs it loses, as our prices do without the hash (`ties given`).
"""

MADE = """
## Other lists

Parameters were chosen on the three lists above, and on none of these. Where FGD is at the bound already, no rule can be
ahead of it.
"""

MOVES = """
## Moves

`--moves`: where a task fits nowhere, one task with a share or without a GPU may be moved aside for it, the one whose move
costs the two machines least. The column `moves` is their number. They win next to nothing where any machine may take any
task, and some tenths of a point where models are restricted.
"""

IN_ROUNDS = """
## In rounds of flow

`flow` adds the same price to those of [forecasts](how-it-works.md): the value that a machine loses, times `gpu_weight` for
each device. So a place is chosen for run times and services first, and among equal places for what it leaves of GPUs. Tasks
without GPUs pay too where they take CPU or memory that the GPUs of a machine need. Waiting costs more than the dearest GPUs
that have room, so that no task waits for a better device. A later start costs what the dearest place does.

Of machines whose prices are within a step, the first in the order of names' hashes says which kind of machine a task takes,
and of that kind the fullest comes first, so that empty machines stay for tasks of eight.

The demand is learnt from all tasks so far, anew when twice as many have come, or is what [`gpu_demand`](scenarios.md#gpus)
declares. It stands in the snapshot, so that a round replays byte for byte. A round of more than 128 machines ranks its
[candidates](how-it-works.md#candidates) by this price too. Priorities, gangs, relations, reservations and preemption know
devices: for a whole GPU all tasks on that GPU are preempted and no others.

`flowsched explain` says it in words:

```text
It asks for 470m of a GPU and gets device 2.
To the expected demand such a task is worth 0.44 of a GPU; here it costs no more.
```

[The report](report.md#gpus) of a simulation has a lane for each GPU. [On Kubernetes](kubernetes-pods.md#gpus) pods take
whole devices; the demand is learnt and priced in the same way.

The trace through whole rounds of `flow`, each pod a round. No pod waits that fits. Without knowledge some pods of eight GPUs
find no machine before 95 % have arrived, where FGD still places them; at 100 % flow has allocated more on all three lists.
"""
NOT_THERE = """
Shares are not there on Kubernetes; a move gains nothing from devices that it frees.
"""
REST = """
## Limits

- **Restricted models, nothing known.** In single orders of `gpuspec33`, `gpu-value-online` fills machines of a model that
  few ask for with tasks that could run anywhere. It is above FGD all the same. No variant that was tried gained in all
  orders.
- Nothing ever leaves in this experiment, and run times play no part.
- Shares count in cells of 10 milli. Others are rounded up, and then a place may cost less than the task's own price.
"""


def main() -> None:
    """Write the page and its pictures."""
    for name in LISTS:
        draw(DOCS / "images" / f"gpus-{name}.png", kept(name))
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE.name}")


def render() -> str:
    """The page's text."""
    parts = [INTRODUCTION, "\n## Results\n"]
    for name, told in LISTS.items():
        parts.append(f"\n### {name}\n\n{told}\n" + table_of(name, f"--list {name} --keep {name}"))
        parts.append(f"\n![Allocation by what has arrived, {name}](images/gpus-{name}.png)\n")
    parts += [METHOD, IN_ROUNDS]
    for name in LISTS:
        parts.append(table_of(f"rounds-{name}", f"--list {name} --keep", "openb_rounds"))
    parts += [NOT_THERE, ORDERS]
    orders = "--node-order random --node-order given --node-order reversed --node-order many --node-order few"
    for name in LISTS:
        words = f"--list {name} --seeds 42..44 --policy FGD --policy gpu-value {orders} --ties hash --ties given"
        parts.append(table_of(f"{name}-orders", f"{words} --keep {name}-orders"))
    parts += [MADE, table_of("made-lists", "--seeds 42..44 --keep", "openb_lists"), MOVES]
    for name in LISTS:
        words = f"--list {name} --seeds 42..44 --policy gpu-value --moves --check --keep {name}-moves"
        parts.append(table_of(f"{name}-moves", words))
    return "".join([*parts, REST])


def table_of(name: str, words: str, module: str = "openb") -> str:
    """A kept table under its command."""
    text = (RESULTS / f"openb-{name}.txt").read_text(encoding="utf-8").rstrip()
    return f"\n```sh\npython -m benchmarks.{module} {words}\n```\n\n```text\n{text}\n```\n"


def kept(name: str) -> dict[str, Any]:
    """A kept result."""
    data: dict[str, Any] = json.loads((RESULTS / f"openb-{name}.json").read_text(encoding="utf-8"))
    return data


def draw(path: Path, outcome: Mapping[str, Any]) -> None:
    """Curves from 80 % arrived on: before, nearly everything fits under all rules."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit(f"the pictures need matplotlib; {install_extra('plots')}") from None
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for name in SHOWN:
        curve = {int(percent): value for percent, value in outcome["policies"][name]["curve"].items()}
        shown = [(percent, value) for percent, value in sorted(curve.items()) if percent >= 80]
        axes.plot(*zip(*shown, strict=True), label=name)
    limits = sorted((int(percent), value) for percent, value in outcome["bound"].items())
    axes.plot(*zip(*limits, strict=True), "k:", label="no policy exceeds")
    axes.set_xlabel("% of all GPUs asked for by what has arrived")
    axes.set_ylabel("% of all GPUs allocated")
    axes.set_ylim(74.0, 100.0)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    # No version in the file: the same results, the same picture.
    figure.savefig(path, dpi=DOTS, metadata={"Software": None})


if __name__ == "__main__":
    main()
