"""Why a task has its cores and its share: the sentences of ``flow-node``, each for one case."""

from __future__ import annotations

from flowsched.node.arrangement import Arrangement, Cores
from flowsched.node.moment import Moment

CHEAPER_LATER = "starting it now does not earn the price of the change: it fits better later"
OTHERS = "no core is left for it: other tasks make more progress there"
NO_ROOM = "it may not share a core with a service, and services never have fewer than all of the cores"


def ready(qps: float) -> str:
    """Of a service."""
    return f"ready for {qps:.0f} queries per second"


def due(due_s: float) -> str:
    """Of a task that runs because it must."""
    return f"due: it waited {due_s:g} s"


def goal(service: str, qps: float) -> str:
    """Of a task that a latency goal keeps waiting."""
    return f"p95 of {service} at {qps:.0f} queries per second would break its goal too often beside it"


def alone(service: str, qps: float) -> str:
    """Of a task that may not share a core, while a service needs those that could be free."""
    return f"it may not share a core with a service, and {service} needs its cores for {qps:.0f} queries per second"


def why_waiting(moment: Moment, arrangement: Arrangement, k: int) -> str:
    """The case of task ``k``, which has no core: what is lost if it gets some after all."""
    candidate = moment.candidates[k]
    if not candidate.task.shares:
        if not moment.apart.room:
            return NO_ROOM
        if not moment.apart.free(arrangement):
            return _of_room(moment, arrangement, k)
    trials = [arrangement.with_task(k, cores) for cores in _ways(moment, arrangement, k)]
    best = max(trials, key=moment.worth)
    gained = moment.worth(best) - moment.worth(arrangement)
    if gained > 0.0:
        return CHEAPER_LATER
    costs = [moment.goal_cost(best, s) - moment.goal_cost(arrangement, s) for s in range(len(moment.services))]
    # Without what the goals lose it would be worth its cores.
    if gained + sum(costs) > 0.0 and max(costs, default=0.0) > 0.0:
        s = costs.index(max(costs))
        return goal(moment.services[s].name, moment.qps[s])
    return OTHERS


def _ways(moment: Moment, arrangement: Arrangement, k: int) -> list[Cores]:
    """Cores that a task could have beside all others: any one of them, all, and those of no service."""
    free = moment.apart.free(arrangement)
    every = moment.node.cores if moment.candidates[k].task.shares else free
    ways = dict.fromkeys([*((c,) for c in every), every, tuple(c for c in free if c in every)])
    return [cores for cores in ways if cores]


def _of_room(moment: Moment, arrangement: Arrangement, k: int) -> str:
    """Every core is a service's: that of the service which would lose most by leaving one, or too little is gained."""
    lost: dict[int, float] = {}
    for trial in moment.apart.making_room(arrangement):
        if not trial.tasks[k]:
            continue
        if moment.worth(trial) > moment.worth(arrangement):
            return CHEAPER_LATER
        for s in range(len(moment.services)):
            if trial.services[s] < arrangement.services[s]:
                cost = moment.goal_cost(trial, s) - moment.goal_cost(arrangement, s)
                lost[s] = min(cost, lost.get(s, cost))
    if not lost:
        return NO_ROOM
    s = min(lost, key=lambda service: (lost[service], service))
    return alone(moment.services[s].name, moment.qps[s])
