"""How much a measured p95 scatters around what the models say of the very same moments."""

from __future__ import annotations

from typing import Literal

from flowsched_models.service import ServiceProfile
from flowsched_models.window_noise import WindowNoise

Noise = float | Literal["measured"]
"""Standard deviation of log p95, 0 for none; or what the profile of a service says."""


def noise_of(asked: Noise, profile: ServiceProfile, window_s: float) -> WindowNoise:
    """The noise on p95 of windows of ``window_s`` seconds; none where a profile says nothing."""
    return profile.noise(window_s) if asked == "measured" else WindowNoise(window_s, float(asked))
