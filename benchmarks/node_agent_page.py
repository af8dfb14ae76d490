"""Writes docs/node-agent-run.md from the kept results of ``python -m benchmarks.node_agent --write``.

python -m benchmarks.node_agent_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.machine import measured_on
from benchmarks.node_calibration import ALONE_US, KEYS
from benchmarks.node_lessons import QUOTA, lessons_table
from benchmarks.node_run import Outcome, table

RESULTS = Path(__file__).parent / "results" / "node_agent.json"
PAGE = Path(__file__).parent.parent / "docs" / "node-agent-run.md"
FALLS = 0.95
"""A p95 or a time falls, or rises, if it ends below this share of where it began, or begins below it of where it ends."""
_POINTS = Sequence[Mapping[str, Any]]

INTRODUCTION = """# A real run of the node agent

Written by `python -m benchmarks.node_agent_page` from what `python -m benchmarks.node_agent --write` measured on a machine
with nothing else on it. It needs memcached (`apt-get install memcached`), a C compiler, two cores, some ten minutes, and the
right to use SCHED_FIFO for the load generator.

Real memcached with two threads at normal priority, a batch job of one thread that counts its work, and our own [load
generator](#the-load). Memcached always has the first core; the second core is shared by the generator and by the batch job
or memcached's second half. The load jumps between a quarter and four fifths of what one core serves at most; the agent is
not told when.
"""

LOAD = """
## The load

`python -m benchmarks.load` is an open loop: requests leave as a Poisson process whether or not earlier ones were answered,
and a latency counts from the moment when its request was due. Every request asks for {keys} keys that are not stored;
memcached counts {keys} queries for each. p95 is of windows of 100 ms. The generator reports its own lateness.

```sh
python -m benchmarks.load --steps 8K:3,34K:3,8K:3 --keys-per-get {keys} --connections 32 --slo 1ms --out rows.csv
```
"""

RUN = """
## Steps of load

```sh
python -m benchmarks.node_agent
```

Shares are of windows of 100 ms; repetitions stand side by side, with the same arrivals for all modes.
"""

PICTURES = """
![Load, p95, cores and the batch job over time](images/node-agent-run.png)

![Violations against the CPU time of the batch job](images/node-agent-modes.png)
"""

LESSONS = """
## What the models do not know

```sh
python -m benchmarks.node_agent --modes none --lessons curve loops protection switching
```

Latencies are medians over windows of 100 ms.
"""

CURVE_PICTURE = """
![p95 and CPU time per request against the load](images/node-agent-curve.png)
"""


def write_page() -> None:
    """Write it."""
    PAGE.write_text(render(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"wrote {PAGE.name}")


def render(outcome: Mapping[str, Any]) -> str:
    """The page's text."""
    closed = outcome["capacity"]["closed"]
    within = outcome["capacity"]["within_slo"]
    parts = [
        INTRODUCTION,
        LOAD.format(keys=KEYS),
        RUN,
        f"\nOne core serves {closed['1']:,.0f} requests/s at most and two {closed['2']:,.0f}; the highest loads tried "
        f"within a p95 of 1 ms were {within['1']:,.0f} and {within['2']:,.0f}, and the agent is told "
        f"these two times {KEYS}, as memcached counts keys. Memcached "
        f"alone, at a tenth of one core's load, had a p95 of {outcome['alone_us']:.0f} us.\n",
    ]
    if outcome["alone_us"] > ALONE_US or not outcome["fifo"]:
        parts.append("\n**Preliminary:** others used this machine meanwhile, or the generator had no priority.\n")
    parts += [_fenced(table(Outcome(**each) for each in outcome["outcomes"])), f"\n{measured_on(outcome['machine'])}\n"]
    parts.append(PICTURES)
    if outcome["points"]:
        parts += [LESSONS, "".join(f"\n- {said}" for said in lessons(outcome["points"])), "\n", CURVE_PICTURE]
        parts.append(_fenced(lessons_table(outcome["points"])))
    return "".join(parts)


def lessons(points: _POINTS) -> list[str]:
    """What the numbers say, a sentence or two each; nothing that they do not show."""
    return [
        said for lesson in (_falling, _dear_when_idle, _closed_loops, _weights, _switches) for said in lesson(points)
    ]


def _falling(points: _POINTS) -> list[str]:
    found = []
    for case, own in _cases(points, "curve").items():
        first = own[0]
        least = min(own, key=lambda point: point["p95_us"])
        if least["p95_us"] < FALLS * first["p95_us"]:
            found.append(
                f"**p95 falls as load grows, at first.** {case}: {first['p95_us']:.0f} us at {first['offered']:,.0f}/s, "
                f"{least['p95_us']:.0f} us at {least['offered']:,.0f}/s. A core that sleeps must be woken for nearly every "
                "request; no open queue has a curve that falls."
            )
    return found


def _dear_when_idle(points: _POINTS) -> list[str]:
    found = []
    for case, own in _cases(points, "curve").items():
        first, last = own[0]["cpu_per_request_us"], own[-1]["cpu_per_request_us"]
        if last < FALLS * first:
            found.append(
                f"**CPU time per request is not constant.** {case}: {first:.1f} us at {own[0]['offered']:,.0f}/s and "
                f"{last:.1f} us at {own[-1]['offered']:,.0f}/s. So the use of a core tells less of how much more it can "
                "take than the number of queries does."
            )
    return found


def _closed_loops(points: _POINTS) -> list[str]:
    found = []
    cases = _cases(points, "loops")
    for case, (closed, *_) in cases.items():
        if not case.startswith("closed loop, ") or (name := case.replace("closed", "open", 1)) not in cases:
            continue
        opened = cases[name][0]
        if closed["p95_us"] < FALLS * opened["p95_us"]:
            found.append(
                f"**A closed loop hides what a neighbour does.** {case.partition(', ')[2]} beside a batch job on the same "
                f"core: p95 {closed['p95_us']:,.0f} us in a closed loop at {closed['answered']:,.0f}/s, "
                f"{opened['p95_us']:,.0f} us in an open loop at the same rate. While the server does not run, a closed loop "
                "asks nothing."
            )
    return found


def _weights(points: _POINTS) -> list[str]:
    cases = _cases(points, "protection")
    found = []
    for case, title in (
        ("batch, lowest weight", "The lowest weight does not protect everything"),
        (f"batch, quota of {QUOTA:g} cores", "A quota protects from little"),
    ):
        for alone, other, equal in zip(
            cases.get("alone", []), cases.get(case, []), cases.get("batch, equal weight", []), strict=False
        ):
            for name, text in (("p95_us", "p95"), ("p99_us", "p99")):
                if alone[name] < 0.5 * other[name]:
                    found.append(
                        f"**{title}.** {case}, at {other['offered']:,.0f}/s: {text} {other[name]:,.0f} us, against "
                        f"{alone[name]:,.0f} us alone and {equal[name]:,.0f} us at equal weight."
                    )
                    break
    return found


def _switches(points: _POINTS) -> list[str]:
    own = {point["case"]: point for point in points if point["lesson"] == "switching"}
    before, first = own.get("two cores to one: before"), own.get("two cores to one: first 0.4 s")
    resumed, settled = own.get("batch resumed on its core: before"), own.get("batch resumed on its core: after")
    found = []
    if before and first and first["p95_us"] < 2.0 * before["p95_us"]:
        found.append(
            f"**Moving memcached costs little below capacity.** From two cores to one at {before['offered']:,.0f}/s: p95 "
            f"{before['p95_us']:,.0f} us before, {first['p95_us']:,.0f} us in the 0.4 s after."
        )
    if resumed and settled and settled["p95_us"] > 2.0 * resumed["p95_us"]:
        found.append(
            f"**A neighbour on the same core at equal weight costs much.** p95 {resumed['p95_us']:,.0f} us while it is "
            f"paused, {settled['p95_us']:,.0f} us once it goes on, at {resumed['offered']:,.0f}/s."
        )
    return found


def _cases(points: _POINTS, lesson: str) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        if point["lesson"] == lesson and point["p95_us"] is not None:
            found.setdefault(point["case"], []).append(point)
    return found


def _fenced(text: str) -> str:
    return f"\n```text\n{text}\n```\n"


@click.command()
def main() -> None:
    """Write docs/node-agent-run.md from the results that `python -m benchmarks.node_agent --write` kept."""
    if not RESULTS.exists():
        message = f"there are no results yet ({RESULTS.name})"
        raise click.ClickException(f"{message}: python -m benchmarks.node_agent --write")
    write_page()


if __name__ == "__main__":
    main()
