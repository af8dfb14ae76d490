"""Jobs that are faster on some GPUs: `flow` prefers these, and a simulated run takes as long as the profile says."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowsched_models.profiles import load_catalogue
from flowsched_simulator import load_scenario, simulate
from flowsched_simulator.run import Run

MODELS = ("K80", "P100", "V100")
HEAD = """\
apiVersion: flowsched/v1
kind: Scenario
name: speeds
profiles: [gavel]
machines:
"""


def run(tmp_path: Path, machines: str, jobs: str, policy: str = "flow", variant: str | None = None) -> Run:
    path = tmp_path / "s.yaml"
    path.write_text(f"{HEAD}{machines}jobs:\n{jobs}")
    return simulate(load_scenario(path), policy, variant=variant)


def machine(model: str, more: str = "") -> str:
    return f"  - {{name: with-{model.lower()}, type: e2-standard-4, gpus: {{model: {model}, count: 1{more}}}}}\n"


@pytest.mark.parametrize(
    ("profile", "fastest"), [("resnet-50-b64", "V100"), ("recommendation-b512", "P100"), ("a3c", "V100")]
)
def test_flow_prefers_the_gpu_that_a_job_is_fastest_on(tmp_path: Path, profile: str, fastest: str) -> None:
    jobs = f"  - {{name: one, profile: {profile}, request: 1, scale: 0.5, gpus: {{count: 1}}}}\n"
    (job,) = run(tmp_path, "".join(map(machine, MODELS)), jobs).jobs
    assert job.machine == f"with-{fastest.lower()}"
    work_s = load_catalogue(extra=[Path("gavel")]).jobs[profile].work_s
    assert job.end_s - job.start_s == pytest.approx(0.5 * work_s, rel=1e-4)


@pytest.mark.parametrize("profile", ["resnet-50-b64", "recommendation-b512"])
def test_a_run_takes_as_many_times_longer_as_a_gpu_is_slower(tmp_path: Path, profile: str) -> None:
    jobs = "".join(
        f"  - {{name: on-{m}, profile: {profile}, request: 1, gpus: {{count: 1, models: [{m}]}}}}\n" for m in MODELS
    )
    took = {j.job: j.end_s - j.start_s for j in run(tmp_path, "".join(map(machine, MODELS)), jobs).jobs}
    known = load_catalogue(extra=[Path("gavel")]).jobs[profile]
    for model in MODELS:
        assert took[f"on-{model}"] == pytest.approx(known.work_s / known.gpus.speed[model], rel=1e-4)


def test_two_jobs_on_one_gpu_slow_each_other_down(tmp_path: Path) -> None:
    jobs = "  - {name: one, profile: resnet-50-b64, request: 1, copies: 2, gpus: {share: 500m}}\n"
    device = load_catalogue(extra=[Path("gavel")]).jobs["resnet-50-b64"].gpus.device
    took = [j.end_s - j.start_s for j in run(tmp_path, machine("V100"), jobs, "gpu-best-fit", "declared-shared").jobs]
    work_s = load_catalogue(extra=[Path("gavel")]).jobs["resnet-50-b64"].work_s
    assert took == pytest.approx([work_s * (1 + device.sensitivity * device.pressure)] * 2, rel=1e-4)


def test_links_between_servers_slow_a_job_down(tmp_path: Path) -> None:
    servers = machine("V100", ", topology: two-v100-servers").replace("count: 1", "count: 8")
    jobs = "  - {name: one, profile: lm-b80-x4, request: 1, gpus: {count: %d}}\n"
    packed, spread = (run(tmp_path, servers, jobs % count, "fcfs").makespan_s for count in (4, 5))
    links = load_catalogue(extra=[Path("gavel")]).jobs["lm-b80-x4"].gpus.links
    assert spread / packed == pytest.approx(links["v100-network"])
