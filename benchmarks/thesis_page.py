"""Writes docs/thesis.md from the kept values of the thesis and ours: every table stands under its command."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.thesis_cell import Computed, verdict

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "thesis.md"

INTRODUCTION = """# A thesis, reproduced

M. Amaral, "Improving Resource Efficiency in Virtualized Datacenters: Topology-Aware Resource Provision Techniques", PhD
thesis, UPC, 2019, measures how links between GPUs, neighbours and the network slow jobs down (chapter 3), and schedules
accordingly. This page compares its numbers with what flowsched's models and simulator compute. So far it covers chapter 3.

Written by `python -m benchmarks.thesis_page` from the results that `python -m benchmarks.thesis --keep` keeps.

```sh
python -m benchmarks.thesis
```

It prints every table, `--json` for other tools. The exit code is 1 if a predicted value is outside its band, and a sentence
names the value. Each value is of one of three kinds:

| Kind | Meaning |
|---|---|
| input | The published value went into the profiles. A run that gives it back shows that the parts agree, no more. |
| fitted | A parameter was chosen so that this value, among others, comes out. |
| predicted | Nothing was chosen by this value. It has a band, and must be inside. |

## Use the profiles yourself

The numbers are profiles with a source each, bundled as [`thesis`](files.md#further-bundled-profiles). What the thesis does
not say is marked *assumed* there.

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
breakdown" uses what the thesis says of batch sizes in another place: computation grows with the batch, communication takes
2 s of 40 iterations always. How much longer communication takes when spread is fitted to batches 1 and 2. The others
follow. Their band, 0.07, is the largest distance from a stated value that this arithmetic had by hand, so it is a band
for changes of the code rather than an independent test of the thesis.
""",
    "co-location": """## Two jobs on one machine

Both jobs have two GPUs, one of each socket. The thesis does not say which GPUs they had. The text puts the big job first
where it says 24 % and 21 %, yet says that big jobs do not suffer, but cause interference; the profiles take the reading in
which the smaller job suffers. The other cells of its figure are not in the text.
""",
    "network-share": """## GPUs over the network

Rodinia applications use a GPU of another machine, beside a job that loads the network. The thesis gives the share of the run
time in the network; ours follows from the run time alone and beside the load, if only the network's part grows.
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
    return "".join(parts)


def kept() -> list[Computed]:
    """The tables of the last run that was kept."""
    data = json.loads((RESULTS / "thesis.json").read_text(encoding="utf-8"))
    return [Computed.read(table) for table in data["tables"]]


if __name__ == "__main__":
    main()
