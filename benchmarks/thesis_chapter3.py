"""Chapter 3 of the thesis: packed against spread GPUs, two jobs on one machine, GPUs over a loaded network.

All values come of runs with the bundled profiles ``thesis``, whose sources say what the thesis states and what is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.thesis_cell import Cell, Kind, ThesisTable
from flowsched_models.catalogue import Catalogue
from flowsched_models.forecast import forecast
from flowsched_models.gpu_topology import GpuTopology
from flowsched_models.runtime import HostFactory, Resident
from flowsched_simulator import Scenario, make_scenario, simulate

PACK_SPREAD, CO_LOCATION, NETWORK = "pack-spread", "co-location", "network-share"
INTERLEAVED = "interleaved"
"""A machine whose sockets have every other GPU: jobs of two GPUs, which take the first that are free, span both."""


@dataclass(frozen=True)
class GpuMachine:
    """A kind of machine of the thesis."""

    name: str
    machine_type: str
    model: str
    topology: str


NVLINK = GpuMachine("NVLink + P100", "minsky", "P100", "minsky")
PCIE = GpuMachine("PCIe + K80", "firestone", "K80", "pcie-2socket")
ON_NVLINK = {1: 1.27, 2: 1.30, 8: 1.20, 64: 1.0, 128: 1.0}
"""Speed of packed over spread, by batch size of AlexNet (3.2.3); even above 16."""
ON_PCIE = {1: 1.24, 2: 1.21, 8: 1.1}
PROFILES = {1: "alexnet-tiny", 2: "alexnet-batch-2", 8: "alexnet-batch-8", 64: "alexnet-medium", 128: "alexnet-big"}
COMMUNICATION_S = 2.0
"""Of 40 iterations, at every batch size (Fig. 11)."""
FITTED_BATCHES = (1, 2)
BREAKDOWN_BAND = 0.07
"""The breakdown knows nothing of the batch sizes but how long they compute; the thesis gives two digits and says "about"."""
INPUT_BAND, INPUT_BAND_PERCENT = 0.005, 0.5
"""Half of the last digit that the thesis gives of what went into the profiles."""
BESIDE = (("tiny", "tiny", 30.0), ("tiny", "big", 24.0), ("small", "big", 21.0), ("big", "big", 0.0))
"""% that the first is slower beside the second (Fig. 13)."""
SHARES = {
    "b-plus-tree": (0.2, 1.0),
    "needleman-wunsch": (17.0, 49.0),
    "back-propagation": (5.0, 6.0),
    "gaussian": (1.0, 9.0),
    "lava-md": (2.0, 3.0),
    "pathfinder": (2.0, 11.0),
    "srad": (3.0, 8.0),
}
"""% of the run time in the network, alone and beside network load (Fig. 14)."""


def run_s(machine: GpuMachine, jobs: Sequence[str], spread: bool, changed: Mapping[str, float] | None = None) -> float:
    """Simulated run time of the first of some jobs that start together, of two GPUs each.

    ``changed``: how many times longer a profile runs spread, instead of what it says itself.
    """
    asked = [{"name": f"job-{k}", "profile": p, "request": 1, "gpus": {"count": 2}} for k, p in enumerate(jobs)]
    gpus = {"model": machine.model, "count": 4, "topology": machine.topology}
    here = {"name": "m", "type": machine.machine_type, "gpus": gpus}
    scenario = make_scenario(name="chapter-3", profiles=["thesis"], machines=[here], jobs=asked)
    run = simulate(_prepared(scenario, spread, changed or {}), "fcfs", variant="declared-shared")
    (first,) = (job for job in run.jobs if job.job == "job-0")
    if first.start_s is None or first.end_s is None:
        raise RuntimeError(f"{jobs[0]} did not end on {machine.name}")
    return first.end_s - first.start_s


def _prepared(scenario: Scenario, spread: bool, changed: Mapping[str, float]) -> Scenario:
    catalogue = scenario.catalogue
    jobs = dict(catalogue.jobs)
    for name, longer in changed.items():
        jobs[name] = replace(jobs[name], gpus=replace(jobs[name].gpus, links={"bus": longer}))
    (machine,) = scenario.machines
    topologies = dict(catalogue.gpu_topologies)
    if spread:
        assert machine.gpus is not None
        topologies[INTERLEAVED] = interleaved(topologies[machine.gpus.topology])
        machine = replace(machine, gpus=replace(machine.gpus, topology=INTERLEAVED))
    known = replace(catalogue, jobs=jobs, gpu_topologies=topologies)
    return replace(scenario, machines=(machine,), catalogue=known)


def interleaved(topology: GpuTopology) -> GpuTopology:
    """The same machine with its GPUs numbered across the sockets in turns."""
    order = [device for devices in zip(*topology.sockets, strict=True) for device in devices]
    number = {device: k for k, device in enumerate(order)}
    links = tuple(
        replace(one, between=tuple((_renumbered(a, number), _renumbered(b, number)) for a, b in one.between))
        for one in topology.links
    )
    sockets = tuple(tuple(number[device] for device in socket) for socket in topology.sockets)
    return GpuTopology(INTERLEAVED, sockets, links)


def _renumbered(end: int | str, number: Mapping[int, int]) -> int | str:
    return number[end] if isinstance(end, int) else end


def pack_over_spread(machine: GpuMachine, profile: str, longer: float | None = None) -> float:
    """How many times faster a job runs on packed GPUs than on spread ones, of two simulated runs."""
    changed = None if longer is None else {profile: longer}
    return run_s(machine, [profile], True, changed) / run_s(machine, [profile], False, changed)


def computation_s(batch: int) -> float:
    """Of 40 iterations: the line through 1 s at batch 1 and 66 s at batch 128 (Fig. 11)."""
    return 0.49 + 0.512 * batch


def communication_growth() -> float:
    """How many times longer communication takes when spread, by least squares on the fitted batch sizes."""
    part = {b: COMMUNICATION_S / (computation_s(b) + COMMUNICATION_S) for b in FITTED_BATCHES}
    excess = sum(part[b] * (ON_NVLINK[b] - 1.0) for b in FITTED_BATCHES)
    return 1.0 + excess / sum(p**2 for p in part.values())


def breakdown(batch: int) -> float:
    """How many times longer a batch size runs spread, if only communication grows."""
    whole = computation_s(batch) + COMMUNICATION_S
    return 1.0 + COMMUNICATION_S * (communication_growth() - 1.0) / whole


def pack_spread_cells() -> Iterator[Cell]:
    """What the text says of Fig. 10, by machine, and what Fig. 11 makes of other batch sizes."""
    for batch, profile in PROFILES.items():
        row = f"AlexNet, batch {batch}"
        for machine, published in ((NVLINK, ON_NVLINK), (PCIE, ON_PCIE)):
            if batch in published:
                value = published[batch]
                ours = pack_over_spread(machine, profile)
                yield Cell(PACK_SPREAD, row, machine.name, value, value, ours, Kind.INPUT, INPUT_BAND)
        kind = Kind.FITTED if batch in FITTED_BATCHES else Kind.PREDICTED
        value, ours = ON_NVLINK[batch], pack_over_spread(NVLINK, profile, breakdown(batch))
        yield Cell(PACK_SPREAD, row, "NVLink, by breakdown", value, value, ours, kind, BREAKDOWN_BAND)


def co_location_cells() -> Iterator[Cell]:
    """What the text says of Fig. 13. Both jobs are spread: then they share both sockets."""
    for one, other, published in BESIDE:
        alone, both = (
            run_s(NVLINK, [f"alexnet-{size}" for size in sizes], spread=True) for sizes in ((one,), (one, other))
        )
        slower = 100.0 * (both / alone - 1.0)
        row, column = f"AlexNet {one}", f"beside {other}"
        yield Cell(CO_LOCATION, row, column, published, published, slower, Kind.INPUT, INPUT_BAND_PERCENT)


def network_cells() -> Iterator[Cell]:
    """What the text says of Fig. 14. The network's part of the loaded run is all that it is longer by."""
    scenario = make_scenario(
        name="chapter-3",
        profiles=["thesis"],
        machines=[{"name": "m", "type": PCIE.machine_type}],
        jobs=[{"name": "j", "profile": "srad", "request": 1}],
    )
    for profile, (before, after) in SHARES.items():
        alone, loaded = (remote_s(scenario.catalogue, names) for names in ([profile], [profile, "network-load"]))
        share = 100.0 * (1.0 - (1.0 - before / 100.0) * alone / loaded)
        yield Cell(NETWORK, profile, "beside network load", after, after, share, Kind.INPUT, INPUT_BAND_PERCENT)


def remote_s(catalogue: Catalogue, profiles: Sequence[str]) -> float:
    """Run time of the first of some jobs with GPUs over the network of one machine, by the run-time model."""
    residents = [
        Resident(name, 1.0, 1, (k,), 1.0, gpus=catalogue.jobs[name].gpus.use(PCIE.model, None, (k,), remote=True))
        for k, name in enumerate(profiles)
    ]
    return forecast(HostFactory(catalogue).host(PCIE.machine_type), residents).residents_s[0]


TABLES = (
    ThesisTable(PACK_SPREAD, "speed of packed over spread GPUs (Fig. 10 and section 3.2.3)", pack_spread_cells),
    ThesisTable(CO_LOCATION, "slow-down beside another job in % (Fig. 13)", co_location_cells, 1),
    ThesisTable(NETWORK, "share of the run time in the network in % (Fig. 14)", network_cells, 1),
)
