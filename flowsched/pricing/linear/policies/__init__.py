"""Policies for rounds at linear prices, one file each, by name: ours and those that other packages announce.

Importing this imports no policy: a file is loaded when its policy is asked for.
"""

from __future__ import annotations

from flowsched.errors import PolicyError
from flowsched.pricing.linear.policies.registry import (
    ALIASES,
    COST_MODELS,
    PolicyNotes,
    Setting,
    describe_cost_model,
    make_cost_model,
    settings_taken,
)

__all__ = [
    "ALIASES",
    "COST_MODELS",
    "PolicyError",
    "PolicyNotes",
    "Setting",
    "describe_cost_model",
    "make_cost_model",
    "settings_taken",
]
