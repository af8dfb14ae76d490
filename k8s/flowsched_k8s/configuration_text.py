"""The configuration as a file would say it, for ``/configz`` and records, and the list of its keys for the documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from flowsched_k8s.configuration import DEFAULT_NAMESPACE, Configuration
from flowsched_k8s.configuration_form import ConfigForm, ConfigurationForm, GpuForm, ProfileForm
from flowsched_k8s.duration import format_duration_s
from flowsched_k8s.engine_form import engine_settings
from flowsched_k8s.names import CONFIG_KIND, CONFIG_VERSION
from flowsched_models.quantity import format_memory


def to_plain(configuration: Configuration) -> dict[str, Any]:
    """The configuration as a file would say it, every key included; ``load_configuration`` reads it back."""
    c = configuration
    return {
        "apiVersion": CONFIG_VERSION,
        "kind": CONFIG_KIND,
        "clientConnection": {
            "kubeconfig": _text(c.client_connection.kubeconfig),
            "qps": c.client_connection.qps,
            "burst": c.client_connection.burst,
        },
        "leaderElection": _plain(c.leader_election),
        "profiles": [{"schedulerName": name} for name in c.scheduler_names],
        "nodeSelector": dict(c.node_selector),
        "rounds": _plain(c.rounds),
        "podInitialBackoffSeconds": c.pod_initial_backoff_s,
        "podMaxBackoffSeconds": c.pod_max_backoff_s,
        "engine": {to_camel(name): getattr(c.engine, name) for name in engine_settings(c.cost_model)},
        "costModel": {"name": c.cost_model.name, **c.cost_model.settings}
        if c.cost_model.settings
        else c.cost_model.name,
        "gpus": [_plain(g) for g in c.gpus],
        "profilesFile": _text(c.profiles_file),
        "features": _plain(c.features),
        "rebalancing": _plain(c.rebalancing),
        "loadSource": _plain(c.load_source),
        "records": {"keep": c.records.keep, "directory": _text(c.records.directory)},
        "events": {
            "file": _text(c.events.file),
            "maxSize": format_memory(c.events.max_size_mib),
            "keep": c.events.keep,
        },
        "server": {"health": str(c.server.health), "metrics": str(c.server.metrics)},
        "logging": _plain(c.logging),
        "dryRun": c.dry_run,
    }


@dataclass(frozen=True)
class Key:
    """One key of the file."""

    key: str
    """With the keys around it: ``leaderElection.leaseDuration``."""
    default: str
    """As it would stand in the file; empty if there is none."""
    meaning: str


def reference() -> tuple[Key, ...]:
    """Every key of the file, in its order."""
    return tuple(_reference(ConfigurationForm, to_plain(Configuration()), ""))


def reference_table() -> str:
    """The keys as a Markdown table, for the documentation."""
    rows = [f"| `{k.key}` | {f'`{k.default}`' if k.default else ''} | {k.meaning} |" for k in reference()]
    return "\n".join(["| Key | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


def _reference(form: type[ConfigForm], plain: Mapping[str, Any], prefix: str) -> Iterator[Key]:
    for name, info in form.model_fields.items():
        alias = info.alias or name
        key, default = prefix + alias, plain[alias]
        inner = info.annotation
        if alias == "profiles":
            yield Key(
                f"{key}[].schedulerName",
                default[0]["schedulerName"],
                ProfileForm.model_fields["scheduler_name"].description or "",
            )
        elif alias == "gpus":
            yield from _reference(GpuForm, default[0], f"{key}[].")
        elif isinstance(inner, type) and issubclass(inner, ConfigForm):
            yield from _reference(inner, default, f"{key}.")
        elif alias == "engine":
            yield Key(key, "{}", info.description or "")
        elif alias == "resourceNamespace":
            yield Key(key, "", f"{info.description}, or `{DEFAULT_NAMESPACE}`")
        else:
            yield Key(key, _shown(default), info.description or "")


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, str) and value.startswith(":"):
        return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> dict[str, Any]:
    """The fields of a section; durations lose their ``_s`` and get their unit."""
    plain: dict[str, Any] = {}
    for f in fields(value):
        item = getattr(value, f.name)
        if f.name.endswith("_s"):
            plain[to_camel(f.name.removesuffix("_s"))] = format_duration_s(item)
        else:
            plain[to_camel(f.name)] = list(item) if isinstance(item, tuple) else item
    return plain


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
