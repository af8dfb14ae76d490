"""What was learnt is written seldom, and forgotten where its ConfigMap was deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
from test_learner import ended, learner_of, scheduler

from flowsched.cluster.start_errors import NO_START_ERRORS, error_classes
from flowsched_k8s import names
from flowsched_k8s.api.client import ApiError, UnreachableError
from flowsched_k8s.api.writer import Result, WriteOutcome
from flowsched_k8s.learning.learnt_keeper import READ_AGAIN_S, SAVE_EVERY_S, LearntKeeper
from flowsched_k8s.learning.saved_runs import read_saved
from flowsched_k8s.objects import ConfigMap, Meta

BEGAN_S = 100_000.0


class Store:
    """An API server that has at most one ConfigMap, as far as it is asked here."""

    def __init__(self) -> None:
        self.held: ConfigMap | None = None
        self.made = 0
        self.fault: Exception | None = None
        """What reading raises."""
        self.loses = False
        """Whether the next answer to a write is lost."""
        self.writes: list[str] = []

    async def get(self, path: str, type_: type[ConfigMap]) -> ConfigMap:
        assert path == "/api/v1/namespaces/home/configmaps/flowsched-learnt"
        if self.fault is not None:
            raise self.fault
        if self.held is None:
            raise ApiError(404, "NotFound", "there is none")
        return self.held

    async def save(self, namespace: str, name: str, data: Mapping[str, str], uid: str) -> Result:
        assert (namespace, name) == ("home", "flowsched-learnt")
        self.writes.append("PATCH" if uid else "POST")
        if uid and self.held is None:
            return Result(WriteOutcome.GONE)
        if (self.held is not None and not uid) or (self.held is not None and self.held.metadata.uid != uid):
            return Result(WriteOutcome.CONFLICT)
        self.made += not uid
        self.held = ConfigMap(metadata=Meta(name=name, uid=uid or f"uid-{self.made}"), data=dict(data))
        if self.loses:
            self.loses = False
            return Result(WriteOutcome.LOST, "no answer")
        return Result(WriteOutcome.DONE)


class Kept:
    """A keeper and what it keeps, at a time of the test's own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = BEGAN_S
        running = scheduler()
        self.learner, self.starts = learner_of(running), running.state.starts
        api = cast(Any, store)
        self.keeper = LearntKeeper(
            api,
            api,
            self.learner,
            self.starts,
            "home",
            f"{names.COMPONENT}-{names.LEARNT}",
            lambda: True,
            lambda: self.now,
        )
        self.writes_s: list[float] = []
        self._ends = 0

    def end(self, count: int = 1) -> None:
        """Pods end."""
        for _ in range(count):
            self._ends += 1
            self.learner.finished([ended(f"job-{self._ends}", 60.0, self.now)], self.now)

    def go_on(self, seconds: int, ends: int = 0) -> None:
        """Time passes; each second ``ends`` pods end."""
        asyncio.run(self._go_on(seconds, ends))

    async def _go_on(self, seconds: int, ends: int) -> None:
        left = seconds

        async def sleep(for_s: float) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise asyncio.CancelledError
            self.now += for_s
            self.end(ends)

        self.keeper.sleep = sleep
        before = len(self.store.writes)
        with pytest.raises(asyncio.CancelledError):
            await self.keeper.run()
        self.writes_s += [self.now] * (len(self.store.writes) - before)

    def err(self, forecast_s: float, actual_s: float) -> None:
        """A forecast of a start and one of an end are known to have been off."""
        found = error_classes(np.array([forecast_s]), np.array([actual_s]), np.ones(1))
        self.starts.resume(self.starts.known_errors.with_starts(found).with_ends(found))

    @property
    def saved_runs(self) -> int:
        assert self.store.held is not None
        saved, wrong = read_saved(self.store.held.data or {})
        assert not wrong
        return sum(row.runs.runs for row in saved.rows)


def begun(store: Store | None = None) -> Kept:
    kept = Kept(store or Store())
    asyncio.run(kept.keeper.begin())
    return kept


def test_what_is_new_is_written_at_once_and_then_once_a_minute() -> None:
    kept = begun()
    kept.go_on(5)
    assert kept.store.writes == []  # there is nothing to be saved
    kept.end()
    kept.go_on(1)
    assert (kept.store.writes, kept.saved_runs) == (["POST"], 1)
    kept.go_on(int(SAVE_EVERY_S) - 1, ends=0)
    kept.end(3)
    kept.go_on(1)
    assert (kept.store.writes, kept.saved_runs) == (["POST", "PATCH"], 4)
    kept.go_on(10 * int(SAVE_EVERY_S), ends=1)
    assert len(kept.store.writes) == 2 + 10


def test_the_next_leader_knows_it() -> None:
    kept = begun()
    kept.end(7)
    kept.go_on(1)
    after = begun(kept.store)
    assert after.learner.learnt == kept.learner.learnt
    assert after.learner.learnt.classes
    after.go_on(3 * int(SAVE_EVERY_S))
    assert kept.store.writes == ["POST"], "nothing has changed"


def test_the_next_leader_knows_how_far_forecasts_were_off() -> None:
    kept = begun()
    for _ in range(20):
        kept.err(10.0, 30.0)
    kept.go_on(1)
    after = begun(kept.store)
    assert after.starts.known_errors == kept.starts.known_errors != NO_START_ERRORS
    assert after.starts.errors(after.now).end(100.0, 0.0).latest_s > NO_START_ERRORS.end(100.0, 0.0).latest_s
    after.go_on(3 * int(SAVE_EVERY_S))
    assert kept.store.writes == ["POST"], "nothing has changed"
    after.err(10.0, 30.0)
    after.go_on(2 * int(SAVE_EVERY_S), ends=0)
    assert kept.store.writes == ["POST", "PATCH"]
    kept.store.held = None
    after.go_on(2 * int(SAVE_EVERY_S) + 2)
    assert after.starts.known_errors == NO_START_ERRORS, "deleting it is forgetting"


def test_deleting_it_is_forgetting() -> None:
    kept = begun()
    kept.end(5)
    kept.go_on(1)
    kept.store.held = None
    kept.go_on(2 * int(SAVE_EVERY_S) + 2)
    assert not kept.learner.learnt.classes
    assert kept.saved_runs == 0, "that it was forgotten is remembered: finished pods are there still"
    kept.end()
    kept.go_on(2 * int(SAVE_EVERY_S))
    assert kept.saved_runs == 1


def test_a_copy_that_is_put_in_its_place_holds() -> None:
    kept = begun()
    kept.end(5)
    kept.go_on(1)
    assert kept.store.held is not None
    copy = ConfigMap(metadata=Meta(uid="another"), data=kept.store.held.data)
    kept.end(2)
    kept.go_on(int(SAVE_EVERY_S) + 1)
    assert kept.saved_runs == 7
    kept.store.held = copy
    kept.go_on(int(SAVE_EVERY_S) + 1)
    assert kept.learner.learnt.classes[0].runs == 5
    kept.end()
    kept.go_on(int(SAVE_EVERY_S) + 1)
    assert (kept.saved_runs, kept.store.held.metadata.uid) == (6, "another")


def test_an_answer_that_is_lost_does_no_harm() -> None:
    kept = begun()
    kept.store.loses = True
    kept.end(2)
    kept.go_on(1)
    assert kept.saved_runs == 2
    kept.end(2)
    kept.go_on(3 * int(SAVE_EVERY_S))
    assert kept.saved_runs == 4
    assert kept.learner.learnt.classes[0].runs == 4


@pytest.mark.parametrize("fault", [ApiError(403, "Forbidden", "no"), UnreachableError("no answer", sent=True)])
def test_nothing_is_learnt_before_what_was_learnt_can_be_read(fault: Exception) -> None:
    first = begun()
    first.end(3)
    first.go_on(1)
    first.store.fault = fault
    kept = begun(first.store)
    kept.now, kept._ends = first.now + 60.0, 10
    kept.end(2)
    kept.go_on(2 * int(READ_AGAIN_S))
    assert not kept.learner.leads
    first.store.fault = None
    kept.go_on(int(READ_AGAIN_S) + 1)
    assert kept.learner.learnt.classes[0].runs == 5


def test_what_cannot_be_read_is_forgotten_and_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.held = ConfigMap(metadata=Meta(uid="its own"), data={"version": "99"})
    kept = begun(store)
    assert "version '99' is not 1" in caplog.text
    kept.end()
    kept.go_on(1)
    assert (store.writes, kept.saved_runs) == (["PATCH"], 1)
