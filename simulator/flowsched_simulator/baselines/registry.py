"""The baselines by name: ours, and those that other packages announce."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from flowsched.cluster.decision import Scheduler
from flowsched.disaggregation.registry import DISAGGREGATION_POLICIES
from flowsched.pricing.linear.policies import ALIASES, COST_MODELS
from flowsched.support.registry import Registry
from flowsched_models.document import InputError
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.granting import VARIANTS, Granting
from flowsched_simulator.baselines.guarded_baseline import GuardedBaseline

GROUP = "flowsched.baselines"
"""Entry points of this group are baselines of other packages: ``name = "module:Class"``."""
_HERE = "flowsched_simulator.baselines"
_COMPARED = {
    "fcfs": f"{_HERE}.fcfs:FirstComeFirstServed",
    "best-fit": f"{_HERE}.best_fit:BestFit",
    "lpt": f"{_HERE}.lpt:LongestProcessingTimeFirst",
    "random": f"{_HERE}.random_fit:RandomFit",
    "all-at-once": f"{_HERE}.all_at_once:AllAtOnce",
    "kube-default": f"{_HERE}.kube_default:KubeDefault",
    "most-allocated": f"{_HERE}.most_allocated:MostAllocated",
}
_ON_REQUEST = {
    "easy": f"{_HERE}.easy:EasyBackfilling",
    "conservative": f"{_HERE}.conservative:ConservativeBackfilling",
    "sjf": f"{_HERE}.sjf:ShortestJobFirst",
    "srpt": f"{_HERE}.srpt:ShortestRemainingProcessingTime",
    "las": f"{_HERE}.las:LeastAttainedService",
    "tetris": f"{_HERE}.tetris:Tetris",
    "wfs": f"{_HERE}.wfs:WeightedFairSharing",
    "gpu-fgd": f"{_HERE}.gpu_rules:GpuFgd",
    "gpu-best-fit": f"{_HERE}.gpu_rules:GpuBestFit",
    "gpu-packing": f"{_HERE}.gpu_rules:GpuPacking",
    "gpu-clustering": f"{_HERE}.gpu_rules:GpuClustering",
    "gpu-dot-prod": f"{_HERE}.gpu_rules:GpuDotProd",
    "gpu-random": f"{_HERE}.gpu_rules:GpuRandom",
    "topo-bipartition": f"{_HERE}.topo_bipartition:TopoBipartition",
    "topo-bipartition-fifo": f"{_HERE}.topo_bipartition:TopoBipartitionInOrder",
    "topo-bipartition-p": f"{_HERE}.topo_bipartition:TopoBipartitionPostponing",
    "topo-best-fit": f"{_HERE}.topo_best_fit:TopoBestFit",
}
COMPARED: tuple[str, ...] = tuple(_COMPARED)
"""Those that are compared unless it is said which."""
_OTHER_POLICIES = frozenset(
    {
        "flow",
        "flow+plan",
        *DISAGGREGATION_POLICIES,
        *ALIASES,
        *(name for name in COST_MODELS if COST_MODELS.is_ours(name)),
    }
)
"""Names that no baseline may have."""


def _check(name: str, loaded: Any, package: str) -> None:
    """Raise for what is no baseline that can be made."""
    what = f"the baseline '{name}' of {package}"
    if not (inspect.isclass(loaded) and issubclass(loaded, Baseline)):
        help = f"its entry point should name a subclass of {Baseline.__module__}.{Baseline.__name__}"
        raise _error(f"{what} is {loaded!r}", help)
    missing = sorted(loaded.__abstractmethods__)
    missing += [member for member in ("name", "description") if not isinstance(getattr(loaded, member, None), str)]
    if missing:
        raise _error(f"{what} lacks {' and '.join(missing)}", f"see {Baseline.__module__}.{Baseline.__name__}")
    if loaded.name != name:
        raise _error(f"{what} calls itself '{loaded.name}'", "give its class and its entry point the same name")


def _error(message: str, help: str) -> InputError:
    return InputError.one("baselines", message, help)


BASELINES = Registry("baseline", GROUP, {**_COMPARED, **_ON_REQUEST}, _check, _error, _OTHER_POLICIES)
"""Called with a granting and a seed, each makes a scheduler. Looking one up loads it."""


def make_baseline(name: str, granting: Granting, seed: int) -> Scheduler:
    """A baseline as a scheduler; what goes wrong in one of another package is one sentence, an :class:`InputError`."""
    if BASELINES.is_ours(name):
        baseline: Scheduler = BASELINES[name](granting, seed)
        return baseline
    return GuardedBaseline(
        name, BASELINES.package(name), BASELINES.place(name), partial(BASELINES[name], granting, seed)
    )


def variants_of(baseline: str, given: bool = False) -> tuple[Granting, ...]:
    """Grantings that make a difference to a baseline; a single one for those that have their own.

    ``given``: whether the run time of every task is given. All have what they declare then, whatever is granted.
    """
    if not BASELINES[baseline].uses_granting:
        return (Granting("declared", "shared"),)
    return (Granting(),) if given else VARIANTS
