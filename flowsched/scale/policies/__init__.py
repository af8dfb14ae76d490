"""Policies for rounds at cluster scale, one file each, by name: ours and those that other packages announce.

Importing this imports no policy: a file is loaded when its policy is asked for.
"""

from __future__ import annotations

from flowsched.scale.policies.registry import (
    ALIASES,
    NETWORK_POLICIES,
    PolicyError,
    PolicyNotes,
    Setting,
    describe_network_policy,
    make_network_policy,
)

__all__ = [
    "ALIASES",
    "NETWORK_POLICIES",
    "PolicyError",
    "PolicyNotes",
    "Setting",
    "describe_network_policy",
    "make_network_policy",
]
