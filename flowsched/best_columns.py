"""The best columns of all tasks around a plan: what passes and exchanges choose from, forecast together."""

from __future__ import annotations

from collections import Counter

from flowsched.assignment import Assignment
from flowsched.offer import NOWHERE, Joining, Offer
from flowsched.search import Search


def best_columns(search: Search, plan: Assignment) -> list[list[Offer]]:
    """[tasks][machines] ``best_column`` of all; what has to be forecast for it is forecast together."""
    group_of, class_of = search.view.group_of, search.view.class_of
    kinds = [(class_of[t], t in search.must_start) for t in range(len(plan.columns))]
    homes: dict[int, Joining] = {}
    for t, column in enumerate(plan.columns):
        if column is not None:
            m = column.machine
            homes[t] = (group_of[m], plan.company(m, without=t), *kinds[t])
    count = Counter(kinds)
    at_home = Counter((kinds[t], column.machine) for t, column in enumerate(plan.columns) if column is not None)
    # Nobody visits a machine where all of a kind are at home.
    visits = {
        kind: {m: (group_of[m], plan.company(m), *kind) for m in range(len(group_of)) if at_home[kind, m] < count[kind]}
        for kind in count
    }
    search.best_known.learn([*(key for keys in visits.values() for key in keys.values()), *homes.values()])
    rows = {
        kind: [search.best_known.best(m, keys[m]) if m in keys else NOWHERE for m in range(len(group_of))]
        for kind, keys in visits.items()
    }
    table = []
    for t, column in enumerate(plan.columns):
        if t in search.barred or search.related(t):
            table.append([search.best_column(plan, t, m) for m in range(len(group_of))])
            continue
        row = list(rows[kinds[t]])
        if column is not None:
            row[column.machine] = search.best_known.best(column.machine, homes[t])
        for m in search.holds:
            row[m] = search.best_column(plan, t, m)
        table.append(row)
    return table


def best_successors(search: Search, plan: Assignment) -> list[list[Offer]]:
    """[tasks k][tasks i] ``best_column`` of i where k is now, with k gone; of no meaning where k waits, and for those
    of k's own class or machine.
    """
    group_of, class_of = search.view.group_of, search.view.class_of
    kinds = [(class_of[t], t in search.must_start) for t in range(len(plan.columns))]
    distinct = list(dict.fromkeys(kinds))
    asked: dict[int, list[Joining]] = {}
    for k, column in enumerate(plan.columns):
        if column is not None:
            others = plan.company(column.machine, without=k)
            asked[k] = [(group_of[column.machine], others, *kind) for kind in distinct if kind[0] != class_of[k]]
    search.best_known.learn(key for keys in asked.values() for key in keys)
    table = []
    for k, column in enumerate(plan.columns):
        if column is None:
            table.append([NOWHERE] * len(kinds))
            continue
        m = column.machine
        offers = {(key[2], key[3]): search.best_known.best(m, key) for key in asked[k]}
        special = m in search.holds
        table.append(
            [
                search.best_column(plan, i, m, k)
                if kind[0] != class_of[k] and (special or i in search.barred or search.related(i))
                else offers.get(kind, NOWHERE)
                for i, kind in enumerate(kinds)
            ]
        )
    return table
