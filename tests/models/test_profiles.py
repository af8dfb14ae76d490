from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
import yaml

from flowsched_models.document import InputError
from flowsched_models.neutral import NEUTRAL
from flowsched_models.profile import NEVER_MEASURED, PhaseOrder
from flowsched_models.profiles import ADDITIONAL, CatalogueForm, dump_catalogue, load_catalogue

HEAD = "apiVersion: flowsched/v1\nkind: Profiles\n"


MEASURED = ["blackscholes", "canneal", "dedup", "ferret", "freqmine", "radix", "vips"]
"""Jobs whose bundled profiles are fitted. The fit is made again now and then, so numbers are not repeated here."""


def test_bundled_profiles() -> None:
    catalogue = load_catalogue()
    assert list(catalogue.jobs) == [*MEASURED, NEUTRAL]
    assert catalogue == load_catalogue()
    freqmine = catalogue.jobs["freqmine"]
    assert 450 < freqmine.work_s < 510 and freqmine.serial_fraction < 0.06
    assert freqmine.phase_order is PhaseOrder.MIXED
    assert catalogue.jobs["canneal"].phase_order is PhaseOrder.SERIAL_FIRST
    assert [n for n, j in catalogue.jobs.items() if j.threads_power_of_two] == ["radix"]
    on_kubernetes = {n: t for n, t in catalogue.machine_types.items() if not n.endswith("-docker")}
    alike = {n.split("-")[0] for n, t in on_kubernetes.items() if t.smt}
    assert alike == {"c3", "e2", "n2"}
    assert not any(t.smt for n, t in on_kubernetes.items() if n.split("-")[0] not in alike)


def test_a_job_without_measurements_is_the_middle_of_those_that_have_them() -> None:
    jobs = load_catalogue().jobs
    neutral = jobs[NEUTRAL]
    assert neutral.sensitivity == median(jobs[n].sensitivity for n in MEASURED)
    assert (neutral.work_s, neutral.memory_mib, neutral.error) == (60.0, 0, NEVER_MEASURED)
    assert all(1.5 * jobs[n].error < neutral.error for n in MEASURED)


def test_a_file_may_bring_its_own_neutral_profile(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    own = "source: x, work_s: 9, serial_fraction: 0, phase_order: mixed, smt_gain: 1, sensitivity: 0, pressure: 0"
    path.write_text(HEAD + f"jobs:\n  neutral: {{{own}, memory: 1Gi}}\n")
    assert load_catalogue(extra=[path]).jobs[NEUTRAL].work_s == 9.0
    assert list(load_catalogue(path).jobs) == [NEUTRAL]


@pytest.mark.parametrize("name", ADDITIONAL)
def test_further_bundled_profiles_are_known_by_name_and_leave_the_others_as_they_are(name: str) -> None:
    default, more = load_catalogue(), load_catalogue(extra=[Path(name)])
    assert more.jobs.items() > default.jobs.items(), "neutral, the middle of jobs on CPUs, included"
    assert more.services == default.services
    assert str(ADDITIONAL[name].parent) not in more.source


def test_a_file_comes_before_bundled_profiles_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thesis").write_text(HEAD + "source: mine\n")
    monkeypatch.chdir(tmp_path)
    assert load_catalogue(extra=[Path("thesis")]).source.endswith("mine")


def test_profiles_of_the_thesis_say_what_is_assumed() -> None:
    form = yaml.safe_load(ADDITIONAL["thesis"].read_text())
    assert all("assumed" in job["source"] for job in form["jobs"].values())
    jobs = load_catalogue(extra=[Path("thesis")]).jobs
    assert [jobs[f"alexnet-{size}"].gpus.links["bus"] for size in ("tiny", "batch-2", "batch-8", "big")] == [
        1.27, 1.30, 1.20, 1.0,
    ]  # fmt: skip
    for name, on_pcie in (("tiny", 1.24), ("batch-2", 1.21), ("batch-8", 1.1)):
        links = jobs[f"alexnet-{name}"].gpus.links
        assert links["bus"] / links["pcie"] == pytest.approx(on_pcie, abs=1e-4)
    beside = [("tiny", "tiny", 0.30), ("tiny", "big", 0.24), ("small", "big", 0.21), ("big", "big", 0.0)]
    for one, other, slower in beside:
        socket = jobs[f"alexnet-{one}"].gpus.socket
        assert socket.sensitivity * jobs[f"alexnet-{other}"].gpus.socket.pressure == pytest.approx(slower)


def test_bundled_speeds_are_relative_to_one_type() -> None:
    catalogue = load_catalogue()
    assert catalogue.machine_types["e2-standard-8"].speed == 1.0
    for name in MEASURED:
        own = catalogue.jobs[name].speed
        assert catalogue.speed(name, "e2-standard-8") == catalogue.speed(name, "e2-standard-4") == 1.0
        assert own["n2d-highcpu-4"] < own["n2d-highmem-4"], "the same processor, seen to be slower in every group"
        assert own["t2d-standard-2"] > 1.0
        assert own["n2-highcpu-2"] == own["n2-standard-4"], "types that were not measured take the factor of the family"
    for name, kind in catalogue.machine_types.items():
        speeds = [catalogue.speed(job, name) for job in MEASURED]
        assert min(speeds) <= kind.speed <= max(speeds)


def test_bundled_memory_separates_what_fits_in_2_gb() -> None:
    catalogue = load_catalogue()
    small = catalogue.machine_types["n2d-highcpu-2"].memory_mib
    fits = {n for n in MEASURED if catalogue.jobs[n].memory_mib <= small}
    beside_memcached = {n for n in MEASURED if catalogue.jobs[n].memory_mib + 512 <= small}
    assert fits == {"blackscholes", "canneal", "vips"}
    assert beside_memcached == {"blackscholes"}


def test_bundled_memcached_meets_measured_anchors() -> None:
    memcached = load_catalogue().services["memcached"]
    curve = memcached.curve(1, 1)
    assert curve is not None
    assert memcached.p95_us(curve, 30_000, "mcperf-sweep") == pytest.approx(774, abs=5)
    assert 430 <= memcached.p95_us(curve, 30_000, "mcperf-30k") <= 540
    assert memcached.curve(4, 1) is None


def test_extra_file_adds_and_replaces(tmp_path: Path) -> None:
    extra = tmp_path / "mine.yaml"
    extra.write_text(
        HEAD + "jobs:\n"
        "  radix: {source: mine, work_s: 1, serial_fraction: 0, phase_order: mixed, smt_gain: 1,\n"
        "          sensitivity: 0, pressure: 0, memory: 1Gi, speed: {mine-2: 2.0}}\n"
        "machine_types:\n  mine-2: {source: mine, vcpus: 2, memory: 4Gi}\n"
    )
    catalogue = load_catalogue(extra=[extra])
    assert catalogue.jobs["radix"].work_s == 1.0
    assert catalogue.jobs["radix"].memory_mib == 1024
    assert catalogue.speed("radix", "mine-2") == 2.0
    assert list(catalogue.jobs) == [*MEASURED, NEUTRAL]
    assert str(extra) in catalogue.source
    assert load_catalogue().jobs["radix"].work_s > 40.0


def test_every_value_needs_a_source_and_sense(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        HEAD + "jobs:\n"
        "  a:\n"
        "    work_s: -1\n"
        "    serial_fraction: 1.1\n"
        "    phase_order: serial\n"
        "    smt_gain: 0.5\n"
        "    sensitivity: 0\n"
        "    presure: 0\n"
        "    memory: 100\n"
        "  b: {work_s: 1, serial_fraction: 0, phase_order: mixed, smt_gain: 0, sensitivity: 0,\n"
        "      pressure: 0, memory: 1Mi, speed: {n2d-highcpu2: 1.0}}\n"
        "machine_types:\n"
        "  n2d-highcpu-2: {source: x, vcpus: 3, memory: 1Gi, smt: true}\n"
    )
    with pytest.raises(InputError) as caught:
        load_catalogue(path)
    assert [(p.line, p.key) for p in caught.value.problems] == [
        (5, "jobs.a.work_s"),
        (6, "jobs.a.serial_fraction"),
        (7, "jobs.a.phase_order"),
        (10, "jobs.a.presure"),
        (11, "jobs.a.memory"),
        (12, "jobs.b.source"),
        (13, "jobs.b.speed.n2d-highcpu2"),
        (15, "machine_types.n2d-highcpu-2.vcpus"),
    ]
    assert "did you mean 'n2d-highcpu-2'?" in str(caught.value)
    assert "give a unit: 100Mi" in str(caught.value)


def test_catalogue_in_plain_data_round_trips() -> None:
    catalogue = load_catalogue()
    assert CatalogueForm.model_validate(dump_catalogue(catalogue)).catalogue("elsewhere") == catalogue
