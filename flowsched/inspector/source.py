"""Where accounts come from: a file, a folder of them, or a running scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from flowsched.inspector.account import Account
from flowsched.record_file import ARCHIVE_SUFFIX, load_record
from flowsched_models.document import InputError, Problem

LIVE_GROUP = "flowsched.live"
"""Entry points that fetch records of a running scheduler: ``fetch(target, kubeconfig, config) -> LiveRecord``."""


@dataclass(frozen=True)
class LiveRecord:
    """What a running scheduler gave."""

    record: Mapping[str, Any]
    """Plain data, version 2."""
    source: str
    """Where it comes from, for messages: the scheduler and the round."""
    task: str | None = None
    """The task that was asked for, as the record names it."""


def open_account(path: Path) -> Account:
    """A record file, opened. Raises :class:`InputError`."""
    return Account(load_record(path), str(path))


def open_folder(folder: Path) -> list[Account]:
    """All records of a folder (``*.npz``, ``*.json``), in the order of their names. Raises :class:`InputError`."""
    try:
        files = sorted(p for p in folder.iterdir() if p.suffix in (ARCHIVE_SUFFIX, ".json") and p.is_file())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError([Problem(str(folder), None, "", f"cannot be read: {reason}")]) from None
    if not files:
        help = "flowsched simulate --records FOLDER writes them"
        raise InputError([Problem(str(folder), None, "", "holds no records (*.npz, *.json)", help)])
    return [open_account(path) for path in files]


def open_records(path: Path) -> list[Account]:
    """The records of a folder, or the one in a file."""
    return open_folder(path) if path.is_dir() else [open_account(path)]


def open_live(
    target: str | None, kubeconfig: Path | None = None, config: Path | None = None
) -> tuple[Account, str | None]:
    """The record of a running scheduler in which a pod was decided on (``pod/NAMESPACE/NAME``), or its latest one; and
    the task. Raises :class:`InputError`.
    """
    found = entry_points(group=LIVE_GROUP)
    if not found:
        message = "this installation has nothing that reaches a running scheduler"
        raise InputError([Problem("--live", None, "", message, "pip install 'flowsched[k8s]'")])
    try:
        fetch = next(iter(found)).load()
    except ImportError as error:
        message = f"what reaches a running scheduler cannot be loaded: {error}"
        raise InputError([Problem("--live", None, "", message, "pip install 'flowsched[k8s]'")]) from None
    live: LiveRecord = fetch(target, kubeconfig, config)
    return Account(live.record, live.source), live.task
