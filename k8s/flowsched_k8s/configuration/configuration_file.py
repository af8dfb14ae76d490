"""The configuration file: read strictly, with all mistakes at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flowsched.support.address import overlap
from flowsched.support.protected_server import certificate_conflicts
from flowsched_k8s.api.access import without_password
from flowsched_k8s.configuration.configuration import (
    DEFAULT_NAMESPACE,
    LABEL_NAME,
    SUBDOMAIN,
    Configuration,
    LeaderElection,
    LoadSettings,
    ServerSettings,
)
from flowsched_k8s.configuration.duration import format_duration_s
from flowsched_k8s.configuration.engine_form import cost_model_conflicts
from flowsched_k8s.configuration.gone_keys import explained
from flowsched_k8s.names import CONFIG_KIND, CONFIG_VERSION
from flowsched_models.document import Document, Problem, Problems, nearest, read_document, read_text
from flowsched_models.form import check, check_header
from flowsched_models.quantity import shown

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds the name of its own namespace."""
PLACEHOLDERS = ("namespace", "pod", "node")
"""What a Prometheus query may name as ``$namespace``."""
LEASE_JITTER = 1.2
"""Retries are spread by up to this factor, so a renewal takes that much longer at worst."""


def load_configuration(path: Path | None, namespace_file: Path = NAMESPACE_FILE) -> Configuration:
    """The configuration in a file, or the defaults. Raises :class:`InputError` with every mistake in it."""
    namespace = _own_namespace(namespace_file)
    given, configuration = ({}, Configuration()) if path is None else _read(read_document(path))
    if given.get("leaderElection", {}).get("resourceNamespace") is None:
        election = configuration.leader_election.model_copy(update={"resource_namespace": namespace})
        configuration = configuration.model_copy(update={"leader_election": election})
    return configuration


def _read(document: Document) -> tuple[Mapping[str, Any], Configuration]:
    check_header(document, CONFIG_KIND, CONFIG_VERSION)
    checked = check(document, Configuration, required=("apiVersion", "kind"))
    found = Problems(list(explained(checked.problems)))
    if checked.value is not None:
        found.extend(_conflicts(document, checked.value))
    found.raise_any()
    assert checked.value is not None, "without a value there are problems"
    return document.data, checked.value


def _own_namespace(file: Path) -> str:
    if not file.is_file():
        return DEFAULT_NAMESPACE
    return read_text(file).strip() or DEFAULT_NAMESPACE


def _conflicts(document: Document, form: Configuration) -> Iterator[Problem]:
    """What no key shows alone."""
    yield from _election_conflicts(document, form.leader_election)
    yield from _list_conflicts(document, "profiles", "schedulerName")
    yield from _selector_conflicts(document, form.node_selector)
    yield from _list_conflicts(document, "gpus", "resource")
    yield from _load_conflicts(document, form.load_source)
    model = form.cost_model
    yield from cost_model_conflicts(document, model.name, model.settings, form.features.resize)
    rounds = form.rounds
    if rounds.batch_window_s > rounds.max_period_s:
        yield document.problem(
            ("rounds", "batchWindow"),
            f"must not be longer than maxPeriod ({format_duration_s(rounds.max_period_s)})",
        )
    if form.pod_max_backoff_s < form.pod_initial_backoff_s:
        yield document.problem(
            ("podMaxBackoffSeconds",),
            f"must be at least podInitialBackoffSeconds ({form.pod_initial_backoff_s:g})",
        )
    twice = [g for i, g in enumerate(form.features.pod_groups) if g in form.features.pod_groups[:i]]
    for group in dict.fromkeys(twice):
        yield document.problem(("features", "podGroups"), f"'{group}' stands twice")
    yield from _server_conflicts(document, form.server)


def _server_conflicts(document: Document, form: ServerSettings) -> Iterator[Problem]:
    named = {name: getattr(form, name) for name in ("health", "metrics", "loopback")}
    for (_, first), (name, second) in itertools.combinations(named.items(), 2):
        if overlap(first, second):
            yield document.problem(("server", name), f"{second} and {first} overlap", "give each a port of its own")
    yield from certificate_conflicts(document, ("server",), form)


def _election_conflicts(document: Document, form: LeaderElection) -> Iterator[Problem]:
    if form.lease_duration_s % 1:
        yield document.problem(
            ("leaderElection", "leaseDuration"),
            f"must be whole seconds, but is {format_duration_s(form.lease_duration_s)}",
            "a Lease holds no fractions",
        )
    if form.renew_deadline_s >= form.lease_duration_s:
        yield document.problem(
            ("leaderElection", "renewDeadline"),
            f"must be shorter than leaseDuration ({format_duration_s(form.lease_duration_s)}), but is "
            f"{format_duration_s(form.renew_deadline_s)}",
            "a leader must stop before another may start",
        )
    if form.retry_period_s * LEASE_JITTER >= form.renew_deadline_s:
        yield document.problem(
            ("leaderElection", "retryPeriod"),
            f"must be shorter than renewDeadline / {LEASE_JITTER} "
            f"({format_duration_s(round(form.renew_deadline_s / LEASE_JITTER, 6))}), but is "
            f"{format_duration_s(form.retry_period_s)}",
        )
    if form.resource_name == "kube-scheduler":
        yield document.problem(
            ("leaderElection", "resourceName"),
            "this Lease belongs to the cluster's own scheduler",
            "choose another name",
        )


def _list_conflicts(document: Document, section: str, key: str) -> Iterator[Problem]:
    """Of a list of mappings: values of a key that stand twice, and the name of the cluster's own scheduler."""
    first: dict[str, int] = {}
    entries = document.data.get(section)
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        value = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(value, str):
            continue
        place = (section, index, key)
        if (key, value) == ("schedulerName", "default-scheduler"):
            yield document.problem(
                place, "'default-scheduler' is the cluster's own scheduler", "choose another name, such as flowsched"
            )
        if value in first:
            yield document.problem(place, f"'{value}' stands twice (first in {section}[{first[value]}])")
        first.setdefault(value, index)


def _selector_conflicts(document: Document, selector: Mapping[str, str]) -> Iterator[Problem]:
    for key in selector:
        prefix, slash, name = key.rpartition("/")
        if not LABEL_NAME.fullmatch(name) or (slash and not SUBDOMAIN.fullmatch(prefix)) or len(prefix) > 253:
            yield document.problem(("nodeSelector", key), f"{shown(key)} cannot be the name of a label")


def _load_conflicts(document: Document, form: LoadSettings) -> Iterator[Problem]:
    section = "loadSource"
    for name, value in (("url", form.url), ("query", form.query)):
        if form.kind == "prometheus" and not value:
            yield document.problem((section, name), "is missing", "kind prometheus needs it")
        elif form.kind == "annotation" and value is not None:
            yield document.problem((section, name), "has no meaning with kind annotation", "write 'kind: prometheus'")
    if form.url:
        yield from _url_problems(document, document.data[section]["url"])
    for placeholder in dict.fromkeys(re.findall(r"\$([A-Za-z_]\w*)", form.query or "")):
        if placeholder not in PLACEHOLDERS:
            close = nearest(placeholder, PLACEHOLDERS)
            known = ", ".join(f"${p}" for p in PLACEHOLDERS)
            help = f"did you mean '${close}'? (known: {known})" if close else f"known: {known}"
            yield document.problem((section, "query"), f"there is no placeholder '${placeholder}'", help)
    if form.timeout_s > form.interval_s:
        yield document.problem(
            (section, "timeout"), f"must not be longer than interval ({format_duration_s(form.interval_s)})"
        )
    if form.stale_after_s < form.interval_s:
        yield document.problem(
            (section, "staleAfter"),
            f"must be at least interval ({format_duration_s(form.interval_s)})",
            "otherwise every reading is stale before the next one",
        )


def _url_problems(document: Document, url: str) -> Iterator[Problem]:
    place = ("loadSource", "url")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        yield document.problem(
            place, f"{shown(without_password(url))} is not an address", "write it as http://prometheus.monitoring:9090"
        )
    elif parts.username is not None or parts.password is not None:
        yield document.problem(place, "must not hold a user name or password", "configurations are shown on /configz")
