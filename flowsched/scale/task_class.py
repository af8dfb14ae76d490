"""Where own cost models find what they price."""

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass

__all__ = ["MachineKind", "MachineSpec", "TaskClass"]
