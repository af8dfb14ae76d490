"""The openb trace of shared GPUs: its machines, its lists of pods, and in which order pods arrive.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
ATC 2023; files of its artifact (node list, pod lists). Any lists of the same columns can be read.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.go_random import GoRandom
from flowsched.gpu.device_arrays import DeviceArrays, device_arrays
from flowsched.gpu.shapes import GpuShape
from flowsched.support.arrays import IntArray
from flowsched_models.document import InputError, Problem

VARIABLE = "FLOWSCHED_OPENB"
"""Names the folder of the trace."""
NODES = "openb_node_list_gpu_node.csv"
"""The 1,213 machines of every published experiment: those with a GPU."""
LOAD = 1.3
"""Pods arrive until they have asked for this share of all GPUs."""
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_SPEC = "gpu_spec"
_ORDER_COLUMNS = ("seed", "position", "row")
_TOLD = 20
"""Problems of one file that are told; the others are likely the same."""


@dataclass(frozen=True, eq=False)
class GpuNodes:
    """The machines in the order of the file."""

    names: tuple[str, ...]
    models: tuple[str, ...]
    """Names of GPU models, sorted."""
    machines: DeviceArrays
    """Empty."""


@dataclass(frozen=True, eq=False)
class PodList:
    """A list of pods; N rows in the order of the file."""

    name: str
    names: tuple[str, ...]
    """[N] of the pods."""
    shapes: tuple[GpuShape, ...]
    """Different ones, sorted."""
    shape_of: IntArray
    """[N] position in ``shapes``."""

    def frequency(self) -> IntArray:
        """[shapes] how many pods of the list have each shape."""
        return np.bincount(self.shape_of, minlength=len(self.shapes)).astype(np.int64)

    def gpu_milli(self) -> IntArray:
        """[shapes] what one pod takes of all its GPUs together."""
        return np.array([shape.gpu_milli for shape in self.shapes], dtype=np.int64)


def trace_folder(named: Path | None = None) -> Path | None:
    """Where the trace is: the folder named, else by ``FLOWSCHED_OPENB``, else a ``data/traces/openb`` in a folder beside the
    checkout; None where there is none.
    """
    if named is None and VARIABLE in os.environ:
        named = Path(os.environ[VARIABLE])
    beside = Path(__file__).resolve().parent.parent.parent
    folders = [named] if named is not None else sorted(beside.glob("*/data/traces/openb"))
    return next((folder for folder in folders if folder.is_dir()), None)


def list_file(folder: Path, name: str) -> Path:
    """The file of a list: by its name in the publication (``default``, ``gpuspec33``), or a path.

    Raises :class:`InputError`.
    """
    files = [folder / f"openb_pod_list_{name}{suffix}" for suffix in (".csv", ".csv.gz")]
    found = next((file for file in (*files, Path(name)) if file.is_file()), None)
    if found is None:
        known = sorted(list_name(file) for file in folder.glob("openb_pod_list_*.csv*"))
        help = f"in {folder} there are {', '.join(known)}" if known else f"there is no list in {folder}"
        raise InputError([Problem(name, None, "", "is neither the name of a list of pods nor a file", help)])
    return found


def list_name(file: Path) -> str:
    """The name of the list in a file."""
    return file.name.split(".")[0].removeprefix("openb_pod_list_")


class _Rows:
    """The rows of a table with its mistakes, told all at once."""

    def __init__(self, file: Path, columns: Sequence[str]) -> None:
        self._source, self._columns, self._problems = str(file), columns, list[Problem]()
        try:
            with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as lines:
                self._table = list(csv.reader(lines))
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise InputError([Problem(self._source, None, "", f"cannot be read: {error}")]) from error

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Line and cells of every row; raises in the end if something was wrong."""
        head = self._table[0] if self._table else []
        if missing := [column for column in self._columns if column not in head]:
            message = f"lacks the columns {', '.join(missing)}"
            raise InputError(
                [Problem(self._source, 1, "", message, f"its first line names {', '.join(self._columns)}")]
            )
        for line, cells in enumerate(self._table[1:], 2):
            if len(cells) != len(head):
                self.wrong(line, "", f"has {len(cells)} cells, and the first line has {len(head)}")
            elif cells:
                yield line, dict(zip(head, cells, strict=True))
        if not self._problems and len(self._table) < 2:
            self.wrong(1, "", "has no rows")
        if self._problems:
            more = len(self._problems) - _TOLD
            cut = [Problem(self._source, None, "", f"and {more} more problems")] if more > 0 else []
            raise InputError([*self._problems[:_TOLD], *cut])

    def wrong(self, line: int, column: str, message: str) -> None:
        """Something is wrong in a line."""
        self._problems.append(Problem(self._source, line, column, message))

    def numbers(self, line: int, cells: Mapping[str, str], columns: Sequence[str]) -> list[int] | None:
        """Whole numbers from 0 on; None where one is not."""
        found = []
        for column in columns:
            if cells[column].isascii() and cells[column].isdigit():
                found.append(int(cells[column]))
            else:
                self.wrong(line, column, f"must be a whole number from 0 on, got '{cells[column]}'")
        return found if len(found) == len(columns) else None

    def once(self, line: int, cells: Mapping[str, str], column: str, seen: dict[str, int]) -> None:
        """A name must not stand twice."""
        if (before := seen.setdefault(cells[column], line)) != line:
            self.wrong(line, column, f"'{cells[column]}' stands in line {before} already")


def read_nodes(file: Path) -> GpuNodes:
    """The node list. Raises :class:`InputError` with the lines of all mistakes."""
    rows, seen, found, model_names = _Rows(file, _NODE_COLUMNS), dict[str, int](), list[list[int]](), list[str]()
    for line, cells in rows:
        rows.once(line, cells, "sn", seen)
        numbers = rows.numbers(line, cells, _NODE_COLUMNS[1:4])
        if numbers is None:
            continue
        if numbers[2] and not cells["model"]:
            rows.wrong(line, "model", "a machine with GPUs must say which model they are")
        found.append(numbers)
        model_names.append(cells["model"] if numbers[2] else "")
    models = tuple(sorted(set(model_names) - {""}))
    cpu, memory, gpus = (list(column) for column in zip(*found, strict=True))
    model = [models.index(name) if name else -1 for name in model_names]
    return GpuNodes(tuple(seen), models, device_arrays(cpu, memory, gpus, model))


def read_pods(file: Path) -> PodList:
    """A pod list; a column ``gpu_spec`` may name GPU models, joined by a vertical bar. Raises :class:`InputError`."""
    rows, seen, asked = _Rows(file, _POD_COLUMNS), dict[str, int](), list[GpuShape]()
    for line, cells in rows:
        rows.once(line, cells, "name", seen)
        numbers = rows.numbers(line, cells, _POD_COLUMNS[1:])
        if numbers is None:
            continue
        try:
            models = sorted({model for model in cells.get(_SPEC, "").split("|") if model})
            # Models are those of GPUs: who asks for none may run anywhere.
            cpu, memory, count, milli = numbers
            asked.append(GpuShape(cpu, memory, count, milli, tuple(models) if count else ()))
        except ValueError as error:
            rows.wrong(line, "num_gpu, gpu_milli", str(error))
    shapes = tuple(sorted(set(asked)))
    position = {shape: s for s, shape in enumerate(shapes)}
    shape_of = np.array([position[shape] for shape in asked], dtype=np.int64)
    return PodList(list_name(file), tuple(seen), shapes, shape_of)


def drawn_order(pods: PodList, capacity_milli: int, seed: int) -> IntArray:
    """Rows of the list in the order of arrival, drawn as the published experiments did.

    Pods sorted by name are shuffled; then pods drawn with replacement are appended until all have asked for ``LOAD`` times
    the capacity. Where the list itself asks for more, random pods are taken out. Two oddities of the artifact belong to it:
    one number is drawn before the shuffle, and whether a further pod still fits under the limit is asked with what it takes
    of one GPU, not of all its GPUs.
    """
    share = np.array([shape.share_milli for shape in pods.shapes])[pods.shape_of].tolist()
    demand = pods.gpu_milli()[pods.shape_of].tolist()
    by_name = sorted(range(len(pods.names)), key=pods.names.__getitem__)
    limit, asked = LOAD * capacity_milli, sum(demand)
    random = GoRandom(seed)
    random.int63()
    order = list(by_name)
    random.shuffle(order)
    while asked > limit:
        asked -= demand[order.pop(random.intn(len(order)))]
    if len(order) == len(by_name) and any(demand):
        while asked + share[row := by_name[random.intn(len(by_name))]] <= limit:
            order.append(row)
            asked += demand[row]
    return np.array(order, dtype=np.int64)


def stored_orders(folder: Path, name: str) -> Path | None:
    """The file with the orders of a list, if there is one; lists that only restrict models have the pods of ``default``."""
    groups = (name, "default_and_gpuspec") if name == "default" or name.startswith("gpuspec") else (name,)
    files = [folder / f"arrival_order_{group}.csv{suffix}" for group in groups for suffix in ("", ".gz")]
    return next((file for file in files if file.is_file()), None)


def read_orders(file: Path, rows: int) -> dict[int, IntArray]:
    """Orders of arrival by seed, of a list of so many rows. Raises :class:`InputError`."""
    table, found = _Rows(file, _ORDER_COLUMNS), dict[int, list[int]]()
    for line, cells in table:
        numbers = table.numbers(line, cells, _ORDER_COLUMNS)
        if numbers is None:
            continue
        seed, position, row = numbers
        order = found.setdefault(seed, [])
        if position != len(order):
            table.wrong(line, "position", f"must be {len(order)}, the next of seed {seed}, got {position}")
        if row >= rows:
            table.wrong(line, "row", f"the list has rows 0 to {rows - 1}, got {row}")
        order.append(row)
    return {seed: np.array(order, dtype=np.int64) for seed, order in found.items()}


def arrival_orders(
    pods: PodList, capacity_milli: int, seeds: Sequence[int], folder: Path | None = None
) -> dict[int, IntArray]:
    """Rows of the list in the order of arrival, by seed: as they are stored in the folder, else drawn."""
    file = stored_orders(folder, pods.name) if folder else None
    stored = read_orders(file, len(pods.names)) if file else {}
    return {seed: stored[seed] if seed in stored else drawn_order(pods, capacity_milli, seed) for seed in seeds}
