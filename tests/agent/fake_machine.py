"""A machine that is made up: trees of /proc and cgroups in a folder, with the kernel's answers where they matter."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flowsched_agent.controls.core_list import cores_of
from flowsched_agent.system import Attributes, System

V1_FILES = {
    "cpu": {
        "cpu.shares": "1024",
        "cpu.cfs_quota_us": "-1",
        "cpu.cfs_period_us": "100000",
        "cpu.idle": "0",
        "cpu.rt_runtime_us": "0",
    },
    "cpuacct": {"cpuacct.usage": "0"},
    "cpuset": {"cpuset.cpus": "", "cpuset.effective_cpus": "", "cpuset.mems": ""},
    "freezer": {"freezer.state": "THAWED"},
}
V2_CORE = {
    "cgroup.procs": "",
    "cgroup.controllers": "",
    "cgroup.subtree_control": "",
    "cgroup.freeze": "0",
    "cgroup.events": "populated 0\nfrozen 0\n",
    "cpu.stat": "usage_usec 0\nuser_usec 0\n",
}
V2_FILES = {
    "cpu": {"cpu.weight": "100", "cpu.max": "max 100000", "cpu.idle": "0"},
    "cpuset": {"cpuset.cpus": "", "cpuset.cpus.effective": ""},
}
OWN_PID = 50


class FakeMachine(System):
    """Says what a machine with these trees would; ``refusals`` by call and a part of its argument."""

    def __init__(self, folder: Path, kind: str, cores: str = "0-3", v2_given: str = "cpu cpuset") -> None:
        super().__init__(folder / "proc", folder / "cgroup")
        self.kind_made = kind
        self.cores = cores_of(cores)
        self.refusals: dict[tuple[str, str], int] = {}
        self.slow_freezer = False
        self.affinities: dict[int, tuple[int, ...]] = {}
        self.classes: dict[int, Attributes] = {}
        self.cpuset_of: dict[int, tuple[int, ...]] = {}
        """Cores that a thread may have at all; the others are dropped, as the kernel does."""
        self.signals: list[tuple[int, int]] = []
        self.calls: list[tuple[str, str]] = []
        self.clock_s = 0.0
        self.release = "6.18.0"
        self._inodes: dict[Path, int] = {}
        self._next_inode = 1000
        self._put(
            self.proc / "stat", "cpu  0 0 0 0\n" + "".join(f"cpu{core} 10 0 5 100 7 1 1 2 3 0\n" for core in self.cores)
        )
        self._put(self.proc / "sys/kernel/random/boot_id", "boot-one\n")
        self._put(self.proc / "sys/kernel/sched_rt_runtime_us", "950000\n")
        self._put(self.proc / "sys/kernel/sched_rt_period_us", "1000000\n")
        self._put(self.proc / "sys/kernel/sched_autogroup_enabled", "0\n")
        self.cgroup.mkdir()
        if kind in ("v1", "hybrid"):
            (self.cgroup / "cpu,cpuacct").mkdir()
            for tree in ("cpu", "cpuacct"):
                (self.cgroup / tree).symlink_to("cpu,cpuacct")
            for tree in ("cpu,cpuacct", "cpuset", "freezer"):
                self._fill(self.cgroup / tree)
            self._put(self.cgroup / "cpuset/cpuset.cpus", cores)
            self._put(self.cgroup / "cpuset/cpuset.effective_cpus", cores)
            (self.cgroup / "freezer/freezer.state").unlink()
        if kind == "hybrid":
            self._fill(self.cgroup / "unified")
            for file in ("cgroup.freeze", "cgroup.events"):
                (self.cgroup / "unified" / file).unlink()
        if kind == "v2":
            self._fill(self.cgroup)
            self._put(self.cgroup / "cgroup.controllers", "cpuset cpu io memory\n")
            self._put(self.cgroup / "cgroup.subtree_control", v2_given)
            self._put(self.cgroup / "cpuset.cpus.effective", cores)
            for file in ("cgroup.freeze", "cgroup.events"):
                (self.cgroup / file).unlink()
        self.spawn(OWN_PID)

    # Making things up

    def _put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _tree_of(self, folder: Path) -> str:
        if self.kind_made == "v2":
            return ""
        top = folder.relative_to(self.cgroup).parts[0]
        return "" if top == "unified" else top

    def _root_of(self, folder: Path) -> Path:
        return self.cgroup if self.kind_made == "v2" else self.cgroup / folder.relative_to(self.cgroup).parts[0]

    def _fill(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tree = self._tree_of(folder)
        if tree:
            files = {"tasks": "", "cgroup.procs": ""}
            for controller in tree.split(","):
                files |= V1_FILES[controller] | ({} if controller != "cpu" else V1_FILES["cpuacct"])
        else:
            files = dict(V2_CORE)
            above = folder.parent / "cgroup.subtree_control"
            given = above.read_text().split() if folder != self._root_of(folder) and above.exists() else []
            for controller in given:
                files |= V2_FILES.get(controller, {})
            files["cgroup.controllers"] = " ".join(given)
            if "cpuset" in given:
                files["cpuset.cpus.effective"] = (folder.parent / "cpuset.cpus.effective").read_text()
        for name, text in files.items():
            self._put(folder / name, text)

    def group(self, tree: str, path: str) -> Path:
        """A group with all that is above it."""
        root = self.cgroup if self.kind_made == "v2" else self.cgroup / (tree or "unified")
        folder = root.resolve()
        for part in path.strip("/").split("/"):
            folder = folder / part
            if not folder.exists():
                self._fill(folder)
                if (folder / "cpuset.effective_cpus").exists():
                    for file in ("cpuset.cpus", "cpuset.effective_cpus"):
                        shutil.copy(folder.parent / "cpuset.cpus", folder / file)
                if self._tree_of(folder) == "" and (folder.parent / "cgroup.subtree_control").read_text():
                    shutil.copy(folder.parent / "cgroup.subtree_control", folder / "cgroup.subtree_control")
        return root / path.strip("/")

    def spawn(
        self,
        pid: int,
        tids: tuple[int, ...] = (),
        *,
        name: str = "job",
        parent: int = 1,
        group: int | None = None,
        session: int | None = None,
        start: int | None = None,
        at: Mapping[str, str] | None = None,
    ) -> None:
        """A process with its threads, in groups by tree."""
        folder = self.proc / str(pid)
        start = pid * 10 if start is None else start
        numbers = (parent, group or pid, session or pid)
        self._put(folder / "stat", self._stat(pid, name, "S", numbers, start))
        for tid in (pid, *tids):
            self._put(folder / "task" / str(tid) / "stat", self._stat(tid, name, "S", numbers, start))
            self._put(folder / "task" / str(tid) / "schedstat", f"{tid * 1000} 0 1\n")
            self.affinities[tid] = self.cores
            self.classes[tid] = Attributes()
        self._put(folder / "autogroup", f"/autogroup-{pid} nice 0\n")
        (folder / "fd").mkdir(exist_ok=True)
        self._put(folder / "cgroup", "")
        for tree in self.trees_made():
            path = (at or {}).get(tree, "/")
            self._join(pid, self._folder(tree, path))

    def trees_made(self) -> list[str]:
        """Names of the trees that there are."""
        v1 = ["cpu,cpuacct", "cpuset", "freezer"] if self.kind_made in ("v1", "hybrid") else []
        return v1 + ([""] if self.kind_made in ("hybrid", "v2") else [])

    def _folder(self, tree: str, path: str) -> Path:
        root = self.cgroup if self.kind_made == "v2" else self.cgroup / (tree or "unified")
        return root / path.strip("/")

    @staticmethod
    def _stat(pid: int, name: str, state: str, numbers: tuple[int, int, int], start: int) -> str:
        parent, group, session = numbers
        return f"{pid} ({name}) {state} {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0\n"

    def _join(self, pid: int, folder: Path) -> None:
        folder = folder.resolve()
        root = self._root_of(folder)
        for procs in root.rglob("cgroup.procs"):
            there = procs.read_text().split()
            if str(pid) in there:
                procs.write_text("".join(f"{one}\n" for one in there if one != str(pid)))
        with (folder / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")
        tree = self._tree_of(folder)
        path = "/" + str(folder.relative_to(root)) if folder != root else "/"
        file_of = self.proc / str(pid) / "cgroup"
        lines = [line for line in file_of.read_text().splitlines() if line.split(":")[1] != tree]
        lines.append(f"{0 if not tree else 1 + self.trees_made().index(tree)}:{tree}:{path}")
        file_of.write_text("\n".join(lines) + "\n")

    def state(self, pid: int, state: str) -> None:
        """Give a process and its threads a state letter."""
        for path in (self.proc / str(pid) / "stat", *(self.proc / str(pid) / "task").glob("*/stat")):
            before, _, after = path.read_text().rpartition(") ")
            path.write_text(f"{before}) {state}{after[1:]}")

    def end(self, pid: int) -> None:
        """The process is gone."""
        for tid in (int(path.name) for path in (self.proc / str(pid) / "task").iterdir()):
            del self.affinities[tid], self.classes[tid]
        shutil.rmtree(self.proc / str(pid))
        for procs in self.cgroup.rglob("cgroup.procs"):
            procs.write_text("".join(f"{one}\n" for one in procs.read_text().split() if one != str(pid)))

    def end_thread(self, pid: int, tid: int) -> None:
        shutil.rmtree(self.proc / str(pid) / "task" / str(tid))
        del self.affinities[tid]

    def snapshot(self) -> dict[str, str]:
        """All files of the cgroup trees and what is in them."""
        return {
            str(path.relative_to(self.cgroup)): "\n".join(sorted(path.read_text().split("\n")))
            for path in sorted(self.cgroup.rglob("*"))
            if path.is_file()
        }

    # The kernel's answers

    def _ask(self, call: str, about: object) -> None:
        self.calls.append((call, str(about)))
        for (refused, part), number in self.refusals.items():
            if refused == call and part in str(about):
                raise OSError(number, os.strerror(number))

    def read(self, path: Path) -> str:
        self._ask("read", path)
        return super().read(path)

    def write(self, path: Path, text: str) -> None:
        self._ask("write", f"{path}={text}")
        folder, text = path.parent, text.strip()
        if not path.exists():
            raise OSError(errno.ENOENT, "no such file")
        if path.name == "cgroup.procs":
            if not (self.proc / text).exists():
                raise OSError(errno.ESRCH, "no such process")
            self._join(int(text), folder)
            return
        if path.name == "cgroup.subtree_control":
            given = path.read_text().split()
            path.write_text(" ".join([*given, text.removeprefix("+")]))
            for below in self.folders(folder):
                for name, usual in V2_FILES[text.removeprefix("+")].items():
                    self._put(folder / below / name, usual)
                self._put(folder / below / "cgroup.controllers", text.removeprefix("+"))
            return
        if path.name in ("cpu.shares", "cpu.weight") and (folder / "cpu.idle").read_text().strip() == "1":
            raise OSError(errno.EINVAL, "idle")
        if path.name == "cpuset.cpus" and not text and path.read_text().strip() and self._populated(folder):
            raise OSError(errno.ENOSPC, "processes are in it")
        if path.name == "cpuset.cpus" and self._tree_of(folder) == "cpuset":
            wanted = set(cores_of(text))
            if not wanted <= set(cores_of((folder.parent / "cpuset.cpus").read_text())):
                raise OSError(errno.EACCES, "not in the parent")
            for child in folder.glob("*/cpuset.cpus"):
                if not set(cores_of(child.read_text())) <= wanted:
                    raise OSError(errno.EBUSY, "a child has it")
            (folder / "cpuset.effective_cpus").write_text(text)
        if path.name == "freezer.state" and self.slow_freezer and text == "FROZEN":
            text = "FREEZING"
        if path.name == "cgroup.freeze" and not (self.slow_freezer and text == "1"):
            (folder / "cgroup.events").write_text(f"populated 0\nfrozen {text}\n")
        if path.name == "cpu.idle" and text == "0" and path.read_text().strip() == "1":
            for file, usual in (("cpu.shares", "1024"), ("cpu.weight", "100")):
                if (folder / file).exists():
                    (folder / file).write_text(usual)
        path.write_text(text)

    @staticmethod
    def _populated(folder: Path) -> bool:
        return any(procs.read_text().split() for procs in folder.rglob("cgroup.procs"))

    def inode(self, path: Path) -> int:
        path.stat()
        return self._inodes.setdefault(path.resolve(), self._new_inode())

    def _new_inode(self) -> int:
        self._next_inode += 1
        return self._next_inode

    def make_folder(self, path: Path) -> None:
        self._ask("make_folder", path)
        path.mkdir()
        self._fill(path.resolve())
        self._inodes[path.resolve()] = self._new_inode()

    def remove_folder(self, path: Path) -> None:
        self._ask("remove_folder", path)
        path.stat()
        if any(entry.is_dir() for entry in path.iterdir()) or (path / "cgroup.procs").read_text().split():
            raise OSError(errno.EBUSY, "in use")
        self._inodes.pop(path.resolve(), None)
        shutil.rmtree(path)

    def _there(self, tid: int) -> None:
        if tid not in self.affinities:
            raise OSError(errno.ESRCH, "no such process")

    def affinity(self, tid: int) -> tuple[int, ...]:
        if tid == 0:
            return self.cores
        self._there(tid)
        return self.affinities[tid]

    def set_affinity(self, tid: int, cores: tuple[int, ...]) -> None:
        self._ask("set_affinity", tid)
        self._there(tid)
        left = tuple(sorted(set(cores) & set(self.cpuset_of.get(tid, self.cores))))
        if not left:
            raise OSError(errno.EINVAL, "no core left")
        self.affinities[tid] = left

    def attributes(self, tid: int) -> Attributes:
        self._there(tid)
        return self.classes[tid]

    def set_attributes(self, tid: int, wanted: Attributes) -> None:
        self._ask("set_attributes", f"{tid} {wanted.policy.name}")
        self._there(tid)
        self.classes[tid] = replace(wanted)

    def own_pid(self) -> int:
        return OWN_PID

    def hold(self, pid: int) -> int | None:
        return None

    def signal(self, pid: int, number: int) -> None:
        self._ask("signal", f"{pid} {signal.Signals(number).name}")
        if not (self.proc / str(pid)).exists():
            raise OSError(errno.ESRCH, "no such process")
        self.signals.append((pid, number))
        self.state(pid, "T" if number == signal.SIGSTOP else "S")

    def now_s(self) -> float:
        return self.clock_s

    def sleep(self, seconds: float) -> None:
        self.clock_s += seconds

    def kernel(self) -> str:
        return self.release

    @contextmanager
    def subject(self) -> Iterator[int]:
        """What :func:`detect` tries things on."""
        self.spawn(60, name="subject")
        yield 60
        self.end(60)
