"""Classes of pods, and what is known of how long those of each run."""

from __future__ import annotations

from collections.abc import Mapping

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched_k8s.learning.pod_classes import run_class_of
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.entries import PodEntry, PodTemplate
from flowsched_k8s.pods.run_times import forecast_run_s


class LearntClasses:
    """Gives pods their class, and forecasts of it what was learnt."""

    def __init__(self, mode: str) -> None:
        """Nothing is learnt yet. ``mode``: whether anything is to be, as the configuration has it."""
        self._mode = mode
        self.learnt: LearntRunTimes = NOTHING_LEARNT
        """What completions taught."""
        self._run_s: Mapping[str, float] = {}
        """By class, seconds that its pods without a profile are forecast to run before factors."""

    def class_of(self, pod: Pod, needs: Mapping[str, int]) -> str:
        """The class of a pod; empty where nothing is learnt."""
        return "" if self._mode == "off" else run_class_of(pod, needs)

    def differs(self, pod: Pod, like: PodTemplate) -> bool:
        """Whether a pod that differs from a template in nothing but its name is of another class for that."""
        return not pod.metadata.owner_references and like.run_class != self.class_of(pod, like.needs) != ""

    def give(self, entry: PodEntry, run_class: str) -> None:
        """A pod of ours is of a class."""
        if entry.ours:
            entry.run_class = run_class
            entry.priced_class = run_class if self._mode == "on" else ""
            entry.learnt_s = self._run_s.get(entry.priced_class)

    def put(self, learnt: LearntRunTimes, run_times_s: Mapping[str, float]) -> set[str]:
        """What completions taught, and by class what they taught of pods without a profile: seconds that the factors of the
        class are relative to. Classes whose forecasts are others by that.
        """
        self.learnt = learnt
        before, self._run_s = self._run_s, run_times_s
        if self._mode != "on":
            return set()
        return {of for of in {*before, *run_times_s} if before.get(of) != run_times_s.get(of)}

    def factor(self, entry: PodEntry, machine_type: str) -> float:
        """How many times its profile's forecast a pod is expected to run on a machine of a type."""
        if entry.intent.profile is None and forecast_run_s(entry) is None:
            return 1.0
        learnt = self.learnt.of(entry.priced_class, machine_type)
        return 1.0 if learnt is None else learnt.factor
