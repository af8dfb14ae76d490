"""Where runs are done: processes of this machine, or a Dask cluster, both by joblib."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.util import find_spec

from flowsched_models.document import InputError
from flowsched_simulator.experiment.finished_run import FinishedRun, RunFailure
from flowsched_simulator.experiment.planned_run import PlannedRun, code_digest, execute

BACKENDS = ("local", "dask")
_CONNECT_S = 15
_LOOK_S = 1.0
"""How often a worker looks whether its parent is there."""
Answers = Iterator[FinishedRun | RunFailure]


def check_backend(backend: str, address: str | None) -> None:
    """Raise :class:`InputError` for a backend that there is not, or an address that is missing or has no meaning."""
    if backend not in BACKENDS:
        raise InputError.one("--backend", "there is no such backend", f"one of {', '.join(BACKENDS)}", key=backend)
    if backend == "dask" and not address:
        help = "add --address tcp://HOST:8786, the address that dask scheduler prints"
        raise InputError.one("--backend", "needs the address of its scheduler", help, key="dask")
    if backend != "dask" and address:
        raise InputError.one("--address", "is for --backend dask", "add it, or leave the address out", key=address)


def check_installed() -> None:
    """Raise :class:`ModuleNotFoundError` for what the results will need: before hours of runs, not after them."""
    for name in ("joblib", "pandas", "pyarrow", "scipy"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


@contextlib.contextmanager
def workers(
    backend: str, jobs: int | None, address: str | None
) -> Iterator[tuple[int, Callable[[Iterable[PlannedRun]], Answers]]]:
    """How many runs are done at once, and a function that does runs and returns them as they finish, in any order."""
    import joblib

    if backend == "local":
        count = jobs or joblib.cpu_count()
        with joblib.parallel_config(backend="loky", n_jobs=count):
            yield count, partial(_run, parent=os.getpid())
        return
    with _dask_client(address or "") as (client, cores):
        count = jobs or cores
        with joblib.parallel_config(backend="dask", n_jobs=count, client=client):
            yield count, _run


def _run(planned: Iterable[PlannedRun], parent: int | None = None) -> Answers:
    """``parent``: the process without which workers end, where they are its children."""
    import joblib

    # Batches of one: what a killed sweep loses is what runs at that moment.
    parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
    code = code_digest()
    answers: Answers = parallel(joblib.delayed(_execute)(run, code, parent) for run in planned)
    return answers


def _execute(run: PlannedRun, code: str, parent: int | None) -> FinishedRun | RunFailure:
    if parent is not None and parent != os.getpid():
        _end_with(parent)
    return execute(run, code)


@cache
def _end_with(parent: int) -> None:
    """Let this process end when its parent has: its answer would be lost, and a resumed sweep does the run anew."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _dask_client(address: str) -> Iterator[tuple[object, int]]:
    """A client of a Dask scheduler, and how many cores its workers have. Raises :class:`InputError` where there is none."""
    import dask  # noqa: F401  # names the extra where it is missing
    from distributed import Client

    try:
        client = Client(address, timeout=_CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        message = f"no Dask scheduler answers there: {str(error) or type(error).__name__}"
        raise InputError.one("--address", message, "give the address that dask scheduler prints", key=address) from None
    with client:
        cores = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        if not cores:
            raise InputError.one("--address", "this Dask cluster has no workers", "start dask worker", key=address)
        yield client, cores
