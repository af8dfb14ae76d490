"""What a snapshot must agree with itself about before a state can be made of it.

Snapshot files are checked as they are read, with the place of every mistake (:mod:`flowsched.cluster.snapshot_file`). This
is for snapshots that a program made. Room is not checked: what runs may have been bound before its machine became smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from flowsched.cluster.snapshot import Snapshot
from flowsched.errors import EventError
from flowsched.gpu.devices import suits


def forbid_contradictions(snapshot: Snapshot) -> None:
    """Raise :class:`EventError` with the first contradiction: a name that is there twice or that nothing has, or devices
    that a machine does not have.
    """
    for contradiction in _contradictions(snapshot):
        raise EventError(contradiction)


def _contradictions(snapshot: Snapshot) -> Iterator[str]:
    catalogue = snapshot.catalogue
    machines = {m.name: m for m in snapshot.machines}
    tasks = [*(r.task for r in snapshot.running), *snapshot.pending]
    for what, names in (
        ("machine", [m.name for m in snapshot.machines]),
        ("service", [s.name for s in snapshot.services]),
        ("task", [t.name for t in tasks]),
    ):
        yield from (f"the snapshot has {count} {what}s named {n}" for n, count in Counter(names).items() if count > 1)
    for m in snapshot.machines:
        if m.type not in catalogue.machine_types:
            yield f"{m.name} is of machine type {m.type}, which is not in the catalogue"
    for s in snapshot.services:
        if s.profile not in catalogue.services:
            yield f"{s.name} has service profile {s.profile}, which is not in the catalogue"
        if s.machine not in machines:
            yield f"{s.name} runs on {s.machine}, which is not in the cluster"
    relations, groups = {r.name for r in snapshot.relations}, {g.name for g in snapshot.task_groups}
    for t in tasks:
        if t.profile not in catalogue.jobs:
            yield f"{t.name} has job profile {t.profile}, which is not in the catalogue"
        for name in (*t.holds, *t.joins):
            if name not in relations:
                yield f"{t.name} names relation {name}, which is not there"
        if t.group is not None and t.group not in groups:
            yield f"{t.name} names task group {t.group}, which is not there"
    for r in snapshot.running:
        machine, wanted = machines.get(r.machine), r.task.gpus
        if machine is None:
            yield f"{r.task.name} runs on {r.machine}, which is not in the cluster"
        elif wanted is not None:
            count = 0 if machine.gpus is None else machine.gpus.count
            if not suits(machine.gpus, wanted) or not all(0 <= d < count for d in r.devices):
                yield f"{r.task.name} has devices {r.devices} of {r.machine}, which does not have {wanted}"
    for counted in snapshot.relation_counts:
        if counted.machine not in machines:
            yield f"relation {counted.relation} counts tasks on {counted.machine}, which is not in the cluster"
        if counted.relation not in relations:
            yield f"tasks on {counted.machine} are counted by relation {counted.relation}, which is not there"
