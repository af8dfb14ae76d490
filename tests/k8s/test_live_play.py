"""Events that ``flowsched run --events`` records beside a real API server, played by ``flowsched simulate``."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from click.testing import CliRunner, Result
from plane import Plane, Space, wait_for
from running import STANDARD, running_scheduler, site_of

from flowsched.cli import flowsched
from flowsched_k8s import names
from flowsched_k8s.events.event_file import EventReader
from flowsched_k8s.events.live_events import Removed, RoundDecided, TaskBound
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL

MEASURED = {names.PROFILE: "canneal", names.WIDTHS: "1,2"}


def simulate(path: Path, *options: str) -> Result:
    """Played in this process, which shares no order of sets with the scheduler's."""
    return CliRunner().invoke(flowsched, ["simulate", str(path), *options])


def test_events_of_a_live_run_give_the_same_decisions(plane: Plane, space: Space, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.gz"
    priority = {"metadata": {"name": f"{space.name}-high"}, "value": 1000}
    space.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    options = "--events", str(path)
    with (
        running_scheduler(plane, tmp_path, *options, features=(*STANDARD, "preemption")) as scheduler,
        site_of(scheduler, space) as site,
    ):
        nodes = site.nodes(3, cpu="4", labels={"zone": "a"})
        site.foreign("theirs", nodes[0], cpu="500m", labels={"app": "web"})
        for i in range(6):
            site.pod(f"job-{i}", cpu="1", annotations=MEASURED)
        for i in range(4):
            site.pod(f"plain-{i}", cpu="250m", labels={"app": "web"})
        for i in range(2):
            labels = {NAME_LABEL: "team", MINIMUM_LABEL: "2"}
            site.pod(f"team-{i}", cpu="500m", labels=labels)
        apart = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
                ]
            }
        }
        for i in range(2):
            site.pod(f"db-{i}", labels={"app": "db"}, affinity=apart)
        site.all_bound(15)
        site.pod("large", cpu="3500m", annotations=MEASURED)
        site.refused("large")
        site.pod("high", cpu="3", priorityClassName=f"{space.name}-high")
        wait_for(lambda: site.space.pod("high")["spec"].get("nodeName"), "room to be made")
        there = [p["metadata"] for p in site.space.pods() if p["spec"].get("nodeName")]
        staying = {m["name"] for m in there if "deletionTimestamp" not in m}
        space.delete_pod(min(name for name in staying if name.startswith("job-")))
        space.admin.delete(f"/api/v1/nodes/{nodes[2]}")
        site.node("fresh", cpu="8")
        site.bound("large")
        # A crash leaves what was written so far.
        crashed = tmp_path / "crashed.jsonl.gz"
        crashed.write_bytes(path.read_bytes())
        assert scheduler.stop(signal.SIGTERM) == 0
        scheduler.start("--events", str(path))
        site.pod("after", cpu="100m")
        site.bound("after")
    assert {p.name for p in tmp_path.glob("events*")} == {"events.jsonl.gz", "events.1.jsonl.gz"}
    for file, least in ((tmp_path / "events.1.jsonl.gz", 16), (crashed, 1), (path, 1)):
        done = simulate(file)
        assert (done.exit_code, done.stderr) == (0, "" if file != crashed else done.stderr)
        assert done.stdout.endswith(": the same decisions as recorded\n")
        placements = int(done.stdout.split(", ")[1].split()[0])
        assert placements >= least
    events = [event for _, event in EventReader(tmp_path / "events.1.jsonl.gz")]
    assert {TaskBound, RoundDecided} <= {type(e) for e in events}
    assert {"TaskSubmitted", "MachineAdded"} <= {e.of for e in events if isinstance(e, Removed)}
    done = simulate(tmp_path / "events.1.jsonl.gz", "--policy", "load-spreading")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].split()[0] == "load-spreading"


def test_two_hundred_measured_pods_on_sixty_nodes_are_decided_as_simulate_does(
    plane: Plane, space: Space, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl.gz"
    profiles = ("blackscholes", "canneal", "dedup", "ferret", "freqmine", "radix", "vips")
    with running_scheduler(plane, tmp_path, "--events", str(path)) as scheduler, site_of(scheduler, space) as site:
        for size in ("2", "4", "8"):
            site.nodes(20, prefix=f"cores-{size}", cpu=size)
        for i in range(200):
            annotations = {names.PROFILE: profiles[i % 7], names.SCALE: str(0.3 + i % 10 / 4), names.WIDTHS: "1,2"}
            site.pod(f"job-{i:03d}", cpu="1", annotations=annotations)

        def bound() -> bool:
            return sum(bool(p["spec"].get("nodeName")) for p in site.space.pods()) >= 150

        wait_for(bound, "most pods to be bound")
    done = simulate(path)
    assert done.exit_code == 0, done.stderr
    # The scheduler was stopped while pods waited, maybe in the midst of a round.
    assert re.fullmatch(r"(note: a round that had begun was not decided [^\n]*\n)?", done.stderr)
    assert done.stdout.endswith(": the same decisions as recorded\n")
    assert int(done.stdout.split(", ")[1].split()[0]) >= 150
