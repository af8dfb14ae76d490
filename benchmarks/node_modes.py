"""Ways to share two cores between memcached and a batch job: fixed ones, and the agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live_node import Agent, BatchWorker, LiveError, Memcached, free_port, pin, wait_for
from benchmarks.node_calibration import KEYS, SLO_US, NodeCapacity, Site
from flowsched.node import LOWEST_WEIGHT
from flowsched_agent.controls.choice import control_of_process
from flowsched_agent.controls.detected import detect
from flowsched_agent.system import System

READY_LIMIT_S = 120.0
"""Of the agent: the first time on a machine it compiles for half a minute."""
READY_TICKS = 20
CONTROLLER_FAILED = "the controller failed"
"""What the agent writes down where it had no decision: such a run says nothing of the controller."""


@dataclass(frozen=True)
class Mode:
    """One way."""

    name: str
    service_cores: int
    batch_cores: int
    """Cores that the batch job may use, from the second core on; 0: there is none."""
    weight: float = 1.0
    """Of the batch job, relative to the default of Linux."""
    agent: bool = False
    """Everything above is only where the agent finds them."""

    @property
    def batch(self) -> bool:
        """Whether there is a batch job."""
        return self.batch_cores > 0


MODES = (
    Mode("one core, batch always", 1, 1),
    Mode("two cores, no batch", 2, 0),
    Mode("two cores, batch always", 2, 2),
    Mode("two cores, batch at the lowest weight", 2, 2, LOWEST_WEIGHT),
    Mode("agent with flow-node", 2, 2, agent=True),
)


@contextmanager
def set_up(
    mode: Mode, site: Site, capacity: NodeCapacity, folder: Path, memcached: Memcached, batch: BatchWorker | None
) -> Iterator[Agent | None]:
    """Memcached and the batch job as a mode wants them; the agent, ready, where it decides."""
    pin(memcached.pid, site.cores(mode.service_cores))
    if batch is None:
        yield None
        return
    pin(batch.pid, (site.other, site.service)[: mode.batch_cores])
    if mode.agent:
        with agent_for(site, capacity, folder, memcached, batch) as agent:
            yield agent
        return
    system = System()
    if mode.weight != 1.0:
        control = control_of_process("batch", batch.pid, detect(system), system)
        control.set_weight(mode.weight)
        try:
            yield None
        finally:
            control.restore()
    else:
        yield None


@contextmanager
def agent_for(
    site: Site, capacity: NodeCapacity, folder: Path, memcached: Memcached, batch: BatchWorker
) -> Iterator[Agent]:
    """The agent that steers both, once it decides. It is ended by SIGTERM, so that it restores everything."""
    configuration = folder / "agent.yaml"
    configuration.write_text(agent_configuration(site, capacity, folder, memcached, batch), encoding="utf-8")
    record = folder / "record.csv"
    with Agent(configuration, folder, ["--record", str(record)]) as agent:
        wait_for(lambda: not agent.running() or ticks(record) >= READY_TICKS, READY_LIMIT_S, "the first decisions", 0.1)
        if not agent.running():
            raise LiveError(f"the agent ended: {agent.said()[-2000:]}")
        yield agent
        code = agent.terminate()
        if code != 0:
            raise LiveError(f"the agent ended with code {code}: {agent.said()[-2000:]}")
        if failed := record.read_text(encoding="utf-8").count(CONTROLLER_FAILED):
            raise LiveError(f"the controller failed ({failed} lines of the record): {agent.said()[-2000:]}")


def agent_configuration(
    site: Site, capacity: NodeCapacity, folder: Path, memcached: Memcached, batch: BatchWorker
) -> str:
    """Its file; JSON is YAML. Memcached counts keys, so loads here are keys per second."""
    return json.dumps(
        {
            "apiVersion": "agent.flowsched.io/v1alpha1",
            "kind": "NodeAgent",
            "cores": list(site.cores(2)),
            "services": [
                {
                    "name": "memcached",
                    "profile": "memcached",
                    "port": memcached.port,
                    "threads": memcached.threads,
                    "slo": {"p95": f"{SLO_US:g}us"},
                    "cores": list(site.cores(2)),
                    "capacity": {str(count): KEYS * capacity.at_most(count) for count in capacity.within_slo},
                }
            ],
            "tasks": [{"name": "batch", "find": {"pid": batch.pid}}],
            "server": f"127.0.0.1:{free_port()}",
            "stateFile": str(folder / "agent-state.json"),
            "logging": {"verbosity": 1},
        },
        indent=2,
    )


def ticks(record: Path) -> int:
    """Decisions that stand in the agent's record."""
    try:
        return sum(1 for line in record.read_text(encoding="utf-8").splitlines() if ",service,memcached," in line)
    except FileNotFoundError:
        return 0
