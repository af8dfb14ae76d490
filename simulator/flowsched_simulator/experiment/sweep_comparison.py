"""Two sweeps compared: the same cases, policies and seeds, before and after a change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowsched_models.document import InputError
from flowsched_simulator.experiment.policy_comparison import PolicyComparison, adjusted
from flowsched_simulator.experiment.results import Results, compared_figures


def compare_sweeps(
    own: Results, reference: Results, metrics: Sequence[str], policies: Sequence[str] = ()
) -> list[PolicyComparison]:
    """``own`` minus ``reference``, for every case and policy that both have; raises :class:`InputError` where none is."""
    names = own.folder.name, reference.folder.name
    if names[0] == names[1]:
        names = str(own.folder), str(reference.folder)
    found = []
    for metric in metrics:
        for case in own.cases:
            for policy in policies or own.policies:
                if case not in reference.cases or policy not in own.policies or policy not in reference.policies:
                    continue
                difference = compared_figures(case, metric, (own, policy), (reference, policy))
                found.append(PolicyComparison(f"{case}, {policy}", *names, metric, difference))
    if not found:
        has = "; ".join(
            f"{each.folder} has {', '.join(each.cases)} and {', '.join(each.policies)}" for each in (own, reference)
        )
        raise InputError.one(names[0], f"shares no scenario and policy with {names[1]}", has)
    return adjusted(found)


def differing_scenarios(own: Results, reference: Results) -> Iterator[str]:
    """Cases of the same name whose scenarios differ: the same seed does not give both the same jobs."""
    digests = {each["case"]: each["digest"] for each in reference.about["cases"]}
    for each in own.about["cases"]:
        if digests.get(each["case"], each["digest"]) != each["digest"]:
            yield each["case"]
