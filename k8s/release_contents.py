#!/usr/bin/env python3
"""List what a release is made of, and check such a list: ``make release-check`` does both.

``write FOLDER`` puts beside the wheel and the source archive a list of contents in CycloneDX's form (the files themselves,
and every package of the image with its hashes) and SHA256SUMS of all of them. ``check FOLDER`` compares, ``--signers FILE``
also the signature of SHA256SUMS that ``make release-sign`` made, by ssh-keygen and the allowed signers of that file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

HOUSE = Path(__file__).parent.parent
REQUIREMENTS = HOUSE / "k8s" / "requirements.txt"
DOCKERFILE = HOUSE / "k8s" / "Dockerfile"
SUMS = "SHA256SUMS"
SPACE = "flowsched-release"
"""Namespace of the signature: one made for something else is none of a release."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def project() -> tuple[str, str, str]:
    """Name, version and licence."""
    found = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found["name"], found["version"], found["license"]


def released(folder: Path) -> list[Path]:
    """Wheel and source archive."""
    return sorted(path for path in folder.iterdir() if path.name.endswith((".whl", ".tar.gz")))


def contents(folder: Path) -> dict[str, Any]:
    """The list: the same bytes for the same files."""
    name, version, licence = project()
    image = re.search(r"^FROM (\S+?)@sha256:([0-9a-f]{64})", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    if image is None:
        raise SystemExit("k8s/Dockerfile names its base by a tag; make pins writes the digest")
    files = [
        {"type": "file", "bom-ref": f"file:{path.name}", "name": path.name, "hashes": [_hash(_sum(path))]}
        for path in released(folder)
    ]
    reference = f"pkg:pypi/{name}@{version}"
    packages = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{package}@{number}",
            "name": package,
            "version": number,
            "purl": f"pkg:pypi/{package}@{number}",
            # One wheel for each machine.
            "hashes": [_hash(digest) for digest in re.findall(r"sha256:([0-9a-f]{64})", hashes)],
        }
        for package, number, hashes in _PIN.findall(REQUIREMENTS.read_text(encoding="utf-8"))
    ]
    container = {
        "type": "container",
        "bom-ref": f"image:{image[1]}",
        "name": image[1].partition(":")[0],
        "version": f"{image[1].partition(':')[2]}@sha256:{image[2]}",
        "hashes": [_hash(image[2])],
    }
    components = [*files, container, *packages]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "purl": reference,
                "licenses": [{"license": {"id": licence}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": [str(c["bom-ref"]) for c in components]}],
    }


def write(folder: Path) -> None:
    """Put the list and the sums beside the files."""
    name, version, _ = project()
    listed = folder / f"{name}-{version}.cdx.json"
    listed.write_text(json.dumps(contents(folder), indent=2) + "\n", encoding="utf-8")
    lines = [f"{_sum(path)}  {path.name}" for path in sorted([*released(folder), listed])]
    (folder / SUMS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def faults(folder: Path, signers: Path | None = None) -> list[str]:
    """What does not agree in a folder, in sentences; with ``signers`` also the signature."""
    sums = folder / SUMS
    if not sums.is_file():
        return [f"{folder} has no {SUMS}"]
    found = []
    listed: dict[str, str] = {}
    for line in sums.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        if "/" in name or not re.fullmatch("[0-9a-f]{64}", digest):
            found.append(f"{SUMS} has a line that is no sum of a file here: {line[:80]!r}")
            continue
        listed[name] = digest
    for name, digest in listed.items():
        if not (folder / name).is_file():
            found.append(f"{name} is missing")
        elif _sum(folder / name) != digest:
            found.append(f"{name} is not the file that was released: its sum differs")
    there = {p.name for p in folder.iterdir()} - {SUMS, f"{SUMS}.sig"}
    found += [f"{name} is not in {SUMS}" for name in sorted(there - listed.keys())]
    for path in folder.glob("*.cdx.json"):
        components = json.loads(path.read_text(encoding="utf-8"))["components"]
        hashes = {c["name"]: c["hashes"][0]["content"] for c in components if c["type"] == "file"}
        if hashes != {name: digest for name, digest in listed.items() if name != path.name}:
            found.append(f"{path.name} lists other files than {SUMS}")
    if signers is not None:
        found += _unsigned(sums, signers)
    return found


def _unsigned(sums: Path, signers: Path) -> list[str]:
    signature = sums.with_name(f"{SUMS}.sig")
    if not signature.is_file():
        return [f"there is no {signature.name}"]
    who = subprocess.run(
        ["ssh-keygen", "-Y", "find-principals", "-s", signature, "-f", signers],
        capture_output=True,
        text=True,
        check=False,
    )
    if who.returncode:
        return [f"{signature.name} was made with a key that {signers} does not name"]
    command = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        signers,
        "-I",
        who.stdout.split("\n")[0],
        "-n",
        SPACE,
        "-s",
        signature,
    ]
    done = subprocess.run(command, input=sums.read_bytes(), capture_output=True, check=False)
    return [] if done.returncode == 0 else [f"{signature.name} is no signature of this {SUMS}"]


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


def main(words: list[str]) -> int:
    """The exit code: 1 where something does not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--signers", type=Path, help="allowed signers, as ssh-keygen has them")
    given = parser.parse_args(words)
    if given.what == "write":
        write(given.folder)
        return 0
    told = faults(given.folder, given.signers)
    for sentence in told:
        print(sentence, file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
