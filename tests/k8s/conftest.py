"""Fixtures for tests against a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plane import Plane, Space, running_plane

from flowsched.round.linear.preparation import prepare as prepare_bulk
from flowsched.round.scheduler import prepare


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    """etcd, kube-apiserver and KWOK, one plane for each process that runs tests. Tests keep to their own namespace."""
    # Compiled once, here: not by each scheduler that a test starts and waits for.
    prepare()
    prepare_bulk()
    with running_plane("--parts", "kwok") as started:
        yield started


@pytest.fixture
def space(plane: Plane, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A namespace of the test's own, with helpers to fill it."""
    with plane.space(request.node.name.removeprefix("test_")) as made:
        yield made


@pytest.fixture
def namespace(space: Space) -> str:
    """The name of the test's own namespace."""
    return space.name
