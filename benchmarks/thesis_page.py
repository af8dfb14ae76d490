"""Writes docs/thesis.md from the kept values of the thesis and ours: every table stands under its command."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.machine import measured_on
from benchmarks.thesis_cell import Computed, verdict

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "thesis.md"

INTRODUCTION = """# A thesis, reproduced

M. Amaral, "Improving Resource Efficiency in Virtualized Datacenters: Topology-Aware Resource Provision Techniques", PhD
thesis, UPC, 2019, beside what flowsched's models and simulator compute. Written by `python -m benchmarks.thesis_page` from
the results that `python -m benchmarks.thesis --keep` keeps.

```sh
python -m benchmarks.thesis
```

The exit code is 1 if a predicted value is outside its band. Each value is of one of these kinds:

| Kind | Meaning |
|---|---|
| input | The published value went into the profiles. A run that gives it back shows that the parts agree, no more. |
| fitted | A parameter was chosen so that this value, among others, comes out. |
| predicted | Nothing was chosen by this value. It has a band, and must be inside. |
| ours | The thesis has no number for it. |

## Use the profiles yourself

The numbers are profiles with a source each, bundled as [`thesis`](profile-files.md#further-bundled-profiles). What the
thesis does not say is marked *assumed* there.

```text
profiles: [thesis]
machines:
  - {name: m, type: minsky, gpus: {model: P100, count: 4, topology: minsky}}
jobs:
  - {name: train, profile: alexnet-tiny, request: 1, gpus: {count: 2}}
```
"""
ABOUT = {
    "pack-spread": """## Packed and spread GPUs

A job of two GPUs runs alone on the two of one socket, then on one of each socket; both run times are simulated. "By
breakdown" uses that computation grows with the batch while communication takes 2 s of 40 iterations always. How much longer
communication takes when spread is fitted to batches 1 and 2. The others follow, in a band of 0.07.
""",
    "co-location": """## Two jobs on one machine

Both jobs have two GPUs, one of each socket. The text of the thesis is ambiguous; the profiles take the reading in which the
smaller job suffers. The other cells of its figure are not in the text.
""",
    "network-share": """## GPUs over the network

Rodinia applications use a GPU of another machine, beside a job that loads the network. The thesis gives the share of the run
time in the network; ours follows from the run time alone and beside the load, if only the network's part grows.
""",
    "table-7": """## Six jobs on one machine

The prototype of section 4.3.2: two sockets with two P100 each, six jobs within half a minute. The thesis gives
networks, GPUs, minimal utilities and arrivals. Run times, the factor of spread GPUs and what neighbours at a socket
cost are fitted, once for all policies, to six of its seconds (makespans of TOPO-AWARE-P, TOPO-AWARE and FCFS, the end of
job 0, and job 3 under P and FCFS). It is a calibration: the other events are consistent with the fit.

```sh
python -m benchmarks.thesis_table7
```

It prints the fitted values, and how far each outcome moves where one of them is 5 % larger; `--fit` fits anew.

Job 3, which wants two GPUs, comes when each socket has one left at most. Every policy but P takes one of each socket
when job 0 ends. For P that set is of utility 0.42: distance costs 0.25 (of at most 0.33), and interference all of its
0.33. Job 3 demands 0.5, and so it waits. Slow-downs are 1 - ideal/actual.
""",
    "scenario-1": """## 100 jobs on five machines

Bundled as `thesis-100-jobs`; its header says what is assumed. Run times and interference are chapter 3's profiles:
nothing is fitted. Predicted rows are what the thesis says in words: no job of P is below its minimal utility; FCFS
slows more jobs than the others; TOPO-AWARE and P wait less than FCFS and BF. With these profiles P decides as TOPO-AWARE.
""",
    "scenario-2": """## 10,000 jobs on 1,000 machines

Bundled as `thesis-10000-jobs`. At the published rate of ten a minute less than a fifth of the GPUs is busy, and
nothing waits, nor at sixty a minute; the thesis's figure has waiting, so its rate or its run times were others. The
topology-aware policies slow jobs least, as there; BF slows them more than FCFS here, where there FCFS is worst. Decision
times are means over rounds, beside those of the thesis on its own machine.
""",
    "scenario-2-queue": """## 1,000 jobs on 100 machines, with a queue

A tenth of that scenario, at a rate that leaves jobs waiting. The order is the thesis's, in slow-down and in waiting: FCFS is
worst, then BF; TOPO-AWARE and P are best.
""",
    "disaggregation": """## GPUs on other machines

Chapter 5 ([its own page](disaggregation.md)).
""",
    "disaggregation-ratios": """## The same as ratios

The published column is the range that counts as the same. With local GPUs jobs do not use the network here, so the
policy changes nothing for them. On 128 machines with remote GPUs a gain above 1.05 needs more pressure on the network than
fits the other cells.
""",
}
"""By table: what was run, and how to read it."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")


def page() -> str:
    """Its text."""
    tables = kept()
    parts = [INTRODUCTION, f"\n{verdict(tables)}\n"]
    for table in tables:
        command = f"```sh\npython -m benchmarks.thesis --table {table.name}\n```"
        parts.append(f"\n{ABOUT[table.name]}\n{command}\n\n```text\n{table.text()}\n```\n")
    return "".join([*parts, f"\n{machine()}\n"])


def machine() -> str:
    """What the kept times were measured on."""
    data = json.loads((RESULTS / "thesis.json").read_text(encoding="utf-8"))
    return measured_on(data["machine"])


def kept() -> list[Computed]:
    """The tables of the last run that was kept."""
    data = json.loads((RESULTS / "thesis.json").read_text(encoding="utf-8"))
    return [Computed.read(table) for table in data["tables"]]


if __name__ == "__main__":
    main()
