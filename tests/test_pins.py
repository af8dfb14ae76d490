"""What a release is made of is pinned by hash, agrees with constraints.txt, and is listed; a changed file is noticed."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name

from requirements_on_machine import needs

HOUSE = Path(__file__).parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HOUSE / "k8s" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PINS, CONTENTS = script("pins"), script("release_contents")


# Pins


@pytest.mark.parametrize(
    ("path", "names"), [(PINS.REQUIREMENTS, PINS.of_image()), (PINS.BUILD_REQUIREMENTS, PINS.of_build())]
)
def test_all_that_an_image_installs_is_pinned_by_hash_to_the_version_of_the_constraints(
    path: Path, names: set[str]
) -> None:
    text = path.read_text(encoding="utf-8")
    found = {canonicalize_name(name): version for name, version, _ in CONTENTS._PIN.findall(text)}
    versions = PINS.pins()
    assert found == {name: versions[name] for name in names}, "make pins writes them again"
    # Nothing but pins with hashes, each of one wheel for all machines or of one for each.
    assert CONTENTS._PIN.sub("", text).strip() == text.splitlines()[0]
    for name, _, hashes in CONTENTS._PIN.findall(text):
        assert 1 <= hashes.count("sha256:") <= len(PINS.MACHINES), name


def test_the_image_installs_nothing_but_that() -> None:
    text = PINS.DOCKERFILE.read_text(encoding="utf-8")
    installs = re.findall(r"^RUN python -m pip (.*)$", text, re.MULTILINE)
    for command in installs:
        assert "--require-hashes" in command or {"--no-deps", "--no-index"} <= set(command.split()), command
    assert sum("--require-hashes" in command for command in installs) == 2


def test_the_base_is_named_by_digest() -> None:
    lines = [line for line in PINS.DOCKERFILE.read_text(encoding="utf-8").splitlines() if line.startswith("FROM ")]
    digests = {found[3] for line in lines if (found := PINS.FROM.match(line)) is not None}
    assert len(lines) == 2 and len(digests) == 1 and None not in digests


def test_actions_are_named_by_commit_with_their_tag() -> None:
    used = [match for path in PINS.WORKFLOWS.glob("*") for match in PINS.USES.findall(path.read_text(encoding="utf-8"))]
    assert used
    for action, reference, tag in used:
        assert re.fullmatch("[0-9a-f]{40}", reference) and re.fullmatch(r"v\d+\.\d+\.\d+", tag), action


# Contents


@pytest.fixture
def release(tmp_path: Path) -> Path:
    for name in ("flowsched-0.1.0-py3-none-any.whl", "flowsched-0.1.0.tar.gz"):
        (tmp_path / name).write_text(name)
    CONTENTS.write(tmp_path)
    return tmp_path


def test_the_list_names_every_file_and_package_and_the_base(release: Path) -> None:
    (path,) = release.glob("*.cdx.json")
    listed = json.loads(path.read_text())
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    kinds = {kind: [c for c in listed["components"] if c["type"] == kind] for kind in ("file", "container", "library")}
    assert {c["name"] for c in kinds["file"]} == {p.name for p in CONTENTS.released(release)}
    assert {c["name"] for c in kinds["library"]} == PINS.of_image()
    assert len(kinds["container"]) == 1
    assert all(re.fullmatch("[0-9a-f]{64}", h["content"]) for c in listed["components"] for h in c["hashes"])
    references = [c["bom-ref"] for c in listed["components"]]
    assert len(set(references)) == len(references)
    assert listed["dependencies"][0]["dependsOn"] == references
    before = path.read_bytes()
    CONTENTS.write(release)
    assert path.read_bytes() == before
    assert CONTENTS.faults(release) == []


def test_what_was_changed_added_or_taken_away_is_told(release: Path) -> None:
    wheel, archive = sorted(CONTENTS.released(release))
    wheel.write_text("another")
    archive.unlink()
    (release / "more.whl").write_text("")
    (release / "SHA256SUMS").open("a").write("x  ../../etc/passwd\n")
    assert CONTENTS.faults(release) == [
        "SHA256SUMS has a line that is no sum of a file here: 'x  ../../etc/passwd'",
        f"{wheel.name} is not the file that was released: its sum differs",
        f"{archive.name} is missing",
        "more.whl is not in SHA256SUMS",
    ]
    assert CONTENTS.main(["check", str(release)]) == 1
    assert CONTENTS.faults(release.parent / "nothing")[0].endswith("has no SHA256SUMS")


def test_only_a_signature_of_a_named_key_over_these_sums_counts(
    release: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    needs("ssh-keygen", "to sign")
    keys = tmp_path_factory.mktemp("keys")

    def sign(key: str, space: str = CONTENTS.SPACE) -> None:
        (release / "SHA256SUMS.sig").unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-Y", "sign", "-n", space, "-f", keys / key, release / "SHA256SUMS"]
        subprocess.run(command, check=True, capture_output=True)

    for key in ("ours", "theirs"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", keys / key], check=True)
    signers = keys / "signers"
    signers.write_text(f"ours {(keys / 'ours.pub').read_text()}")
    assert CONTENTS.faults(release, signers) == ["there is no SHA256SUMS.sig"]
    sign("ours")
    assert CONTENTS.faults(release, signers) == []
    assert CONTENTS.main(["check", str(release), "--signers", str(signers)]) == 0
    sign("theirs")
    assert "a key that" in CONTENTS.faults(release, signers)[0]
    sign("ours", "another-space")
    assert "is no signature of this" in CONTENTS.faults(release, signers)[0]
    sign("ours")
    other = shutil.copytree(release, keys / "other")
    (other / "flowsched-0.1.0.tar.gz").write_text("changed")
    CONTENTS.write(other)
    assert CONTENTS.faults(other) == []
    assert CONTENTS.faults(other, signers) == ["SHA256SUMS.sig is no signature of this SHA256SUMS"]
