"""Whether the tasks of a scenario fit on any of its machines, and what to say of those that do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from flowsched.cluster.resource import amount_text, covers
from flowsched.cluster.snapshot import MILLI, Machine, Service, Task
from flowsched.gpu.devices import WHOLE_MILLI, MachineGpus, TaskGpus, suits
from flowsched_models.document import Problems
from flowsched_models.quantity import format_memory, format_milli
from flowsched_simulator.job_form import JobEntry

_MANY = 2**31


def check_fit(
    problems: Problems,
    tasks: Iterable[tuple[Task, JobEntry]],
    machines: Sequence[Machine],
    services: Iterable[Service],
) -> None:
    """Report jobs that ask for more than any machine they may run on has beside its services."""
    room = _room(machines, services)
    tasks = list(tasks)
    _check_barriers(problems, tasks, machines, room)
    seen: set[tuple[int, bool]] = set()
    fitting: set[tuple[object, ...]] = set()
    for task, entry in tasks:
        demand = (task.widths_milli[0], task.request_milli, task.memory_mib, task.resources, task.machines, task.gpus)
        # The copies of an entry differ by name only, and so do most jobs of a trace.
        kind = id(entry), task.gpus_for != ""
        if kind in seen or demand in fitting:
            continue
        seen.add(kind)
        mine = None if task.machines is None else set(task.machines)
        allowed = {n: r for n, r in room.items() if mine is None or n in mine}
        able = {m.name for m in machines if covers(dict(m.resources), task.resources)}
        if task.resources and allowed and not able & allowed.keys():
            message = f"job '{entry.form.name}' needs {amount_text(task.resources)} on one machine; none has that much"
            problems.add(entry.problem("resources", message, "ask for less, or add it to a machine's resources"))
            continue
        allowed = {n: r for n, r in allowed.items() if n in able}
        if task.gpus is not None and allowed:
            able = {m.name for m in machines if suits(m.gpus, task.gpus)}
            if not able & allowed.keys():
                problems.add(entry.problem("gpus", *_without_gpus(entry.form.name, task, machines)))
                continue
            allowed = {n: r for n, r in allowed.items() if n in able}
        for key, milli, words in (
            ("widths", task.widths_milli[0], "needs at least"),
            ("request", task.request_milli, "requests"),
        ):
            if allowed and not any(milli <= c and task.memory_mib <= m for c, m in allowed.values()):
                key = key if getattr(entry.form, key) is not None else "request"
                problems.add(entry.problem(*_misfit(entry.form.name, key, words, milli, task, allowed)))
                break
        else:
            fitting.add(demand)


def _without_gpus(name: str, task: Task, machines: Sequence[Machine]) -> tuple[str, str]:
    """Message and help for a job that no machine has the GPUs for."""
    wanted = task.gpus
    assert wanted is not None, "it asks for GPUs"
    known = sorted({m.gpus.model for m in machines if m.gpus is not None})
    message = f"job '{name}' needs {wanted} on one machine"
    if not known:
        return f"{message}; no machine has GPUs", "say of a machine gpus: {model: V100, count: 8}"
    among = "" if task.machines is None else " that it may run on"
    if wanted.models and not set(wanted.models) & set(known):
        return f"{message}; no machine has that model", f"the models here are {', '.join(known)}"
    most = max(
        (m.gpus.count for m in machines if m.gpus is not None and suits(m.gpus, replace(wanted, count=1))), default=0
    )
    return f"{message}; the machines{among} have {most} at most", "ask for fewer, or add a machine with more"


def _check_barriers(
    problems: Problems,
    tasks: Iterable[tuple[Task, JobEntry]],
    machines: Sequence[Machine],
    room: Mapping[str, tuple[int, int]],
) -> None:
    """Report jobs whose tasks start together, and would not even if nothing else ran."""
    seen: set[int] = set()
    for task, entry in tasks:
        form = entry.form
        if task.gpus_for and id(entry) not in seen:
            seen.add(id(entry))
            _check_gpu_sum(problems, task, entry, machines)
        if not form.has_barrier or id(entry) in seen:
            continue
        seen.add(id(entry))
        mine = None if task.machines is None else set(task.machines)
        here = [m for m in machines if mine is None or m.name in mine]
        milli = min(task.widths_milli[0], task.request_milli)
        most = sum(_times(m, room[m.name], task, milli) for m in here)
        # A task that fits on no machine at all is told of by itself.
        if 0 < most < form.tasks:
            among = "" if mine is None else " that it may run on"
            held = f"the machines{among} hold {most} of them when idle"
            message = f"job '{form.name}' starts {form.tasks} tasks together; {held}"
            problems.add(entry.problem("tasks", message, "ask for fewer or smaller tasks, or add machines"))


def _check_gpu_sum(problems: Problems, task: Task, entry: JobEntry, machines: Sequence[Machine]) -> None:
    """Report a job whose GPUs may be on any machines, where all of them together have too few."""
    wanted = task.gpus
    assert wanted is not None, "it is the part of a job that has a GPU"
    mine = None if task.machines is None else set(task.machines)
    there = [m.gpus for m in machines if mine is None or m.name in mine]
    count = sum(gpus.count for gpus in there if gpus is not None and suits(gpus, wanted))
    # A GPU that no machine has at all is told of by itself.
    if 0 < count < entry.form.gpu_count:
        among = "" if mine is None else " that it may run on"
        message = f"job '{entry.form.name}' needs {replace(wanted, count=entry.form.gpu_count)}; "
        message += f"the machines{among} have {count} together"
        problems.add(entry.problem("gpus", message, "ask for fewer, or add machines"))


def _times(machine: Machine, room: tuple[int, int], task: Task, milli: int) -> int:
    """How many tasks like this one an idle machine holds; many more than any job has where it asks for nothing."""
    most = min(
        room[0] // milli if milli else _MANY,
        room[1] // task.memory_mib if task.memory_mib else _MANY,
        *(dict(machine.resources).get(name, 0) // units for name, units in task.resources if units > 0),
        _MANY if task.gpus is None else _times_on_gpus(machine.gpus, task.gpus),
    )
    return max(0, most)


def _times_on_gpus(gpus: MachineGpus | None, wanted: TaskGpus) -> int:
    if gpus is None or not suits(gpus, wanted):
        return 0
    return gpus.count * (WHOLE_MILLI // wanted.share_milli) // wanted.count


def _room(machines: Iterable[Machine], services: Iterable[Service]) -> dict[str, tuple[int, int]]:
    """CPU and memory of each machine beside its services."""
    room = {}
    placed = list(services)
    for machine in machines:
        mine = [s for s in placed if s.machine == machine.name]
        cpu = machine.cpu_milli - sum(s.width_milli for s in mine)
        own_cores = machine.vcpus - len({c for s in mine for c in s.cores})
        memory = machine.memory_mib - sum(s.memory_mib for s in mine)
        room[machine.name] = (min(cpu, own_cores * MILLI), memory)
    return room


def _misfit(
    name: str, key: str, words: str, milli: int, task: Task, room: Mapping[str, tuple[int, int]]
) -> tuple[str, str, str]:
    """Key, message and help for a job that fits nowhere."""
    cores = f"{format_milli(milli)} {'core' if milli == MILLI else 'cores'}"
    among = "" if task.machines is None else " of those it may run on"
    widest = max(room, key=lambda n: room[n][0])
    largest = max(room, key=lambda n: room[n][1])
    if milli > room[widest][0]:
        message = (
            f"job '{name}' {words} {cores} on one machine; the widest{among}, {widest}, "
            f"has {format_milli(room[widest][0])} beside its services"
        )
        return key, message, "ask for less, or add a wider machine"
    memory = format_memory(task.memory_mib)
    if task.memory_mib > room[largest][1]:
        message = (
            f"job '{name}' needs {memory} on one machine; the largest{among}, {largest}, "
            f"has {format_memory(room[largest][1])} beside its services"
        )
        return "memory", message, "ask for less, or add a larger machine"
    listed = ", ".join(f"{n} {format_milli(c)} and {format_memory(m)}" for n, (c, m) in room.items())
    message = f"job '{name}' {words} {cores} and {memory} on the same machine; no machine{among} has both free"
    return key, message, f"beside their services: {listed}"
