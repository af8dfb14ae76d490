"""What every policy of the registry must keep to, and what rounds make of any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_world import DUE_S, World, a_class, a_machine, price_of

from builders import any_of
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.errors import EventError
from flowsched.pricing.linear.policies import COST_MODELS, make_cost_model
from flowsched.pricing.linear.policy import FORBIDDEN, ClassPrices, CostModel
from flowsched.round.linear.cluster_rows import ClusterRows

NAMES = tuple(COST_MODELS)
RACKS = ("a", "b", "c")


@st.composite
def classes(draw: st.DrawFn, number: int = 0) -> TaskClass:
    """A class that says something about everything that a policy may heed."""
    share = st.floats(0.0, 1.0)
    return TaskClass(
        f"class-{number}",
        draw(any_of(500, 1000, 1500, 2000, 4000)),
        (("memory", draw(st.integers(0, 16))),),
        draw(st.floats(0.0, 2.0)),
        draw(st.floats(0.0, 0.5)),
        draw(any_of(1.0, 30.0, 600.0, 86400.0, float("inf"))),
        selector=draw(any_of((), (), (("rack", "a"),), (("disk", "ssd"),))),
        slowness=(("slow", draw(st.floats(0.0, 1.0))),),
        interference_class=draw(any_of("", "turtle", "sheep", "rabbit", "devil")),
        preferences=draw(any_of((), (("disk", "ssd", 0.3),))),
        locality=(("rack", draw(st.sampled_from(RACKS)), draw(share)), ("machine", "m0", draw(share))),
        input_mb=draw(st.floats(0.0, 1000.0)),
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list, list[TaskClass], list[int], list[int]]:
    """Machines, classes, and how many of each class run already, and wait."""
    machines = []
    for i in range(draw(st.integers(1, 6))):
        labels = [("machine", f"m{i}"), ("rack", draw(st.sampled_from(RACKS)))]
        if draw(st.booleans()):
            labels.insert(0, ("disk", "ssd"))
        kind = {"type": draw(any_of("fast", "slow")), "labels": tuple(labels)}
        machines.append(a_machine(f"m{i}", draw(any_of(2, 4, 8)), 64, bandwidth=1.2, **kind))
    some = [draw(classes(number=i)) for i in range(draw(st.integers(1, 4)))]
    counts = st.lists(st.integers(0, 4), min_size=len(some), max_size=len(some))
    return machines, some, draw(counts), draw(counts)


def loaded(name: str, cluster: tuple[list, list[TaskClass], list[int], list[int]]) -> World:
    """What runs found its place in a first round; what waits is of ages up to twice the due age."""
    machines, some, run, wait = cluster
    world = World(make_cost_model(name), machines)
    for task_class, count in zip(some, run, strict=True):
        world.submit(task_class, count)
    world.round()
    for i, (task_class, count) in enumerate(zip(some, wait, strict=True)):
        world.submit(task_class, count, created_s=-DUE_S * (i % 3))
    return world


few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", NAMES)
@few
@given(cluster=clusters())
def test_arrays_have_their_shapes_and_no_number_is_below_0(name: str, cluster: tuple) -> None:
    machines, some, _, _ = cluster
    kinds = [machine.kind for machine in machines]
    policy = make_cost_model(name)
    width = len(policy.features)
    for kind in kinds:
        factors = np.asarray(policy.factors(kind))
        assert factors.shape == (width,) and np.isfinite(factors).all() and (factors >= 0.0).all()
    for task_class in some:
        prices = policy.price(task_class, kinds)
        assert prices.base.shape == (len(kinds),)
        assert prices.coefficients.shape == prices.effects.shape == (width,)
        assert (prices.base >= 0.0).all()
        for array in (prices.coefficients, prices.effects):
            assert np.isfinite(array).all() and (array >= 0.0).all()
        assert prices.waiting >= 0.0 and 0.0 <= prices.growth < float("inf")


@pytest.mark.parametrize("name", NAMES)
@few
@given(cluster=clusters())
def test_the_same_class_and_kinds_have_the_same_prices_whatever_was_asked_before(name: str, cluster: tuple) -> None:
    machines, some, _, _ = cluster
    kinds = [machine.kind for machine in machines]
    asked, fresh = make_cost_model(name), make_cost_model(name)
    for task_class in some:
        asked.price(task_class, kinds)
    for task_class in reversed(some):
        one, other = asked.price(task_class, kinds), fresh.price(task_class, kinds)
        # A kind's price does not depend on the company in which it is asked for.
        alone = [float(fresh.price(task_class, [kind]).base[0]) for kind in kinds]
        assert one.base.tolist() == other.base.tolist() == alone
        assert one.coefficients.tolist() == other.coefficients.tolist()
        assert one.effects.tolist() == other.effects.tolist()
        assert (one.waiting, one.growth) == (other.waiting, other.growth)


@pytest.mark.parametrize("name", NAMES)
@few
@given(cluster=clusters())
def test_costs_of_a_round_are_those_of_a_recount_by_hand(name: str, cluster: tuple) -> None:
    world = loaded(name, cluster)
    cluster = world.cluster
    before = cluster.machines.readings.copy()
    outcome = world.rounds.decide(0.0)

    # Beside all others at the end of the round.
    after = before.copy()
    for task, row in zip(outcome.tasks.tolist(), outcome.machines.tolist(), strict=True):
        after[row] += cluster.classes.effects[cluster.tasks.task_class[task]]
    wanted = [
        price_of(cluster, int(c), int(row), after[row] - cluster.classes.effects[c])
        for c, row in zip(cluster.tasks.task_class[outcome.tasks], outcome.machines, strict=True)
    ]
    assert outcome.cost == pytest.approx(wanted, rel=1e-6, abs=1e-6)

    # One after the other, and those that are left.
    total = 0.0
    for task, row in zip(outcome.tasks.tolist(), outcome.machines.tolist(), strict=True):
        c = int(cluster.tasks.task_class[task])
        total += price_of(cluster, c, row, before[row])
        before[row] += cluster.classes.effects[c]
    for level in outcome.levels:
        left = set(level.waiting.tasks.tolist()) - set(outcome.tasks.tolist())
        total += sum(min(waiting_cost(cluster, task), level.evidence.most) for task in left)
    assert sum(level.primal for level in outcome.levels) == pytest.approx(total, rel=1e-6, abs=1e-5)


def waiting_cost(cluster: ClusterRows, task: int) -> float:
    """What leaving a task costs at time 0."""
    prices = cluster.classes.policy.price(cluster.classes[int(cluster.tasks.task_class[task])], [])
    age = min(1.0, max(0.0, -float(cluster.tasks.created_s[task]) / DUE_S))
    return prices.waiting + prices.growth * age


@pytest.mark.parametrize("name", NAMES)
@few
@given(cluster=clusters())
def test_nothing_is_overcommitted_or_dearer_than_waiting_and_no_selector_is_broken(name: str, cluster: tuple) -> None:
    world = loaded(name, cluster)
    outcome = world.round()
    cluster = world.cluster
    assert (cluster.machines.free >= 0).all()
    for task, row, estimate in zip(outcome.tasks.tolist(), outcome.machines.tolist(), outcome.estimate, strict=True):
        task_class = cluster.classes[int(cluster.tasks.task_class[task])]
        assert cluster.machines.kinds[int(cluster.machines.kind[row])].has(task_class.selector)
        assert estimate <= waiting_cost(cluster, task) + 1e-6


@pytest.mark.parametrize("name", NAMES)
@few
@given(cluster=clusters())
def test_the_same_events_lead_to_the_same_decisions(name: str, cluster: tuple) -> None:
    one, other = (loaded(name, cluster).round() for _ in range(2))
    assert one.tasks.tolist() == other.tasks.tolist()
    assert one.machines.tolist() == other.machines.tolist()
    assert one.cost.tolist() == other.cost.tolist()


class Asked:
    """A policy that counts what it is asked, and forbids some types."""

    def __init__(self, policy: CostModel, forbidden: Sequence[str] = ()) -> None:
        self.policy, self.forbidden = policy, forbidden
        self.name, self.features = policy.name, policy.features
        self.pairs: Counter[tuple[str, MachineKind]] = Counter()
        self.kinds: Counter[MachineKind] = Counter()

    def factors(self, kind: MachineKind) -> Sequence[float]:
        self.kinds[kind] += 1
        return self.policy.factors(kind)

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        self.pairs.update((task_class.name, kind) for kind in kinds)
        prices = self.policy.price(task_class, kinds)
        base = np.where([kind.type in self.forbidden for kind in kinds], FORBIDDEN, prices.base)
        return replace(prices, base=base)


@pytest.mark.parametrize("name", NAMES)
def test_prices_are_asked_once_per_class_and_kind_and_not_in_rounds(name: str) -> None:
    policy = Asked(make_cost_model(name))
    world = World(policy, [a_machine(f"n{i}", 4, type=f"type-{i % 2}") for i in range(6)])
    for turn in range(4):
        for i in range(3):
            world.submit(a_class(f"class-{i}", 1), 2, created_s=10.0 * turn)
        world.round(10.0 * turn)
    assert set(policy.pairs.values()) == {1} and len(policy.pairs) == 3 * 2
    assert set(policy.kinds.values()) == {1} and len(policy.kinds) == 2

    # Two new kinds at once: the classes are asked about once more, not once for each.
    world.cluster.add_machines([a_machine(f"later-{i}", 4, type=f"type-{2 + i % 2}") for i in range(4)])
    world.round(50.0)
    assert {count for (_, kind), count in policy.pairs.items() if kind.type in ("type-2", "type-3")} == {1}
    assert set(policy.pairs.values()) == {1, 2} and set(policy.kinds.values()) == {1}


@pytest.mark.parametrize("name", NAMES)
def test_forbidden_kinds_are_never_used_though_nothing_else_is_free(name: str) -> None:
    world = World(Asked(make_cost_model(name), ["no"]), [a_machine("n0", 2), a_machine("n1", 64, type="no")])
    world.submit(a_class("narrow", 1), 5, created_s=-DUE_S)
    world.submit(a_class("wide", 8), 1, created_s=-DUE_S)
    world.round()
    assert world.on("n1") == []
    assert world.on("n0") == ["narrow", "narrow"]


class Broken:
    """A policy whose answers are wrong in one way."""

    name = "broken"
    features = ()

    def __init__(self, factors: Sequence[float] = (), waiting: float = 1.0, growth: float = 0.0, base: float = 0.0):
        self._factors, self._waiting, self._growth, self._base = factors, waiting, growth, base

    def factors(self, kind: MachineKind) -> Sequence[float]:
        return self._factors

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        nothing = np.zeros(0)
        return ClassPrices(np.full(len(kinds), self._base), nothing, nothing, self._waiting, self._growth)


@pytest.mark.parametrize(
    "wrong", [{"waiting": -1.0}, {"waiting": float("nan")}, {"growth": float("inf")}, {"base": -1.0}]
)
def test_a_price_that_is_none_is_refused_in_one_sentence(wrong: dict[str, float]) -> None:
    world = World(Broken(**wrong), [a_machine("n0")])  # type: ignore[arg-type]
    with pytest.raises(EventError, match="policy broken priced class job with") as error:
        world.submit(a_class())
    assert "\n" not in str(error.value)


def test_factors_for_features_that_there_are_not_are_refused_and_no_machine_joins() -> None:
    cluster = ClusterRows.of(Broken((1.0, 2.0)))
    with pytest.raises(EventError, match=r"policy broken has factors \[1.0, 2.0\] for machines of type m; expected 0"):
        cluster.add_machines([a_machine("n0")])
    assert cluster.machines.machine_count == 0 and not cluster.machines.kinds


def test_a_machine_without_size_is_no_machine() -> None:
    with pytest.raises(ValueError, match="machines of type m have 0 cores; give a number above 0"):
        MachineKind("m", cores=0.0)
