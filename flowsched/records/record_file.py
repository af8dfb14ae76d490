"""Records as files: JSON for people and tools, or a compressed archive of arrays for the many.

An archive is a zip file: ``record.json`` holds the record with ``{"$array": MEMBER}`` in the place of every array, and every
array is a member in numpy's npy format, so ``numpy.load`` and ``unzip`` open it too. Same record, same bytes.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flowsched.errors import ShapeError
from flowsched.records.record import RECORD_KIND, RECORD_VERSION
from flowsched.records.record_shape import check_shape
from flowsched.records.record_types import Record
from flowsched_models.document import InputError
from flowsched_models.output import make_folder, write_whole, write_whole_bytes

ARCHIVE_SUFFIX = ".npz"
RECORD_MEMBER = "record.json"
LARGEST_BYTES = 1 << 31
"""An archive that would grow beyond this is not opened, repetitions counted: no record comes near it."""
_LEAST_LIMIT = 256 << 20
_PACKED_AT_MOST = 50
"""Nor one that would grow beyond so many times its size, unless it stays below the limit above: most grow tenfold."""
_LARGEST_JSON = 32 << 20
"""Bytes of record.json, whose values take up to twenty times as much: what there are many of are arrays."""
_ARRAY = "$array"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every member, so that equal records are equal files."""
_LEVEL = 1
"""Of compression: higher ones take three times as long for files a tenth smaller."""
_SMALLEST = 64
"""Shorter arrays are lists in record.json: a member costs more than they do."""
_SCALARS = frozenset((str, int, float, bool))
_UNFIT = re.compile(r"[^A-Za-z0-9_./-]")
"""What stands in the name of no member, whatever the keys on the way to an array are."""
_RELEASE = re.compile(r"flowsched [0-9][0-9A-Za-z.+-]{0,40}")
"""What ``writer`` says in records of releases."""
_HELP = "solve the round again: flowsched solve --record, or flowsched simulate --records"


def write_record(record: Mapping[str, Any], path: str | Path) -> None:
    """Write a record, as JSON or, where the name ends in .npz, as an archive.

    A crash leaves nothing half-written under its final name. Raises :class:`InputError` if the place cannot be written.
    """
    path = Path(path)
    make_folder(path.parent)
    if path.suffix == ARCHIVE_SUFFIX:
        write_whole_bytes(path, pack_record(record))
    else:
        write_whole(path, record_json(record) + "\n")


def record_json(record: Mapping[str, Any], indent: int | None = 1) -> str:
    """A record as JSON."""
    return json.dumps(record, indent=indent, allow_nan=False, default=_listed)


def pack_record(record: Mapping[str, Any]) -> bytes:
    """A record as an archive."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    plain = _without_arrays(record, "", arrays)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
        archive.writestr(_member(RECORD_MEMBER), text, compresslevel=_LEVEL)
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            archive.writestr(_member(name), content.getvalue(), compresslevel=_LEVEL)
    return out.getvalue()


def looks_like_record(path: Path) -> bool:
    """Whether a file is an archive, or JSON whose beginning says that it is a record of any version."""
    try:
        with path.open("rb") as file:
            head = file.read(200)
    except OSError:
        return False
    return head[:2] == b"PK" or re.search(rb'"kind"\s*:\s*"\w*Record"', head) is not None


def load_record(path: str | Path) -> Record:
    """Read a record of the present version.

    Raises :class:`InputError` with one sentence for a file that is damaged, truncated, foreign or of another version.
    """
    source = str(path)
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise _problem(source, "there is no such file") from None
    except IsADirectoryError:
        raise _problem(source, "is a folder, not a record") from None
    except OSError as error:
        raise _problem(source, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    return read_record(content, source)


def read_record(content: bytes, source: str) -> Record:
    """The same from the bytes of a file; ``source`` names it in messages."""
    if not content:
        raise _problem(source, "is empty", _HELP)
    if content[:2] == b"PK":
        data = _unpack(content, source)
    else:
        data = _parse(content, source)
    return check_record(data, source)


def check_record(data: Any, source: str) -> Record:
    """Plain data as a record of the present version. Raises :class:`InputError`."""
    _check_header(data, source)
    try:
        return check_shape(data)
    except ShapeError as error:
        raise _problem(source, f"is damaged: {error}", _HELP) from None


def _check_header(data: Any, source: str) -> None:
    if not isinstance(data, dict) or "kind" not in data or "apiVersion" not in data:
        message = "is no record of a round: it has no apiVersion and kind at the top"
        raise _problem(source, message, "records come from solve, simulate and run")
    kind, version = data["kind"], data["apiVersion"]
    if kind == "Snapshot":
        raise _problem(source, "is a snapshot, not a record", f"flowsched solve {source} --record FILE solves it")
    if not str(kind).endswith(RECORD_KIND):
        raise _problem(source, f"is a {kind}, not a Record", "records come from solve, simulate and run")
    if version != RECORD_VERSION:
        named = _RELEASE.fullmatch(str(data.get("writer", "")))
        reader = f", which {named[0]} wrote and reads" if named else ""
        message = f"is a record of version {version}{reader}; this flowsched reads only {RECORD_VERSION}"
        raise _problem(source, message, _HELP)


def _check_size(size: int, limit: int, source: str) -> None:
    if size > limit:
        raise _problem(source, f"would take more than {limit >> 20:,} MiB", "no record is that large")


def _unpack(content: bytes, source: str) -> Any:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            limit = min(LARGEST_BYTES, max(_LEAST_LIMIT, _PACKED_AT_MOST * len(content)))
            _check_size(sum(sizes.values()), limit, source)
            if RECORD_MEMBER not in sizes:
                message = f"is a zip archive without {RECORD_MEMBER}"
                raise _problem(source, message, "records come from solve, simulate and run")
            _check_size(sizes[RECORD_MEMBER], _LARGEST_JSON, f"{source}: {RECORD_MEMBER}")
            plain = json.loads(archive.read(RECORD_MEMBER))
            _check_header(plain, source)
            _check_size(sum(sizes[name] for name in _arrays_in(plain)), limit, source)
            return _with_arrays(plain, archive)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _problem(source, f"is damaged or truncated: {str(error).lower()}", _HELP) from None
    except json.JSONDecodeError as error:
        message = f"is damaged: {error.msg.lower()} in line {error.lineno} of {RECORD_MEMBER}"
        raise _problem(source, message, _HELP) from None
    except KeyError:
        raise _problem(source, "is damaged: an array of it is missing", _HELP) from None
    except Exception as error:
        # A damaged header may ask for a password, a method that there is not, or nearly anything else.
        raise _problem(source, f"is damaged: {error}", _HELP) from None


def _parse(content: bytes, source: str) -> Any:
    try:
        return json.loads(content)
    except UnicodeDecodeError:
        raise _problem(source, "is neither JSON nor an archive", "records come from solve, simulate and run") from None
    except json.JSONDecodeError as error:
        if content.lstrip()[:1] != b"{":
            message = "is neither JSON nor an archive"
            raise _problem(source, message, "records come from solve, simulate and run") from None
        if error.msg == "Extra data":
            message = (
                "is not the record of a round: it holds more than one JSON object, as a node's list of decisions does"
            )
            raise _problem(source, message, "read it line by line; docs/node.md tells what is in it") from None
        message = f"is damaged or truncated: {error.msg.lower()} in line {error.lineno}"
        raise _problem(source, message, _HELP) from None
    except ValueError as error:
        raise _problem(source, f"is damaged: {error}", _HELP) from None
    except RecursionError:
        raise _problem(source, "is nested too deeply for a record") from None


def _without_arrays(value: Any, path: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {_ARRAY}:
            raise TypeError(f"a record cannot hold an object whose one key is {_ARRAY}")
        return {k: _without_arrays(v, f"{path}{k}/", arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        if all(v is None or type(v) in _SCALARS for v in value):
            return value
        return [_without_arrays(v, f"{path}{i}/", arrays) for i, v in enumerate(value)]
    if isinstance(value, np.ndarray):
        if value.size < _SMALLEST and value.ndim == 1:
            return _listed(value)
        stem = _UNFIT.sub("_", path[:-1])
        name = f"{stem}.npy"
        while name in arrays:
            name = f"{stem}~{len(arrays)}.npy"
        arrays[name] = value
        return {_ARRAY: name}
    return _listed(value) if isinstance(value, np.generic) else value


def _arrays_in(value: Any) -> Iterator[str]:
    """The member of each array, as often as it is named."""
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            yield value[_ARRAY]
        else:
            for each in value.values():
                yield from _arrays_in(each)
    elif isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        for each in value:
            yield from _arrays_in(each)


def _with_arrays(value: Any, archive: zipfile.ZipFile) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return np.lib.format.read_array(io.BytesIO(archive.read(value[_ARRAY])), allow_pickle=False)
        return {k: _with_arrays(v, archive) for k, v in value.items()}
    if isinstance(value, list):
        if not any(isinstance(v, dict | list) for v in value):
            return value
        return [_with_arrays(v, archive) for v in value]
    return value


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return _finite(value.tolist())
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a record cannot hold a {type(value).__name__}")


def _finite(value: Any) -> Any:
    """Lists of numbers, or of lists, with null where a number is infinite."""
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value if math.isfinite(value) else None


def _problem(source: str, message: str, help: str = "") -> InputError:
    return InputError.one(source, message, help)
