from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from flowsched_models.document import InputError
from flowsched_models.profile import PhaseOrder
from flowsched_models.profiles import CatalogueForm, dump_catalogue, load_catalogue

HEAD = "apiVersion: flowsched/v1\nkind: Profiles\n"


def test_bundled_profiles() -> None:
    catalogue = load_catalogue()
    assert list(catalogue.jobs) == ["blackscholes", "canneal", "dedup", "ferret", "freqmine", "radix", "vips"]
    assert catalogue is load_catalogue()
    freqmine = catalogue.jobs["freqmine"]
    assert (freqmine.work_s, freqmine.serial_fraction, freqmine.phase_order) == (
        489.3,
        0.016,
        PhaseOrder.MIXED,
    )
    assert catalogue.jobs["canneal"].phase_order is PhaseOrder.SERIAL_FIRST
    assert [n for n, j in catalogue.jobs.items() if j.threads_power_of_two] == ["radix"]
    assert {n for n, t in catalogue.machine_types.items() if t.smt} == {
        "e2-standard-2",
        "e2-standard-4",
        "e2-standard-8",
    }


def test_bundled_speeds_follow_their_rule() -> None:
    catalogue = load_catalogue()
    for name, job in catalogue.jobs.items():
        n2d = job.speed["n2d-highmem-4"]
        small = 0.65 if name == "vips" else 1.0
        assert job.speed["n2d-highcpu-2"] == pytest.approx(n2d * small)
        assert job.speed["n2d-highcpu-4"] == pytest.approx(n2d * 0.86 * small)
        assert job.speed["t2d-standard-2"] == 1.42
        assert catalogue.speed(name, "e2-standard-8") == 1.0
    middle = median(j.speed["n2d-highmem-4"] for j in catalogue.jobs.values())
    assert catalogue.machine_types["n2d-highmem-4"].speed == middle
    assert catalogue.machine_types["n2d-highcpu-4"].speed == pytest.approx(middle * 0.86)


def test_bundled_memory_separates_what_fits_in_2_gb() -> None:
    catalogue = load_catalogue()
    small = catalogue.machine_types["n2d-highcpu-2"].memory_mib
    fits = {n for n, j in catalogue.jobs.items() if j.memory_mib <= small}
    beside_memcached = {n for n, j in catalogue.jobs.items() if j.memory_mib + 512 <= small}
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
    assert len(catalogue.jobs) == 7
    assert str(extra) in catalogue.source
    assert load_catalogue().jobs["radix"].work_s == 53.2


def test_every_value_needs_a_source_and_sense(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        HEAD + "jobs:\n"
        "  a:\n"
        "    work_s: -1\n"
        "    serial_fraction: 1.0\n"
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
