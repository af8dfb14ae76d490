"""cgroup version 2 for real: our tests inside an emulated machine whose kernel has nothing else.

``guest_start.py`` says which tests run there. Emulation is slow, so none of them depends on how fast anything is.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest
from emulated_machine import SHARED, run_in_guest
from guest_kernel import GuestKernel, cached, loading_order

from requirements_on_machine import give_up, needs

LIMIT_S = 2400.0
"""Until the emulator is ended: several times what it takes on a busy machine of two cores, which is up to 450 s."""
FEWEST = 35
"""Tests that pass in the guest: a run that leaves most of them out shall not look like a success."""
MAY_BE_SKIPPED = ("this is about version 1", "this is about a version 2 tree beside version 1", "the process was moved")
PATIENCE = "10"
"""How many times longer than usual tests in the guest wait."""


@pytest.fixture
def kernel() -> GuestKernel:
    if platform.machine() != "x86_64":
        give_up(f"the emulated machine runs the programs of this one, and its kernel is not for {platform.machine()}")
    found = cached()
    if found is None:
        give_up("there is no kernel for the emulated machine; 'python tests/agent/guest_kernel.py' fetches Debian's")
    return found


def test_the_agent_on_a_machine_with_cgroup_version_2(kernel: GuestKernel, tmp_path: Path) -> None:
    qemu = needs("qemu-system-x86_64", "to emulate a machine with cgroup version 2")
    needs("memcached", "to be steered in the emulated machine")
    environment = {"FLOWSCHED_PATIENCE": PATIENCE, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    kept = ("FLOWSCHED_CI", "OPENBLAS_NUM_THREADS", "XDG_CACHE_HOME")
    environment |= {key: os.environ[key] for key in kept if key in os.environ}
    # The controller decides as quickly without numba, which takes most of a minute to be imported and compile there.
    without = tmp_path / "without"
    without.mkdir()
    (without / "numba.py").write_text("raise ImportError('left out')\n")
    environment["PYTHONPATH"] = str(without)
    argv = [sys.executable, "-u", str(Path(__file__).parent / "guest_start.py"), SHARED]
    run = run_in_guest(kernel, qemu, argv, tmp_path, LIMIT_S, environment)
    print(f"{len(run.tests)} tests in the guest, {run.seconds:.0f} s from the start of the emulator to its end")
    assert run.ended, f"the guest did not end within {LIMIT_S:g} s\n{run.console}"
    assert not [test for test in run.tests if test.outcome in ("failed", "error")], run.console
    unexpected = [test for test in run.of("skipped") if not any(reason in test.said for reason in MAY_BE_SKIPPED)]
    assert not unexpected, unexpected
    assert len(run.of("passed")) >= FEWEST, run.console
    assert "guest: ended with 0 " in run.console, run.console


def test_a_module_is_loaded_after_those_that_it_needs(tmp_path: Path) -> None:
    needed = {"9p": "9pnet,netfs", "netfs": "", "9pnet": "", "virtio_pci": "virtio,built-in", "virtio": ""}
    for name, others in needed.items():
        (tmp_path / f"{name}.ko").write_bytes(
            b"\x7fELF\0name=" + name.encode() + b"\0depends=" + others.encode() + b"\0"
        )
    names = [path.stem for path in loading_order(tuple(sorted(tmp_path.iterdir())))]
    assert names == ["virtio", "virtio_pci", "9pnet", "netfs", "9p"]


def test_a_guest_that_does_not_end_is_ended(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"")
    emulator = tmp_path / "emulator"
    emulator.write_text("#!/bin/sh\nexec sleep 600\n")
    emulator.chmod(0o755)
    run = run_in_guest(GuestKernel(image, image, ()), str(emulator), ["true"], tmp_path, 0.1, {})
    assert (run.ended, run.console, run.tests) == (False, "", ())


def test_a_guest_that_stands_still_is_booted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulated_machine.SILENCE_S", 0.3)
    image = tmp_path / "image"
    image.write_bytes(b"")
    emulator = tmp_path / "emulator"
    emulator.write_text(
        f"#!/bin/sh\necho again >>{tmp_path}/boots\necho up\n[ $(wc -l <{tmp_path}/boots) = 2 ] || sleep 600\n"
    )
    emulator.chmod(0o755)
    run = run_in_guest(GuestKernel(image, image, ()), str(emulator), ["true"], tmp_path, 60.0, {})
    assert (run.ended, run.console) == (True, "up\n")
    assert (tmp_path / "boots").read_text() == "again\n" * 2
