"""What the emulated machine boots: Debian's kernel with the modules it needs for its disk, and a static busybox.

They are not installed, only taken out of their packages into the cache of the user: ``python tests/agent/guest_kernel.py``
does that on Debian, with apt-get and without being root (72 MB are downloaded, 11 MB kept). Tests never download.
"""

from __future__ import annotations

import io
import lzma
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

WANTED = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""Modules that are loaded, after those that they depend on. The cloud flavour of the kernel has no 9p."""
_META = "linux-image-amd64"
_MODULE_ENDS = (".ko", ".ko.xz")
_XZ = b"\xfd7zXZ\0"
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


class NoKernelError(Exception):
    """There is none to be had; one sentence says why."""


@dataclass(frozen=True)
class GuestKernel:
    """Files in the cache."""

    image: Path
    busybox: Path
    modules: tuple[Path, ...]
    """In the order in which they can be loaded."""


def cached() -> GuestKernel | None:
    """The one that was fetched; None: none was."""
    folder = _folder()
    modules = tuple(sorted((folder / "modules").glob("*.ko")))
    if not modules:
        return None
    return GuestKernel(folder / "vmlinuz", folder / "busybox", tuple(loading_order(modules)))


def fetch() -> GuestKernel:
    """Download it where it is not cached. Raises :class:`NoKernelError`."""
    if (found := cached()) is not None:
        return found
    if platform.machine() != "x86_64":
        raise NoKernelError(
            f"the guest runs the programs of this machine, and its kernel is not for {platform.machine()}"
        )
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        made, packages = Path(name) / "made", Path(name) / "packages"
        (made / "modules").mkdir(parents=True)
        packages.mkdir()
        kernel, busybox = _download(packages, _kernel_package()), _download(packages, "busybox-static")
        _unpack_kernel(kernel, made)
        _unpack_busybox(busybox, made)
        made.rename(folder)
    found = cached()
    assert found is not None
    return found


def loading_order(modules: tuple[Path, ...]) -> list[Path]:
    """Each after all that it depends on."""
    by_name = {_module_name(path.name): path for path in modules}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in order or name not in by_name:
            return  # not there: built into this kernel
        for other in _depends(by_name[name].read_bytes()):
            add(other)
        order[name] = by_name[name]

    for name in WANTED:
        add(name)
    return list(order.values())


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "flowsched" / "guest"


def _depends(module: bytes) -> list[str]:
    """As modinfo says: ``depends=`` in a section of strings."""
    found = _DEPENDS.search(module)
    return [] if found is None else [name.replace("-", "_") for name in found[1].decode().split(",") if name]


def _module_name(file: str) -> str:
    return file.partition(".")[0].replace("-", "_")


def _kernel_package() -> str:
    """The package of the newest kernel: that on which the one without a version depends."""
    words = _run("apt-cache", "depends", "--important", _META).split()
    found = [word for word in words if re.fullmatch(r"linux-image-\d.*", word)]
    if not found:
        raise NoKernelError(f"apt-cache knows no kernel by the name of {_META}; it is a package of Debian")
    return found[0]


def _download(folder: Path, package: str) -> Path:
    # Root's apt would change to a user who may not write here.
    _run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package, folder=folder)
    return next(folder.glob(f"{package}_*.deb"))


def _unpack_kernel(package: Path, folder: Path) -> None:
    modules: dict[str, bytes] = {}
    with _files(package) as files:
        for file in files:
            name = PurePosixPath(file.name).name
            if file.isfile() and name.startswith("vmlinuz-"):
                (folder / "vmlinuz").write_bytes(_content(files, file))
            elif file.isfile() and name.endswith(_MODULE_ENDS):
                modules[_module_name(name)] = _content(files, file)
    wanted = list(WANTED)
    for name in wanted:
        if name in modules:
            content = modules[name]
            plain = lzma.decompress(content) if content.startswith(_XZ) else content
            (folder / "modules" / f"{name}.ko").write_bytes(plain)
            wanted += [other for other in _depends(plain) if other not in wanted]
    if not (folder / "vmlinuz").exists() or not (folder / "modules/9p.ko").exists():
        raise NoKernelError(f"{package.name} has no kernel with the module 9p")


def _unpack_busybox(package: Path, folder: Path) -> None:
    with _files(package) as files:
        for file in files:
            if file.isfile() and PurePosixPath(file.name).name == "busybox":
                (folder / "busybox").write_bytes(_content(files, file))
                (folder / "busybox").chmod(0o755)
                return
    raise NoKernelError(f"{package.name} has no busybox")


def _files(package: Path) -> tarfile.TarFile:
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=True)
    return tarfile.open(fileobj=io.BytesIO(done.stdout))


def _content(files: tarfile.TarFile, file: tarfile.TarInfo) -> bytes:
    found = files.extractfile(file)
    assert found is not None
    return found.read()


def _run(*words: str, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    except OSError as error:
        raise NoKernelError(f"{words[0]} could not be run: {error.strerror}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise NoKernelError(f"{' '.join(words)} failed: {said[-1] if said else 'no output'}")
    return done.stdout


def main() -> int:
    """Fetch it and say where it is."""
    try:
        print(fetch().image.parent)
    except NoKernelError as error:
        print(f"no kernel for the emulated machine: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
