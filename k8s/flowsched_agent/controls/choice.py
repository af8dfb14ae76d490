"""Which control a process or container gets on this machine."""

from __future__ import annotations

import contextlib

from flowsched_agent.controls.container import ContainerControl, control_at
from flowsched_agent.controls.detected import Detected
from flowsched_agent.controls.hierarchies import groups_of, groups_of_container
from flowsched_agent.controls.own_group import OwnGroup
from flowsched_agent.controls.process import ProcessControl
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.system import System


def control_of_process(name: str, pid: int, detected: Detected, system: System | None = None) -> ProcessControl:
    """For a plain process and all that it starts. Raises :class:`ControlError`.

    It gets a group of its own where the cpu controller can be written. What an earlier agent left must have been restored
    before: its changes would be taken for the process's own settings.
    """
    system = system or System()
    own, instead = None, None
    if detected.own_groups:
        try:
            own = OwnGroup(system, detected.hierarchies, name, pid)
        except ControlError as error:
            if error.gone:
                raise
            instead = f"{name} is weighed by nice values and has no quota: {error}"
    try:
        control = ProcessControl(system, name, pid, own, detected.autogroup, detected.one_way)
    except ControlError:
        if own is not None:
            with contextlib.suppress(ControlError):
                own.leave()
        raise
    if instead is not None:
        control.said.append(instead)
    return control


def control_of_container(
    name: str, container: str | int, detected: Detected, system: System | None = None
) -> ContainerControl:
    """For a container by its id (``4f0c…`` or ``containerd://4f0c…``), or by a process in it.

    Raises :class:`ControlError`.
    """
    system = system or System()
    if isinstance(container, int):
        paths = groups_of(system, detected.hierarchies, container)
    else:
        paths = groups_of_container(system, detected.hierarchies, container)
    return control_at(system, detected.hierarchies, name, paths, detected.one_way)
