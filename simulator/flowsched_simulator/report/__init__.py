"""The report of a simulation: one HTML document that needs nothing beside itself."""

from flowsched_simulator.report.page import render_report

__all__ = ["render_report"]
