"""What a baseline, which does not choose widths itself, gives every task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from flowsched.cluster.snapshot import MILLI, Task
from flowsched_models.document import InputError, name_help


@dataclass(frozen=True)
class Granting:
    """What a baseline, which does not choose widths itself, gives every task.

    ``request``: the CPU request, as declared by the task's user or the same number of cores for all. It
    counts against the machine's allocatable CPU, and is the task's weight where cores are shared.

    ``cores``: ``own``: as many virtual CPUs as the request, rounded up, that no other task has; ``shared``:
    all CPUs of the machine that no service owns, shared by weight among those who are there, so that none
    stays idle.

    A request that exceeds what any machine could ever give the task (its memory, its allowed machines and the
    services considered) is lowered to the widest that fits somewhere; such a task would otherwise wait forever.
    """

    request: Literal["declared"] | int = "declared"
    cores: Literal["own", "shared"] = "own"

    def __post_init__(self) -> None:
        """Refuse what could not be granted."""
        if self.request != "declared" and self.request < 1:
            raise ValueError(f"request must be 'declared' or at least 1 core, not {self.request}")
        if self.cores not in ("own", "shared"):
            raise ValueError(f"cores must be 'own' or 'shared', not {self.cores!r}")

    @property
    def label(self) -> str:
        """Readable, and distinct for each granting."""
        request = "declared request" if self.request == "declared" else f"request {self.request}"
        return f"{request}, {self.cores} cores"

    @property
    def name(self) -> str:
        """The same in a word, as users type it: ``declared-own``, ``4-shared``."""
        return f"{self.request}-{self.cores}"

    def request_milli(self, task: Task) -> int:
        """The request before it is compared with what machines can give."""
        return task.request_milli if self.request == "declared" else self.request * MILLI


_REQUESTS: tuple[Literal["declared"] | int, ...] = ("declared", 1, 2, 4)
_CORES: tuple[Literal["own", "shared"], ...] = ("own", "shared")
VARIANTS = tuple(Granting(request, cores) for request in _REQUESTS for cores in _CORES)
"""What a baseline may grant. It cannot choose for itself: a fair comparison gives it the best of these."""


def variant_label(text: str, source: str = "--variant", beside: Iterable[str] = ()) -> str:
    """The label of a variant by its name, such as ``declared-shared``, or by the label itself.

    Raises :class:`InputError` if there is none; ``beside``: what else may be given there, for the suggestion.
    """
    labels = {granting.name: granting.label for granting in VARIANTS}
    if text not in labels and text not in labels.values():
        raise InputError.one(source, "there is no such variant", name_help(text, [*beside, *labels]), key=text)
    return labels.get(text, text)
