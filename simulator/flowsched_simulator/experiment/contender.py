"""A policy as it takes part in an experiment: with its settings, and of a baseline the variant."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flowsched_simulator.baselines.granting import variant_label
from flowsched_simulator.baselines.registry import BASELINES, variants_of
from flowsched_simulator.comparison import has_variants
from flowsched_simulator.policies import EngineOptions, check_policies, engine_of, readers
from flowsched_simulator.scenario import Scenario

BEST = "best"
"""Of a baseline's variants the best of a run where nothing is drawn, else the one chosen by runs with other seeds."""


@dataclass(frozen=True)
class Contender:
    """What is compared with the others."""

    label: str
    """Unique in an experiment; what tables and plots show."""
    policy: str
    settings: tuple[str, ...] = ()
    """``KEY=VALUE`` texts, as ``simulate --set`` takes them."""
    variant: str = BEST
    """Of a baseline: ``best``, or the label of one variant. Policies without variants ignore it."""

    def engine(self) -> EngineOptions:
        """The options of the engine. Raises :class:`InputError` for settings that the policy does not take."""
        return engine_of((self.policy,), self.settings, "settings")

    def variants(self, scenario: Scenario) -> tuple[Contender, ...]:
        """One for each variant among which there is a choice on a scenario; none where there is no choice."""
        if self.variant != BEST or not has_variants(self.policy, scenario):
            return ()
        labels = [granting.label for granting in variants_of(self.policy)]
        return tuple(replace(self, label=f"{self.label} ({label})", variant=label) for label in labels)

    @property
    def only_variant(self) -> str | None:
        """Label of the variant to run; None for all that there are."""
        is_one = self.policy not in BASELINES or self.variant == BEST or len(variants_of(self.policy)) == 1
        return None if is_one else self.variant


def named_variant(text: str) -> str:
    """The label of a variant, from the label itself or in short: ``declared-shared``, ``4-own``, ``best``.

    Raises :class:`InputError` for one that there is not.
    """
    return BEST if text == BEST else variant_label(text, "variant", [BEST])


def contenders_of(
    label: str, policy: str, settings: Sequence[str], grid: Mapping[str, Sequence[str]], variant: str
) -> tuple[Contender, ...]:
    """A contender for every point of a grid of settings (texts by key), of which a policy takes those keys that it reads.

    Raises :class:`InputError` for a policy or settings that there are not.
    """
    (policy,) = check_policies((policy,), "policies")
    read = read_by(policy)
    keys = [key for key in grid if key in read]
    made = []
    for values in itertools.product(*(grid[key] for key in keys)):
        point = tuple(f"{key}={value}" for key, value in zip(keys, values, strict=True))
        varied = [text for key, text in zip(keys, point, strict=True) if len(grid[key]) > 1]
        made.append(Contender(" ".join((label, *varied)), policy, (*settings, *point), named_variant(variant)))
    for each in made:
        each.engine()
    return tuple(made)


def read_by(policy: str) -> tuple[str, ...]:
    """The settings that a policy reads, as ``--set`` takes them."""
    read = readers((policy,), {})
    return tuple(key for key in (*read.plain, *read.own) if key != "objective")
