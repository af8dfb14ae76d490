"""The cost model of a configuration: as the engine has it, and what pods say that it looks at, or does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowsched.pricing.linear.policies import COST_MODELS
from flowsched.pricing.linear.policies.coco import CLASSES
from flowsched.pricing.linear.policy import CostModel
from flowsched.round.linear import choice
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.pods.intent import NEUTRAL, Intent
from flowsched_models.document import name_help
from flowsched_models.quantity import shown

_COCO, _QUINCY, _SHORTEST = "coco", "quincy", "shortest-job-first"
_READ_BY = (
    ("goal_s", names.GOAL, (names.FLOW,)),
    ("min_utility", names.MIN_UTILITY, (names.FLOW,)),
    ("run_s", names.RUN_TIME, (names.FLOW, _SHORTEST)),
    ("interference_class", names.INTERFERENCE_CLASS, (_COCO,)),
    ("input_mb", names.INPUT, (_QUINCY,)),
    ("locality", names.INPUT_AT, (_QUINCY,)),
)
"""What a pod may say, its annotation, and which of our cost models read it."""


def make_model(cost_model: CostModelChoice) -> CostModel | None:
    """The cost model for rounds; None for ``flow``, whose rounds price otherwise.

    Raises :class:`flowsched_models.document.InputError` for one that there is not, and for settings that it does not take.
    """
    if cost_model.is_flow:
        return None
    return choice.GuardedCostModel(choice.configured(cost_model.name, cost_model.settings))


def plain_cost_model(cost_model: CostModelChoice) -> dict[str, Any]:
    """A cost model with all of its settings, as records keep it; ``flow`` has none of its own."""
    settings = {} if cost_model.is_flow else choice.settings_of(cost_model.name, cost_model.settings)
    return {"name": cost_model.name, "settings": settings}


def heeded(intent: Intent, cost_model: CostModelChoice) -> Intent:
    """What a pod says, without what the cost model does not look at or cannot use; a sentence for each says so.

    Cost models of other packages may look at everything but what only forecasts can use.
    """
    if intent is NEUTRAL:
        return intent
    name = cost_model.name
    own = cost_model.is_flow or COST_MODELS.is_ours(name)
    problems = list(intent.problems)
    changed: dict[str, Any] = {}
    for field, annotation, readers in _READ_BY:
        if getattr(intent, field) == getattr(NEUTRAL, field):
            continue
        if name in readers or not (own or readers == (names.FLOW,)):
            continue
        changed[field] = getattr(NEUTRAL, field)
        those = f"{' and '.join(readers)} {'is the one that reads' if len(readers) == 1 else 'are those that read'} it"
        problems.append(f"{annotation} has no effect: the cost model is {name}, and {those}")
    if cost_model.is_flow and intent.run_s is not None and (intent.profile or intent.service) is not None:
        changed["run_s"] = None
        problems.append(f"{names.RUN_TIME} has no effect: it is for pods without a profile, and this one has one")
    said = intent.interference_class
    if name == _COCO and said and said not in CLASSES:
        changed["interference_class"] = ""
        problems.append(
            f"{names.INTERFERENCE_CLASS}: {shown(said)} is not a class of the cost model coco; {name_help(said, CLASSES)}"
        )
    if name == _QUINCY and intent.locality:
        settings = choice.settings_of(name, cost_model.settings)
        known = (settings["rack_label"], settings["machine_label"])
        strange = sorted({label for label, _, _ in intent.locality} - set(known))
        if strange:
            changed["locality"] = tuple(place for place in intent.locality if place[0] in known)
            problems.append(
                f"{names.INPUT_AT}: the cost model quincy looks at the labels {known[0]} (rack_label) and {known[1]} "
                f"(machine_label), not at {', '.join(strange)}"
            )
    return replace(intent, **changed, problems=tuple(problems)) if problems != list(intent.problems) else intent
