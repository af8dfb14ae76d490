"""Raw measurements and logs, where they are on the machine: they do not belong to the tree."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from flowsched_models.measurements import Measurements, load_measurements

_HOUSE = Path(__file__).resolve().parent.parent


def cca_folder() -> Path | None:
    """The folder with one folder per group: ``FLOWSCHED_CCA``, else a ``data/cca`` in a folder beside the checkout."""
    named = os.environ.get("FLOWSCHED_CCA")
    folders = [Path(named)] if named else sorted(_HOUSE.parent.glob("*/data/cca"))
    return next((folder for folder in folders if folder.is_dir()), None)


def cca_data() -> Path:
    """The same folder; skips the test that asks if there is none."""
    folder = cca_folder()
    if folder is None:
        pytest.skip("the course's measurements are not here; FLOWSCHED_CCA may name their folder")
    return folder


@functools.cache
def cca_measurements() -> Measurements:
    """What is in it: it takes more than a second to read."""
    return load_measurements(cca_data())


def batch_log() -> Path:
    """The NASA iPSC/860 log of the Parallel Workloads Archive: the file that ``FLOWSCHED_BATCH_LOG`` names, else one in a
    folder beside the checkout. Skips the test that asks if there is none.
    """
    named = os.environ.get("FLOWSCHED_BATCH_LOG")
    files = [Path(named)] if named else sorted(_HOUSE.parent.glob("*/data/traces/*/NASA-iPSC-1993-3.1-cln.swf.gz"))
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        pytest.skip("the log NASA-iPSC-1993-3.1-cln.swf.gz is not here; FLOWSCHED_BATCH_LOG may name it")
    return found


def traces_folder() -> Path:
    """The folder with ``swf_nasa_ipsc``, ``alibaba2017_batch`` and ``philly``: the one that ``FLOWSCHED_TRACES`` names, else
    a ``data/traces`` in a folder beside the checkout. Skips the test that asks if there is none.
    """
    named = os.environ.get("FLOWSCHED_TRACES")
    folders = [Path(named)] if named else sorted(_HOUSE.parent.glob("*/data/traces"))
    found = next((folder for folder in folders if (folder / "alibaba2017_batch").is_dir()), None)
    if found is None:
        pytest.skip("the traces of plain jobs are not here; FLOWSCHED_TRACES may name their folder")
    return found


def gavel_folder() -> Path:
    """Gavel's throughputs: the folder that ``FLOWSCHED_GAVEL`` names, else a ``data/traces/gavel`` in a folder beside the
    checkout. Skips the test that asks if there is none.
    """
    named = os.environ.get("FLOWSCHED_GAVEL")
    folders = [Path(named)] if named else sorted(_HOUSE.parent.glob("*/data/traces/gavel"))
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        pytest.skip("Gavel's throughputs are not here; FLOWSCHED_GAVEL may name their folder")
    return found


def openb_folder() -> Path:
    """The openb trace of shared GPUs: the folder that ``FLOWSCHED_OPENB`` names, else a ``data/traces/openb`` in a folder
    beside the checkout. Skips the test that asks if there is none.
    """
    named = os.environ.get("FLOWSCHED_OPENB")
    folders = [Path(named)] if named else sorted(_HOUSE.parent.glob("*/data/traces/openb"))
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        pytest.skip("the openb trace is not here; FLOWSCHED_OPENB may name its folder")
    return found
