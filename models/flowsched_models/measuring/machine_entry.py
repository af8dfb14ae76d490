"""The entry of a measured machine in a profiles file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from flowsched_models.document import InputError, read_document
from flowsched_models.form import API_VERSION, check, check_header
from flowsched_models.measurements.machines import MACHINE_FILE
from flowsched_models.measuring.topology import Topology
from flowsched_models.output import make_folder, write_whole
from flowsched_models.profiles import ProfilesForm
from flowsched_models.quantity import format_memory


def earlier_types(folder: Path) -> dict[str, Any]:
    """The machine types that ``machine.yaml`` in a folder has so far.

    Raises :class:`flowsched_models.document.InputError` if it is there and holds anything but profiles.
    """
    path = folder / MACHINE_FILE
    if not path.exists():
        return {}
    document = read_document(path)
    check_header(document, "Profiles")
    checked = check(document, ProfilesForm)
    InputError.raise_any(checked.problems)
    return dict(document.data.get("machine_types", {}))


def write_machine(folder: Path, earlier: Mapping[str, Any], machine_type: str, topology: Topology) -> Path:
    """Write ``machine.yaml``, a file of the kind Profiles that holds machine types only, behind ``earlier`` ones.

    Speed and bandwidth are those of the reference type, 1, until a calibration finds them.
    """
    entry = {
        "source": (
            f"flowsched measure on {topology.model or 'this machine'}. Memory: all that is installed; write what tasks "
            "may use. Speed and bandwidth: not measured, those of the reference."
        ),
        "vcpus": topology.vcpus,
        "memory": format_memory(topology.memory_mib),
        "smt": topology.smt,
    }
    content = {"apiVersion": API_VERSION, "kind": "Profiles", "machine_types": {**earlier, machine_type: entry}}
    path = folder / MACHINE_FILE
    make_folder(folder)
    write_whole(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))
    return path
