"""The arrays of machines are written by those alone that ARCHITECTURE.md names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.state_rows import StateRows
from flowsched.relations.relation_store import RelationStore
from flowsched.round.linear.cluster_rows import ClusterRows

HOUSE = Path(__file__).parents[2]
OWNERS = {
    "flowsched/cluster/machine_rows.py": MachineRows,
    "flowsched/cluster/booked_tasks.py": BookedTasks,
    "flowsched/cluster/state_rows.py": StateRows,
    "flowsched/round/linear/cluster_rows.py": ClusterRows,
}
READERS = ("flowsched", "k8s/flowsched_k8s", "simulator/flowsched_simulator")
COPIES = {
    "flowsched/round/linear/moves.py": {"emptied"},
    "flowsched/round/linear/recorded.py": {"loaded", "machines"},
    "k8s/flowsched_k8s/cache.py": {"entry", "old"},
}
"""Names, by module, of machines that were made there and belong to no state yet, or of a node."""


def table() -> list[tuple[list[str], str]]:
    """The arrays of each line, and who writes them."""
    text = (HOUSE / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("| By machine row |")[2]
    rows = [line.split("|")[1:3] for line in text.partition("\n\n")[0].splitlines()[2:]]
    return [(re.findall(r"`(\w+)`", arrays), writers) for arrays, writers in rows]


def named_arrays() -> set[str]:
    return {array for arrays, _ in table() for array in arrays if array in vars(MachineRows(()))}


def written(tree: ast.AST, arrays: set[str]) -> Iterator[tuple[str, str]]:
    """Whose array is assigned, or a part of it, and which."""
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute) and target.attr in arrays:
                yield ast.unparse(target.value), target.attr


def others(source: str, module: str = "a.py") -> list[tuple[str, str]]:
    """What a module that owns no machines writes to those of others."""
    own = {"self", *COPIES.get(module, ())}
    return [(of, array) for of, array in written(ast.parse(source), named_arrays()) if of not in own]


def test_the_table_names_every_array_of_machines_and_methods_that_there_are() -> None:
    kept = {name for name in MachineRows._BARE if not name.startswith("_")} | {"names", "relation_store"}
    assert named_arrays() == kept
    named = {owner.__name__ for owner in OWNERS.values()}
    for arrays, writers in table():
        for name in re.findall(r"`([\w.]+)`", writers):
            owner, _, method = name.rpartition(".")
            assert owner in ("", *named) and (
                method in named or any(hasattr(each, method) for each in (*OWNERS.values(), RelationStore))
            ), (arrays, name)


def test_no_other_module_writes_into_them() -> None:
    found = {}
    for folder in READERS:
        for path in sorted((HOUSE / folder).rglob("*.py")):
            module = str(path.relative_to(HOUSE))
            if module not in OWNERS and (faults := others(path.read_text(encoding="utf-8"), module)):
                found[module] = faults
    assert found == {}


def test_a_module_that_does_is_found() -> None:
    assert others("def f(machines, rows):\n    machines.free[rows, 0] -= 1\n") == [("machines", "free")]
    assert others("class A:\n    def f(self):\n        self.booked.machines.kind = 0\n") == [
        ("self.booked.machines", "kind")
    ]
    assert others("def f(machines):\n    return machines.free[0]\n") == []
