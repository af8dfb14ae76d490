"""A record in a terminal: what was pending, solved, decided and proved, with the costs by term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from flowsched.cluster.decision import NO_BOUND, gap_words, proves_nothing
from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.graph import LAYERS, Graph
from flowsched.inspector.record_view import Part, Placed, RecordView, Waits
from flowsched.inspector.round_network import RoundNetwork, round_network_or_none
from flowsched.records.level_types import NETWORK_STAGE, RecordedCertificate, RecordedChanges
from flowsched.round.origin import PlanStage
from flowsched_models.quantity import format_cores
from flowsched_models.text_table import INDENT, counted, printable, text_table, when

LISTED = 20
"""Lines of a list that are shown unless all are asked for."""
STAGE_WORDS: Mapping[str, str] = {
    PlanStage.NETWORK: "by networks",
    PlanStage.GREEDY: "by the greedy rule",
    PlanStage.LIST_SCHEDULING: "by list scheduling",
    PlanStage.CARRIED: "by the last round's plan",
    PlanStage.MOVE: "by moves",
    PlanStage.SWAP: "by swaps",
    PlanStage.GANG: "with a gang",
    PlanStage.REPAIR: "by repairs",
    PlanStage.NEVER_IDLE: "as nothing ran",
    PlanStage.PREEMPTION: "in the place of others",
}
"""What a summary says of each stage, before how many placements it decided."""
_EXAMPLES = 3
_SEEN = 5e-4
"""Smaller amounts round to 0.000."""


def render_summary(recorded: RecordView, everything: bool = False) -> str:
    """One record; ``everything``: lists without a limit."""
    return "\n".join(printable(line) for line in _summary(recorded, everything))


def render_overview(records: Sequence[RecordView], folder: str) -> str:
    """Several records, a line each, and how to see one."""
    heads = ("file", "round", "time", "pending", "placed", "waiting", "cost", "gap %", "decide ms")
    rows: list[Sequence[str]] = [heads]
    for recorded in records:
        placed, waiting = recorded.placed_and_waiting
        gaps = [c["gap_relative"] for c in _certificates(recorded)]
        decide = decide_ms(recorded)
        rows.append(
            (
                Path(recorded.source).name,
                str(recorded.round),
                when(recorded.now_s),
                f"{placed + waiting:,}",
                f"{placed:,}",
                f"{waiting:,}",
                f"{sum(c['primal'] for c in _certificates(recorded)):.3f}" if gaps else "-",
                "-" if not gaps else NO_BOUND if proves_nothing(max(gaps)) else f"{100 * max(gaps):.2f}",
                "-" if decide is None else f"{decide:.1f}",
            )
        )
    example = str(Path(folder) / Path(records[0].source).name)
    lines = [*text_table(rows), "", f"one of them: flowsched inspect {example}"]
    return "\n".join(map(printable, lines))


def decide_ms(recorded: RecordView) -> float | None:
    """Milliseconds that the decisions of a round took, as far as its record says; None where it says nothing."""
    stages = {name: ms for name, ms in recorded.timings.items() if not name.startswith(("explain", "certify"))}
    if stages:
        return stages.get("decide_ms", sum(stages.values()))
    found = [part.timings["decide_ms"] for part in recorded.parts if "decide_ms" in part.timings]
    return sum(found) if found else None


def _certificates(recorded: RecordView) -> list[RecordedCertificate]:
    return [part.certificate for part in recorded.parts if part.certificate is not None]


def _summary(recorded: RecordView, everything: bool) -> Iterator[str]:
    placed, waiting = recorded.placed_and_waiting
    pending = counted(placed + waiting, "task")
    yield f"round {recorded.round} at {when(recorded.now_s)}: {pending} pending, {placed:,} placed, {waiting:,} waiting"
    model = recorded.plain.get("cost_model")
    objective = recorded.settings.get("objective") if model is None else None
    how = (
        f"policy {recorded.policy}" + (f", objective {objective}" if objective else "") + f", solver {recorded.solver}"
    )
    yield how + (f"; {recorded.source}" if recorded.source else "")
    if model is not None and model["settings"]:
        yield f"settings of {model['name']}: " + ", ".join(f"{key}={value}" for key, value in model["settings"].items())
    for part in recorded.parts:
        yield ""
        priority = "" if part.priority is None else f", priority {part.priority}"
        if len(recorded.parts) > 1:
            yield f"part {part.index} of {len(recorded.parts)}: {part.prices} prices{priority}"
        elif priority or not part.by_forecasts:
            yield f"{part.prices} prices{priority}"
        yield from _part(recorded, part, everything)
    if not recorded.parts:
        yield "nothing was solved"
    if recorded.held:
        yield ""
        yield "what waiting pods were told"
        told = [
            (f"{h['fate']}: {h['message']}", [recorded.title(t) for t in h["tasks"]])
            for h in sorted(recorded.held, key=lambda h: -len(h["tasks"]))
        ]
        yield from _reasons(told, everything)
    if recorded.timings:
        yield ""
        yield from _times("time of the round", recorded.timings)


def _part(recorded: RecordView, part: Part, everything: bool) -> Iterator[str]:
    tasks, machines = counted(len(part.tasks), "task"), counted(len(part.machines), "machine")
    classes, groups = counted(len(part.classes), "class", "classes"), counted(len(part.groups), "group")
    yield f"{tasks} in {classes}, {machines} in {groups}"
    made = round_network_or_none(recorded, part)
    yield from _sizes(part, made)
    yield ""
    yield from _costs(part)
    yield ""
    yield from _placements(recorded, part, everything)
    yield from _stages(part)
    if part.waiting:
        yield ""
        yield f"waiting: {len(part.waiting):,}"
        yield from _waiting(recorded, part.waiting, everything)
    yield from _changes(recorded, part.plain)
    if part.reservations:
        yield ""
        yield "reserved"
        rows = [("machine", "for", "cores", "from")]
        rows += [
            (
                r["machine"],
                recorded.title(r["task"]),
                _cores(r["width_milli"]),
                "-" if r["start_s"] is None else when(r["start_s"]),
            )
            for r in part.reservations
        ]
        yield from text_table(rows, left=(0, 1))
    yield ""
    yield _certificate(part)
    if made is not None:
        yield from made.sentences()
    if part.timings:
        yield from _times("time", part.timings)


def _changes(recorded: RecordView, plain: RecordedChanges) -> Iterator[str]:
    """What was preempted and moved."""
    if plain.get("preemptions"):
        yield ""
        yield f"preempted: {len(plain['preemptions']):,}"
        rows = [("task", "machine", "for", "cost")]
        rows += [
            (recorded.title(c["task"]), c["machine"], recorded.title(c["room_for"]), f"{c['cost']:.3f}")
            for c in plain["preemptions"]
        ]
        yield from text_table(rows, left=(0, 1, 2))
    if plain.get("taken_back"):
        listed = ", ".join(
            f"{recorded.title(c['task'])} (for {recorded.title(c['room_for'])})" for c in plain["taken_back"]
        )
        yield f"gave way before they started: {listed}"
    if plain.get("let_in"):
        listed = ", ".join(f"{recorded.title(c['task'])} on {c['machine']}" for c in plain["let_in"])
        yield f"start in the place of others: {listed}"
    if plain.get("moves"):
        yield ""
        yield f"moved: {len(plain['moves']):,}"
        rows = [("task", "from", "to", "gain")]
        rows += [(recorded.title(c["task"]), c["source"], c["machine"], f"{c['gain']:.3f}") for c in plain["moves"]]
        yield from text_table(rows, left=(0, 1, 2))


def _sizes(part: Part, made: RoundNetwork | None) -> Iterator[str]:
    graphs = {} if made is None else {"the round": made.graph}
    if part.by_forecasts or made is None:
        graphs |= {"first network": part.first}
    rows: list[Sequence[str]] = [("", *(h for name in graphs for h in (name, "with flow")))]
    nodes = {name: (Counter(g.kinds), Counter(g.kinds[i] for i in _passed(g))) for name, g in graphs.items()}
    kinds = sorted({k for counts, _ in nodes.values() for k in counts}, key=lambda k: (LAYERS.get(k, 9), k))
    arcs = {name: (g.arcs_by_kind(), g.arcs_by_kind(g.flow > 0)) for name, g in graphs.items()}
    between = sorted(
        {k for counts, _ in arcs.values() for k in counts},
        key=lambda k: [(LAYERS.get(end, 9), end) for end in k.split(" -> ")],
    )
    for what, keys, counts in (("nodes", kinds, nodes), ("arcs", between, arcs)):
        totals = [f"{sum(column.values()):,}" for pair in counts.values() for column in pair]
        rows.append((what, *totals))
        rows += [
            (f"  {key}", *(f"{column[key]:,}" if key in column else "-" for pair in counts.values() for column in pair))
            for key in keys
        ]
    yield from text_table(rows)


def _passed(graph: Graph) -> list[int]:
    """Nodes that flow passes."""
    carrying = graph.flow > 0
    ends: list[int] = np.union1d(graph.tails[carrying], graph.heads[carrying]).tolist()
    return ends


def _costs(part: Part) -> Iterator[str]:
    """Sums by term, of what was placed, what waits where its cost is known, and the flow of the first network."""
    first = part.first
    tasks = first.flow / np.maximum(first.units, 1)
    columns: dict[str, Mapping[str, float]] = {"placed": _sum_terms(p.terms for p in part.placements)}
    waiting = [w.terms for w in part.waiting if w.cost is not None]
    if waiting:
        columns["waiting"] = _sum_terms(waiting)
    columns["first network"] = {name: float(values @ tasks) for name, values in first.terms.items()}
    terms = dict.fromkeys(name for column in columns.values() for name in column)
    rows: list[Sequence[str]] = [("cost by term", *columns)]
    for term in terms:
        if any(abs(column.get(term, 0.0)) >= _SEEN for column in columns.values()):
            rows.append(
                (_words(term), *(f"{column[term]:.3f}" if term in column else "-" for column in columns.values()))
            )
    rows.append(("sum", *(f"{sum(column.values()):.3f}" for column in columns.values())))
    yield from text_table(rows)
    total = sum(sum(columns[name].values()) for name in ("placed", "waiting") if name in columns)
    if part.by_forecasts and part.certificate is not None and abs(part.certificate["primal"] - total) >= _SEEN:
        yield (
            f"the tasks add up to {total:.3f}, the plan costs {part.certificate['primal']:.3f}: it has what runs "
            "already too, and what two tasks do to each other once"
        )


def _sum_terms(all_terms: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for terms in all_terms:
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def _placements(recorded: RecordView, part: Part, everything: bool) -> Iterator[str]:
    placed = part.placements
    yield f"placed: {len(placed):,}"
    if not placed:
        return
    if not part.by_forecasts and len(placed) > LISTED and not everything:
        yield from _placed_classes(recorded, part)
        yield f"{INDENT}--all shows every task"
        return
    shown = placed if everything else placed[:LISTED]
    yield from text_table([*_placed_rows(recorded, part, shown)], left=_text_columns(_placed_heads(part, shown)))
    if len(placed) > len(shown):
        yield f"{INDENT}… {len(placed) - len(shown):,} more; --all shows them"


def _placed_heads(part: Part, placed: Sequence[Placed]) -> tuple[str, ...]:
    by_forecasts = any(p.cores is not None for p in placed)
    rivals = any(p.runner_up is not None for p in placed)
    heads = ("task", "machine", "cores", *(("threads", "on cores") if by_forecasts else ()), "cost")
    stages = ("decided by",) if part.decided_by else ()
    return (*heads, *(("next best",) if rivals else ()), *stages, "made of")


def _placed_rows(recorded: RecordView, part: Part, placed: Sequence[Placed]) -> Iterator[Sequence[str]]:
    heads = _placed_heads(part, placed)
    yield heads
    for p in placed:
        row = [recorded.title(p.task), p.machine, "-" if p.width_milli is None else _cores(p.width_milli)]
        if "threads" in heads:
            row += [str(p.threads or "-"), format_cores(p.cores or ()) or "-"]
        row.append(f"{p.cost:.3f}")
        if "next best" in heads:
            cost = "" if p.runner_up_cost is None else f" {p.runner_up_cost:.3f}"
            row.append("-" if p.runner_up is None else f"{p.runner_up}{cost}")
        if "decided by" in heads:
            row.append(_stage(part, p.task))
        yield [*row, _made_of(p.terms)]


def _text_columns(heads: Sequence[str]) -> tuple[int, ...]:
    return tuple(i for i, head in enumerate(heads) if head in ("task", "machine", "decided by", "made of"))


def _stage(part: Part, task: str) -> str:
    """The stage that decided on a task: a pass with the price of its arc and the next machine's, or another one."""
    entry = part.decided_by.get(task)
    if entry is None:
        return "-"
    if entry["stage"] != NETWORK_STAGE:
        return _words(entry["stage"])
    other = "" if entry["runner_up"] is None else f", next {entry['runner_up']:.3f}"
    return f"pass {entry['pass']} at {entry['price']:.3f}{other}"


def _stages(part: Part) -> Iterator[str]:
    """How many placements each stage decided, and how many passes there were."""
    if "decided_by" not in part.plain:
        return
    found = Counter(str(part.decided_by[p.task]["stage"]) for p in part.placements if p.task in part.decided_by)
    stages = {stage: found[stage] for stage in STAGE_WORDS if found[stage] or stage == PlanStage.NETWORK}
    by = ", ".join(f"{STAGE_WORDS[stage]} {count:,}" for stage, count in stages.items())
    passes = counted(len(part.passes), "pass", "passes")
    drawn = next((one["number"] for one in part.passes if one["drawn"]), None)
    which = "" if drawn is None else f" (the first network is that of pass {drawn})"
    yield f"decided {by}; {passes}{which}"
    for one in part.passes:
        if undone := part.undone(one["number"]):
            yield f"{INDENT}undone of pass {one['number']}: {undone}"
    yield from _solves(part)


def _solves(part: Part) -> Iterator[str]:
    """How many networks were solved for plans that were not kept."""
    solved = int(part.counts.get("solves", 0))
    if solved > len(part.passes):
        yield f"{counted(solved, 'network')} solved in all, for several plans of which this one was kept"


def _placed_classes(recorded: RecordView, part: Part) -> Iterator[str]:
    by_class: dict[str, list[Placed]] = {}
    for p in part.placements:
        by_class.setdefault(part.class_of[p.task], []).append(p)
    rows: list[Sequence[str]] = [("class", "tasks", "placed", "machines", "cores", "cost", "least", "most")]
    for cls in part.classes[:LISTED]:
        placed = by_class.get(cls.name, [])
        costs = [p.cost for p in placed]
        width = placed[0].width_milli if placed else None
        rows.append(
            (
                recorded.title(cls.name),
                f"{len(cls.members):,}",
                f"{len(placed):,}",
                f"{len({p.machine for p in placed}):,}",
                "-" if width is None else _cores(width),
                *((f"{sum(costs):.3f}", f"{min(costs):.3f}", f"{max(costs):.3f}") if costs else ("-", "-", "-")),
            )
        )
    yield from text_table(rows)
    more = len(part.classes) - LISTED
    if more > 0:
        yield f"{INDENT}… {counted(more, 'more class', 'more classes')}"


def _waiting(recorded: RecordView, waiting: Sequence[Waits], everything: bool) -> Iterator[str]:
    by_reason: dict[str, list[Waits]] = {}
    for w in waiting:
        by_reason.setdefault(w.reason, []).append(w)
    told = []
    for reason, those in by_reason.items():
        costs = [w.cost for w in those if w.cost is not None]
        together = " together" if len(costs) > 1 else ""
        made_of = _made_of(_sum_terms(w.terms for w in those))
        cost = f"; cost {sum(costs):.3f}{together} ({made_of})" if costs else ""
        told.append((reason + cost, [recorded.title(w.task) for w in those]))
    yield from _reasons(told, everything)


def _reasons(told: Sequence[tuple[str, Sequence[str]]], everything: bool) -> Iterator[str]:
    """Reasons with how many tasks have them and the first few."""
    shown = told if everything else told[:LISTED]
    for reason, tasks in shown:
        named = tasks if everything else tasks[:_EXAMPLES]
        more = f", … {len(tasks) - len(named):,} more" if len(tasks) > len(named) else ""
        many = f"{len(tasks):,} × " if len(tasks) > 1 else ""
        yield f"{INDENT}{many}{', '.join(named)}{more}: {reason}"
    if len(told) > len(shown):
        yield f"{INDENT}… {len(told) - len(shown):,} more reasons; --all shows them"


def _certificate(part: Part) -> str:
    c = part.certificate
    if c is None:
        return f"certificate: none, {'the round proved nothing' if part.tasks else 'nothing was pending'}"
    machines = c.get("machines")
    among = "" if machines is None else f" among the {machines:,} machines looked at"
    return f"certificate ({c['method']}){among}: cost {c['primal']:.4f}, lower bound {c['bound']:.4f}, " + gap_words(c)


def _times(what: str, timings: Mapping[str, float]) -> Iterator[str]:
    stages = ", ".join(f"{_words(name.removesuffix('_ms'))} {ms:.1f} ms" for name, ms in timings.items())
    yield f"{what}: {stages}"


def _made_of(terms: Mapping[str, float]) -> str:
    told = [f"{_words(name)} {value:.3f}" for name, value in terms.items() if abs(value) >= _SEEN]
    return ", ".join(told) if told else "-"


def _cores(milli: int) -> str:
    return f"{milli / MILLI:g}"


def _words(term: str) -> str:
    return term.replace("_", " ")
