"""Shared GPUs on lists that nobody has published: whether prices are ahead of FGD on other demand than openb's too.

Each list is made from the pods of openb's ``default`` list, or of a few round sizes, and played on openb's machines as
``benchmarks.openb`` does, in the same run as FGD and BestFit. No parameter is chosen for any of them.

    python -m benchmarks.openb_lists --seeds 42..43
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import click
import numpy as np

from benchmarks.machine import describe_machine, measured_on
from benchmarks.openb import POLICIES, RESULTS, OpenbExperiment, bounds, play_policy, seeds_of
from benchmarks.openb_trace import NODES, GpuNodes, PodList, drawn_order, list_file, read_nodes, read_pods, trace_folder
from flowsched.gpu.shapes import WHOLE_MILLI, GpuShape
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_models.text_table import text_table

KEPT = RESULTS / "openb-made-lists.txt"
PLAYED = ("BestFit", "FGD", "gpu-value-online", "gpu-value")
SEED = 1


def _asked(pods: PodList) -> IntArray:
    """Of each pod thousandths of GPUs."""
    return pods.gpu_milli()[pods.shape_of]


def _some(pods: PodList, wanted: BoolArray) -> list[GpuShape]:
    return [pods.shapes[s] for s in pods.shape_of[wanted]]


def _shared(pods: PodList) -> BoolArray:
    found: BoolArray = (_asked(pods) > 0) & (_asked(pods) < WHOLE_MILLI)
    return found


def _more_shares(pods: PodList) -> list[GpuShape]:
    shared = _shared(pods)
    drawn = np.random.default_rng(SEED).choice(np.flatnonzero(shared), 8000)
    return [*_some(pods, _asked(pods) >= WHOLE_MILLI), *(pods.shapes[s] for s in pods.shape_of[drawn])]


def _round_sizes(sizes: Sequence[GpuShape], shares: Sequence[float], count: int) -> list[GpuShape]:
    drawn = np.random.default_rng(SEED).choice(len(sizes), count, p=shares)
    return [sizes[s] for s in drawn]


LISTS: Mapping[str, tuple[str, Callable[[PodList], list[GpuShape]]]] = {
    "whole": ("the pods with whole GPUs", lambda pods: _some(pods, _asked(pods) >= WHOLE_MILLI)),
    "whole-cpu": ("these, and those without GPUs", lambda pods: _some(pods, ~_shared(pods))),
    "gpu": ("the pods with GPUs", lambda pods: _some(pods, _asked(pods) > 0)),
    "shares": ("the pods with a share", lambda pods: _some(pods, _shared(pods))),
    "more-shares": ("whole GPUs, and twice as many shares", _more_shares),
    "more-cpu": (
        "all pods with half as much CPU again",
        lambda pods: [replace(pods.shapes[s], cpu_milli=3 * pods.shapes[s].cpu_milli // 2) for s in pods.shape_of],
    ),
    "four-shares": (
        "shares of 250, 340, 500 and 660 milli",
        lambda _: _round_sizes([GpuShape(2000, 8192, 1, m) for m in (250, 340, 500, 660)], [0.25] * 4, 6000),
    ),
    "powers": (
        "1, 2, 4 and 8 whole GPUs",
        lambda _: _round_sizes(
            [GpuShape(4000 * n, 8192 * n, n, WHOLE_MILLI) for n in (1, 2, 4, 8)], [0.4, 0.3, 0.2, 0.1], 4000
        ),
    ),
}
"""By name: what is in it, and its pods."""


def made(name: str, pods: PodList) -> PodList:
    """A list by its name, from the pods of openb's default list."""
    asked = LISTS[name][1](pods)
    shapes = tuple(sorted(set(asked)))
    position = {shape: s for s, shape in enumerate(shapes)}
    names = tuple(f"pod-{i:05}" for i in range(len(asked)))
    return PodList(name, names, shapes, np.array([position[shape] for shape in asked], dtype=np.int64))


def rows_of(nodes: GpuNodes, pods: PodList, seeds: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """A line for each list."""
    yield ("list", "what is in it", *PLAYED, "no policy exceeds")
    capacity = nodes.machines.gpu_capacity_milli()
    for name, (what, _) in LISTS.items():
        one = made(name, pods)
        experiment = OpenbExperiment(nodes, one, {seed: drawn_order(one, capacity, seed) for seed in seeds})
        found = [play_policy(experiment, POLICIES[policy], check=True)["allocation"]["100"] for policy in PLAYED]
        cells = [f"{spread['mean']:.2f} ± {spread['std']:.2f}" for spread in found]
        yield (name, what, *cells, f"{bounds(experiment)['100']:.2f}")
        click.echo(f"{name}: {', '.join(cells)}", err=True)


@click.command()
@click.option("--seeds", default="42..43", show_default=True, callback=seeds_of, help="Orders of arrival.")
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(seeds: tuple[int, ...], keep: bool) -> None:
    """Allocation at 100 % arrived on every made list."""
    folder = trace_folder(None)
    if folder is None:
        raise click.UsageError("the trace is not here: FLOWSCHED_OPENB names its folder")
    nodes, pods = read_nodes(folder / NODES), read_pods(list_file(folder, "default"))
    lines = text_table(list(rows_of(nodes, pods, seeds)), left=(0, 1))
    title = f"Allocated GPUs in % of all at 100 % arrived, mean ± deviation over {len(seeds)} orders"
    text = "\n".join([title, "", *lines, "", measured_on(describe_machine())])
    click.echo(text)
    if keep:
        KEPT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
