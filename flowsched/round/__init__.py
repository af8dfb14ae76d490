"""Scheduling rounds: from a snapshot to decisions, through passes of min-cost flow."""
