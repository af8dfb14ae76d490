"""A machine under QEMU's pure emulation that runs tests of ours on a kernel with cgroup version 2 and nothing else.

It sees the file system of this machine, read-only, with what it writes kept in its memory. So it has the same Python, the
same packages and the same tree, and needs no image. KVM is not asked for: it may be there and hang.
"""

from __future__ import annotations

import gzip
import os
import shlex
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from guest_kernel import GuestKernel

BOOTS = 3
CPUS = 2
MEMORY_MIB = 1536
SILENCE_S = 400.0
"""Longer than any test in the guest says nothing."""
SHARED = "/run/flowsched-guest"
"""Where the guest finds the folder that it may write."""
_REPOSITORY = Path(__file__).parent.parent.parent
_INIT = """#!/busybox sh
b=/busybox
for what in proc sysfs devtmpfs; do $b mount -t $what $what /$what; done
for module in MODULES; do $b insmod /$module || echo "guest: no module $module"; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 root /host
$b mount -t tmpfs memory /memory
$b mkdir /memory/upper /memory/work
$b mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root
$b mkdir -p /rootSHARED
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 shared /rootSHARED
$b mount --move /proc /root/proc
$b mount --move /sysfs /root/sys
$b mount --move /devtmpfs /root/dev
$b mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
$b ifconfig lo up
exec $b switch_root /root /bin/sh SHARED/start
"""


@dataclass(frozen=True)
class GuestTest:
    """How a test in the guest went."""

    name: str
    """``file::test``."""
    outcome: str
    """passed, skipped, failed, error."""
    seconds: float
    """By the guest's clock."""
    said: str
    """Why it was skipped or failed."""


@dataclass(frozen=True)
class GuestRun:
    """What the guest left behind."""

    ended: bool
    """In time."""
    seconds: float
    """From the start of the emulator to its end."""
    console: str
    tests: tuple[GuestTest, ...]

    def of(self, outcome: str) -> list[GuestTest]:
        """Those that went so."""
        return [test for test in self.tests if test.outcome == outcome]


def run_in_guest(
    kernel: GuestKernel, qemu: str, argv: Sequence[str], folder: Path, limit_s: float, environment: Mapping[str, str]
) -> GuestRun:
    """Boot, run a command at the root of the repository, and end. Reports ``*.xml`` in the guest's SHARED are read.

    An emulated machine hangs now and then: one of eight did, in a test that is over at once otherwise. Then
    another is booted. Of a test that hangs, Python prints where it does long before, and it hangs in the next machine too.
    """
    initial = folder / "initial.cpio.gz"
    initial.write_bytes(gzip.compress(b"".join(_initial_files(kernel)), 1, mtime=0))
    console = folder / "console.txt"
    begun = time.monotonic()
    for boot in range(BOOTS):
        shared = folder / f"shared-{boot}"
        shared.mkdir()
        (shared / "start").write_text(_start_script(argv, environment))
        ended = _boot(_emulator(kernel, qemu, initial, shared), console, limit_s)
        if ended is not None:
            break
        print(f"the guest stood still; its last words:\n{console.read_text(errors='replace')[-2000:]}")
    tests = [test for report in sorted(shared.glob("*.xml")) for test in _tests_of(report)]
    return GuestRun(bool(ended), time.monotonic() - begun, console.read_text(errors="replace"), tuple(tests))


def _start_script(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """The first process of the guest: runs the command, takes in orphans, and switches the machine off."""
    given = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(Path.home()), **environment}
    return "\n".join(
        [
            *(f"export {key}={shlex.quote(value)}" for key, value in given.items()),
            f"cd {shlex.quote(str(_REPOSITORY))}",
            'echo "guest: $(uname -r), up after $(cut -d" " -f1 /proc/uptime) s"',
            shlex.join(argv),
            'echo "guest: ended with $? after $(cut -d" " -f1 /proc/uptime) s"',
            "sync",
            # With -no-reboot that is the end of the emulator.
            "echo b >/proc/sysrq-trigger",
            "",
        ]
    )


def _emulator(kernel: GuestKernel, qemu: str, initial: Path, shared: Path) -> list[str]:
    # The clock is that of the chipset: what the kernel thinks the counter of an emulated CPU runs at, on a busy machine,
    # may be wrong by far.
    options = "console=ttyS0 quiet panic=-1 clocksource=hpet"
    # Its processors take turns: side by side they wait for each other's locks, and take two thirds more CPU.
    return [
        qemu,
        *("-accel", "tcg,thread=single", "-cpu", "max", "-smp", str(CPUS), "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"),
        *("-kernel", str(kernel.image), "-initrd", str(initial), "-append", options),
        *("-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"),
        *("-virtfs", f"local,path={shared},mount_tag=shared,security_model=none"),
    ]


def _boot(argv: Sequence[str], console: Path, limit_s: float) -> bool | None:
    """Whether it ended by itself; None if it was silent for too long."""
    with console.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            end = heard = time.monotonic()
            end += limit_s
            said = 0
            while process.poll() is None:
                now = time.monotonic()
                if now > end:
                    return False
                if (size := console.stat().st_size) != said:
                    said, heard = size, now
                elif now > heard + SILENCE_S:
                    return None
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
    return True


def _tests_of(report: Path) -> Iterator[GuestTest]:
    for case in ElementTree.parse(report).iter("testcase"):
        outcome, said = "passed", ""
        for part in case:
            if part.tag in ("skipped", "failure", "error"):
                outcome = "failed" if part.tag == "failure" else part.tag
                said = f"{part.get('message') or ''}\n{part.text or ''}".strip()
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        yield GuestTest(name, outcome, float(case.get("time", "0")), said)


def _initial_files(kernel: GuestKernel) -> Iterator[bytes]:
    """The first file system of the guest, in the format of cpio that the kernel reads."""
    init = _INIT.replace("MODULES", " ".join(path.name for path in kernel.modules)).replace("SHARED", SHARED)
    number = 0
    for name in ("proc", "sysfs", "devtmpfs", "host", "memory", "root"):
        number += 1
        yield _entry(number, name, 0o040755, b"")
    files = [("init", init.encode()), ("busybox", kernel.busybox.read_bytes())]
    for name, content in (*files, *((path.name, path.read_bytes()) for path in kernel.modules)):
        number += 1
        yield _entry(number, name, 0o100755, content)
    yield _entry(0, "TRAILER!!!", 0, b"")


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    """One file: thirteen numbers in hexadecimal, name and content, each filled up to four bytes (``newc``)."""
    path = name.encode() + b"\0"
    numbers = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in numbers) + path
    return _filled(head) + _filled(content)


def _filled(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
