"""One decision of ``flow-node`` as plain data: what was known, what it was worth, and the network that was solved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched.node.flow_node import FlowNode
from flowsched.node.node import NodeTask

if TYPE_CHECKING:
    import networkx as nx

VERSION = "flowsched/node-decision/v1"


def decision_trace(controller: FlowNode) -> dict[str, Any]:
    """The last decision. Raises ValueError before the first one.

    Times in seconds, loads in queries per second, ``worth`` and all costs of the network in seconds of work per second.
    """
    moment, arrangement, found = controller.moment, controller.arrangement, controller.network
    if moment is None or arrangement is None or found is None or controller.flow is None:
        raise ValueError("nothing was decided yet")
    background = moment.background(arrangement)
    services = []
    for s, (price, cores) in enumerate(zip(moment.slo, moment.service_cores(arrangement), strict=True)):
        p95 = price.predicted_p95_us(len(cores), moment.qps[s], background[s])
        services.append(
            {
                "service": price.service.name,
                "cores": list(cores),
                "qps": moment.qps[s],
                "p95_us": p95,
                "violation_chance": price.chance(p95),
                "cost": price.cost(len(cores), moment.qps[s], background[s]),
                "reason": controller.reason(price.service.name),
            }
        )
    tasks = [
        {
            "task": c.task.name,
            "stage": c.stage.name.lower(),
            "progress": controller.progress(c.task),
            "value": c.value,
            "waiting": c.waiting,
            "due": c.due,
            "cores": list(cores),
            "rate": rate,
            "shares": c.task.shares,
            "reason": controller.reason(c.task.name),
            **_learnt(controller, c.task),
        }
        for c, cores, rate in zip(moment.candidates, arrangement.tasks, moment.rates(arrangement), strict=True)
    ]
    plain = found.network.to_plain(controller.flow)
    terms = {name: column.tolist() for name, column in plain.pop("terms").items()}
    network = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in plain.items()}
    return {
        "version": VERSION,
        "services": services,
        "tasks": tasks,
        "worth": moment.worth(arrangement),
        "makespan_s": controller.makespan_s,
        "network": {**network, "terms": terms},
    }


def _learnt(controller: FlowNode, task: NodeTask) -> dict[str, Any]:
    """What completions taught of the class of a task, where there were any."""
    found = None if controller.learner is None else controller.learner.shown(task)
    return {} if found is None else {"learnt": {"class": task.run_class, **found._asdict()}}


def network_graph(trace: Mapping[str, Any]) -> nx.MultiDiGraph[str]:
    """The solved network of a trace: nodes with ``supply``; arcs with ``capacity``, ``cost``, ``flow`` and cost terms."""
    import networkx as nx

    network = trace["network"]
    names = network["nodes"]
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    for name, supply in zip(names, network["supplies"], strict=True):
        graph.add_node(name, supply=supply)
    for k, (tail, head) in enumerate(zip(network["tails"], network["heads"], strict=True)):
        terms = {name: column[k] for name, column in network["terms"].items() if column[k]}
        graph.add_edge(
            names[tail],
            names[head],
            capacity=network["capacities"][k],
            cost=network["unit_costs"][k] / network["cost_scale"],
            flow=network["flow"][k],
            **terms,
        )
    return graph
