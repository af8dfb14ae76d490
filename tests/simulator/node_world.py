"""A small machine, and controllers that do as they are told, for tests of node simulations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from flowsched.node import Allocation, NodeService, NodeTask, Reading, TaskGrant
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import load_catalogue
from flowsched_simulator.node.run import NodeRun
from flowsched_simulator.node.scenario import Load, NodeScenario
from flowsched_simulator.node.scenario_form import PolicyForm
from flowsched_simulator.node.simulation import NodeOptions, NodeSimulation
from flowsched_simulator.node.wave import LoadRange


@cache
def catalogue() -> Catalogue:
    return load_catalogue()


def memcached(name: str = "memcached", cores: tuple[int, ...] = (0, 1), slo_us: float = 1000.0) -> NodeService:
    return NodeService(name, "memcached", 2, slo_us, "mcperf-sweep", cores)


def scenario(
    *,
    jobs: Mapping[str, float] | None = None,
    wave: tuple[float, ...] = (20_000.0, 60_000.0),
    submit_s: tuple[float, ...] | None = None,
    services: tuple[NodeService, ...] = (memcached(),),
    interval_s: float = 5.0,
    start_delay_s: float = 0.0,
) -> NodeScenario:
    """``jobs``: scale by profile."""
    jobs = {"radix": 0.2, "vips": 0.1} if jobs is None else jobs
    tasks = tuple(NodeTask(name, name, 2, scale) for name, scale in jobs.items())
    return NodeScenario(
        "small",
        "for tests",
        catalogue(),
        "n2d-highmem-4",
        (0, 1, 2, 3),
        services,
        tuple(Load(wave, LoadRange(5_000.0, 50_000.0)) for _ in services),
        tasks,
        submit_s or (0.0,) * len(tasks),
        interval_s,
        start_delay_s,
    )


@dataclass
class Scripted:
    """Decides by a function, and keeps every reading."""

    rule: Callable[[Reading], Allocation | None]
    period_s: float = 0.1
    seen: list[Reading] = field(default_factory=list)

    def decide(self, reading: Reading) -> Allocation | None:
        self.seen.append(reading)
        return self.rule(reading)


def run_all(cores: tuple[int, ...] = (2, 3)) -> Callable[[Reading], Allocation]:
    """Everything at once on some cores."""
    return lambda reading: Allocation(tasks={t.task.name: TaskGrant(True, cores) for t in reading.tasks})


def run(
    rule: Callable[[Reading], Allocation | None] | None = None,
    *,
    of: NodeScenario | None = None,
    options: NodeOptions | None = None,
    controller: Scripted | None = None,
    threads: Mapping[str, int] | None = None,
) -> NodeRun:
    controller = controller or Scripted(rule or run_all())
    of = of or scenario()
    hinted = replace(of, hints={"scripted": PolicyForm(threads=dict(threads or {}))})
    return NodeSimulation(hinted, "scripted", controller, options).run()
