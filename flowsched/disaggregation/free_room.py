"""What is left of machines while a round places tasks one after the other, and how loaded their networks are."""

from __future__ import annotations

from flowsched.cluster.resource import covers, without
from flowsched.cluster.running_tasks import entries_of
from flowsched.cluster.snapshot import Machine, Snapshot, Task
from flowsched.gpu.devices import fullest, given_back, has_devices, suits, taken

_NEVER_LIMITS = 1 << 31


class FreeRoom:
    """A round's working copy; what is taken may be given back."""

    def __init__(self, snapshot: Snapshot) -> None:
        """What running tasks and services leave."""
        self.machines: tuple[Machine, ...] = tuple(sorted(snapshot.machines, key=lambda m: m.name))
        self._of = {m.name: m for m in self.machines}
        self._catalogue = snapshot.catalogue
        self._cpu = snapshot.free_milli()
        self._memory = snapshot.free_memory_mib()
        self._resources = snapshot.free_resources() if any(m.resources for m in self.machines) else {}
        self._devices = snapshot.devices_left()
        self._load = dict.fromkeys(self._of, 0.0)
        for r in entries_of(snapshot.running):
            if r.remote or r.devices:
                self.add_load(r.task, r.machine, r.remote)

    def fits(self, task: Task, machine: str) -> bool:
        """Whether a task may start on a machine now."""
        if task.machines is not None and machine not in task.machines:
            return False
        if task.widths_milli[0] > self._cpu[machine] or task.memory_mib > self._memory[machine]:
            return False
        if task.resources and not covers(self._resources.get(machine, {}), task.resources):
            return False
        if task.gpus is None:
            return True
        return suits(self._of[machine].gpus, task.gpus) and has_devices(self._devices[machine], task.gpus)

    def times(self, task: Task, machine: str) -> int:
        """How many tasks like this one may start on a machine now."""
        if not self.fits(task, machine):
            return 0
        most = [_NEVER_LIMITS]
        if task.widths_milli[0]:
            most.append(self._cpu[machine] // task.widths_milli[0])
        if task.memory_mib:
            most.append(self._memory[machine] // task.memory_mib)
        most += [self._resources[machine].get(name, 0) // units for name, units in task.resources if units]
        if task.gpus is not None:
            each = [milli // task.gpus.share_milli for milli in self._devices[machine]]
            most.append(sum(each) // task.gpus.count)
        return min(most)

    def take(self, task: Task, machine: str) -> tuple[int, ...]:
        """A task starts: the devices that it gets."""
        self._cpu[machine] -= task.widths_milli[0]
        self._memory[machine] -= task.memory_mib
        if task.resources:
            self._resources[machine] = without(self._resources[machine], task.resources)
        if task.gpus is None:
            return ()
        devices = tuple(sorted(fullest(self._devices[machine], task.gpus)))
        self._devices[machine] = taken(self._devices[machine], task.gpus, devices)
        return devices

    def give_back(self, task: Task, machine: str, devices: tuple[int, ...]) -> None:
        """A task does not start after all."""
        self._cpu[machine] += task.widths_milli[0]
        self._memory[machine] += task.memory_mib
        for name, units in task.resources:
            self._resources[machine][name] = self._resources[machine].get(name, 0) + units
        if task.gpus is not None:
            self._devices[machine] = given_back(self._devices[machine], task.gpus, devices)

    def totals(self) -> tuple[int, int, int]:
        """What is free of CPU (milli), memory (MiB) and devices (milli) in all machines together."""
        devices = sum(sum(left) for left in self._devices.values())
        return sum(max(0, c) for c in self._cpu.values()), sum(max(0, m) for m in self._memory.values()), devices

    def load(self, machine: str) -> float:
        """Pressure on the network of a machine by the jobs that reach GPUs over it."""
        return self._load[machine]

    def most_loaded(self) -> float:
        """The same of the machine with the most."""
        return max(self._load.values(), default=0.0)

    def add_load(self, task: Task, machine: str, remote: bool) -> None:
        """A task with or without parts of its job elsewhere runs on a machine."""
        profile = self._catalogue.jobs[task.profile].gpus
        if remote or (task.gpus is not None and profile.network_when_local):
            self._load[machine] += profile.network.pressure
