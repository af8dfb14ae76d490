"""What completions of pods teach of how long others of their class run.

Two watches tell of an end: that of pods, which leaves out those that have succeeded, shows the pod gone as it was before,
and that of finished pods shows when its containers began and ended. Either may be first. How far the models believed the
pod to be for its neighbours, machine and cores is looked at with the first of the two.

Only a replica that leads learns. Others keep the runs that they see until they lead and have read what was learnt before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.occupied_machines import Course
from flowsched_k8s.cache import Cache
from flowsched_k8s.learning.finished_runs import FinishedRun, LeftOut, SeenPod, finished_run
from flowsched_k8s.learning.pod_classes import family_of
from flowsched_k8s.learning.saved_runs import Saved, SavedRuns
from flowsched_k8s.objects import FinishedPod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.run_times import rounded
from flowsched_models.runtime import HostFactory

LEARNT = "learnt"
"""Beside the words of :class:`LeftOut`: what came of an end."""
PROFILE, CLASS = "profile", "class"
"""What a run time is compared with: its profile or what was declared, or what its class had taught before it ended."""
MOST_ROWS = 2_000
"""Classes and machine types; beyond that those that were seen longest ago are forgotten."""
MOST_KEPT = 20_000
"""Runs that a replica which does not lead remembers, those that ended last."""
MOST_GONE = 4_096
"""Pods that are gone, and may turn out to have finished."""
SETTLED_S = 60.0
"""Ends are told in no order; nothing that ended so long before another one is told after it."""
_DIGEST_BYTES = 6


CourseOf = Callable[[PodEntry, float], Course | None]
"""That of a pod at a time; None where nothing is estimated of it."""


class _Gone(NamedTuple):
    """A pod that the watch of pods does not show any more."""

    seen: SeenPod
    course: Course | None


class _Measured(NamedTuple):
    """A run, and what it is compared with."""

    run: FinishedRun
    machine_type: str
    alone_s: float
    """Seconds that the same would have taken alone."""
    forecast_s: float | None
    """Seconds that it was forecast to take alone; None for a pod without a profile or a declared run time."""


@dataclass
class LearningTallies:
    """What came of ends since this was last looked at."""

    ends: Counter[str] = field(default_factory=Counter)
    errors: list[tuple[str, float]] = field(default_factory=list)
    """(what it is compared with, run time over that or that over the run time, whichever is more, less 1)."""


class Learner:
    """See the module. Methods that are given a time are told what the watches tell."""

    def __init__(self, cache: Cache, course_of: CourseOf, applied: bool) -> None:
        """Nothing is learnt. ``applied``: whether forecasts use it."""
        self._cache = cache
        self._course_of = course_of
        self._applied = applied
        self.leads = False
        """Whether what was learnt before has been read."""
        self.version = 0
        """Another one after everything that changes what is to be saved."""
        self.tallies = LearningTallies()
        self._rows: dict[tuple[str, str], ClassRuns] = {}
        self._base_s: dict[str, float] = {}
        self._seen_s: dict[str, float] = {}
        """When a pod of each class was last seen; the class that was seen last is at the end."""
        self._families: dict[str, str] = {}
        """The class of each family that was seen last."""
        self._until_s = 0.0
        self._recent: dict[str, float] = {}
        """Digests of the uids of what ended last, with when."""
        self._counted: set[str] = set()
        """uids of finished pods that are there still and have been looked at."""
        self._kept: list[FinishedRun] = []
        self._new: list[_Measured] = []
        """Not learnt from yet."""
        self._gone: dict[str, _Gone] = {}
        self._hosts = HostFactory(cache.catalogue)
        self._tell()

    # What the watches tell

    def came(self, entry: PodEntry, now: float) -> None:
        """A pod is seen for the first time. One of a class that is new begins as its family does."""
        run_class = entry.run_class
        if self.leads and run_class and self._see(run_class, now):
            self.version += 1
            self._tell()

    def gone(self, entry: PodEntry, now: float) -> None:
        """A pod is not shown any more, by whatever it ended."""
        if not self.leads or not entry.run_class or not entry.node or entry.is_leaving:
            return  # one that is being deleted has not finished
        self._gone[entry.key.uid] = _Gone(_seen(entry), self._course(entry, now))
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def finished(self, pods: Iterable[FinishedPod], now: float) -> None:
        """Pods have ended well, or are seen again."""
        for pod in pods:
            uid = pod.metadata.uid
            if uid in self._counted or pod.spec.scheduler_name not in self._cache.configuration.scheduler_names:
                continue
            self._counted.add(uid)
            run = finished_run(pod, self._cache.catalogue, self._seen_pod(uid))
            if run is None:
                continue
            if not self.leads:
                self._kept += [run] if isinstance(run, FinishedRun) else []
            elif isinstance(run, FinishedRun):
                self._measure(run, now)
            else:
                self.tallies.ends[run] += 1
        if len(self._kept) > 2 * MOST_KEPT:
            self._kept.sort(key=lambda run: (run.ended_s, run.uid))
            del self._kept[:-MOST_KEPT]

    def learn(self, now: float) -> None:
        """Learn from what has ended since the last call: once a second, as that takes some milliseconds however many these
        are.
        """
        new, self._new = self._new, []
        if not new:
            return
        for measured in sorted(new, key=lambda m: (m.run.ended_s, m.run.uid)):
            self._add(measured, now)
            self._until_s = max(self._until_s, measured.run.ended_s)
            self._recent[_digest(measured.run.uid)] = measured.run.ended_s
        settled = self._until_s - SETTLED_S
        self._recent = {digest: ended for digest, ended in self._recent.items() if ended > settled}
        self._drop()
        self.version += 1
        self._tell()

    def removed(self, uids: Iterable[str]) -> None:
        """Finished pods are gone for good."""
        self._counted.difference_update(uids)

    # What lasts

    def lead(self, saved: Saved, now: float) -> None:
        """Learn from now on, as this replica leads, and from runs that ended after what was ``saved``."""
        self._clear()
        self.leads = True
        self._until_s, self._recent = saved.until_s, dict.fromkeys(saved.recent, saved.until_s)
        for row in sorted(saved.rows, key=lambda row: (row.seen_s, row.runs[:2])):
            run_class = row.runs.run_class
            self._rows[row.runs[:2]] = row.runs
            if row.base_s:
                self._base_s[run_class] = row.base_s
            self._seen_s[run_class] = row.seen_s
            if family := family_of(run_class):
                self._families[family] = run_class
        self._drop()
        for run_class in {entry.run_class: None for entry in self._cache.pods.values() if entry.run_class}:
            self._see(run_class, now)
        self._tell()
        kept, self._kept = self._kept, []
        for run in kept:
            if run.ended_s > saved.until_s - SETTLED_S and _digest(run.uid) not in saved.recent:
                self._measure(run, now)
        self.learn(now)

    def forget(self, now: float) -> None:
        """What was learnt was deleted: nothing that ended before counts any more."""
        self._clear()
        self._until_s = now
        self.version += 1
        self._tell()

    def saved(self) -> Saved:
        """What is to be remembered by the next leader."""
        rows = (
            SavedRuns(runs, self._base_s.get(run_class, 0.0), self._seen_s[run_class])
            for (run_class, _), runs in self._rows.items()
        )
        return Saved(tuple(rows), self._until_s, frozenset(self._recent))

    # What is asked

    @property
    def learnt(self) -> LearntRunTimes:
        """What all completions taught."""
        return self._cache.learnt

    def last_seen(self, most: int) -> list[tuple[str, str]]:
        """Classes and machine types of the classes that were seen last."""
        found: list[tuple[str, str]] = []
        types: dict[str, list[str]] = {}
        for run_class, machine_type in self._rows:
            types.setdefault(run_class, []).append(machine_type)
        for run_class in reversed(self._seen_s):
            found += [(run_class, machine_type) for machine_type in sorted(types.get(run_class, ()))]
            if len(found) >= most:
                break
        return found[:most]

    # Insides

    def _measure(self, run: FinishedRun, now: float) -> None:
        """Note a run, and how far the models believe it to be."""
        if self._hosts.catalogue is not self._cache.catalogue:
            self._hosts = HostFactory(self._cache.catalogue)
        entry, gone = self._cache.pods.get(run.uid), self._gone.pop(run.uid, None)
        node = self._cache.nodes.get(run.node)
        if node is None:
            self.tallies.ends[LeftOut.UNCLEAR] += 1
            return
        course = None
        if entry is not None:
            course = self._course(entry, now) if entry.node else None
        elif gone is not None:
            course = gone.course
        forecast_s = run.declared_s
        if run.profile is not None:
            cores = run.cores or tuple(range(node.type.vcpus))
            forecast_s = self._hosts.host(node.type.name, ()).alone_s(run.profile, run.threads, cores, run.scale)
        self._new.append(_Measured(run, node.type.name, self._alone_s(run, course), forecast_s))

    def _add(self, measured: _Measured, now: float) -> None:
        """Count a run."""
        run_class, alone_s = measured.run.run_class, measured.alone_s
        self._see(run_class, now)
        forecast_s = measured.forecast_s or self._base_s.setdefault(run_class, rounded(alone_s))
        done = alone_s / forecast_s if forecast_s > 0.0 else 0.0
        if not 0.0 < done < math.inf:
            self.tallies.ends[LeftOut.UNCLEAR] += 1
            return
        self.tallies.ends[LEARNT] += 1
        key = run_class, measured.machine_type
        known = self.learnt.shown(*key)
        if measured.forecast_s:
            self.tallies.errors.append((PROFILE, _off(done)))
        if known is not None:
            self.tallies.errors.append((CLASS, _off(done / known.factor)))
        self._rows[key] = (self._rows.get(key) or ClassRuns(*key, 0, 0, 0)).with_end(done, 0)

    def _seen_pod(self, uid: str) -> SeenPod | None:
        """A pod as it was on its node before it ended; None if it was not seen there."""
        entry, gone = self._cache.pods.get(uid), self._gone.get(uid)
        if entry is not None:
            return _seen(entry) if entry.node and entry.run_class else None
        return None if gone is None else gone.seen

    def _course(self, entry: PodEntry, now: float) -> Course | None:
        """What is estimated of a pod, where that is asked for: one without a profile is taken to have run as it did."""
        return None if entry.intent.profile is None else self._course_of(entry, now)

    def _alone_s(self, run: FinishedRun, course: Course | None) -> float:
        """Seconds that the same would have taken alone: those that it took, where its neighbours are not known, and of a pod
        without a profile, as rounds take it that nothing slows such a pod down.

        The estimate began with the binding and images were pulled meanwhile: its mean pace counts, for as long as it ran.
        """
        if run.profile is None or course is None or course.progress <= 0.0 or course.elapsed_s <= 0.0:
            return run.run_s
        resident, host = course.resident, course.host
        progress = course.progress * run.run_s / course.elapsed_s
        job = resident.profile, resident.threads, resident.cores
        return host.share_of_time(*job, progress) * host.alone_s(*job, resident.scale)

    def _see(self, run_class: str, now: float) -> bool:
        """A pod of a class is there. Whether that is new and begins as the class of its family that was seen before."""
        family, fresh = family_of(run_class), run_class not in self._seen_s
        like = self._families.get(family) if family and fresh else None
        self._seen_s.pop(run_class, None)
        self._seen_s[run_class] = now
        if family:
            self._families[family] = run_class
        return like is not None and self._inherit(run_class, like)

    def _inherit(self, run_class: str, like: str) -> bool:
        """Let a class without completions begin as another one; whether that has any. They count as one for each machine
        type, at the mean of all.
        """
        rows = [row for (known, _), row in self._rows.items() if known == like]
        for row in rows:
            mean = row.log_sum / row.runs
            one = ClassRuns.of(run_class, row.machine_type, 1, mean, mean * mean)
            self._rows.setdefault((run_class, row.machine_type), one)
        if like in self._base_s:
            self._base_s.setdefault(run_class, self._base_s[like])
        return bool(rows)

    def _drop(self) -> None:
        """Forget what was seen longest ago, where it is too much."""
        if len(self._rows) <= MOST_ROWS:
            return
        left = len(self._rows) - MOST_ROWS
        old = set()
        counts = Counter(run_class for run_class, _ in self._rows)
        for run_class in self._seen_s:
            if left <= 0:
                break
            old.add(run_class)
            left -= counts[run_class]
        self._rows = {key: row for key, row in self._rows.items() if key[0] not in old}
        for run_class in old:
            del self._seen_s[run_class]
            self._base_s.pop(run_class, None)
        self._families = {f: c for f, c in self._families.items() if c not in old}

    def _clear(self) -> None:
        self._rows.clear()
        self._base_s.clear()
        self._seen_s.clear()
        self._families.clear()
        self._recent.clear()
        self._new.clear()

    def _tell(self) -> None:
        """Let forecasts know."""
        rows = tuple(self._rows[key] for key in sorted(self._rows))
        self._cache.put_learnt(LearntRunTimes(rows, self._applied), dict(self._base_s))


def _seen(entry: PodEntry) -> SeenPod:
    return SeenPod(entry.run_class, entry.threads, entry.intent)


def _off(ratio: float) -> float:
    """By how much a forecast was off, to either side: 1 for twice or half as long."""
    return max(ratio, 1.0 / ratio) - 1.0


def _digest(uid: str) -> str:
    return blake2b(uid.encode(), digest_size=_DIGEST_BYTES).hexdigest()
