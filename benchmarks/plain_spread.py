"""One-core jobs a second apart on empty machines: how many machines they use, and how long a wide job then waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.batch_log import VARIANT
from benchmarks.plain_bars import Bar
from benchmarks.plain_jobs import Cluster, PlainJob, plain_scenario
from flowsched_models.text_table import text_table
from flowsched_simulator import EngineOptions, simulate

RUN_S = 490.0
"""All one-core jobs run when the wide job comes."""
POLICIES = ("flow", "easy", "best-fit")
CLUSTERS = ((20, Cluster(20, 16)), (200, Cluster(400, 16)))
"""One-core jobs, and the machines that they come to."""
MOST_MACHINES = {20: 2, 200: 20}
"""How many machines they may use, by the number of jobs."""


def measure(jobs: int, cluster: Cluster, policy: str, engine: EngineOptions) -> dict[str, Any]:
    """Machines that so many one-core jobs use, and how long a job as wide as a machine waits that comes after them."""
    narrow = [PlainJob(float(k), RUN_S, 1) for k in range(jobs)]
    wide = PlainJob(float(jobs), RUN_S, cluster.cores)
    run = simulate(plain_scenario("spread", [*narrow, wide], cluster), policy, variant=VARIANT, engine=engine)
    return {
        "jobs": jobs,
        "machines": cluster.machines,
        "cores": cluster.cores,
        "policy": policy,
        "used": len({job.machine for job in run.jobs[:jobs]}),
        "wide_waiting_s": run.jobs[jobs].waiting_s,
    }


def rows(policies: Sequence[str], engine: EngineOptions) -> list[dict[str, Any]]:
    """A row for each number of jobs and policy."""
    return [measure(jobs, cluster, p, engine) for jobs, cluster in CLUSTERS for p in POLICIES if p in policies]


def table(found: Sequence[dict[str, Any]]) -> str:
    """The rows as text."""
    lines = [["one-core jobs", "machines", "policy", "machines used", "wide job waits s"]]
    lines += [
        [
            str(row["jobs"]),
            f"{row['machines']} x {row['cores']}",
            row["policy"],
            str(row["used"]),
            f"{row['wide_waiting_s']:.1f}",
        ]
        for row in found
    ]
    return "\n".join(text_table(lines, left=(1, 2), indent=""))


def bars(found: Sequence[dict[str, Any]]) -> list[Bar]:
    """Machines that `flow` uses at most, and the wait of the wide job beside that under `easy`."""
    waits = {row["jobs"]: row["wide_waiting_s"] for row in found if row["policy"] == "easy"}
    judged = []
    for row in found:
        if row["policy"] != "flow":
            continue
        case, most = (
            f"{row['jobs']} one-core jobs on {row['machines']} x {row['cores']} cores",
            MOST_MACHINES[row["jobs"]],
        )
        judged.append(Bar(case, "machines used", row["used"], most, "as many as they may"))
        if row["jobs"] in waits:
            easy_s = waits[row["jobs"]]
            judged.append(
                Bar(case, "wait s of the wide job", row["wide_waiting_s"], easy_s + 0.1, f"easy {easy_s:.3f} + 0.1 s")
            )
    return judged
