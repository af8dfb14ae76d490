"""Command line: run upstream's cases under kube-scheduler and flowsched, and print the table.

python -m conformance [--sample N] [--case TEXT] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from conformance.report import Result, Verdict, known_failures, problems, skipped_table, table
from conformance.suite import Outcome, run_suite
from conformance.upstream import UpstreamError, cache_folder, kubernetes_version


def main() -> int:
    """Run the cases; 1 if there is a problem, with the reason."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, metavar="N", help="run N cases at equal distances (default: all)")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the verdicts to FILE")
    args = parser.parse_args()
    if not cache_folder().exists() and shutil.which("go") is None:
        print("skipped: upstream's table cases, because Go is not installed")
        return 0
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="flowsched-conformance-") as folder:
            outcome = run_suite(Path(folder), args.sample, args.case, _progress)
    except UpstreamError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    _progress("")
    if args.json:
        args.json.write_text(json.dumps(outcome.as_data(), indent=1) + "\n")
    return _print(outcome, time.monotonic() - began)


def _print(outcome: Outcome, took_s: float) -> int:
    print(f"Kubernetes {kubernetes_version()}: {len(outcome.results)} cases in {took_s:.0f} s\n")
    print(table(outcome.found, outcome.results), skipped_table(outcome.skipped), sep="\n\n")
    known = known_failures()
    for title, shown in (
        ("Refused by flowsched", [r for r in outcome.results if r.flowsched is Verdict.REFUSED]),
        ("Fails under flowsched", [r for r in outcome.results if r.flowsched is Verdict.FAIL]),
        ("Wrong under flowsched", [r for r in outcome.results if r.flowsched is Verdict.WRONG]),
        ("Not applicable", [r for r in outcome.results if r.kube_scheduler is Verdict.NOT_APPLICABLE]),
    ):
        _list(title, shown, known)
    for case, reason in outcome.skipped:
        if "API server refuses" in reason:
            print(f"left out: {case.id}: {reason}")
    found = problems(outcome.results, known)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def _list(title: str, results: list[Result], known: dict[str, str]) -> None:
    if results:
        print(f"\n{title} ({len(results)}):")
    for result in results:
        reason = known.get(result.case.id, "") if result.flowsched is Verdict.FAIL else ""
        print(f"- {result.case.id}: {reason or result.detail}")


def _progress(text: str) -> None:
    """The case that runs now, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:110]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
