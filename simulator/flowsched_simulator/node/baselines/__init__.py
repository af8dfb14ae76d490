"""Controllers to compare with, each a published design, or the plainest rule there is."""

from flowsched_simulator.node.baselines.low_weight import LowWeight, LowWeightAll
from flowsched_simulator.node.baselines.static import Static
from flowsched_simulator.node.baselines.two_queue import TwoQueue

__all__ = ["LowWeight", "LowWeightAll", "Static", "TwoQueue"]
