"""Records again the events that `benchmarks.outcomes` plays: PYTHONPATH=tests:tests/k8s python -m stored_events.

They hold what was decided. Made again after decisions were meant to change; otherwise they stay as they are.
"""

from __future__ import annotations

import click
from test_event_play import busy_day, some_rounds
from test_snapshot_decisions import SITUATIONS

from benchmarks.outcomes import EVENTS


def main() -> None:
    """Write every file."""
    EVENTS.mkdir(exist_ok=True)
    for old in EVENTS.iterdir():
        old.unlink()
    for situation in SITUATIONS:
        path = EVENTS / f"{situation.replace(' ', '-')}.jsonl.gz"
        some_rounds(situation, path)
        click.echo(f"{path.name}: {path.stat().st_size} bytes")
    _, recorded = busy_day(EVENTS, 1 << 30)
    assert recorded is not None
    path = recorded.done().rename(EVENTS / "busy-day.jsonl.gz")
    click.echo(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
