"""What a node with a real kubelet is made of: sources, images, and what it says where it cannot run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from plane import SCRIPT
from real_nodes import Image

FOLDER = SCRIPT.parent


def answer(script: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_every_source_counts_for_the_programs_and_none_for_the_control_plane(tmp_path: Path) -> None:
    copy = tmp_path / "control_plane"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    scripts = copy / "node_parts.py", copy / "control_plane.py"
    programs, plane = ([answer(script, "path").stdout] for script in scripts)
    assert programs == [answer(FOLDER / "node_parts.py", "path").stdout]
    for name in ("kubelet/go.mod", "kubelet/go.sum", "runtime/go.mod", "runtime/go.sum", "runtime/cmd/pod/main.go"):
        with (copy / "node_parts" / name).open("a") as file:
            file.write("\n")
        programs.append(answer(scripts[0], "path").stdout)
        plane.append(answer(scripts[1], "path").stdout)
    assert len(set(programs)) == len(programs)
    assert len(set(plane)) == 1


def test_kubelet_is_the_release_of_the_control_plane() -> None:
    """With the same versions of everything, so that what is compiled for one is there for the other."""

    def versions(path: Path) -> dict[str, str]:
        lines = (line.split() for line in path.read_text().splitlines() if "=>" not in line)
        return {words[0]: words[1] for words in lines if len(words) >= 2 and words[1].startswith("v")}

    plane, kubelet = versions(FOLDER / "go.mod"), versions(FOLDER / "node_parts" / "kubelet" / "go.mod")
    assert {name for name in kubelet if name in plane and kubelet[name] != plane[name]} == set()


def test_an_image_is_what_the_layout_of_the_initiative_says(tmp_path: Path) -> None:
    image = Image("test/it:1", {"/bin/it": b"#!/bin/sh\n"}, ["/bin/it"], ["go"], {"A": "b"}, {"/lib": "usr/lib"})
    image.write(tmp_path / "it.tar")
    with tarfile.open(tmp_path / "it.tar") as archive:
        files = {m.name: f.read() for m in archive.getmembers() if (f := archive.extractfile(m)) is not None}
    blobs = {name.rpartition("/")[2]: blob for name, blob in files.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(blob).hexdigest() == name for name, blob in blobs.items())

    def blob(described: dict[str, str]) -> bytes:
        found = blobs[described["digest"].removeprefix("sha256:")]
        assert len(found) == described["size"]
        return found

    (named,) = json.loads(files["index.json"])["manifests"]
    assert named["annotations"]["io.containerd.image.name"] == "test/it:1"
    manifest = json.loads(blob(named))
    config, (layer,) = json.loads(blob(manifest["config"])), manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    assert config["config"] == {"Entrypoint": ["/bin/it"], "Cmd": ["go"], "Env": ["A=b"]}
    (tmp_path / "layer.tar").write_bytes(blob(layer))
    with tarfile.open(tmp_path / "layer.tar") as archive:
        assert archive.getnames() == ["bin", "lib", "bin/it"]
        assert (archive.getmember("bin/it").mode, archive.getmember("lib").linkname) == (0o755, "usr/lib")


@pytest.mark.parametrize("tool", ["runc", "openssl"])
def test_what_is_missing_is_one_sentence(tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("runc", "openssl", "ip", "unshare", "mount"):
        if name != tool:
            (tools / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tools))
    done = answer(FOLDER / "real_node.py", tmp_path / "plane", tmp_path / "node")
    needs = "root" if os.geteuid() else tool
    assert done.returncode == 1
    assert done.stderr.startswith(f"real_node.py: a node with a real kubelet needs {needs}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "node").exists()


def test_without_a_plane_there_is_no_node(tmp_path: Path) -> None:
    if os.geteuid() == 0 and all(map(shutil.which, ("runc", "openssl", "ip", "unshare", "mount"))):
        done = answer(FOLDER / "real_node.py", tmp_path / "plane", tmp_path / "node")
        assert done.returncode == 1
        assert done.stderr == f"real_node.py: no control plane was started in {tmp_path / 'plane'}\n"
