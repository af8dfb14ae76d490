"""A decision that failed because of one service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ServiceError(Exception):
    """What is known of one service cannot be decided about; ``__cause__`` is what was raised. The others may be sound."""

    def __init__(self, service: str) -> None:
        """``service``: its name."""
        super().__init__(service)
        self.service = service

    def __str__(self) -> str:
        """In one sentence."""
        cause = self.__cause__
        return f"deciding about {self.service} failed: {type(cause).__name__}: {cause}"


@contextmanager
def deciding_about(service: str) -> Iterator[None]:
    """Whatever is raised inside becomes a :class:`ServiceError` of this service."""
    try:
        yield
    except ServiceError:
        raise
    except Exception as error:
        raise ServiceError(service) from error
