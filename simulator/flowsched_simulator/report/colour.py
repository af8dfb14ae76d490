"""Colours of jobs: one hue per profile, one lightness per job of that profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HUES = (
    (86, 180, 233),
    (230, 159, 0),
    (0, 158, 115),
    (240, 228, 66),
    (204, 121, 167),
    (213, 94, 0),
    (0, 114, 178),
    (160, 160, 160),
)
"""Told apart under the common kinds of colour blindness (after Okabe and Ito)."""
SHADES = (0.0, 0.42, -0.22, 0.6, 0.22)
"""How far each further job of a profile is mixed towards white (above 0) or black (below 0)."""
REUSE = -0.3
"""The same, for the profiles that come when all hues are taken."""


@dataclass(frozen=True)
class Colour:
    """A fill, and the ink that is readable on it, as ``#rrggbb``."""

    fill: str
    ink: str


def job_colours(jobs: Iterable[tuple[str, str]]) -> dict[str, Colour]:
    """Return the colour of each job, from pairs of job and profile in any order."""
    by_profile: dict[str, list[str]] = {}
    for profile, job in sorted({(profile, job) for job, profile in jobs}):
        by_profile.setdefault(profile, []).append(job)
    colours: dict[str, Colour] = {}
    for place, members in enumerate(by_profile.values()):
        for number, job in enumerate(members):
            colours.setdefault(job, _colour(place, number))
    return colours


def profile_colours(profiles: Iterable[str]) -> dict[str, Colour]:
    """Return the colour of the first job of each profile."""
    return {profile: _colour(place, 0) for place, profile in enumerate(sorted(set(profiles)))}


def _colour(place: int, number: int) -> Colour:
    base = HUES[place % len(HUES)]
    for _ in range(place // len(HUES) % 3):
        base = _mix(base, REUSE)
    return _with_ink(_mix(base, SHADES[number % len(SHADES)]))


def _mix(colour: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    target = 255 if share > 0 else 0
    red, green, blue = (round(part + (target - part) * abs(share)) for part in colour)
    return red, green, blue


def _with_ink(colour: tuple[int, int, int]) -> Colour:
    luminance = _luminance(colour)
    dark, light = (17, 17, 17), (255, 255, 255)
    on_dark = (luminance + 0.05) / (_luminance(dark) + 0.05)
    on_light = 1.05 / (luminance + 0.05)
    return Colour(fill=_hex(colour), ink=_hex(dark if on_dark >= on_light else light))


def _luminance(colour: tuple[int, int, int]) -> float:
    linear = [part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _hex(colour: tuple[int, int, int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
