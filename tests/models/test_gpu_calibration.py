"""Profiles of training jobs from measured throughputs: what is there is found, and the bundled ones are what is measured."""

from __future__ import annotations

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from flowsched.cli import flowsched
from flowsched_models.calibration.gpu_fit import fit_gpus
from flowsched_models.document import InputError
from flowsched_models.measurements.gpu_throughputs import TrainingJob, read_throughputs, throughputs_file
from flowsched_models.profiles import ADDITIONAL, load_catalogue
from measured_data import gavel_folder

ALONE = {"k80": 2.0, "v100": 8.0}
SENSITIVITY = {"A": 1.0, "B": 0.5}
PRESSURE = {"A": 0.5, "B": 1.5}


def key(network: str, gpus: int) -> str:
    return f"('{network} (batch size 4)', {gpus})"


@pytest.fixture
def made_up() -> dict[str, Any]:
    """Two jobs whose slow-downs are sensitivity times pressure; spread, the V100 takes twice as long."""
    data: dict[str, Any] = {}
    for gpu, rate in ALONE.items():
        data[gpu], data[f"{gpu}_unconsolidated"] = {}, {}
        for network, count in product("AB", (1, 2)):
            row: dict[str, Any] = {"null": rate * count}
            for other in "AB" if count == 1 else "":
                steps = (rate / (1 + SENSITIVITY[x] * PRESSURE[y]) for x, y in ((network, other), (other, network)))
                row[key(other, 1)] = list(steps)
            data[gpu][key(network, count)] = row
            over = 2.0 if gpu == "v100" else 0.9
            data[f"{gpu}_unconsolidated"][key(network, count)] = {"null": rate * count / over}
    return data


def write(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "simulation_throughputs.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path


def test_what_throughputs_tell_is_found(tmp_path: Path, made_up: dict[str, Any]) -> None:
    data = made_up
    data["k80"][key("B", 2)]["null"] = 0.0
    write(tmp_path, data)
    found = throughputs_file(tmp_path)
    assert found is not None
    fit = fit_gpus(read_throughputs(found))
    assert [job.name for job in fit.profiles] == ["a-b4", "a-b4-x2", "b-b4", "b-b4-x2"]
    assert fit.assumed_speeds == ((TrainingJob("B", 4, 2), "K80"),)
    for job, profile in fit.profiles.items():
        assert profile.work_s == pytest.approx(1000 / 8 / job.gpus)
        assert profile.gpus.speed == {"K80": 0.25, "V100": 1.0}
        assert profile.gpus.links == ({"k80-network": 1.0, "v100-network": 2.0} if job.gpus == 2 else {}) or (
            job == TrainingJob("B", 4, 2) and profile.gpus.links == {"v100-network": 2.0}
        )
        device = profile.gpus.device
        assert device.sensitivity == pytest.approx(SENSITIVITY[job.network], rel=1e-4)
        assert device.pressure == pytest.approx(PRESSURE[job.network], rel=1e-4)
    assert np.abs(fit.errors).max() < 1e-6 < np.abs(fit.constant_errors).max()
    assert fit.faster_spread == 1


def test_the_command_writes_profiles_that_load(tmp_path: Path, made_up: dict[str, Any]) -> None:
    write(tmp_path, made_up)
    out = tmp_path / "own.yaml"
    done = CliRunner().invoke(flowsched, ["calibrate", str(tmp_path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"4 jobs on 2 models of GPU: {out}\n")
    catalogue = load_catalogue(extra=[out])
    assert catalogue.jobs["a-b4"].gpus.speed == {"K80": 0.25, "V100": 1.0}
    assert catalogue.gpu_topologies["two-v100-servers"].slowest_class((0, 4)) == "v100-network"


def test_what_is_no_table_of_throughputs_is_refused_in_a_sentence(tmp_path: Path, made_up: dict[str, Any]) -> None:
    path = write(tmp_path, made_up)
    refused = CliRunner().invoke(flowsched, ["calibrate", str(tmp_path), "--out", "x", "--years", "2023"])
    assert "which only --out, --title and --quiet are for" in str(refused.exception)
    for jobs in ({"x": {"null": 1}}, {key("A", 1): {}}, [], {key("A", 1): {"null": "x"}}):
        write(tmp_path, {"k80": jobs})
        with pytest.raises(InputError, match="cannot be read as Gavel's throughputs"):
            read_throughputs(path)
    path.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read as Gavel's throughputs"):
        read_throughputs(path)


def test_the_bundled_profiles_are_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "gavel.yaml"
    done = CliRunner().invoke(flowsched, ["calibrate", str(gavel_folder()), "--out", str(out)])
    assert done.exit_code == 0, done.output
    ours, bundled = (yaml.safe_load(path.read_text()) for path in (out, ADDITIONAL["gavel"]))
    for name, job in bundled["jobs"].items():
        device, again = (one["jobs"][name]["gpus"].pop("device") for one in (bundled, ours))
        assert again == pytest.approx(device, rel=1e-3), "a fit: the last digit is the machine's"
        assert ours["jobs"][name] == job
    assert ours == bundled
