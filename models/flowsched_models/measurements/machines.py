"""Which machines were measured: node names, their types, and the type of each table that names none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flowsched_models.document import name_help
from flowsched_models.measurements.table import Row, Table

ROLES = ("executions", "threads", "interference", "latency_sweep", "latency_interference")
"""Kinds of tables, as ``machines.csv`` names them."""
MACHINE_FILE = "machine.yaml"
"""Machine types beside the tables of a group, in a profiles file: what no time tells of them."""


def machine_files(data: Path) -> list[Path]:
    """The files of machine types in a folder of tables, and in the folders of its groups."""
    return [p for p in (data / MACHINE_FILE, *sorted(data.glob(f"*/{MACHINE_FILE}"))) if p.is_file()]


@dataclass(frozen=True)
class Machines:
    """What is known of the machines of one group."""

    types: Mapping[str, str] = field(default_factory=dict)
    """Machine type by node name."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Machine type by kind of table."""
    vcpus: Mapping[str, int] = field(default_factory=dict)
    """Virtual CPUs by machine type, where they are known."""
    missing: str = ""
    """Why nothing is known, for a message."""
    unread: bool = False
    """Whether a table that would tell cannot be read. That was said, so rows are not to blame."""

    def of(self, row: Row, role: str) -> str:
        """The machine type of a row: its own ``machine_type``, that of its node, or that of all tables of its kind."""
        if row.text("machine_type"):
            return row.name("machine_type")
        node = row.text("node")
        if node and node in self.types:
            return self.types[node]
        if self.unread:
            row.sound = False
            return ""
        if node and not (known := self.roles.get(role)):
            help = name_help(node, self.types) if self.types else self.missing or _HELP
            row.refuse("node", f"the machine type of node '{node}' is not known", help)
            return known or ""
        if role in self.roles:
            return self.roles[role]
        row.refuse("machine_type", "the machine type is not known", self.missing or _HELP)
        return ""


_HELP = "add a column machine_type, or a machines.csv beside the table"


def read_machines(table: Table) -> Machines:
    """Read ``machines.csv``: node, machine_type [, role, vcpus]."""
    types: dict[str, str] = {}
    roles: dict[str, str] = {}
    vcpus: dict[str, int] = {}
    if not table.require(("machine_type",), ("node", "role")):
        return Machines(missing="mend machines.csv first")
    for row in table:
        kind, node, role = row.name("machine_type"), row.text("node"), row.text("role")
        if node and types.setdefault(node, kind) != kind:
            row.refuse("node", f"node '{node}' has two machine types, {types[node]} and {kind}")
        if role and role not in ROLES:
            row.refuse("role", f"'{role}' is not a kind of table", name_help(role, ROLES))
        elif role and roles.setdefault(role, kind) != kind:
            row.refuse("role", f"tables of the kind '{role}' have two machine types, {roles[role]} and {kind}")
        if row.text("vcpus") and (count := row.count("vcpus")) and vcpus.setdefault(kind, count) != count:
            row.refuse("vcpus", f"machine type '{kind}' has {vcpus[kind]} and {count} virtual CPUs")
    return Machines(types, roles, vcpus)
