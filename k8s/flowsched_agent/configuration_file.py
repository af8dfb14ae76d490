"""The configuration file of the agent: read strictly, with all mistakes at once, each with its line."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from flowsched.support.address import overlap
from flowsched.support.protected_server import certificate_conflicts
from flowsched_agent.catalogue import known_settings, wrong_setting
from flowsched_agent.configuration import (
    CONFIG_KIND,
    CONFIG_VERSION,
    Configuration,
    Find,
    ServiceSpec,
    TaskSpec,
    number_of_cores,
)
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Document, InputError, KeyPath, Problem, Problems, name_help, read_document
from flowsched_models.form import check, check_header
from flowsched_models.profiles import load_catalogue
from flowsched_models.quantity import format_cores, format_duration_us, format_rate, parse_rate

SHORTEST_PERIOD_S = 0.01
LONGEST_PERIOD_S = 10.0


def load_configuration(path: Path) -> Configuration:
    """The configuration in a file. Raises :class:`InputError` with every mistake in it."""
    document = read_document(path)
    check_header(document, CONFIG_KIND, CONFIG_VERSION)
    checked = check(document, Configuration, required=("apiVersion", "kind"))
    found = Problems(list(checked.problems))
    configuration = checked.value
    if configuration is not None:
        services = list(checked.items("services", configuration.services))
        tasks = list(checked.items("tasks", configuration.tasks))
        found.extend(_conflicts(document, configuration, services, tasks))
        try:
            catalogue = load_catalogue(extra=configuration.profiles_files)
        except InputError as error:
            found.extend(error.problems)
        else:
            found.extend(_unknown_names(document, configuration, services, tasks, catalogue))
    found.raise_any()
    assert configuration is not None, "without a value there are problems"
    return configuration


Services = list[tuple[KeyPath, ServiceSpec]]
Tasks = list[tuple[KeyPath, TaskSpec]]
"""Those that are understood, with their places in the file."""


def _conflicts(document: Document, form: Configuration, services: Services, tasks: Tasks) -> Iterator[Problem]:
    """What no key shows alone."""
    if not SHORTEST_PERIOD_S <= form.period_s <= LONGEST_PERIOD_S:
        yield document.problem(
            ("period",), f"must be from 10 ms to 10 s, but is {format_duration_us(form.period_s * 1e6)}"
        )
    if form.stats_timeout_s >= form.period_s:
        yield document.problem(
            ("statsTimeout",) if "statsTimeout" in document.data else ("period",),
            f"statsTimeout ({format_duration_us(form.stats_timeout_s * 1e6)}) must be shorter than period "
            f"({format_duration_us(form.period_s * 1e6)})",
            "a tick must be able to wait for an answer",
        )
    names = [*document.names("services"), *document.names("tasks")]
    twice = {name for name, count in Counter(names).items() if count > 1}
    named = [(place, service.name) for place, service in services] + [(place, task.name) for place, task in tasks]
    for place, name in named:
        if name in twice:
            yield document.problem((*place, "name"), f"'{name}' stands twice", "names are unique in this file")
    for place, service in services:
        yield from _service_conflicts(document, place, service, form)
    for place, task in tasks:
        yield from _task_conflicts(document, place, task)
    yield from _server_conflicts(document, form)
    if not form.services and not form.tasks and not form.kubernetes.enabled and "services" not in document.data:
        yield document.problem((), "there is nothing to look after", "name services and tasks, or enable kubernetes")


def _server_conflicts(document: Document, form: Configuration) -> Iterator[Problem]:
    place = ("kubernetes", "server")
    network = form.kubernetes.server
    yield from certificate_conflicts(document, place, network)
    named = {(*place, "health"): network.health, (*place, "metrics"): network.metrics, ("server",): form.server}
    given = [(where, address) for where, address in named.items() if address is not None]
    for (_, first), (where, second) in itertools.combinations(given, 2):
        if overlap(first, second):
            yield document.problem(where, f"{second} and {first} overlap", "give each a port of its own")


def _service_conflicts(
    document: Document, place: KeyPath, service: ServiceSpec, form: Configuration
) -> Iterator[Problem]:
    item = document.data["services"][place[-1]]
    if item.get("find") is not None:
        yield from _find_conflicts(document, (*place, "find"), service.find)
    elif service.socket is not None:
        yield document.problem((*place, "find"), "is missing", "behind a Unix socket the process must be named")
    if service.cores and form.cores and (strange := set(service.cores) - set(form.cores)):
        yield document.problem(
            (*place, "cores"),
            f"core {format_cores(strange)} is not among the cores that may be used ({format_cores(form.cores)})",
        )
    cores = service.cores or form.cores
    if cores and service.min_cores > len(cores):
        yield document.problem(
            (*place, "minCores"), f"must be at most the number of its cores ({len(cores)}), but is {service.min_cores}"
        )
    given = item.get("capacity", {})
    yield from _capacity_conflicts(document, place, given)
    if service.profile is None and not given:
        yield document.problem(
            (*place, "profile"),
            "is missing",
            "name a profile, or state what was measured: 'capacity: {1: 25K, 2: 30K}'",
        )


def _capacity_conflicts(document: Document, place: KeyPath, capacity: Mapping[str, object]) -> Iterator[Problem]:
    numbers = {}
    for key, qps in ((key, parse_rate(value)) for key, value in capacity.items()):
        where = (*place, "capacity", key)
        if (cores := number_of_cores(key)) is None:
            yield document.problem(where, f"'{key}' is not a number of cores")
        elif qps <= 0:
            yield document.problem(where, "must be more than 0 queries per second")
        else:
            numbers[cores] = qps
    order = sorted(numbers)
    for few, many in itertools.pairwise(order):
        if numbers[many] < numbers[few]:
            yield document.problem(
                (*place, "capacity", str(many)),
                f"{format_rate(numbers[many])} on {many} cores is less than {format_rate(numbers[few])} on {few}",
                "more cores never carry less",
            )


def _task_conflicts(document: Document, place: KeyPath, task: TaskSpec) -> Iterator[Problem]:
    if (task.find is None) == (task.command is None):
        yield document.problem(
            (*place, "find"),
            "stands beside command" if task.find is not None else "is missing",
            "give either find (processes that run) or command (a program to start)",
        )
    if task.find is not None:
        yield from _find_conflicts(document, (*place, "find"), task.find)
    if task.deadline is not None and task.deadline.runtime_us > task.deadline.period_us:
        yield document.problem(
            (*place, "deadline", "runtime"),
            f"must not be longer than period ({format_duration_us(task.deadline.period_us)})",
        )


def _find_conflicts(document: Document, place: KeyPath, find: Find) -> Iterator[Problem]:
    ways = find.ways()
    if len(ways) != 1:
        given = f"{len(ways)} ways are given ({', '.join(ways)})" if ways else "no way is given"
        yield document.problem(place, given, "give exactly one of pid, pidFile, commandLine, cgroup, container, port")


def _unknown_names(
    document: Document, form: Configuration, services: Services, tasks: Tasks, catalogue: Catalogue
) -> Iterator[Problem]:
    """Names that the profiles do not have, and settings that the controller does not know."""

    def known(place: KeyPath, what: str, name: str | None, names: Collection[str]) -> Iterator[Problem]:
        if name is not None and name not in names:
            yield document.problem(place, f"there is no {what} '{name}'", name_help(name, names))

    yield from known(("machineType",), "machine type", form.machine_type, catalogue.machine_types)
    for place, service in services:
        yield from known((*place, "profile"), "service profile", service.profile, catalogue.services)
        profile = catalogue.services.get(service.profile or "")
        if profile is not None and service.client is not None and service.client not in profile.clients:
            yield document.problem(
                (*place, "client"),
                f"profile {service.profile} was not measured with client '{service.client}'",
                name_help(service.client, profile.clients),
            )
    for place, task in tasks:
        yield from known((*place, "profile"), "job profile", task.profile, catalogue.jobs)
    settings = known_settings()
    for key, value in form.controller.settings.items():
        where = ("controller", "settings", key)
        if key not in settings:
            yield document.problem(where, f"there is no key '{key}' here", name_help(key, settings))
        elif (wrong := wrong_setting(settings[key], value)) is not None:
            yield document.problem(where, wrong)
