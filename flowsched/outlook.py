"""What the models predict for a group's machine and the newcomers that join it; each question is answered once a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowsched.assignment import Company, Newcomer
from flowsched.compaction import View, endless_resident
from flowsched.prospect import Prospect, Prospects
from flowsched.relation import MACHINE, RelationKind
from flowsched.resource import covers, without
from flowsched.snapshot import MILLI, Task
from flowsched_models.forecast import forecast
from flowsched_models.forecaster import Forecaster
from flowsched_models.runtime import Host, Resident


class Outlook:
    """Prospects of a view's groups, remembered.

    Newcomers are given the batch cores of their machine. With ``shares``, light ones may be given all cores instead where
    the snapshot lets, all of a company or none: which is better is for prices to say.
    """

    def __init__(self, view: View, shares: bool = False) -> None:
        """Nothing is computed before it is asked for."""
        self.view = view
        self.forecasts = 0
        """Number of forecasts made."""
        self.shares = shares and view.snapshot.share_service_cores
        self._prospects: dict[int, Prospects] = {}
        self._alone: dict[tuple[Host, tuple[int, ...], str, float, int], float] = {}
        self._fluid: float | None = None
        self._lone_peaks: dict[tuple[int, Company, bool], tuple[float, ...]] = {}
        self._light: dict[tuple[int, int, int], bool] = {}
        self._undisturbed: dict[tuple[int, Newcomer], float] = {}
        self._bare: dict[str, Host] = {}
        self._threads = {
            (g, c): snapshot_threads(view, g, c) for g in range(len(view.groups)) for c in range(len(view.classes))
        }
        self._may_wait_for_ever = any(c.task.endless for c in view.classes) or any(g.endless for g in view.groups)
        self._resourceful = any(c.task.resources for c in view.classes)
        per_machine = (RelationKind.LIMIT, RelationKind.APART)
        self._local = tuple(r for r in view.snapshot.relations if r.key == MACHINE and r.kind in per_machine)

    def threads(self, group: int, task_class: int) -> int:
        """Threads that a class starts on a group's machines: all cores that batch may use there, as far as it may."""
        return self._threads[group, task_class]

    def place(self, group: int, newcomer: Newcomer, shared: bool) -> tuple[tuple[int, ...], int]:
        """Virtual CPUs that a newcomer is given, and the threads that it starts on them."""
        here = self.view.groups[group]
        if shared and self.light(group, newcomer.task_class, newcomer.width_milli):
            cores = tuple(range(here.machine.vcpus))
            task = self.view.classes[newcomer.task_class].task
            return cores, task.threads_on(len(cores), self.view.snapshot.catalogue.jobs[task.profile])
        return here.batch_cores, self.threads(group, newcomer.task_class)

    def may_share(self, group: int) -> bool:
        """Whether newcomers may use services' cores on a group's machines at all."""
        here = self.view.groups[group]
        return self.shares and bool(here.services) and bool(here.batch_cores)

    def sharing(self) -> Outlook | None:
        """An outlook in which services' cores are shared, its forecasts counted from here; None if nobody could."""
        wider = Outlook(self.view, True)
        wider.forecasts = self.forecasts
        return wider if any(wider._anybody_light(g) for g in range(len(self.view.groups))) else None

    def light(self, group: int, task_class: int, width_milli: int) -> bool:
        """Whether a class with this width as its weight, on all cores of a group's machine, keeps every p95 goal there
        with nobody else around.
        """
        key = (group, task_class, width_milli)
        found = self._light.get(key)
        if found is None:
            found = self._light[key] = self.may_share(group) and self._keeps_goals(group, task_class, width_milli)
        return found

    def rows(self, group: int, companies: Sequence[Company]) -> tuple[Prospects, list[tuple[int, ...]]]:
        """The prospects of a group and, of each company that may join its machine, the rows in them.

        None if a company does not fit, or may not meet, there; else one with batch cores, and if any of it is light one
        with all cores for those. All that is not known yet is forecast together.
        """
        prospects = self._prospects.get(group)
        if prospects is None:
            prospects = self._prospects[group] = self._open(group)
        rows, made = prospects.rows(companies)
        self.forecasts += made
        return prospects, rows

    def prospect(self, group: int, company: Company, shared: bool = False) -> Prospect | None:
        """What happens if this company joins a machine of the group; None if it does not fit, or may not meet, there.

        ``shared``: with all cores for those who are light; None if nobody is.
        """
        prospects, (rows,) = self.rows(group, (company,))
        return next((p for row in rows if (p := prospects.prospect(row)).shared == shared), None)

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

    def undisturbed_s(self, group: int, newcomer: Newcomer, shared: bool) -> float:
        """Run time of a newcomer with the cores that it is given to itself, beside the group's services only."""
        if not (shared and self.light(group, newcomer.task_class, newcomer.width_milli)):
            return self.best_alone_s(group, newcomer.task_class)
        key = (group, newcomer)
        found = self._undisturbed.get(key)
        if found is None:
            alone = forecast(self.view.groups[group].host, [self._resident(group, newcomer, True)])
            found = self._undisturbed[key] = alone.residents_s[0]
        return found

    def least_alone_s(self, group: int, task_class: int) -> float:
        """Run time that a whole task is never below on a group's machines.

        Where cores are shared with services, neighbours may take from a service what it does to others: it is left out.
        """
        if not self.may_share(group):
            return self.best_alone_s(group, task_class)
        here, task = self.view.groups[group], self.view.classes[task_class].task
        host = self.bare_host(group)
        return min(
            self.task_alone_s(host, cores, task) for cores in (here.batch_cores, tuple(range(here.machine.vcpus)))
        )

    def bare_host(self, group: int) -> Host:
        """A group's machine without services."""
        kind = self.view.groups[group].machine.type
        if kind not in self._bare:
            self._bare[kind] = Host(self.view.snapshot.catalogue, kind)
        return self._bare[kind]

    def slowdowns(
        self, group: int, company: Company, shared: bool = False
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """How many times slower than alone everybody is while all are there: running tasks, then newcomers.

        In their last phase, and with those of later slots too: nothing that is added ever lowers it.
        """
        residents = self.view.groups[group].residents
        factors = self._factors(group, residents, company, shared)
        return factors[: len(residents)], factors[len(residents) :]

    def slowdowns_for_good(self, group: int, company: Company) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The same once all that has an end has ended; of running tasks only those without one."""
        here = self.view.groups[group]
        stay = tuple(s for r, s in zip(here.running, here.residents, strict=True) if r.task.endless)
        factors = self._factors(group, stay, company, False)
        return factors[: len(stay)], factors[len(stay) :]

    def lone_peak_p95_us(self, group: int, company: Company, shared: bool = False) -> tuple[float, ...]:
        """Highest p95 of each service if a company's first slot had a machine of the group to itself."""
        here = self.view.groups[group]
        joined = tuple(n for n in company if n.slot == 0)
        key = (group, joined, shared)
        found = self._lone_peaks.get(key)
        if found is None:
            residents = [self._resident(group, n, shared) for n in joined]
            found = self._lone_peaks[key] = forecast(here.host, residents).peak_p95_us
        return found

    def fluid_s(self) -> float:
        """Seconds that all remaining work needs if every core of the cluster shared in it at its best speed.

        A task's CPU-seconds are its run time on one core of its fastest group; nothing finishes everything sooner, as
        no number of threads speeds up more than linearly. Tasks without an end are no backlog.
        """
        if self._fluid is None:
            view = self.view
            cores = sum(
                (group.machine.vcpus if self._anybody_light(g) else len(group.batch_cores)) * group.size
                for g, group in enumerate(view.groups)
            )
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

    def _factors(
        self, group: int, residents: tuple[Resident, ...], company: Company, shared: bool
    ) -> tuple[float, ...]:
        host = self.view.groups[group].host
        joining = (self._resident(group, n, shared) for n in company)
        occupants = [host.course(r)[1] for r in (*residents, *joining)]
        together = host.rates(tuple(occupants)).progress
        return tuple(host.rates((o,)).progress[o] / together[o] for o in occupants)

    def _keeps_goals(self, group: int, task_class: int, width_milli: int) -> bool:
        here = self.view.groups[group]
        cores = tuple(range(here.machine.vcpus))
        task = self.view.classes[task_class].task
        threads = task.threads_on(len(cores), self.view.snapshot.catalogue.jobs[task.profile])
        lone = Resident(task.profile, task.scale, threads, cores, width_milli / MILLI, task.memory_mib)
        peaks = forecast(here.host, [lone]).peak_p95_us
        return all(peak <= service.slo_us for service, peak in zip(here.services, peaks, strict=True))

    def _anybody_light(self, group: int) -> bool:
        return self.may_share(group) and any(
            self.light(group, c, width) for c, cls in enumerate(self.view.classes) for width in cls.task.widths_milli
        )

    def _resident(self, group: int, newcomer: Newcomer, shared: bool) -> Resident:
        """A newcomer as the model sees it; one of slot 0 is ready once its program runs."""
        task = self.view.classes[newcomer.task_class].task
        cores, threads = self.place(group, newcomer, shared)
        weight = newcomer.width_milli / MILLI
        resident = Resident(task.profile, task.scale, threads, cores, weight, task.memory_mib)
        return endless_resident(resident, self.view.snapshot) if task.endless else resident

    def _open(self, group: int) -> Prospects:
        here = self.view.groups[group]

        def resident_of(newcomer: Newcomer, shared: bool) -> Resident:
            # Whoever comes later is bound by the forecast, which knows when it is ready.
            return replace(self._resident(group, newcomer, shared), ready_s=self.delay_s(newcomer.task_class, 0))

        prospects = Prospects(
            Forecaster(
                here.host,
                here.residents,
                free_cores=here.free_milli / MILLI,
                free_memory_mib=here.free_memory_mib,
                start_delay_s=self.view.snapshot.start_delay.after_waiting_s,
            ),
            resident_of,
            lambda company: self._ways(group, company),
            (lambda company, p: self._waits_for_the_endless(group, company, p)) if self._may_wait_for_ever else None,
        )
        for c, cls in enumerate(self.view.classes):
            if here.batch_cores and self.view.allowed(c, here.members[0]):
                newcomers = [Newcomer(c, 0, width) for width in cls.task.widths_milli]
                prospects.expect((n, False) for n in newcomers)
                prospects.expect((n, True) for n in newcomers if self.light(group, c, n.width_milli))
        return prospects

    def _ways(self, group: int, company: Company) -> tuple[bool, ...]:
        """In which ways a company may be given cores: without those of services (False), with them."""
        here = self.view.groups[group]
        if not company:
            return (False,)
        if not here.batch_cores:
            return ()
        classes = self.view.classes
        cpu = memory = 0
        for n in company:
            if n.slot == 0:
                cpu += n.width_milli
                memory += classes[n.task_class].task.memory_mib
        if cpu > here.free_milli or memory > here.free_memory_mib:
            return ()
        if self._resourceful and not self._resources_suffice(group, company):
            return ()
        if self._local and not self._may_meet(group, company):
            return ()
        if self.shares and any(self.light(group, n.task_class, n.width_milli) for n in company):
            return (False, True)
        return (False,)

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
