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

How much of a cluster's GPUs can be given away, when tasks ask for shares of one GPU or for several, and come one at a
time? This page is about the placement rule `gpu-value`, and compares it with FGD and five others in the experiment of
FGD's authors: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023.

Written by `python -m benchmarks.openb_page` from the results kept under [benchmarks/results](../benchmarks/results).

## The study

1,213 machines with 6,212 GPUs are empty at first. Pods arrive one at a time, until they have asked for 130 % of all
GPUs. Each is placed at once or dropped for good, and none ever leaves. The orders of arrival are those of the
publication (seeds 42 to 51). What fits is never dropped. The figure is allocated GPUs in % of all, at so many % that have
arrived. A rule can raise its figure at 100 % by losing tasks of eight GPUs before; so 95 % is told too, where next to
nothing need be dropped yet if any machine may take any pod.

The trace is Alibaba's (cluster-trace-gpu-v2023, Apache-2.0), and is no part of this repository. `{VARIABLE}` names
its folder: node list, pod lists, and if they are there the published orders and curves; orders that are not there are
drawn, and are the same.

`gpu-value` is told the shares of the list's shapes, as FGD is. `gpu-value-online` is told nothing: the first 100
tasks go where they fit first, then prices are learnt from what has come, at 100, 200, 400, ... arrivals. "No policy
exceeds" is a linear program over the same arrivals that may leave out what it likes, and pools the CPU, memory and
GPUs of machines that are alike: no policy reaches it. Times are CPU times of one core with compiled functions;
working out prices is told apart, since it can be done beside the decisions.
"""

METHOD = """
## The method

**Prices.** A linear program packs the arrivals that are expected into the empty machines. Each shape's gain is
concave, so that all shapes get their part before one gets all; expected are 1.2 times the arrivals that the machines
hold. Devices are cut into shares by patterns, by column generation as in the cutting-stock problem (P. C. Gilmore, R.
E. Gomory, Operations Research 9, 1961). The dual of a shape's row is its price: a share of 810 milli costs as much as
a whole GPU, since only 190 are left beside it.

**The value of a machine** is the most that what is left on it could bring at these prices: the Lagrangian of its own
knapsack, the least over prices of its CPU and memory. Devices are looked up in tables, by cells of 10 milli.

**The price of a place** is the value that the machine loses. It is never less than the task's own price; what is
above is waste. A task goes where it costs least, and to the device where it costs least.

**Futures.** Prices are the mean over eight futures, each a draw of the arrivals. In each, only shapes have a price of
which one is among the next 150 arrivals. Without that, the value of a machine counts on rare tasks to fill its holes.

**Ties.** Prices that differ by less than 0.04 devices are equal, as fine as FGD's own scores. Of equal machines the
first is taken, in an order by a hash of their names. In the order of some list, machines of one kind stand together,
and ties fill them first.
"""

ORDERS = """
## However machines are listed

With ties by a hash of names, decisions are the same however machines are listed. FGD as published takes the first in
a random order, which is the row `nodes random`; listed by their number of GPUs, most first, it loses. So do our
prices without the hash (`ties given`).
"""

MADE = """
## Other lists

Parameters were chosen by looking at the three lists above. Of these, made of openb's pods or of a few round sizes,
none was looked at. Where FGD is at the bound already, no rule can be ahead of it.
"""

MOVES = """
## Moves

`--moves`: where a task fits nowhere, one task with a share or without a GPU may be moved aside for it, the one whose
move costs the two machines least. The column `moves` is their number in a run. Where any machine may take any task,
the prices leave next to nothing for moves to win; where models are restricted, they win some tenths of a point. The
search for a move costs more time than all else together, since it looks at every task that is placed.
"""

IN_ROUNDS = """
## In rounds of flow

`flow` adds the same price to those of [forecasts](how-it-works.md): the value that a machine loses, times
`gpu_weight` for each device. So a place is chosen for what it does to run times and services first, and among places
that are equal in that for what it leaves of GPUs. Tasks without GPUs pay too where they take CPU or memory that the
GPUs of a machine need. Waiting costs more than the dearest GPUs that have room, so that no task waits for a better
device. A later start costs what the dearest place does: which devices will be free then is not known.

Prices within a step say the same, as in the study. Of such machines the first in the order of names' hashes says which
kind of machine a task takes, and of that kind the fullest comes first: where tasks ask for whole devices only, prices
are often all alike, and a machine that stays empty takes the next task of eight. The study above takes the first
itself; on its lists little differs.

The demand is learnt: it is that of all tasks so far, taken anew when twice as many have come as the last time, or
what [`gpu_demand`](scenarios.md#gpus) declares. It stands in the snapshot, so that a round depends on nothing else and
replays byte for byte. Every pass lets one task arrive at a machine and prices the machines that changed again; a
round of more than 128 machines ranks its [candidates](how-it-works.md#candidates) by this price too. Priorities,
gangs, relations, reservations and preemption know devices: for a whole GPU all tasks on that GPU are
preempted and no others.

`flowsched explain` says it in words:

```text
It asks for 470m of a GPU and gets device 2.
To the expected demand such a task is worth 0.44 of a GPU; here it costs no more.
```

[The report](report.md#gpus) of a simulation has a lane for each GPU, and tells how much of all GPUs is allocated and
fragmented over time. [On Kubernetes](kubernetes-pods.md#gpus) pods take whole devices; the demand is learnt and priced
in the same way.

The trace through whole rounds of `flow`, each pod a round: forecasts, candidates, learning and all. No pod waits that
fits. With nothing known beforehand some pods of eight GPUs find no machine before 95 % have arrived, where FGD still
places them; at 100 % flow has allocated more on all three lists.
"""
NOT_THERE = """
What is not there: shares on Kubernetes; a move gains nothing from devices that it frees.
"""
REST = """
## What did not work

Tried by hand; nothing of it is kept but the ties above.

- Prices of the tightest bottleneck alone (the largest part of all arrivals that fits): where one model of GPU is
  scarce, everything else is free.
- Prices that count every shape of the list in every future: rare shapes fill holes on paper only.
- Other ties. Drawn anew for each task they lose some five points on `default`, since machines are begun that need not
  be; in the order of a list they depend on the list, see above; the fullest machine of the kind does as well as the
  first, and is what rounds take.
- Against the weak seeds of `gpuspec33` without knowledge, see below: larger or mixed loads of the program, a supply
  of each model that is drawn at random in each future, and the supply that is left instead of that of the empty cluster.
  Some orders gained, others lost, and so none is in.

## Limits

- **Restricted models, nothing known.** In single orders of `gpuspec33`, `gpu-value-online` fills machines of a model
  that few ask for with tasks that could run anywhere, because the program finds that model in no short supply: over
  the whole run there is enough for both, but tasks that may run anywhere come first. That is the deviation in its row.
  It is above FGD all the same.
- Parameters (load, futures, 150 arrivals, step) were chosen by looking at the three lists, and are the same for all.
- The bound pools machines; how much of the distance to it can be had is not known.
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
