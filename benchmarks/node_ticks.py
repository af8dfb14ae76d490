"""How long a tick of flow-node takes, in a run of a bundled scenario.

python -m benchmarks.node_ticks
python -m benchmarks.node_ticks --scenario node-4core-two-services
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np

from benchmarks.machine import describe_machine, measured_on
from flowsched.node import Allocation, Reading
from flowsched.node.flow_node import FlowNode, prepare
from flowsched_simulator.node.scenario_file import load_node_scenario
from flowsched_simulator.node.simulation import NodeOptions, NodeSimulation

RESULTS = Path(__file__).parent / "results"


class Timed:
    """A controller, and what its ticks took."""

    def __init__(self, controller: FlowNode) -> None:
        self.controller = controller
        self.period_s = controller.period_s
        self.ms: list[float] = []

    def decide(self, reading: Reading) -> Allocation | None:
        began = time.perf_counter()
        allocation = self.controller.decide(reading)
        self.ms.append((time.perf_counter() - began) * 1e3)
        return allocation


@click.command()
@click.option("--scenario", "names", multiple=True, default=("node-4core-dynamic", "node-4core-two-services"))
@click.option("--keep/--no-keep", default=True, help="Write the table under benchmarks/results.")
def main(names: tuple[str, ...], keep: bool) -> None:
    """Run and print the table."""
    lines = [
        f"{'scenario':<26} {'ticks':>6} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8} {'longest':>8} {'over 100 ms':>12}"
    ]
    for name in names:
        scenario = load_node_scenario(name)
        prepare(scenario.node)
        timed = Timed(FlowNode(scenario.node))
        NodeSimulation(scenario, "flow-node", timed, NodeOptions()).run()
        ms = np.array(timed.ms)
        p50, p95, p99 = np.percentile(ms, [50, 95, 99])
        lines.append(
            f"{name:<26} {len(ms):>6} {p50:>8.3f} {p95:>8.1f} {p99:>8.1f} {ms.max():>8.0f} {int((ms > 100.0).sum()):>12}"
        )
    text = "\n".join([*lines, "", measured_on(describe_machine())])
    if keep:
        (RESULTS / "node_ticks.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
