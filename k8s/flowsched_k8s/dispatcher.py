"""Carries out what the state machine says: bindings, conditions and all other instructions, in turn by namespace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flowsched_k8s.api.access import one_line
from flowsched_k8s.api.client import ApiError, UnreachableError
from flowsched_k8s.api.writer import Result, WriteOutcome, Writer
from flowsched_k8s.bindings.bindings import BindOutcome, ReadPod
from flowsched_k8s.bindings.sender import Sender
from flowsched_k8s.bindings.turns import Turn, Turns
from flowsched_k8s.instructions import (
    Bind,
    Evict,
    GroupStatus,
    Instruction,
    MovePod,
    PatchClaim,
    PatchCondition,
    PatchEstimate,
    PodKey,
    PostEvent,
    Resize,
    TaintNode,
    namespace_of,
)
from flowsched_k8s.state import SchedulerState

LOG = logging.getLogger(__name__)

PATCHERS = 16
"""Conditions under way at a time that are answered, and as many other instructions."""


class Dispatcher:
    """Of one process. The state machine hears what became of each instruction."""

    def __init__(
        self,
        state: SchedulerState,
        writer: Writer,
        clock: Callable[[], float],
        woken: asyncio.Event,
        in_tree_version: Callable[[], str],
    ) -> None:
        """No instruction waits. ``woken`` is set when rounds should look again; ``in_tree_version``: of pod groups, as the
        API server has them.
        """
        self._state = state
        self._writer = writer
        self._clock = clock
        self._woken = woken
        self._in_tree_version = in_tree_version
        self.binds = Sender(state.bindings.turns, self._bind, clock, self._bind_failed)
        self.patches: Sender[PodKey] = Sender(Turns(PATCHERS), self._patch, clock, self._failed)
        self._latest_patch: dict[PodKey, PatchCondition] = {}
        self.others: Sender[Instruction | ReadPod] = Sender(Turns(PATCHERS), self._do_other, clock, self._other_failed)

    def dispatch(self, instructions: Sequence[Instruction | ReadPod]) -> None:
        """Carry them out, in turn by namespace."""
        for instruction in instructions:
            if isinstance(instruction, Bind):
                self.binds.add(instruction.pod.namespace, instruction)
            elif isinstance(instruction, PostEvent):
                about = self._state.cache.pods.get(instruction.regarding.uid)
                controller = about.pod.spec.scheduler_name if about is not None and about.ours else ""
                self._writer.post_event(replace(instruction, controller=controller))
            elif isinstance(instruction, PatchCondition):
                earlier = self._latest_patch.get(instruction.pod)
                if earlier is None:
                    self.patches.add(instruction.pod.namespace, instruction.pod)
                elif instruction.nominated_node is None:
                    # The last word on the nomination was said earlier and is not sent yet.
                    instruction = replace(instruction, nominated_node=earlier.nominated_node)
                self._latest_patch[instruction.pod] = instruction
            else:
                where = instruction.pod.namespace if isinstance(instruction, ReadPod) else namespace_of(instruction)
                self.others.add(where, instruction)

    def _failed(self, turn: Turn[Any], fault: Exception) -> None:
        """A fault of ours in what is written about one pod must not stop what is written about others."""
        about = {"what": type(turn.item).__name__, "pod": getattr(turn.item, "pod", turn.item)}
        LOG.error("an instruction failed", exc_info=fault, extra=about)

    def _bind_failed(self, turn: Turn[Bind], fault: Exception) -> None:
        self._failed(turn, fault)
        # It may have been sent: reading the pod tells.
        done = self._state.bindings.done(turn.item.pod, BindOutcome.LOST, "", self._clock())
        self.dispatch([*done, *self._state.bindings.tell_fault(turn.item, one_line(fault), self._clock())])
        self._woken.set()

    def _other_failed(self, turn: Turn[Instruction | ReadPod], fault: Exception) -> None:
        self._failed(turn, fault)
        if not isinstance(turn.item, ReadPod):
            result = Result(WriteOutcome.LOST, f"a fault of the scheduler: {one_line(fault)}")
            self.dispatch(self._answered(turn.item, result, self._clock()))

    async def _bind(self, turn: Turn[Bind]) -> bool:
        bind = turn.item
        withheld = self._state.bindings.withheld(bind, self._clock())
        if withheld is not None:
            LOG.info("binding not sent", extra={"pod": bind.pod, "node": bind.node, "why": withheld})
            self._woken.set()
            return False
        result = await self.binds.request(turn, self._writer.bind(bind))
        if result is None or result.outcome is WriteOutcome.LOST:
            self.binds.without_outcome(turn, "" if result is None else result.message)
            result = await self._writer.resolve(bind, again=self.binds.once_more)
        if result.outcome is WriteOutcome.STOPPED:
            return False
        outcome = BindOutcome.BOUND if result.outcome is WriteOutcome.DONE else BindOutcome(result.outcome.value)
        about = {"pod": bind.pod, "node": bind.node}
        if outcome is BindOutcome.BOUND:
            LOG.debug("bound", extra=about)
        elif outcome is not BindOutcome.DRY:
            LOG.info("not bound", extra={**about, "outcome": outcome.value, "error": result.message})
        now = self._clock()
        self.dispatch(self._state.bindings.done(bind.pod, outcome, result.message, now, result.retry_after))
        self._woken.set()
        return _is_outcome(result)

    async def _patch(self, turn: Turn[PodKey]) -> bool:
        """A condition: only the last word about a pod is written, and none about a pod that is gone or placed by now."""
        patch = self._latest_patch.pop(turn.item)
        entry = self._state.cache.pods.get(patch.pod.uid)
        if entry is None or entry.node:
            return False
        LOG.debug("waits", extra={"pod": patch.pod, "reason": patch.reason, "told": patch.message})
        answer = await self.patches.request(turn, self._writer.patch_condition(patch))
        result = answer or Result(WriteOutcome.LOST, "given up, as too many hang")
        if result.outcome in (WriteOutcome.RETRY, WriteOutcome.LOST, WriteOutcome.REFUSED):
            LOG.info("condition was not written", extra={"pod": patch.pod, "error": result.message})
        if result.outcome in (WriteOutcome.RETRY, WriteOutcome.LOST):
            self._state.notices.failed(patch, self._clock())
        return _is_outcome(result)

    async def _do_other(self, turn: Turn[Instruction | ReadPod]) -> bool:
        instruction = turn.item
        if isinstance(instruction, ReadPod):
            return await self._read_pod(instruction)
        if isinstance(instruction, PatchEstimate):
            entry = self._state.cache.pods.get(instruction.pod.uid)
            if entry is None or entry.place:
                return False
        if isinstance(instruction, GroupStatus):
            instruction = replace(instruction, api_version=self._in_tree_version())
        result = await self._writer.carry_out(instruction)
        self.dispatch(self._answered(instruction, result, self._clock()))
        return _is_outcome(result)

    def _answered(self, instruction: Instruction, result: Result, now: float) -> Sequence[Instruction]:
        """What follows from what the API server said to an instruction that is no binding, event or condition."""
        state, accepted = self._state, result.outcome in (WriteOutcome.DONE, WriteOutcome.DRY)
        if isinstance(instruction, PatchClaim):
            if accepted or result.outcome is WriteOutcome.STOPPED:
                return ()
            why = f"could not be prepared: {result.message}"
            return state.bindings.claim_failed(instruction.pod, why, now, instruction.patch)
        if isinstance(instruction, PatchEstimate):
            # A pod may be gone by now, or be told again later.
            if not accepted:
                LOG.debug("estimated start not written", extra={"pod": instruction.pod, "error": result.message})
                state.start_notices.failed(instruction.pod)
            return ()
        if not accepted:
            LOG.warning("not carried out", extra={"what": type(instruction).__name__, "error": result.message})
        match instruction:
            case Evict(pod, why):
                if not accepted:
                    return state.evictions.failed(pod, result.message, now)
                LOG.info("evicted", extra={"pod": pod, "why": why})
            case TaintNode():
                return state.rebalancing.marked(instruction, accepted, result.message)
            case MovePod():
                # A pod that is gone already has made room as well.
                left = accepted or result.outcome in (WriteOutcome.GONE, WriteOutcome.CONFLICT)
                return state.rebalancing.answered(instruction, left, result.message, now)
            case Resize(pod):
                return state.resizes.done(pod, accepted, result.message, now)
        return ()

    async def _read_pod(self, asked: ReadPod) -> bool:
        """Whether there was an answer."""
        for delay in (0.0, 1.0, 2.0, 4.0, 8.0, 15.0):
            await asyncio.sleep(delay)
            try:
                pod = await self._writer.read_pod(asked.pod)
            except (ApiError, UnreachableError) as error:
                LOG.warning("a pod could not be read", extra={"pod": asked.pod, "error": str(error)})
                continue
            self.dispatch(self._state.pod_read(asked.pod, pod, self._clock()))
            self._woken.set()
            return True
        # The state machine asks again once the binding is overdue.
        return False


def _is_outcome(result: Result) -> bool:
    """Whether the API server has answered what became of a request."""
    return result.outcome not in (WriteOutcome.LOST, WriteOutcome.RETRY)
