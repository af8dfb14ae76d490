"""A process that forks agents on request: for tests that kill them at any moment, without waiting for imports each time.

Reads a line, forks an agent, prints its process id; prints ``ended CODE`` when it is gone. The controller changes everything
it can at every tick.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from flowsched.node import LOWEST_WEIGHT, Allocation, Node, Reading, TaskGrant
from flowsched_agent.configuration_file import load_configuration
from flowsched_agent.logs import set_up_logging
from flowsched_agent.process import Wish, run_agent


class Restless:
    """Pauses, weighs down and moves all tasks at random."""

    period_s = 0.01

    def __init__(self, node: Node, seed: int) -> None:
        self._cores = node.cores
        self._rng = random.Random(seed)

    def decide(self, reading: Reading) -> Allocation:
        rng = self._rng
        return Allocation(
            tasks={
                t.task.name: TaskGrant(
                    run=rng.random() < 0.5,
                    cores=(rng.choice(self._cores),),
                    weight=rng.choice([LOWEST_WEIGHT, 0.25, 1.0]),
                )
                for t in reading.tasks
            }
        )


def main() -> None:
    configuration = load_configuration(Path(sys.argv[1]))
    for number, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            set_up_logging("text", 0)
            code = 70
            try:
                code = run_agent(
                    configuration.model_copy(update={"server": None}),
                    Wish(),
                    lambda node: Restless(node, number),  # noqa: B023
                )
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
