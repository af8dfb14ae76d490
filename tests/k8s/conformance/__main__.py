"""Runs upstream's table cases and those written here under kube-scheduler and flowsched, and prints the table."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3]))  # benchmarks are no part of what is installed

from plane import run_script

from benchmarks.machine import describe_machine, measured_on
from conformance.report import Outcome, Result, Verdict, counts_table, known_failures, problems, table
from conformance.suite import run_suite
from conformance.upstream import UpstreamError, cache_folder, record

HOUSE = Path(__file__).parents[3]
KEPT = HOUSE / "benchmarks" / "results" / "kubernetes-conformance.json"
PAGE = HOUSE / "docs" / "kubernetes-conformance.md"
MARKER = re.compile(r"(<!-- begin: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Run the cases; 1 if there is a problem, with the reason."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--sample", type=int, metavar="N", help="run N cases at equal distances (default: all)")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose title contains TEXT")
    parser.add_argument("--record", action="store_true", help="only record the cases, into the cache")
    parser.add_argument("--write", action="store_true", help="keep the result and write it into the documentation")
    args = parser.parse_args()
    built = cache_folder().exists() and Path(run_script("path")).exists()
    if not built and shutil.which("go") is None:
        print("skipped: upstream's table cases, because Go is not installed")
        return 0
    try:
        if args.record:
            print(record())
            return 0
        with tempfile.TemporaryDirectory(prefix="flowsched-conformance-") as folder:
            outcome = run_suite(Path(folder), args.sample, args.case, _progress)
    except UpstreamError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    _progress("")
    data = outcome.as_data()
    _print(outcome, data)
    found = problems(outcome.results, known_failures())
    for problem in found:
        print(problem, file=sys.stderr)
    if args.write:
        keep(data)
    return 1 if found else 0


def keep(data: Mapping[str, Any]) -> None:
    """Write the result to its file and to the page."""
    data = {**data, "machine": describe_machine()}
    KEPT.write_text(json.dumps(data, indent=1) + "\n")
    PAGE.write_text(page_with(PAGE.read_text(), data))


def page_with(page: str, data: Mapping[str, Any]) -> str:
    """The page with what stands between its markers made anew."""
    parts = page_parts(data)
    return MARKER.sub(lambda found: f"{found[1]}{parts[found[2]]}\n{found[3]}", page)


def page_parts(data: Mapping[str, Any]) -> dict[str, str]:
    """What stands between the markers of the page, by name."""
    run = sum(row["run"] for row in data["plugins"].values())
    took = f"Kubernetes {data['kubernetes']}, {run} cases in {data['took_s'] / 60:.1f} minutes."
    refused = [f"| `{case}` | {_reason(detail)} |" for case, detail in sorted(data["refused"].items())]
    failing = [f"| `{case}` | {reason} |" for case, reason in sorted(known_failures().items())]
    return {
        "table": f"{table(data)}\n\n{took} {measured_on(data['machine'])}",
        "left-out": counts_table("left out because", data["left_out"]),
        "not-applicable": counts_table("not applicable because", data["not_applicable"]),
        "refused": "\n".join(["| case | message |", "|---|---|", *refused]) if refused else "None.",
        "failing": "\n".join(["| case | reason |", "|---|---|", *failing]) if failing else "None.",
    }


def _reason(detail: str) -> str:
    """The field that a message names."""
    found = re.search(r"nodes are available: (.*?not supported by flowsched)", detail)
    return found[1] if found else detail


def _print(outcome: Outcome, data: Mapping[str, Any]) -> None:
    print(f"Kubernetes {data['kubernetes']}: {len(outcome.results)} cases in {data['took_s']} s\n")
    print(table(data), counts_table("left out because", data["left_out"]), sep="\n\n")
    print("\n" + counts_table("not applicable because", data["not_applicable"]))
    _list("kube-scheduler does otherwise than a case written here", [r for r in outcome.results if r.uncontrolled])
    for verdict in (Verdict.REFUSED, Verdict.FAIL, Verdict.WRONG):
        _list(f"{verdict.value} under flowsched", [r for r in outcome.results if r.flowsched is verdict])
    _list("not applicable", [r for r in outcome.results if r.kube_scheduler is Verdict.NOT_APPLICABLE])
    for case, reason in outcome.skipped:
        if case.calls:
            print(f"left out: {case.title}: {reason}")


def _list(title: str, results: list[Result]) -> None:
    known = known_failures()
    if results:
        print(f"\n{title} ({len(results)}):")
    for result in results:
        reason = known.get(result.case.id) if result.flowsched is Verdict.FAIL else None
        print(f"- {result.case.title}: {reason or result.detail}")


def _progress(text: str) -> None:
    """The case that runs now, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:110]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
