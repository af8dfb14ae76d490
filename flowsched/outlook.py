"""What the models predict for a group's machine and the newcomers that join it; each question is answered once a round."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flowsched.assignment import Company, Newcomer
from flowsched.compaction import View, endless_resident
from flowsched.relation import MACHINE, RelationKind
from flowsched.resource import covers, without
from flowsched.snapshot import MILLI, Task
from flowsched_models.forecast import Forecast, Waiting, forecast
from flowsched_models.runtime import Host, Resident


@dataclass(frozen=True)
class Prospect:
    """The future of one machine; times in seconds from now."""

    residents_s: tuple[float, ...]
    """Completion of each running task."""
    newcomers_s: tuple[float, ...]
    """Completion of each newcomer, in the company's order."""
    starts_s: tuple[float, ...]
    """When each newcomer is bound; 0 for slot 0."""
    peak_p95_us: tuple[float, ...]
    """Highest p95 of each service until the last completion."""


class Outlook:
    """Prospects of a view's groups, remembered."""

    def __init__(self, view: View) -> None:
        """Nothing is computed before it is asked for."""
        self.view = view
        self.forecasts = 0
        """Number of forecasts made."""
        self._memory: dict[tuple[int, Company], Prospect | None] = {}
        self._alone: dict[tuple[Host, tuple[int, ...], str, float, int], float] = {}
        self._fluid: float | None = None
        self._lone_peaks: dict[tuple[int, Company], tuple[float, ...]] = {}
        self._threads = {
            (g, c): snapshot_threads(view, g, c) for g in range(len(view.groups)) for c in range(len(view.classes))
        }
        per_machine = (RelationKind.LIMIT, RelationKind.APART)
        self._local = tuple(r for r in view.snapshot.relations if r.key == MACHINE and r.kind in per_machine)

    def threads(self, group: int, task_class: int) -> int:
        """Threads that a class starts on a group's machines: all cores that batch may use there, as far as it may."""
        return self._threads[group, task_class]

    def prospect(self, group: int, company: Company) -> Prospect | None:
        """What happens if this company joins a machine of the group; None if it does not fit, or may not meet, there."""
        key = (group, company)
        if key not in self._memory:
            self._memory[key] = self._predict(group, company)
        return self._memory[key]

    def best_alone_s(self, group: int, task_class: int) -> float:
        """Run time of a whole task with the group's batch cores to itself: nothing is ever faster there."""
        task = self.view.classes[task_class].task
        here = self.view.groups[group]
        return self.task_alone_s(here.host, here.batch_cores, task)

    def task_alone_s(self, host: Host, cores: tuple[int, ...], task: Task) -> float:
        """Run time of a whole task on these cores alone, in seconds, with the threads that it starts there."""
        threads = task.threads_on(len(cores), self.view.snapshot.catalogue.jobs[task.profile])
        return self.alone_s(host, cores, task.profile, task.scale, threads)

    def alone_s(
        self, host: Host, cores: tuple[int, ...], profile: str, scale: float, threads: int | None = None
    ) -> float:
        """Run time on these cores alone, in seconds; with as many threads as the program takes there unless given."""
        if threads is None:
            threads = self.view.snapshot.catalogue.jobs[profile].threads_for(len(cores))
        key = (host, cores, profile, scale, threads)
        found = self._alone.get(key)
        if found is None:
            found = self._alone[key] = host.alone_s(profile, threads, cores, scale)
        return found

    def slowdowns(self, group: int, company: Company) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """How many times slower than alone everybody is while all are there: running tasks, then newcomers.

        In their last phase, and with those of later slots too: nothing that is added ever lowers it.
        """
        residents = self.view.groups[group].residents
        factors = self._factors(group, residents, company)
        return factors[: len(residents)], factors[len(residents) :]

    def slowdowns_for_good(self, group: int, company: Company) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The same once all that has an end has ended; of running tasks only those without one."""
        here = self.view.groups[group]
        stay = tuple(s for r, s in zip(here.running, here.residents, strict=True) if r.task.endless)
        factors = self._factors(group, stay, company)
        return factors[: len(stay)], factors[len(stay) :]

    def lone_peak_p95_us(self, group: int, company: Company) -> tuple[float, ...]:
        """Highest p95 of each service if a company's first slot had a machine of the group to itself."""
        here = self.view.groups[group]
        joined = tuple(n for n in company if n.slot == 0)
        key = (group, joined)
        found = self._lone_peaks.get(key)
        if found is None:
            residents = [self._resident(group, n) for n in joined]
            found = self._lone_peaks[key] = forecast(here.host, residents).peak_p95_us
        return found

    def fluid_s(self) -> float:
        """Seconds that all remaining work needs if every core of the cluster shared in it at its best speed.

        A task's CPU-seconds are its run time on one core of its fastest group; nothing finishes everything sooner, as
        no number of threads speeds up more than linearly. Tasks without an end are no backlog.
        """
        if self._fluid is None:
            view = self.view
            cores = sum(len(group.batch_cores) * group.size for group in view.groups)
            total = 0.0
            for c, cls in enumerate(view.classes):
                task = cls.task
                if task.endless:
                    continue
                total += len(cls.members) * min(
                    (
                        self.alone_s(group.host, group.batch_cores[:1], task.profile, task.scale)
                        for g, group in enumerate(view.groups)
                        if view.could_fit(c, g, task.widths_milli[0])
                    ),
                    default=0.0,
                )
            for group in view.groups:
                for running, resident in zip(group.running, group.residents, strict=True):
                    if running.task.endless:
                        continue
                    one_core_s = self.alone_s(group.host, resident.cores[:1], resident.profile, resident.scale)
                    total += group.size * (1.0 - resident.progress) * one_core_s
            self._fluid = total / max(1, cores)
        return self._fluid

    def delay_s(self, task_class: int, slot: int) -> float:
        """Seconds from binding to the program's start."""
        delay = self.view.snapshot.start_delay
        fresh = slot == 0 and self.view.classes[task_class].task.submit_s >= self.view.snapshot.now_s
        return delay.at_submission_s if fresh else delay.after_waiting_s

    def _factors(self, group: int, residents: tuple[Resident, ...], company: Company) -> tuple[float, ...]:
        host = self.view.groups[group].host
        occupants = [host.course(r)[1] for r in (*residents, *(self._resident(group, n) for n in company))]
        together = host.rates(tuple(occupants)).progress
        return tuple(host.rates((o,)).progress[o] / together[o] for o in occupants)

    def _resident(self, group: int, newcomer: Newcomer) -> Resident:
        task = self.view.classes[newcomer.task_class].task
        resident = Resident(
            task.profile,
            task.scale,
            self.threads(group, newcomer.task_class),
            self.view.groups[group].batch_cores,
            newcomer.width_milli / MILLI,
            task.memory_mib,
        )
        return endless_resident(resident, self.view.snapshot) if task.endless else resident

    def _predict(self, group: int, company: Company) -> Prospect | None:
        here = self.view.groups[group]
        if company and not here.batch_cores:
            return None
        cpu = sum(n.width_milli for n in company if n.slot == 0)
        memory = sum(self.view.classes[n.task_class].task.memory_mib for n in company if n.slot == 0)
        if company and (cpu > here.free_milli or memory > here.free_memory_mib):
            return None
        if company and not (self._resources_suffice(group, company) and self._may_meet(group, company)):
            return None
        self.forecasts += 1
        joined = []
        waiting = []
        for n in company:
            resident = self._resident(group, n)
            if n.slot == 0:
                joined.append(replace(resident, ready_s=self.delay_s(n.task_class, 0)))
            else:
                waiting.append(Waiting(resident, n.slot))
        outcome = forecast(
            here.host,
            [*here.residents, *joined],
            waiting,
            free_cores=(here.free_milli - cpu) / MILLI,
            free_memory_mib=here.free_memory_mib - memory,
            start_delay_s=self.view.snapshot.start_delay.after_waiting_s,
        )
        prospect = _sorted_out(company, len(here.residents), outcome)
        return None if prospect is None or self._waits_for_the_endless(group, company, prospect) else prospect

    def _resources_suffice(self, group: int, company: Company) -> bool:
        """Whether all who start now find their further resources free, and those who come later could find them."""
        here = self.view.groups[group]
        tasks = [self.view.classes[n.task_class].task for n in company]
        now = [t.resources for t, n in zip(tasks, company, strict=True) if n.slot == 0 and t.resources]
        left = without(here.free_resources, *now)
        if any(left[name] < 0 for amounts in now for name, units in amounts if units > 0):
            return False
        later = (t for t, n in zip(tasks, company, strict=True) if n.slot > 0 and t.resources)
        whole = dict(here.machine.resources)
        return all(covers(whole, t.resources) and self.view.has_resources(t, group) for t in later)

    def _may_meet(self, group: int, company: Company) -> bool:
        """Whether the relations whose domains are machines let these newcomers join, whatever their slots."""
        for relation in self._local:
            name = relation.name
            joining = [self.view.classes[n.task_class].task for n in company]
            joining = [t for t in joining if name in t.holds or name in t.joins]
            if not joining:
                continue
            there = [r.task for r in self.view.groups[group].running]
            if relation.kind is RelationKind.LIMIT:
                more = sum(name in t.joins for t in joining)
                if more and more + sum(name in t.joins for t in there) > relation.most:
                    return False
            elif _meetings(name, [*there, *joining]) > _meetings(name, there):
                return False
        return True

    def _waits_for_the_endless(self, group: int, company: Company, prospect: Prospect) -> bool:
        """Whether somebody's start is forecast for after the end of a task that has none."""
        ends = [
            end
            for running, end in zip(self.view.groups[group].running, prospect.residents_s, strict=True)
            if running.task.endless
        ]
        ends += [
            end
            for n, end in zip(company, prospect.newcomers_s, strict=True)
            if self.view.classes[n.task_class].task.endless
        ]
        return bool(ends) and max(prospect.starts_s, default=0.0) >= min(ends)


def _meetings(name: str, tasks: list[Task]) -> int:
    """Pairs of one that holds a relation and another one that joins it."""
    holders = sum(name in t.holds for t in tasks)
    joiners = sum(name in t.joins for t in tasks)
    return holders * joiners - sum(name in t.holds and name in t.joins for t in tasks)


def snapshot_threads(view: View, group: int, task_class: int) -> int:
    """Threads of a class on all batch cores of a group's machine."""
    task = view.classes[task_class].task
    return task.threads_on(len(view.groups[group].batch_cores), view.snapshot.catalogue.jobs[task.profile])


def _sorted_out(company: Company, residents: int, outcome: Forecast) -> Prospect | None:
    """Back from the forecast's order (slot 0 first) to the company's."""
    joined = iter(outcome.residents_s[residents:])
    waiting = iter(zip(outcome.waiting_s, outcome.starts_s, strict=True))
    ends = []
    starts = []
    for n in company:
        end, start = (next(joined), 0.0) if n.slot == 0 else next(waiting)
        ends.append(end)
        starts.append(start)
    if any(end == float("inf") for end in ends):
        return None
    return Prospect(outcome.residents_s[:residents], tuple(ends), tuple(starts), outcome.peak_p95_us)
