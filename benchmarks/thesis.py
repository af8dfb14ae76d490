"""Every table of Amaral's thesis that is covered, ours beside published; exit code 1 if a value is outside its band.

M. Amaral, "Improving Resource Efficiency in Virtualized Datacenters: Topology-Aware Resource Provision Techniques", PhD
thesis, UPC, 2019. Every value says whether it is an input, fitted, derived or predicted, and has a verdict.

    python -m benchmarks.thesis --table pack-spread

Chapters are modules with ``TABLES``, listed in ``CHAPTERS``: to cover another one, write ``benchmarks/thesis_chapter4.py``
with tables of cells, as ``thesis_chapter3`` has them, and add it there. Nothing else depends on what a chapter is about.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from benchmarks import thesis_chapter3, thesis_chapter4, thesis_chapter5
from benchmarks.machine import describe_machine
from benchmarks.thesis_cell import Computed, ThesisTable, plain, verdict

CHAPTERS = (thesis_chapter3, thesis_chapter4, thesis_chapter5)
"""Modules with ``TABLES``, in the order of the thesis."""
TABLES: dict[str, ThesisTable] = {table.name: table for chapter in CHAPTERS for table in chapter.TABLES}
KEPT = Path(__file__).parent / "results" / "thesis.json"


@click.command()
@click.option(
    "--table", "names", multiple=True, type=click.Choice(list(TABLES)), help="This table only. Repeat for more."
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option(
    "--keep", is_flag=True, help="Keep the result under benchmarks/results, for python -m benchmarks.thesis_page."
)
def main(names: tuple[str, ...], as_json: bool, keep: bool) -> None:
    """Values of the thesis beside ours."""
    tables = [Computed.of(table) for name, table in TABLES.items() if not names or name in names]
    values, text = json.dumps({**plain(tables), "machine": describe_machine()}, indent=1), render(tables)
    click.echo(values if as_json else text)
    if keep:
        everything = with_those_of_before(tables)
        values = json.dumps({**plain(everything), "machine": describe_machine()}, indent=1)
        KEPT.write_text(values + "\n", encoding="utf-8")
        KEPT.with_suffix(".txt").write_text(render(everything) + "\n", encoding="utf-8")
    if any(table.misses() for table in tables):
        click.echo(verdict(tables), err=True)
        sys.exit(1)


def with_those_of_before(tables: list[Computed]) -> list[Computed]:
    """All tables that there are: of those that were not computed now, what was kept last."""
    found = {one["name"]: Computed.read(one) for one in json.loads(KEPT.read_text(encoding="utf-8"))["tables"]}
    found.update({table.name: table for table in tables})
    return [found[name] for name in TABLES if name in found]


def render(tables: list[Computed]) -> str:
    """The tables, and what of them is outside its band."""
    return "\n\n".join([*(table.text() for table in tables), verdict(tables)])


if __name__ == "__main__":
    main()
