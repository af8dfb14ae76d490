"""Write images of containers as archives: there is no registry where tests run, and docker is not needed for a few files."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What images call them."""


@dataclass(frozen=True)
class Image:
    """One layer, and how it is started."""

    name: str
    """With its tag, and with the registry that it says it is from."""
    files: Mapping[str, Path | bytes]
    """What is copied into it, by path inside; all of it may be executed."""
    entrypoint: Sequence[str]
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links: path inside, and what they point to."""

    def write(self, path: Path) -> None:
        """An archive in the layout of the Open Container Initiative."""
        layer = _layer(self.files, self.links)
        started = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "Env": [f"{key}={value}" for key, value in self.environment.items()],
        }
        machine = platform.machine()
        config = _json(
            {
                "architecture": ARCHITECTURES.get(machine, machine),
                "os": "linux",
                "config": started,
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": f"{_TYPE}.manifest.v1+json",
                "config": _described(config, "config.v1+json"),
                "layers": [_described(layer, "layer.v1.tar")],
            }
        )
        named = {"annotations": {"io.containerd.image.name": self.name}}
        index = {"schemaVersion": 2, "manifests": [_described(manifest, "manifest.v1+json") | named]}
        with tarfile.open(path, "w") as archive:
            _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add(archive, "index.json", _json(index))
            for blob in (layer, config, manifest):
                _add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)


_TYPE = "application/vnd.oci.image"


def _layer(files: Mapping[str, Path | bytes], links: Mapping[str, str]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        folders = {str(parent) for name in (*files, *links) for parent in PurePosixPath(name).parents}
        for folder in sorted(folders - {"/", "."}):
            entry = tarfile.TarInfo(folder.strip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, target in links.items():
            entry = tarfile.TarInfo(name.strip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
        for name, source in files.items():
            _add(archive, name.strip("/"), source if isinstance(source, bytes) else source.read_bytes())
    return whole.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))


def _described(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": f"{_TYPE}.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
