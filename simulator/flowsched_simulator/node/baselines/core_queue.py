"""A queue of jobs with cores of its own: the augmented queue (Q, R, n) of the two-queue design."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection


class CoreQueue:
    """Q: names of jobs that wait for a core; R: jobs that were started, by core; n: the number of cores."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        """An empty queue."""
        self.cores = cores
        self.waiting: deque[str] = deque()
        self._on: dict[int, str | None] = dict.fromkeys(cores)

    @property
    def started(self) -> tuple[str, ...]:
        """R: in order of their first core."""
        return tuple(dict.fromkeys(name for name in self._on.values() if name is not None))

    @property
    def empty(self) -> bool:
        """Whether it has no job at all."""
        return not self.waiting and not self.started

    @property
    def free(self) -> int:
        """Cores without a job."""
        return sum(name is None for name in self._on.values())

    def cores_of(self, name: str) -> tuple[int, ...]:
        """Cores of a started job."""
        return tuple(core for core, who in self._on.items() if who == name)

    def remove_done(self, alive: Collection[str]) -> None:
        """Done(queue): forget the jobs that are not alive any more."""
        self._on = {core: name if name in alive else None for core, name in self._on.items()}
        self.waiting = deque(name for name in self.waiting if name in alive)

    def fill(self) -> None:
        """Fill(queue): start as many as there are free cores, each on one core."""
        for core, name in self._on.items():
            if name is None and self.waiting:
                self._on[core] = self.waiting.popleft()

    def pop(self) -> str:
        """Pop(queue): take one job away, one that waits if there is one."""
        if self.waiting:
            return self.waiting.popleft()
        name = self.started[0]
        self._on = {core: None if who == name else who for core, who in self._on.items()}
        return name

    def upgrade(self, name: str) -> None:
        """Upgrade(queue, job): give a started job all free cores too."""
        self._on = {core: name if who is None else who for core, who in self._on.items()}
