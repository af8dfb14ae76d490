"""Writes the tables of docs/engine.md from the kept results of `benchmarks.engine`; the text around them stays as it is.

python -m benchmarks.engine_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.engine import PARTS, RESULTS
from benchmarks.machine import measured_on

PAGE = Path(__file__).parent.parent / "docs" / "engine.md"
BEGIN, END = "<!-- written by benchmarks.engine_page: begin -->", "<!-- written by benchmarks.engine_page: end -->"
QUIET = 1.5
"""A load average above this, as a measurement begins, means that other processes share the machine."""
FEWEST_SEEDS = 5

TITLES = {
    "sixty": "60 machines, 400 arriving jobs",
    "three-hundred": "300 machines, 1,500 arriving jobs",
    "demo": "Bundled scenarios",
    "cliff": "One pod more",
    "large": "Thousands of machines",
    "ablation": "Does the flow decide?",
}
_TWO_RULES = "flow,all-at-once,kube-default"
COMMANDS = {
    "sixty": "python -m benchmarks.engine --part sixty --seeds 5 --first-seed 20 \\\n"
    f"    --loads 0.45,0.74,0.97,1.19 --schedulers {_TWO_RULES},load-spreading\n"
    "git worktree add ../engine-before ded5fd7\n"
    "python -m benchmarks.engine --part sixty --seeds 1 --first-seed 20 --loads 0.45,0.74,0.97,1.19 \\\n"
    "    --schedulers old --old ../engine-before --add",
    "three-hundred": "python -m benchmarks.engine --part three-hundred --seeds 1 --first-seed 20 --loads 0.74 \\\n"
    f"    --schedulers {_TWO_RULES}",
    "demo": "python -m benchmarks.engine --part demo",
    "cliff": "python -m benchmarks.engine --part cliff --seeds 1",
    "large": "python -m benchmarks.engine --part large --seeds 1 --first-seed 20",
    "ablation": "python -m benchmarks.engine --part ablation --seeds 5 --loads 0.74,1.19\n"
    "python -m benchmarks.engine --part ablation --seeds 5 --workloads demo,8 --add",
}
"""What the kept results were measured with."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.name}")


def written(page: str) -> str:
    """The page with its tables made anew. Raises ``ValueError`` for a page without the two markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} must hold the lines '{BEGIN}' and '{END}', in this order")
    return f"{before}{BEGIN}\n{block()}{END}{after}"


def block() -> str:
    """A section for each part, measured or not."""
    return "".join(section(part) for part in PARTS)


def section(part: str) -> str:
    """Title, command, table, machine."""
    head = f"\n## {TITLES[part]}\n\n```sh\n{COMMANDS[part]}\n```\n\n"
    path = RESULTS / f"engine-{part}.json"
    if not path.is_file():
        return head + "There is no kept result.\n\n"
    outcome = json.loads(path.read_text(encoding="utf-8"))
    text = path.with_suffix(".txt").read_text(encoding="utf-8").rstrip()
    return f"{head}```text\n{text}\n```\n\n{measured_on(outcome['machine'])}{preliminary(outcome)}\n\n"


def preliminary(outcome: Mapping[str, Any]) -> str:
    """What keeps a result from being final."""
    found = []
    seeds = {row["seed"] for row in outcome["rows"] if "seed" in row}
    if outcome["part"] in ("sixty", "three-hundred") and len(seeds) < FEWEST_SEEDS:
        found.append(f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''} only")
    if outcome["load_before"] > QUIET:
        found.append(f"other processes shared the machine (load {outcome['load_before']:.1f})")
    return f" *Preliminary: {', '.join(found)}.*" if found else ""


if __name__ == "__main__":
    main()
