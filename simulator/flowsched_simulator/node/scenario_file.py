"""Node scenarios in YAML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flowsched.cluster.cluster_form import plural, refer, unique
from flowsched.node import Deadline, NodeService, NodeTask
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Document, KeyPath, Problems
from flowsched_models.form import Checked
from flowsched_models.quantity import format_duration_us, format_rate
from flowsched_models.wave_file import read_wave
from flowsched_simulator.form_reader import read_form
from flowsched_simulator.node.policies import NODE_POLICIES, QUEUED
from flowsched_simulator.node.scenario import Load, NodeScenario
from flowsched_simulator.node.scenario_form import (
    LoadForm,
    NodeJobForm,
    NodeScenarioForm,
    NodeServiceForm,
    PolicyForm,
)
from flowsched_simulator.node.wave import LoadRange
from flowsched_simulator.scenario_file import BUNDLED, find_document

KIND = "NodeScenario"


def load_node_scenario(name_or_path: str | Path) -> NodeScenario:
    """A bundled node scenario by its name, or a file by its path.

    Raises :class:`flowsched_models.document.InputError` with all mistakes of the file and of those it names.
    """
    return read_node_scenario(find_document(name_or_path, BUNDLED, "scenario", KIND))


def read_node_scenario(document: Document) -> NodeScenario:
    """The same from a document that is read. Raises :class:`flowsched_models.document.InputError`."""
    return _NodeScenarioReader(document).read()


class _NodeScenarioReader:
    """Reads one scenario and collects what is wrong with it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems = Problems()

    def read(self) -> NodeScenario:
        return read_form(self.document, self.problems, KIND, NodeScenarioForm, lambda form: form.profiles, self._build)

    def _build(self, checked: Checked[NodeScenarioForm], form: NodeScenarioForm, catalogue: Catalogue) -> NodeScenario:
        problems, document = self.problems, self.document
        for key in ("services", "jobs"):
            if not self.document.data.get(key) and key not in checked.broken:
                problems.add(document.problem((key,), "must not be empty"))
        cores = self._cores(form, catalogue)
        named = list(checked.items("services", form.services))
        unique(problems, document, (((*p, "name"), f.name) for p, f in named))
        services = [self._service(path, each, catalogue, cores, form.machine.type) for path, each in named]
        self._own_cores(named)
        loads = [self._load((*path, "load"), each.load) for path, each in named]
        jobs = list(checked.items("jobs", form.jobs))
        unique(problems, document, (((*p, "name"), f.name) for p, f in jobs))
        for path, job in jobs:
            refer(problems, document, (*path, "profile"), "job profile", job.profile, catalogue.jobs)
        tasks = [self._task(path, job) for path, job in jobs]
        for name, each in form.policies.items():
            self._check_policy(name, each)
        return NodeScenario(
            name=form.name,
            description=form.about,
            catalogue=catalogue,
            machine_type=form.machine.type,
            cores=tuple(range(cores)),
            services=tuple(services),
            loads=tuple(loads),
            tasks=tuple(tasks),
            submit_s=tuple(job.submit_s for _, job in jobs),
            qps_interval_s=form.qps_interval_s,
            start_delay_s=form.start_delay_s,
            hints=form.policies,
            source=document.source,
        )

    def _cores(self, form: NodeScenarioForm, catalogue: Catalogue) -> int:
        """How many virtual CPUs the machine has."""
        known = refer(
            self.problems,
            self.document,
            ("machine", "type"),
            "machine type",
            form.machine.type,
            catalogue.machine_types,
        )
        has = catalogue.machine_types[form.machine.type].vcpus if known else None
        asked = form.machine.cores
        if asked is None:
            return has or 1
        if has is not None and asked > has:
            message = f"{asked} are more than the {plural(has, 'virtual CPU')} of {form.machine.type}"
            self.problems.add(self.document.problem(("machine", "cores"), message))
        return asked

    def _service(
        self, path: KeyPath, form: NodeServiceForm, catalogue: Catalogue, cores: int, machine_type: str
    ) -> NodeService:
        problems, document = self.problems, self.document
        for index, core in enumerate(form.cores):
            place = (*path, "cores", index)
            if core >= cores:
                problems.add(document.problem(place, f"there is no core {core}", f"the machine has 0 to {cores - 1}"))
            elif core in form.cores[:index]:
                problems.add(document.problem(place, f"core {core} stands twice"))
        service = NodeService(form.name, form.profile, form.threads, form.slo_p95, form.client, tuple(form.cores))
        if refer(problems, document, (*path, "profile"), "service profile", form.profile, catalogue.services):
            profile = catalogue.services[form.profile]
            known = refer(
                problems, document, (*path, "client"), f"client of {form.profile}", form.client, profile.clients
            )
            curve = profile.curve_or_estimate(form.threads, len(form.cores))
            # Lightly loaded, with all its cores: what no controller can do better.
            if known and (p95 := profile.p95_us(curve, 0.0, form.client, machine_type=machine_type)) > form.slo_p95:
                message = (
                    f"{format_duration_us(form.slo_p95)} cannot be met: p95 is {format_duration_us(p95)} without load"
                )
                problems.add(document.problem((*path, "slo_p95"), message, "relax the goal"))
        return service

    def _own_cores(self, named: Sequence[tuple[KeyPath, NodeServiceForm]]) -> None:
        """The first core of a service is always its own."""
        owners: dict[int, str] = {}
        for path, form in named:
            if form.cores and owners.setdefault(form.cores[0], form.name) != form.name:
                message = f"core {form.cores[0]} is already the first one of service '{owners[form.cores[0]]}'"
                hint = "the first core of a service is always its own: begin with another"
                self.problems.add(self.document.problem((*path, "cores"), message, hint))

    def _load(self, path: KeyPath, form: LoadForm) -> Load:
        problems, document = self.problems, self.document
        wave: tuple[float, ...] = ()
        if isinstance(form.wave, str):
            file = document.beside(form.wave)
            if file.is_file():
                wave = read_wave(problems, file)
            else:
                problems.add(document.problem((*path, "wave"), f"there is no file '{file}'"))
        elif form.wave is not None:
            wave = form.wave
        elif form.draw is None:
            hint = "write wave: [5K, 60K], wave: FILE.csv or draw: {min: 5K, max: 100K}"
            problems.add(document.problem(path, "there is no load", hint))
        span = None
        if form.draw is not None:
            span = LoadRange(form.draw.min, form.draw.max)
            if round(span.most) < round(span.least):
                message = f"{format_rate(span.most)} is less than min, {format_rate(span.least)}"
                problems.add(document.problem((*path, "draw", "max"), message))
        return Load(wave, span)

    def _task(self, path: KeyPath, form: NodeJobForm) -> NodeTask:
        deadline = None
        if form.deadline is not None:
            deadline = Deadline(form.deadline.runtime, form.deadline.period)
            if deadline.bandwidth > 1.0:
                message = "is longer than the period: no job runs faster than its clock"
                self.problems.add(self.document.problem((*path, "deadline", "runtime"), message))
        run_class = form.run_class or ""
        return NodeTask(
            form.name, form.profile, form.threads, form.scale, deadline, form.priority, form.shares, run_class
        )

    def _check_policy(self, policy: str, form: PolicyForm) -> None:
        problems, document = self.problems, self.document
        refer(problems, document, ("policies", policy), "policy", policy, NODE_POLICIES)
        jobs = document.names("jobs")
        for name in form.threads:
            refer(problems, document, ("policies", policy, "threads", name), "job", name, jobs)
        if form.queues is not None and policy not in QUEUED:
            hint = f"leave it out; it is for {', '.join(QUEUED)}"
            problems.add(document.problem(("policies", policy, "queues"), f"'{policy}' has no queues", hint))
        seen: set[str] = set()
        for queue, names in form.queues or ():
            for index, name in enumerate(names):
                place = ("policies", policy, "queues", queue, index)
                if refer(problems, document, place, "job", name, jobs) and name in seen:
                    problems.add(document.problem(place, f"job '{name}' stands in the queues twice"))
                seen.add(name)
