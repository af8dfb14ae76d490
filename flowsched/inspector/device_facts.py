"""Which GPUs of each machine a round found in use, and which it gave away: the devices as a page draws them."""

from __future__ import annotations

from dataclasses import dataclass

from flowsched.cluster.snapshot_dump import plain_gpu_topologies, plain_machine_gpus, plain_task_gpus
from flowsched.gpu.devices import taken, untouched
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.running_changes import changes_of
from flowsched.records.level_types import RecordedMove
from flowsched.records.snapshot_types import RecordedRunning
from flowsched_models.gpu_topology import GpuTopology

RUNS, STARTS, MOVES_IN, PREEMPTED, MOVES_OUT = "runs", "starts", "moves here", "is preempted", "moves away"
"""What a task does on the devices of a machine; the last two leave them with the round."""
LEAVING = (PREEMPTED, MOVES_OUT)


@dataclass(frozen=True)
class DeviceHold:
    """A task on some devices of a machine."""

    task: str
    does: str
    devices: tuple[int, ...]
    share_milli: int
    """Of each of them."""
    link_class: str | None = None
    """The slowest class of link between them; None for one device, and where links are not known."""


@dataclass(frozen=True)
class MachineDevices:
    """The devices of a machine in a round."""

    model: str
    left_before: tuple[int, ...]
    """Thousandths of each device that nothing held when the round began."""
    left_after: tuple[int, ...]
    """The same once the round is carried out."""
    holds: tuple[DeviceHold, ...]
    """What runs there, then what comes."""
    topology: GpuTopology | None = None
    """How they are linked, where that is known."""


def machine_devices(recorded: RecordView, part: Part) -> dict[str, MachineDevices]:
    """By name, the machines of a part that have GPUs. Devices are those that the record names: none is made up."""
    if not part.by_forecasts:
        return {}
    snapshot = part.forecast["snapshot"]
    gpus = {m["name"]: found for m in snapshot["machines"] if (found := plain_machine_gpus(m)) is not None}
    if not gpus:
        return {}
    running = snapshot.get("running", ())
    known = plain_gpu_topologies(snapshot)
    # One that is of other devices says nothing about these.
    links = {n: t for n, g in gpus.items() if (t := known.get(g.topology)) is not None and t.count == g.count}
    asks = {t["name"]: plain_task_gpus(t) for t in (*(r["task"] for r in running), *snapshot.get("pending", ()))}
    changes = changes_of(recorded)
    leaves, moves = {c["task"]: PREEMPTED for c in changes["preemptions"]}, changes["moves"]
    leaves |= {c["task"]: MOVES_OUT for c in moves}
    holds: dict[str, list[DeviceHold]] = {name: [] for name in gpus}
    before = {name: untouched(found) for name, found in gpus.items()}
    after = dict(before)
    there = [(RUNS, r["machine"], r["task"]["name"], _devices(r)) for r in running]
    comes = [(STARTS, p.machine, p.task, p.devices) for p in part.placements]
    comes += [(MOVES_IN, m["machine"], m["task"], _devices(m)) for m in moves]
    for does, name, task, devices in (*there, *comes):
        wanted = asks.get(task)
        if name not in gpus or wanted is None or not devices:
            continue
        if does == RUNS:
            before[name] = taken(before[name], wanted, devices)
            does = leaves.get(task, RUNS)
        if does not in LEAVING:
            after[name] = taken(after[name], wanted, devices)
        link_class = links[name].slowest_class(devices) if name in links else None
        holds[name].append(DeviceHold(task, does, devices, wanted.share_milli, link_class))
    return {
        name: MachineDevices(gpus[name].model, before[name], after[name], tuple(holds[name]), links.get(name))
        for name in gpus
    }


def _devices(place: RecordedRunning | RecordedMove) -> tuple[int, ...]:
    return tuple(int(d) for d in place.get("devices", ()))
