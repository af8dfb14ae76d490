"""How far from optimal a round can be: a lower bound that anybody can recompute from the record.

For prices lambda >= 0 on tiers,

    LB = sum_c n_c min( u_c, min over (g, w) of [ k_cg + w * sum over tiers t <= w of lambda_gt ] )
         - sum lambda_gt S_gt + what runs already

is below the cost of any plan by weak duality. ``k_cg`` is a class's least cost on a group in *any* company: terms between
tasks of the same round, and what running neighbours do, are at least 0 and dropped. Where tasks may be planned for later
(slots), a later place takes no capacity now, so tiers are priced at 0 and the bound is looser. It belongs to the first
network; reservations, relations and task groups only remove plans.
"""

from __future__ import annotations

from flowsched.assignment import Assignment
from flowsched.decision import Certificate
from flowsched.exact import company_count, exact_bound
from flowsched.first_network import FirstSolution
from flowsched.network import potentials
from flowsched.policies.policy import FORBIDDEN
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.solvers import Status


def certify(search: Search, plan: Assignment, first: FirstSolution, settings: Settings) -> Certificate:
    """The certificate of a plan: exact for small rounds, Lagrangian otherwise."""
    primal = search.total(plan)
    view = search.view
    residents = sum(search.prices.resident_least_cost(g) * group.size for g, group in enumerate(view.groups))
    unconstrained = residents + sum(
        len(cls.members) * min(search.prices.waiting_cost(c), _least(search, c, {}, cls.task.widths_milli[:1]))
        for c, cls in enumerate(view.classes)
    )
    lambdas = tier_prices(first) if search.slots == 1 and not search.widths and not search.holds else {}
    bound = residents + sum(
        len(cls.members)
        * min(search.prices.waiting_cost(c), _least(search, c, lambdas, (first.first.widths_milli[c],)))
        for c, cls in enumerate(view.classes)
    )
    network = first.first.network
    for (g, w), price in lambdas.items():
        bound -= price * int(network.capacities[first.first.tiers[g, w]]) * first.first.unit_milli
    bound = max(bound, unconstrained)
    method = "lagrangian"
    small = len(view.tasks) <= settings.exact_tasks and company_count(search, plan) <= settings.exact_limit
    optimum = exact_bound(search, plan) if small else None
    if optimum is not None:
        bound = max(bound, optimum)
        method = "exact"
    named = {f"{view.groups[g].machine.name}/{w}m": price for (g, w), price in lambdas.items() if price}
    return Certificate(method, primal, bound, unconstrained, named)


def tier_prices(first: FirstSolution) -> dict[tuple[int, int], float]:
    """Price of a milli-CPU at each (group, width) tier: the duals of the first network's solution."""
    network = first.first.network
    if network.arc_count == 0 or first.solution.status is not Status.OPTIMAL:
        return {}
    pi = potentials(network, first.solution.flow)
    prices = {}
    for key, arc in first.first.tiers.items():
        reduced = int(network.unit_costs[arc] + pi[network.tails[arc]] - pi[network.heads[arc]])
        prices[key] = max(0, -reduced) / network.cost_scale / first.first.unit_milli
    return prices


def _least(search: Search, task_class: int, lambdas: dict[tuple[int, int], float], widths: tuple[int, ...]) -> float:
    """Least price of a task of a class over groups and widths, capacity priced at ``lambdas``."""
    best = FORBIDDEN
    for g, group in enumerate(search.view.groups):
        if not group.batch_cores or not search.view.allowed(task_class, group.members[0]):
            continue
        least = search.prices.least_cost(g, task_class)
        for w in widths:
            toll = w * sum(price for (h, t), price in lambdas.items() if h == g and t <= w)
            best = min(best, least + toll)
    return best
