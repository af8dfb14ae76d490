"""Snapshots from files: those that were written as such, and those in rounds' records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.snapshot_dump import read_plain_snapshot
from flowsched.cluster.snapshot_file import read_snapshot
from flowsched.records.record_file import load_record, looks_like_record
from flowsched_models.document import InputError, read_document
from flowsched_models.form import check_header


def load_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot file, or the snapshot in a round's record (the first one that it has).

    Its profiles are the bundled ones and those of the files under ``profiles``, or else only those
    written under ``catalogue``. Raises :class:`flowsched_models.document.InputError` with all mistakes.
    """
    if looks_like_record(Path(path)):
        return snapshot_of_record(load_record(path), str(path))
    document = read_document(Path(path), str(path))
    check_header(document, "Snapshot")
    return read_snapshot(document)


def snapshot_of_record(record: Mapping[str, Any], source: str) -> Snapshot:
    """The snapshot of the first part of a record that has any. Raises :class:`InputError`."""
    found = next((p["snapshot"] for p in record["parts"] if "snapshot" in p), None)
    if found is None:
        message = "the record has no snapshot: what runs is known to its round as sums only"
        raise InputError.one(source, message, "flowsched replay and whatif solve it again", key="parts")
    # What a round saw may be what no person would write: a clock that is ahead, a machine that gives nothing.
    try:
        return read_plain_snapshot(found)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError.one(source, f"its snapshot is damaged: {error}", key="parts") from None
