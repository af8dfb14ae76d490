"""Measured tables: reading them, and what is wrong in them."""

from flowsched_models.measurements.load import load_measurements
from flowsched_models.measurements.measurements import Measurements

__all__ = ["Measurements", "load_measurements"]
