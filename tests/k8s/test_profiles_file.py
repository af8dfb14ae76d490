from __future__ import annotations

import os
from pathlib import Path

import pytest

import flowsched_k8s.configuration.profiles_file
from flowsched_k8s.configuration.profiles_file import ProfilesFile
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError
from flowsched_models.profiles import load_catalogue

BUNDLED = load_catalogue()


def profiles(name: str = "mine", work: float = 10.0) -> str:
    return f"""\
apiVersion: flowsched/v1
kind: Profiles
jobs:
  {name}:
    source: measured in a test
    work_s: {work}
    serial_fraction: 0.1
    phase_order: mixed
    smt_gain: 0.3
    sensitivity: 0.2
    pressure: 0.01
    memory: 100Mi
"""


class Mount:
    """A folder that changes as a mounted ConfigMap does: files behind one link that is turned."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._version = 0

    def turn(self, **files: str) -> None:
        self._version += 1
        version = self.folder / f"..version_{self._version}"
        version.mkdir()
        for name, text in files.items():
            (version / f"{name}.yaml").write_text(text, encoding="utf-8")
        draft = self.folder / "..data_tmp"
        draft.symlink_to(version.name)
        draft.rename(self.folder / "..data")
        for link in self.folder.glob("[!.]*"):
            if not link.exists():
                link.unlink()
        for name in files:
            link = self.folder / f"{name}.yaml"
            if not link.is_symlink():
                link.symlink_to(os.path.join("..data", f"{name}.yaml"))  # noqa: PTH118


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path / "profiles")


def catalogue(found: Catalogue | InputError | None) -> Catalogue:
    assert isinstance(found, Catalogue), found
    return found


def refusal(found: Catalogue | InputError | None) -> str:
    assert isinstance(found, InputError), found
    return str(found)


def test_a_change_is_seen_once(mount: Mount) -> None:
    mount.turn(a=profiles("mine", 10))
    file = ProfilesFile(mount.folder)
    assert catalogue(file.poll()).jobs["mine"].work_s == 10
    assert file.poll() is None
    mount.turn(a=profiles("mine", 20))
    assert catalogue(file.poll()).jobs["mine"].work_s == 20
    assert file.poll() is None


def test_bundled_profiles_stay_known(mount: Mount) -> None:
    mount.turn(a=profiles("one"), b=profiles("two"))
    jobs = catalogue(ProfilesFile(mount.folder).poll()).jobs
    assert jobs.keys() == BUNDLED.jobs.keys() | {"one", "two"}


def test_a_single_file_does_too(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(profiles(work=1), encoding="utf-8")
    file = ProfilesFile(path)
    assert catalogue(file.poll()).jobs["mine"].work_s == 1
    path.write_text(profiles(work=2), encoding="utf-8")
    assert catalogue(file.poll()).jobs["mine"].work_s == 2


def test_the_same_content_is_no_change(mount: Mount) -> None:
    mount.turn(a=profiles())
    file = ProfilesFile(mount.folder)
    catalogue(file.poll())
    mount.turn(a=profiles())
    assert file.poll() is None


def test_a_bad_change_is_refused_once_with_all_its_mistakes(mount: Mount) -> None:
    mount.turn(a=profiles())
    file = ProfilesFile(mount.folder)
    catalogue(file.poll())
    mount.turn(a=profiles().replace("work_s: 10.0", "work_s: -1").replace("smt_gain", "smt_gian"))
    text = refusal(file.poll())
    assert "jobs.mine.work_s: must be more than 0, but is -1" in text
    assert "did you mean 'smt_gain'?" in text
    assert "a.yaml:6" in text
    assert file.poll() is None
    mount.turn(a="apiVersion: flowsched/v1\nkind: Profiles\na: [")
    assert "not valid YAML" in refusal(file.poll())


def test_a_change_back_is_told(mount: Mount) -> None:
    mount.turn(a=profiles())
    file = ProfilesFile(mount.folder)
    catalogue(file.poll())
    mount.turn(a="jobs: 1")
    refusal(file.poll())
    mount.turn(a=profiles())
    assert "mine" in catalogue(file.poll()).jobs


@pytest.mark.parametrize("text", ["jobs: [", "kind: Other", "apiVersion: flowsched/v1\nkind: Profiles\njobs: {a: {}}"])
def test_a_bad_file_at_the_start_ends_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    file = ProfilesFile(path)
    for _ in range(2):
        with pytest.raises(InputError):
            file.poll()
    path.write_text(profiles(), encoding="utf-8")
    assert "mine" in catalogue(file.poll()).jobs


def test_a_missing_file_at_the_start_is_said_and_later_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    file = ProfilesFile(path)
    with pytest.raises(InputError, match=r"p\.yaml: there is no such file"):
        file.poll()
    path.write_text(profiles(), encoding="utf-8")
    catalogue(file.poll())
    path.unlink()
    assert "there is no such file" in refusal(file.poll())
    assert file.poll() is None
    path.write_text(profiles(), encoding="utf-8")
    catalogue(file.poll())


def test_a_folder_may_be_empty_from_the_start_but_not_become_so(mount: Mount) -> None:
    mount.turn()
    file = ProfilesFile(mount.folder)
    assert catalogue(file.poll()).jobs == BUNDLED.jobs
    mount.turn(a=profiles())
    catalogue(file.poll())
    mount.turn()
    assert "there are no *.yaml files here any more" in refusal(file.poll())
    assert file.poll() is None


def test_too_much_is_refused_without_being_read(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flowsched_k8s.configuration.profiles_file, "LARGEST", 1000)
    mount.turn(a=profiles())
    file = ProfilesFile(mount.folder)
    catalogue(file.poll())
    mount.turn(a=profiles() + "# " + "x" * 1000)
    assert "larger than" in refusal(file.poll())


def test_a_turn_while_reading_never_mixes(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link turns between looking at the files and reading them: the new content must be what is returned."""
    mount.turn(a=profiles(work=1), b=profiles("other", 1))
    turned: list[int] = []

    def turning(extra: list[Path]) -> Catalogue:
        if not turned:
            turned.append(1)
            mount.turn(a=profiles(work=2), b=profiles("other", 2))
        return load_catalogue(extra=extra)

    monkeypatch.setattr(flowsched_k8s.configuration.profiles_file, "load_catalogue", turning)
    file = ProfilesFile(mount.folder)
    jobs = catalogue(file.poll()).jobs
    assert (jobs["mine"].work_s, jobs["other"].work_s) == (2, 2)
    assert file.poll() is None
