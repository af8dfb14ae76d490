"""From the entries of jobs to their tasks, and to what holds for each job as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowsched.cluster.cluster_form import bound_values, refer
from flowsched.cluster.snapshot import Task
from flowsched.disaggregation.coupled import coupled, serving_profile
from flowsched.relations.relation import TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Problems, name_help
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.profile import JobProfile
from flowsched_simulator.job_form import JobEntry, JobForm
from flowsched_simulator.scenario import JobTerms


@dataclass(frozen=True)
class KnownNames:
    """What jobs may refer to."""

    machines: Collection[str]
    """Names of all machines that the file has, also of those with mistakes."""
    labels: Mapping[str, Mapping[str, str]]
    """Labels of machines, by their names."""
    relations: Collection[str]
    task_groups: Collection[str]


@dataclass(frozen=True)
class ReadJobs:
    """What the entries of a scenario stand for."""

    catalogue: Catalogue
    """With the profiles of jobs whose run time is given."""
    tasks: tuple[tuple[Task, JobEntry], ...]
    """Tasks in the order listed, each with the entry that it comes from."""
    terms: Mapping[str, JobTerms]
    """By job, where there are any."""
    run_time_factors: Mapping[str, float]
    """True over estimated run time, by task, where they differ."""
    true_profiles: Mapping[str, str]
    """Profile that a task has in truth, by task, where it is another than policies are told."""
    classes: Mapping[str, str]
    """Class of jobs that are copies, by job: the name of their entry."""
    barriers: tuple[TaskGroup, ...]
    """A task group for each job whose tasks start together, with its name."""


def read_jobs(problems: Problems, entries: Sequence[JobEntry], catalogue: Catalogue, known: KnownNames) -> ReadJobs:
    """The jobs of a scenario. Mistakes are added to ``problems``, and what has them is left out."""
    _check_names(problems, entries, known)
    after = _predecessors(problems, entries)
    selected = _Selector(known.labels)
    fixed = _fixed_profiles(problems, entries, catalogue)
    tasks: list[tuple[Task, JobEntry]] = []
    serving: dict[str, JobProfile] = {}
    for entry in entries:
        form = entry.form
        for index, name in enumerate(form.machines or ()):
            refer(problems, entry.document, (*entry.path, "machines", index), "machine", name, known.machines)
        machines = form.machines and tuple(form.machines)
        if form.machine_labels:
            machines = selected.machines(problems, entry)
        widths = form.widths or [form.request]
        if len(set(widths)) < len(widths):
            problems.add(entry.problem("widths", "names a width twice"))
        bound = bound_values(problems, entry.document, entry.path, form, known.relations, known.task_groups)
        profile = fixed.get(form.profile) if form.runtime_s is not None else None
        if profile is None and form.profile is not None:
            path = (*entry.path, "profile")
            if refer(problems, entry.document, path, "job profile", form.profile, catalogue.jobs):
                profile = catalogue.jobs[form.profile]
        if profile is not None:
            whole = _tasks_of(entry, profile, {**bound, "machines": machines or None})
            gpus = bound["gpus"]
            apart = form.has_remote_gpus and gpus is not None and not gpus.is_share
            tasks += ((task, entry) for one in whole for task in (coupled(one) if apart else (one,)))
            if apart:
                serving[profile.name] = serving_profile(profile)
    return ReadJobs(
        replace(catalogue, jobs={p.name: p for p in (*catalogue.jobs.values(), *fixed.values(), *serving.values())}),
        tuple(tasks),
        {name: terms for entry in entries for name, terms in _terms_of(entry, after.get(id(entry), ()))},
        _run_time_factors(entries),
        _true_profiles(problems, entries, catalogue),
        {name: entry.form.name for entry in entries if entry.form.copies > 1 for name in entry.form.names()},
        tuple(
            TaskGroup(name, len(e.form.task_names(name)))
            for e in entries
            if e.form.has_barrier or e.form.has_remote_gpus
            for name in e.form.names()
        ),
    )


def _check_names(problems: Problems, entries: Iterable[JobEntry], known: KnownNames) -> None:
    """Report the first name of an entry that another entry has too, and of a barrier's group that is declared."""
    first: dict[str, JobEntry] = {}
    for entry in entries:
        problems.extend(entry.barrier_problems())
        problems.extend(entry.remote_problems())
        jobs = entry.form.names()
        own_group = "barrier" if entry.form.has_barrier else "sub-tasks" if entry.form.has_remote_gpus else ""
        if own_group and (taken := set(jobs) & set(known.task_groups)):
            verb = "is" if own_group == "barrier" else "are"
            message = (
                f"task group '{min(taken)}' has the name of this job, whose {own_group} {verb} a group of that name"
            )
            problems.add(entry.problem("name", message, "rename one of them"))
        tasks = (name for job in jobs for name in entry.form.task_names(job) if name != job)
        for name in (*jobs, *tasks):
            if name in first:
                before = first[name]
                where = f"{before.document.source}:{before.document.line((*before.path, 'name'))}"
                problems.add(entry.problem("name", f"the name '{name}' stands twice (first at {where})"))
                break
            first[name] = entry


def _fixed_profiles(
    problems: Problems, entries: Iterable[JobEntry], catalogue: Catalogue
) -> dict[str | None, JobProfile]:
    """Profiles of jobs with a given run time, by the profile that they name."""
    found: dict[str | None, JobProfile] = {}
    for entry in entries:
        form = entry.form
        problems.extend(entry.run_time_problems())
        known = not form.profile or form.profile in catalogue.jobs
        if form.runtime_s is not None and known and form.profile not in found:
            found[form.profile] = fixed_profile(catalogue, form.profile)
    return found


def _tasks_of(entry: JobEntry, profile: JobProfile, bound: Mapping[str, Any]) -> Iterator[Task]:
    """Tasks of an entry; those of a job whose GPUs may be on other machines before they are taken apart."""
    form, told_s = entry.form, entry.form.told_s
    named = [(job, name) for job in form.names() for name in ([job] if form.has_remote_gpus else form.task_names(job))]
    for job, name in named:
        yield Task(
            name=name,
            job=job,
            profile=profile.name,
            scale=form.scale if told_s is None else told_s,
            request_milli=form.request,
            widths_milli=_widths(form),
            memory_mib=form.memory if form.memory is not None else profile.memory_mib,
            submit_s=form.submit_s,
            goal_s=form.goal_s if form.goal_s is not None else form.deadline_s,
            priority=form.priority,
            weight=form.weight,
            run_class=form.run_class or "",
            **{**bound, "group": job if form.has_barrier else form.group},
        )


def _widths(form: JobForm) -> tuple[int, ...]:
    """Widths that a job may be given. With a given run time none is below its request: it would take as long on less."""
    if not form.widths:
        return (form.request,)
    if form.runtime_s is None:
        return tuple(sorted(set(form.widths)))
    return tuple(sorted({form.request, *(width for width in form.widths if width > form.request)}))


def _terms_of(entry: JobEntry, after: tuple[str, ...]) -> Iterator[tuple[str, JobTerms]]:
    form = entry.form
    if form.deadline_s is not None or after or form.walltime_s is not None:
        terms = JobTerms(form.deadline_s, after, form.walltime_s)
        for name in form.names():
            yield name, terms


def _run_time_factors(entries: Iterable[JobEntry]) -> dict[str, float]:
    """True over estimated run time, by task, where they differ."""
    forms = [entry.form for entry in entries]
    return {
        task: form.runtime_s / told_s
        for form in forms
        if form.runtime_s is not None and (told_s := form.told_s) not in (None, form.runtime_s)
        for name in form.names()
        for task in form.task_names(name)
    }


def _true_profiles(problems: Problems, entries: Iterable[JobEntry], catalogue: Catalogue) -> dict[str, str]:
    """True profile by task, where it is another than the one that policies are told."""
    found: dict[str, str] = {}
    for entry in entries:
        true = entry.form.true_profile
        if true is None or true == entry.form.profile:
            continue
        if refer(problems, entry.document, (*entry.path, "true_profile"), "job profile", true, catalogue.jobs):
            found |= {task: true for job in entry.form.names() for task in entry.form.task_names(job)}
    return found


def _predecessors(problems: Problems, entries: Sequence[JobEntry]) -> dict[int, tuple[str, ...]]:
    """By the id of an entry, the jobs that its jobs come after; the name of an entry stands for all its copies.

    All jobs of an entry come after the same ones, so jobs wait for each other in a circle if and only if entries do.
    """
    of_job = {name: i for i, entry in enumerate(entries) for name in entry.form.names()}
    of_entry = {entry.form.name: i for i, entry in enumerate(entries)}
    found: dict[int, tuple[str, ...]] = {}
    before: dict[int, list[int]] = {}
    for i, entry in enumerate(entries):
        jobs: list[str] = []
        for k, name in enumerate(entry.form.after):
            if name in of_job or name in of_entry:
                jobs += [name] if name in of_job else entries[of_entry[name]].form.names()
                before.setdefault(i, []).append(of_job.get(name, of_entry.get(name, i)))
            else:
                refer(problems, entry.document, (*entry.path, "after", k), "job", name, [*of_entry, *of_job])
        if jobs:
            found[id(entry)] = tuple(dict.fromkeys(jobs))
    for circle in circles(before):
        names = [entries[i].form.name for i in (*circle, circle[0])]
        message = f"jobs wait for each other in a circle: {' after '.join(names)}"
        problems.add(entries[circle[0]].problem("after", message, "none of them could ever start; break the circle"))
    return found


def circles(before: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """One circle of each tangle of things that come after each other, from its first one on."""
    state: dict[int, bool] = {}
    """Whether a thing is done; missing: not looked at."""
    for start in sorted(before):
        path: list[int] = []
        stack = [] if start in state else [(start, iter(before[start]))]
        while stack:
            thing, rest = stack[-1]
            if thing not in state:
                state[thing] = False
                path.append(thing)
            following = next(rest, None)
            if following is None:
                state[thing] = True
                path.pop()
                stack.pop()
            elif following not in state:
                stack.append((following, iter(before.get(following, ()))))
            elif not state[following]:
                circle = path[path.index(following) :]
                first = circle.index(min(circle))
                yield circle[first:] + circle[:first]


class _Selector:
    """Finds the machines whose labels a job asks for, as a nodeSelector of Kubernetes does: all of them, exactly."""

    def __init__(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self._labels = labels
        self._found: dict[tuple[object, ...], tuple[str, ...]] = {}

    def machines(self, problems: Problems, entry: JobEntry) -> tuple[str, ...] | None:
        """Those among the ones that the job names; None, and a problem, if there is none."""
        form = entry.form
        key = (tuple(sorted(form.machine_labels.items())), tuple(form.machines or ()))
        if key not in self._found:
            wanted = form.machine_labels.items()
            named = set(form.machines or self._labels)
            self._found[key] = tuple(n for n, has in self._labels.items() if n in named and wanted <= has.items())
        if not self._found[key] and self._labels:
            asked = ", ".join(f"{label}={value}" for label, value in form.machine_labels.items())
            known = sorted({f"{label}={value}" for has in self._labels.values() for label, value in has.items()})
            message = f"no machine{' of those that it names' if form.machines else ''} has the labels {asked}"
            problems.add(entry.problem("machine_labels", message, name_help(asked, known)))
        return self._found[key] or None
