"""The state as plain data, for SIGUSR2 and ``/debug/state``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowsched_k8s.state import SchedulerState


def dump(state: SchedulerState, now: float) -> dict[str, Any]:
    """What the scheduler knows, and what is under way."""
    cache, queue = state.cache, state.queue
    return {
        "active": state.active,
        "rounds": state.rounds,
        "round_running": state.round_running,
        "nodes": {
            name: {
                "type": node.type.name,
                "allocatable": node.allocatable,
                "pods": sorted(str(cache.pods[uid].key) for uid in node.pods),
            }
            for name, node in sorted(cache.nodes.items())
        },
        "nodes_outside": sorted(cache.others),
        "queue": queue.sizes(),
        "waiting": [
            {
                "pod": str(e.key),
                "uid": e.key.uid,
                "queue": str(queue.place(e.key)),
                "attempts": queue.attempts(e.key),
                "age_s": round(now - e.created_s, 3),
                "postponed": e.key.uid in state.postponed,
                "message": e.message,
            }
            for e in sorted(cache.pods.values(), key=lambda e: e.key)
            if e.key in queue
        ],
        "assumed": {str(e.key): e.assumed for e in cache.pods.values() if e.assumed and not e.node},
        "binding": sorted(state.bindings.under_way),
        "bindings_without_outcome": [
            {
                "pod": str(turn.item.pod),
                "node": turn.item.node,
                "age_s": round(now - turn.began_s, 3),
                "error": turn.error,
            }
            for turn in state.bindings.turns.apart()
        ],
        "stuck_namespaces": state.bindings.stuck,
        "held_node": state.held_node.held,
        "rebalancing": state.rebalancing.dump(now),
        "plan": [replace(p).__dict__ for p in state.plan.values()],
    }
