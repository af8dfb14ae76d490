"""The report of controllers on one machine: one HTML document that needs nothing beside itself."""

from flowsched_simulator.node.report.page import render_node_report

__all__ = ["render_node_report"]
