"""Inside one machine: what a node controller reads, what it decides, and the controller ``flow-node``."""

from flowsched.node.allocation import LOWEST_WEIGHT, Allocation, ServiceGrant, TaskGrant
from flowsched.node.deadline import Deadline
from flowsched.node.node import Node, NodeService, NodeTask
from flowsched.node.node_controller import NodeController
from flowsched.node.node_learner import NodeLearner
from flowsched.node.reading import Reading, ServiceReading, TaskReading, TaskState

__all__ = [
    "LOWEST_WEIGHT",
    "Allocation",
    "Deadline",
    "Node",
    "NodeController",
    "NodeLearner",
    "NodeService",
    "NodeTask",
    "Reading",
    "ServiceGrant",
    "ServiceReading",
    "TaskGrant",
    "TaskReading",
    "TaskState",
]
