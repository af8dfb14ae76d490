"""Parts `sixty` and `three-hundred` of `benchmarks.engine`: arriving jobs, every scheduler on the same files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarks.engine_text import aligned, bar, bar_lines, mean, number, ratio, spread
from benchmarks.engine_trees import Tree
from benchmarks.engine_workloads import Crowd, crowd_document, digest, write
from flowsched_simulator.baselines.registry import COMPARED
from flowsched_simulator.comparison import best_variant
from flowsched_simulator.drawn import selection_seeds
from flowsched_simulator.scenario import Objective
from flowsched_simulator.table import spelt

FLOW, OLD = "flow", "old"
COST_MODELS = ("load-spreading", "flow-network")
"""Networks at linear prices. A tree that has none of that name lets the old one answer."""
QUICK = Crowd(of_each_type=2, draws=4, copies=3)
QUICK_SCHEDULERS = (FLOW, OLD, "kube-default", "load-spreading")
LIMITS = {
    "sixty": {"old": 1.01, "greedy": 0.93, "p50": 10.0, "p99": 60.0},
    "three-hundred": {"greedy": 0.90, "p50": 25.0},
}


def every_scheduler(part: str, old: Path | None) -> tuple[str, ...]:
    """Schedulers that take part by default: the old search not at 300 machines, where it takes hours."""
    return (FLOW, *((OLD,) if old is not None and part == "sixty" else ()), *COMPARED, *COST_MODELS)


def measure(
    crowd: Crowd, loads: Sequence[float], seeds: Sequence[int], schedulers: Sequence[str], old: Path | None
) -> Iterator[dict[str, Any]]:
    """One row per workload and scheduler. The two trees take turns, and in every second workload the old one begins.

    A workload is drawn. So the variant of a baseline is chosen at each load on workloads of other seeds; its row says by
    what means.
    """
    if OLD in schedulers and old is None:
        raise click.ClickException("the scheduler 'old' needs --old with a checkout of the commit to compare with")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        new_tree = stack.enter_context(Tree())
        old_tree = stack.enter_context(Tree(old)) if old is not None else None
        drawn = selection_seeds(seeds)
        chosen: dict[tuple[float, str], dict[str, Any]] = {}
        count = 0
        for seed in seeds:
            for load in loads:
                document = crowd_document(crowd, load, seed)
                path = write(document, folder)
                key = {"seed": seed, "load": load, "digest": digest(document)}
                names = sorted(schedulers, key=lambda name: (name == FLOW) if count % 2 else (name == OLD))
                count += 1
                for name in names:
                    if name in COMPARED and (load, name) not in chosen:
                        others = [write(crowd_document(crowd, load, other), folder) for other in drawn]
                        chosen[load, name] = {"seeds": drawn, **chosen_variant(name, others, new_tree)}
                    choice = chosen.get((load, name))
                    found = ask(name, path, new_tree, old_tree, "" if choice is None else choice["variant"])
                    if found is None:
                        click.echo(f"{name}: neither tree has such a scheduler; it is left out", err=True)
                        continue
                    click.echo(
                        f"seed {seed}, load {load:.0%}, {name}: {number(found['mean_completion_s'])} s", err=True
                    )
                    yield {**key, "scheduler": name, **found, **({} if choice is None else {"selection": choice})}


def chosen_variant(name: str, paths: Sequence[Path], tree: Tree) -> dict[str, Any]:
    """The variant of a baseline with the fewest SLO violations, then the least mean completion, both in the mean over some
    workloads; with the mean completion of each variant there, None where a job never ended.
    """
    figures: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        for row in tree.run_variants(path, name) or ():
            figures.setdefault(row["variant"], []).append(row)
    means = {variant: mean(row["mean_completion_s"] for row in rows) for variant, rows in figures.items()}
    chosen = best_variant(figures, Objective.COMPLETION)
    click.echo(f"{name}: {chosen or 'one variant'}, {number(means[chosen])} s where it was chosen", err=True)
    return {"variant": chosen, "mean_completion_s": means}


def ask(name: str, path: Path, new_tree: Tree, old_tree: Tree | None, variant: str) -> dict[str, Any] | None:
    """Figures of a scheduler, from the tree that it stands for or the first that knows it."""
    if name == OLD:
        assert old_tree is not None
        return old_tree.run(path, FLOW)
    found = new_tree.run(path, name, variant)
    if found is None and old_tree is not None:
        found = old_tree.run(path, name)
    return found


def workloads(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[float, int, dict[str, dict[str, Any]]]]:
    """Load, seed and the rows of a workload by scheduler, in order."""
    keys = sorted({(row["load"], row["seed"]) for row in rows})
    for load, seed in keys:
        yield load, seed, {r["scheduler"]: r for r in rows if (r["load"], r["seed"]) == (load, seed)}


def best_greedy(by_name: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The baseline with the least mean completion on the workloads by which variants were chosen, each at its variant."""
    known = [(row, mean_where_chosen(row)) for name, row in by_name.items() if name in COMPARED]
    done = [(value, row) for row, value in known if value is not None]
    return min(done, key=lambda pair: pair[0], default=(0.0, None))[1]


def mean_where_chosen(row: dict[str, Any]) -> float | None:
    """Mean completion of a baseline's variant on the workloads by which it was chosen."""
    value: float | None = row["selection"]["mean_completion_s"][row["selection"]["variant"]]
    return value


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per workload: the engine beside the old one and the best greedy."""
    found = []
    for load, seed, by_name in workloads(rows):
        ours, before, greedy = by_name.get(FLOW, {}), by_name.get(OLD, {}), best_greedy(by_name) or {}
        key = "mean_completion_s"
        found.append(
            {
                "load": load,
                "seed": seed,
                "flow": ours,
                "old": before,
                "greedy": greedy,
                "to_old": ratio(ours.get(key), before.get(key)),
                "to_greedy": ratio(ours.get(key), greedy.get(key)),
                "p95_to_old": ratio(ours.get("p95_completion_s"), before.get("p95_completion_s")),
            }
        )
    return found


def bars(part: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the engine has to keep to, load by load; ratios are means over the seeds of paired runs."""
    limits, found = LIMITS[part], []
    lines = compared(rows)
    for load in sorted({line["load"] for line in lines}):
        here = [line for line in lines if line["load"] == load]
        figures = {
            "old": ("mean completion over the old engine's", mean(line["to_old"] for line in here)),
            "greedy": ("mean completion over the best greedy's", mean(line["to_greedy"] for line in here)),
            "p50": ("CPU per round p50, ms", mean(line["flow"].get("cpu_p50_ms") for line in here)),
            "p99": ("CPU per round p99, ms", mean(line["flow"].get("cpu_p99_ms") for line in here)),
        }
        found += [bar(f"{load:.0%} load: {figures[k][0]}", figures[k][1], limit) for k, limit in limits.items()]
    return found


def table(part: str, rows: Sequence[dict[str, Any]]) -> str:
    """The engine workload by workload, its ratios and every scheduler over the seeds, and the bars."""
    heads = ["load", "seed", "flow mean s", "p95", "old mean s", "p95", "flow/old", "best greedy", "mean s"]
    heads += ["flow/greedy", "CPU ms p50", "p99", "old p50", "p99", "rounds"]
    lines = [heads]
    for line in compared(rows):
        ours, old, greedy = line["flow"], line["old"], line["greedy"]
        lines.append(
            [
                f"{line['load']:.0%}",
                str(line["seed"]),
                number(ours.get("mean_completion_s")),
                number(ours.get("p95_completion_s")),
                number(old.get("mean_completion_s")),
                number(old.get("p95_completion_s")),
                number(line["to_old"], 3),
                str(greedy.get("scheduler", "-")),
                number(greedy.get("mean_completion_s")),
                number(line["to_greedy"], 3),
                *(number(r.get(k)) for r in (ours, old) for k in ("cpu_p50_ms", "cpu_p99_ms")),
                str(ours.get("rounds", "-")),
            ]
        )
    parts = [aligned(lines), ratio_lines(rows), selection_lines(rows), _over_seeds(rows), bar_lines(bars(part, rows))]
    return "\n\n".join(filter(None, parts))


def selection_lines(rows: Sequence[dict[str, Any]]) -> str:
    """How variants and the best greedy were chosen, and what came of it; empty without baselines."""
    chosen = {(r["load"], r["scheduler"]): r for r in rows if "selection" in r}
    if not chosen:
        return ""
    seeds = sorted({seed for row in chosen.values() for seed in row["selection"]["seeds"]})
    lines = [["load, baseline", "variant", "mean completion s where chosen"]]
    for (load, name), row in sorted(chosen.items()):
        lines.append(
            [f"{load:.0%} {name}", row["selection"]["variant"] or "the only one", number(mean_where_chosen(row))]
        )
    head = (
        "best greedy and the variants of baselines: chosen at each load by mean completion over workloads with seeds\n"
        f"{spelt(seeds)}, not by the reported ones:"
    )
    return f"{head}\n\n{aligned(lines)}"


def ratio_lines(rows: Sequence[dict[str, Any]]) -> str:
    """Ratios of paired runs, mean [least, most] over the seeds, load by load."""
    found = [["ratios over the seeds", "flow/old mean", "flow/old p95", "flow/greedy mean"]]
    lines = compared(rows)
    for load in sorted({line["load"] for line in lines}):
        here = [line for line in lines if line["load"] == load]
        ratios = (spread((line[key] for line in here), 3) for key in ("to_old", "p95_to_old", "to_greedy"))
        found.append([f"{load:.0%} load", *ratios])
    return aligned(found)


def _over_seeds(rows: Sequence[dict[str, Any]]) -> str:
    """Mean [least, most] over the seeds, of every scheduler at every load."""
    lines = [["load, scheduler", "mean completion s", "p95 s", "mean penalty", "CPU ms p50", "p99", "SLO viol. %"]]
    for load in sorted({row["load"] for row in rows}):
        here = [row for row in rows if row["load"] == load]
        for name in dict.fromkeys(row["scheduler"] for row in here):
            mine = [row for row in here if row["scheduler"] == name]
            lines.append(
                [
                    f"{load:.0%} {name}",
                    spread(r["mean_completion_s"] for r in mine),
                    spread(r["p95_completion_s"] for r in mine),
                    spread((r["mean_penalty"] for r in mine), 2),
                    spread(r["cpu_p50_ms"] for r in mine),
                    spread(r["cpu_p99_ms"] for r in mine),
                    spread(100.0 * r["slo_violation_ratio"] for r in mine),
                ]
            )
    return "over the seeds, mean [least, most]; a baseline at its chosen variant:\n\n" + aligned(lines)
