"""Writes docs/thesis.md from the kept values of the thesis and ours: every table stands under its command."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.machine import measured_on
from benchmarks.thesis_cell import Computed, summary

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "thesis.md"

INTRODUCTION = """# A thesis, reproduced

M. Amaral, "Improving Resource Efficiency in Virtualized Datacenters: Topology-Aware Resource Provision Techniques", PhD
thesis, UPC, 2019, beside what flowsched's models and simulator compute. Written by `python -m benchmarks.thesis_page` from
the results that `python -m benchmarks.thesis --keep` keeps.

```sh
python -m benchmarks.thesis
```

Each value that the thesis has is judged, of whatever kind ours is: `inside` or `OUTSIDE` the published value or range and
the band around it. The exit code is 1 if one is outside. The kinds:

| Kind | Meaning |
|---|---|
| input | The published value went into the profiles. A run that gives it back shows that the parts agree, no more. |
| fitted | A parameter was chosen so that this value, among others, comes out. |
| derived | It follows from fitted values or from another row: a number that was fitted, for another policy; a ratio of \
values that are judged themselves; a run whose every event is that of another one. |
| predicted | No parameter was chosen by this value, and no other row implies it. |
| ours | The thesis has no number for it, or only one that holds for its own machine. |

What the thesis says in words only, like "less", is a range in the published column. Of an input the band is half of the
last digit that is published. Some bands were set after our values were seen, so that an `inside` of theirs says little:
0.07 of "by breakdown" is as wide as the error was by hand; *less* is a ratio of at most 0.999, and *clearly* or
*significantly* less one of at most 0.95; a ratio of decision times may differ by half of the published one. The thesis
gives no widths for any of these.

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
job 0, and job 3 under P and FCFS). It is a calibration: BF runs every job as FCFS does here, and the flow policies as the
bi-partitioning ones, so that most rows repeat the fit. Predicted are that no job gets peer to peer but under P, and how much
jobs 1 and 4 are slowed.

```sh
python -m benchmarks.thesis_table7
```

It prints the fitted values, and how far each outcome moves where one of them is 5 % larger; `--fit` fits again.

Job 3, which wants two GPUs, comes when each socket has one left at most. Every policy but P takes one of each socket when
job 0 ends. For P that set is of utility 0.42: distance costs 0.25 (of at most 0.33), and interference all of its 0.33. Job
3 demands 0.5, and so it waits. Slow-downs are 1 - ideal/actual. The thesis has about 50 % for jobs 1, 3 and 4; that of job
3 is fitted, and with it jobs 1 and 4 are slowed by less.
""",
    "scenario-1": """## 100 jobs on five machines

Bundled as `thesis-100-jobs`; its header says what is assumed. Run times and interference are chapter 3's profiles:
nothing is fitted. Predicted rows are what the thesis says in words: no job of P is below its minimal utility, nor slowed;
FCFS slows more jobs than the others; TOPO-AWARE and P wait clearly less (at most 0.95) than FCFS and BF; P waits less than
TOPO-AWARE and slows jobs less.

Whether P is better than TOPO-AWARE depends on whether later jobs may pass one that does not fit. Where TOPO-AWARE lets
them, as section 4.2 has it, P decides the same, as TOPO-AWARE never starts a job below its minimal utility here. Read
strictly, execution out of order is what P has and TOPO-AWARE lacks (sections 4.1.4 and 4.4.2); `topo-bipartition-fifo`
is that reading, and P is better than it. But then TOPO-AWARE waits about as long as FCFS, and longer than BF, which lets
later jobs pass here: neither reading has all of the figure. Jobs of P are slowed too: a neighbour at the socket costs less
utility than would make a job wait.

```sh
flowsched simulate thesis-100-jobs --policy topo-bipartition --policy topo-bipartition-fifo --policy topo-bipartition-p
```
""",
    "scenario-2": """## 10,000 jobs on 1,000 machines

Bundled as `thesis-10000-jobs`. At the published rate of ten a minute less than a fifth of the GPUs is busy, and nothing
waits, nor at sixty a minute; the thesis's figure has waiting, so its rate or its run times were others. Where nothing waits
no policy waits less than another: these ratios are 1, and outside. The topology-aware policies slow jobs least, as there;
BF slows them more than FCFS here, where there FCFS is worst.

Decision times are means over rounds, kept of an earlier version that ran on an idle machine; the other values were measured
again since. The thesis has 3 s for its policies, 0.45 s for FCFS and 0.44 s for BF, on its own machine: only ratios can be
compared, within a half. A decision by flow takes more than the 6.7 times as long as one of FCFS that the thesis has: it
prices every machine and solves a network, while FCFS takes the first that fits. One by bi-partitioning takes less, as
machines in the same state are mapped to once.
""",
    "scenario-2-queue": """## 1,000 jobs on 100 machines, with a queue

A tenth of that scenario, at a rate that leaves jobs waiting. The order is the thesis's, in slow-down and in waiting: FCFS is
worst, then BF; TOPO-AWARE and P are best. That their waiting is clearly less than BF's holds by a bound that was set after
it was seen. Decision times are of the earlier version here too.
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
    misses = [f"- {miss}" for table in tables for miss in table.misses()]
    parts = [INTRODUCTION, f"\n## What is outside its band\n\n{summary(tables)}\n"]
    if misses:
        parts.append("\n" + "\n".join(misses) + "\n")
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
