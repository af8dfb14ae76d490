"""Where records come from: a file, a folder of them, or a running scheduler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import ARCHIVE_SUFFIX, load_record, looks_like_record
from flowsched.records.record_types import Record
from flowsched_models.document import InputError, Problem
from flowsched_models.extras import install_extra

_NAMED = 3
"""Files that are left out and named."""
LIVE_GROUP = "flowsched.live"
"""Entry points that fetch records of a running scheduler: ``fetch(target, kubeconfig, config) -> LiveRecord``."""


@dataclass(frozen=True)
class LiveRecord:
    """What a running scheduler gave."""

    record: Record
    """Plain data."""
    source: str
    """Where it comes from, for messages: the scheduler and the round."""
    task: str | None = None
    """The task that was asked for, as the record names it."""


def open_record(path: Path) -> RecordView:
    """A record file, opened. Raises :class:`InputError`."""
    return RecordView(load_record(path), str(path))


def find_records(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files of a folder (``*.npz``, ``*.json``) that are records or claim to be, and those that are something else."""
    try:
        files = sorted(
            (p for p in folder.iterdir() if p.suffix in (ARCHIVE_SUFFIX, ".json") and p.is_file()), key=_by_number
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError.one(str(folder), f"cannot be read: {reason}") from None
    records = [path for path in files if looks_like_record(path)]
    return records, [path for path in files if path not in set(records)]


def open_records(path: Path) -> tuple[list[RecordView], str]:
    """The records of a folder, or the one in a file; and what to tell about files that were left out, if any were."""
    if not path.is_dir():
        return [open_record(path)], ""
    files, others = find_records(path)
    records = _open_all(path, files)
    if not others:
        return records, ""
    named = ", ".join(p.name for p in others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
    left_out = "1 file that is no record" if len(others) == 1 else f"{len(others)} files that are no records"
    return records, f"{path}: left out {left_out}: {named}"


def refuse_overwriting(outputs: Mapping[str, Path], read: Iterable[Path]) -> None:
    """Raise :class:`InputError` for every output, by its option, that would replace a file that was read."""
    inputs = list(read)
    problems = [
        Problem(option, None, "", f"{path} is the record already: it was read", "name another file")
        for option, path in outputs.items()
        if any(_same_file(path, other) for other in inputs)
    ]
    if problems:
        raise InputError(problems)


def files_of(records: Iterable[RecordView]) -> list[Path]:
    """The files that records were read from."""
    return [Path(recorded.source) for recorded in records if recorded.source]


def _same_file(a: Path, b: Path) -> bool:
    try:
        return a.resolve() == b.resolve() or (a.exists() and b.exists() and a.samefile(b))
    except OSError:
        return False


def _by_number(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Names in the order of the numbers in them: flow-10000 after flow-9999."""
    parts = re.split(r"([0-9]+)", path.name)
    return [(int(text), "") if i % 2 else (-1, text) for i, text in enumerate(parts)], path.name


def _open_all(folder: Path, files: Sequence[Path]) -> list[RecordView]:
    if not files:
        help = "flowsched simulate --records FOLDER writes them"
        raise InputError.one(str(folder), "holds no records (*.npz, *.json)", help)
    records: list[RecordView] = []
    problems: list[Problem] = []
    for path in files:
        try:
            records.append(open_record(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return records


def open_live(
    target: str | None, kubeconfig: Path | None = None, config: Path | None = None
) -> tuple[RecordView, str | None]:
    """The record of a running scheduler in which a pod was decided on (``pod/NAMESPACE/NAME``), or its latest one; and
    the task. Raises :class:`InputError`.
    """
    found = entry_points(group=LIVE_GROUP)
    if not found:
        message = "this installation has nothing that reaches a running scheduler"
        raise InputError.one("--live", message, install_extra("k8s"))
    try:
        fetch = next(iter(found)).load()
    except ImportError as error:
        message = f"what reaches a running scheduler cannot be loaded: {error}"
        raise InputError.one("--live", message, install_extra("k8s")) from None
    live: LiveRecord = fetch(target, kubeconfig, config)
    return RecordView(live.record, live.source), live.task
