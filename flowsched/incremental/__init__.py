"""Re-optimisation of a min-cost flow from the last one: for networks that do not compact."""
