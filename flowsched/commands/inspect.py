"""``flowsched inspect``: what a round saw, solved and decided, for the eye and for other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from flowsched.commands.status_line import StepLine
from flowsched.inspector.consistency import told_as_damage
from flowsched.inspector.network_choice import FIRST, choose_network
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.source import files_of, open_live, open_records, refuse_overwriting
from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError
from flowsched_models.output import check_file, make_folder, write_whole_bytes

STANDARD_OUTPUT = Path("-")
_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
_NETWORK_EXPORTS = "--dot, --graphml, --dimacs, --svg or --png"

Render = Callable[[], str | bytes]


@click.command(
    cls=StrictCommand,
    short_help="Print or export what a round saw, solved and decided.",
    epilog="Example: flowsched inspect out/records --html out/records.html",
)
@click.argument("record", type=click.Path(path_type=Path), metavar="[RECORD]", required=False)
@click.option("--all", "everything", is_flag=True, help="Print lists without a limit.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole record.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write one page that opens offline; a folder is a run.")
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="RECORD", help="Compare with another one, or folder."
)
@click.option("--dot", type=_FILE, metavar="FILE", help="Write a network for Graphviz.")
@click.option("--graphml", type=_FILE, metavar="FILE", help="Write a network for networkx and others.")
@click.option("--dimacs", type=_FILE, metavar="FILE", help="Write a network for other solvers, with its optimum.")
@click.option("--svg", type=_FILE, metavar="FILE", help="Write a drawing of a network.")
@click.option("--png", type=_FILE, metavar="FILE", help="The same as PNG.")
@click.option("--network", metavar="NETWORK", help="round, first, pass:N, of:TASK.  [default: round; drawings: first]")
@click.option("--part", type=click.IntRange(0), metavar="N", help="Of which part of the round.  [default: 0]")
@click.option("--all-arcs", is_flag=True, help="With --dot, --svg, --png: also arcs without flow.")
@click.option("--learnt", is_flag=True, help="Print what run times were learnt; of a folder: in its last round.")
@click.option("--live", is_flag=True, help="The latest record of the running scheduler; leave RECORD out.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="With --live: how to reach it.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="With --live: its configuration.")
def inspect(
    record: Path | None,
    everything: bool,
    as_json: bool,
    html: Path | None,
    against: Path | None,
    dot: Path | None,
    graphml: Path | None,
    dimacs: Path | None,
    svg: Path | None,
    png: Path | None,
    network: str | None,
    part: int | None,
    all_arcs: bool,
    learnt: bool,
    live: bool,
    kubeconfig: Path | None,
    config: Path | None,
) -> None:
    """Print what a round saw, solved and decided, or write it for other tools.

    RECORD is a record file or a folder of them. FILE may be - for standard output.
    """
    networks = {"--dot": dot, "--graphml": graphml, "--dimacs": dimacs, "--svg": svg, "--png": png}
    places = {name: place for name, place in {"--html": html, **networks}.items() if place is not None}
    _check_places(places, as_json, [p for p in (record, against) if p is not None])
    exports = [name for name in networks if name in places]
    for option, given, needed in (
        ("--network", network is not None, exports),
        ("--part", part is not None, exports),
        ("--all-arcs", all_arcs, [name for name in exports if name in ("--dot", "--svg", "--png")]),
    ):
        if given and not needed:
            some = "--dot, --svg or --png" if option == "--all-arcs" else _NETWORK_EXPORTS
            raise InputError.one(option, f"is for {some}")
    if learnt and (places or as_json or against is not None):
        other = "--json" if as_json else next(iter(places), "--against")
        raise InputError.one("--learnt", f"does not go with {other}", "leave one of them out")
    records = _open(record, live, kubeconfig, config)
    if learnt:
        _print_learnt(records, everything)
        return
    others = [] if against is None else _open_files(against)
    read = [
        *([] if live else files_of(records)),
        *files_of(others),
        *(p for p in (kubeconfig, config) if p is not None),
    ]
    refuse_overwriting({name: place for name, place in places.items() if place != STANDARD_OUTPUT}, read)
    if as_json or exports:
        option = "--json" if as_json else exports[0]
        recorded = _only(records, option, record)
        if against is not None and html is None:
            raise InputError.one("--against", f"does not go with {option}", "leave one of them out")
        with told_as_damage(*records, *others), StepLine("writing the export" if exports else "writing the record"):
            renders = _renders(recorded, records, others, places, network, part, all_arcs)
            _write(places, renders)
            text = None
            if as_json:
                from flowsched.records.record_file import record_json

                text = record_json(recorded.plain)
        if text is not None:
            click.echo(text)
        return
    if html is not None:
        with told_as_damage(*records, *others), StepLine("writing the page"):
            _write(places, {"--html": lambda: page_of(records, others)})
        return
    if against is not None:
        _print_difference(_only(records, "--against", record), _only(others, "--against", against), everything)
        return
    from flowsched.inspector.summary import render_overview, render_summary

    with told_as_damage(*records):
        one = len(records) == 1
        text = render_summary(records[0], everything) if one else render_overview(records, str(record))
    click.echo(text)


def _open(record: Path | None, live: bool, kubeconfig: Path | None, config: Path | None) -> list[RecordView]:
    if live:
        if record is not None:
            raise InputError.one("--live", "is instead of a record", f"leave out {record}, or --live")
        return [open_live(None, kubeconfig, config)[0]]
    for option, value in (("--kubeconfig", kubeconfig), ("--config", config)):
        if value is not None:
            raise InputError.one(option, "is for --live only", "add --live, or leave it out")
    if record is None:
        raise InputError.one("RECORD", "is missing", "name a record, a folder of records, or --live")
    return _open_files(record)


def _open_files(path: Path) -> list[RecordView]:
    records, note = open_records(path)
    if note:
        click.echo(note, err=True)
    return records


def _only(records: list[RecordView], option: str, folder: Path | None) -> RecordView:
    if len(records) > 1:
        message = f"is for one record; {folder} holds {len(records)}"
        help = f"name one of them, such as {records[0].source}" + (", or add --html" if option == "--against" else "")
        raise InputError.one(option, message, help)
    return records[0]


def _renders(
    recorded: RecordView,
    records: list[RecordView],
    others: list[RecordView],
    places: Mapping[str, Path],
    network: str | None,
    number: int | None,
    all_arcs: bool,
) -> dict[str, Render]:
    """How to make each file that was asked for."""
    if not places.keys() - {"--html"}:
        return {"--html": lambda: page_of(records, others)}
    chosen = choose_network(recorded, network, number)
    graph, heading = chosen.graph, chosen.heading
    drawn = choose_network(recorded, FIRST, number) if network is None else chosen
    from flowsched.inspector.dimacs import render_dimacs
    from flowsched.inspector.dot import render_dot
    from flowsched.inspector.drawing import render_drawing
    from flowsched.inspector.graphml import render_graphml

    return {
        "--html": lambda: page_of(records, others),
        "--dot": lambda: render_dot(recorded, graph, all_arcs, heading),
        "--graphml": lambda: render_graphml(recorded, graph, heading),
        "--dimacs": lambda: render_dimacs(recorded, graph, heading),
        "--svg": lambda: render_drawing(recorded, drawn.part, drawn.graph, drawn.heading, "svg", all_arcs),
        "--png": lambda: render_drawing(recorded, drawn.part, drawn.graph, drawn.heading, "png", all_arcs),
    }


def page_of(records: list[RecordView], others: list[RecordView]) -> str:
    """The page of these records, beside others that they are compared with."""
    from flowsched.inspector.page.page import render_page

    return render_page(records, others)


def _print_difference(recorded: RecordView, other: RecordView, everything: bool) -> None:
    from flowsched.inspector.difference import SHOWN, difference
    from flowsched_models.text_table import printable

    with told_as_damage(recorded, other):
        found = difference(recorded, other).lines(None if everything else SHOWN)
        text = "\n".join(printable(line) for line in (f"from {recorded.source}", f"  to {other.source}", *found))
    click.echo(text)


def _print_learnt(records: list[RecordView], everything: bool) -> None:
    from flowsched.inspector.learnt_table import render_learnt

    last = max(records, key=lambda recorded: recorded.round)
    with told_as_damage(last):
        text = render_learnt(last, everything)
    click.echo(text)


def _check_places(places: Mapping[str, Path], as_json: bool, inputs: list[Path]) -> None:
    printing = [name for name, place in places.items() if place == STANDARD_OUTPUT] + ["--json"] * as_json
    if len(printing) > 1:
        raise InputError.one(
            printing[1], f"only one option can write to standard output; {printing[0]} already does", "name a file"
        )
    if places.get("--png") == STANDARD_OUTPUT:
        raise InputError.one("--png", "is not text, so it does not go to standard output", "name a file")
    seen: dict[Path, str] = {path.resolve(): "the record" for path in inputs}
    for name, place in places.items():
        if place != STANDARD_OUTPUT:
            other = seen.setdefault(place.resolve(), name)
            if other != name:
                raise InputError.one(
                    name, f"{place} is {other} already" if other == "the record" else f"{other} goes to {place}"
                )


def _write(places: Mapping[str, Path], renders: Mapping[str, Render]) -> None:
    """Make everything, then print and write it: bad input leaves nothing behind, and a full disk takes no text away."""
    for place in places.values():
        if place != STANDARD_OUTPUT:
            check_file(place)
    contents = {name: renders[name]() for name in places}
    for place in places.values():
        if place != STANDARD_OUTPUT:
            make_folder(place.parent)
    for name, content in sorted(contents.items(), key=lambda item: places[item[0]] != STANDARD_OUTPUT):
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        if places[name] == STANDARD_OUTPUT:
            click.echo(data, nl=False)
        else:
            write_whole_bytes(places[name], data)
            click.echo(f"{name.removeprefix('--')}: {places[name]}", err=True)
