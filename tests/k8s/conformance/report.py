"""Verdicts, and the table of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from conformance.runner import Answer, Question, as_expected
from conformance.scenario import Scenario
from conformance.upstream import PLUGINS, Case
from conformance.written import written_sources

KNOWN = Path(__file__).parent / "known_failures.yaml"
UNSUPPORTED = "not supported by flowsched"
"""In every message about a field that flowsched does not know."""


BINDS_TOO_MUCH = "kube-scheduler binds the pod, which the plugin alone refuses under the settings of its test"


class Verdict(Enum):
    """How a scheduler did on a case."""

    PASS = "pass"
    REFUSED = "refused"
    """It leaves the pod pending and says which field it does not support."""
    FAIL = "fail"
    """It leaves the pod pending though it fits; of a case written here, also: it does or says less than it must."""
    WRONG = "wrong"
    """It binds the pod where it must not be, or evicts other pods."""
    NOT_APPLICABLE = "not applicable"
    """Of kube-scheduler only: its other plugins, or what features are on, decide otherwise than the plugin alone."""


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    case: Case
    kube_scheduler: Verdict
    flowsched: Verdict
    detail: str = ""
    """Why a verdict is not ``pass``: what was asked, and what came of it."""
    deviation: str = ""
    """How kube-scheduler does otherwise than the table says, or why it is not asked."""
    uncontrolled: bool = False
    """Whether kube-scheduler does otherwise than a case says that was written here."""

    @property
    def binds_too_much(self) -> bool:
        """Whether kube-scheduler binds the pod although the plugin alone refuses it."""
        return self.deviation == BINDS_TOO_MUCH


def judge(scenario: Scenario, asked: Sequence[Question], kube: Sequence[Answer], own: Sequence[Answer]) -> Result:
    """The verdicts. Where kube-scheduler does otherwise than the table says, flowsched is measured against it."""
    if scenario.steps:
        return _judge_steps(scenario, kube, own)
    others = [(q, a) for q, a in zip(asked, kube, strict=True) if not as_expected(scenario, q, a)]
    applies = not others
    details = [f"kube-scheduler: {_told(q, a)}" for q, a in others]
    worst = Verdict.PASS
    for question, control, answer in zip(asked, kube, own, strict=True):
        verdict = _verdict(scenario, question, control, answer, applies)
        if verdict is not Verdict.PASS:
            details.append(f"flowsched: {_told(question, answer)}")
        worst = max(worst, verdict, key=SEVERITY.index)
    control_verdict = Verdict.PASS if applies else Verdict.NOT_APPLICABLE
    return Result(scenario.case, control_verdict, worst, "; ".join(details), _deviation(others))


def _judge_steps(scenario: Scenario, kube: Sequence[Answer], own: Sequence[Answer]) -> Result:
    """The verdicts where steps say what must be true, for both schedulers the same."""
    details = [
        f"{who}: step {number}: {answer.message}"
        for who, answers in (("kube-scheduler", kube), ("flowsched", own))
        for number, answer in enumerate(answers, start=1)
        if answer.deviations
    ]
    uncontrolled = any(answer.deviations for answer in kube)
    control = Verdict.NOT_APPLICABLE if uncontrolled or scenario.not_applicable else Verdict.PASS
    verdict = Verdict.PASS
    for answer in own:
        if answer.deviations:
            wrong = any(d.wrong for d in answer.deviations)
            kind = Verdict.WRONG if wrong else Verdict.REFUSED if UNSUPPORTED in answer.message else Verdict.FAIL
            verdict = max(verdict, kind, key=SEVERITY.index)
    return Result(scenario.case, control, verdict, "; ".join(details), scenario.not_applicable, uncontrolled)


def _deviation(others: Sequence[tuple[Question, Answer]]) -> str:
    if not others:
        return ""
    if any(answer.bound and not question.fits for question, answer in others):
        return BINDS_TOO_MUCH
    if any(answer.bound for _, answer in others):
        return "kube-scheduler binds the pod to another node, or evicts other pods"
    return "another plugin of kube-scheduler refuses a node that the plugin alone would take"


SEVERITY = (Verdict.PASS, Verdict.REFUSED, Verdict.FAIL, Verdict.WRONG)


def _verdict(scenario: Scenario, question: Question, control: Answer, answer: Answer, applies: bool) -> Verdict:
    if applies:
        good, fits = as_expected(scenario, question, answer), question.fits
    else:
        good, fits = (answer.node, answer.victims) == (control.node, control.victims), control.bound
    if good:
        return Verdict.PASS
    if answer.bound or answer.victims or not fits:
        return Verdict.WRONG
    return Verdict.REFUSED if UNSUPPORTED in answer.message else Verdict.FAIL


def _told(question: Question, answer: Answer) -> str:
    where = ", ".join(sorted(question.nodes)) or "any node"
    expected = f"must be bound to {where}" if question.fits else f"must not be bound to {where}"
    found = f"bound to {answer.node}" if answer.bound else f"pending: {answer.message or 'no message'}"
    evicted = f", evicted {', '.join(sorted(answer.victims))}" if answer.victims else ""
    return f"{expected}; {found}{evicted}"


def known_failures() -> dict[str, str]:
    """Cases that fail, each with its reason."""
    return dict(yaml.safe_load(KNOWN.read_text()) or {})


def problems(results: Iterable[Result], known: Mapping[str, str]) -> list[str]:
    """What makes the run fail: wrong bindings, failures that are not listed, and listed ones that do not fail."""
    found = []
    for result in results:
        name, title = result.case.id, result.case.title
        if result.uncontrolled:
            found.append(f"kube-scheduler does otherwise than the case says: {title}: {result.detail}")
        if result.flowsched is Verdict.WRONG:
            found.append(f"wrong: {title}: {result.detail}")
        elif result.flowsched is Verdict.FAIL and name not in known:
            found.append(f"fails and is not listed: {title}: {result.detail}")
        elif result.flowsched is not Verdict.FAIL and name in known:
            found.append(f"is listed as failing and does not fail: {title}")
    return found


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    found: list[Case]
    skipped: list[tuple[Case, str]]
    results: list[Result]
    took_s: float
    kubernetes: str
    """The version that ran."""

    def as_data(self) -> dict[str, Any]:
        """The numbers, and the cases that do not pass, as plain data without any of upstream's sentences."""
        cases = Counter(case.plugin for case in self.found)
        return {
            "kubernetes": self.kubernetes,
            "took_s": round(self.took_s),
            "plugins": {
                plugin: {"cases": cases[plugin], **self._verdicts(plugin)} for plugin in (*PLUGINS, *written_sources())
            },
            "left_out": dict(Counter(reason_kind(reason) for _, reason in self.skipped).most_common()),
            "not_applicable": dict(Counter(r.deviation for r in self.results if r.deviation).most_common()),
            "refused": self._ids(Verdict.REFUSED),
            "fail": self._ids(Verdict.FAIL),
            "wrong": self._ids(Verdict.WRONG),
        }

    def _verdicts(self, plugin: str) -> dict[str, int]:
        own = [r for r in self.results if r.case.plugin == plugin]
        control = {f"kube-scheduler: {v.value}": sum(r.kube_scheduler is v for r in own) for v in CONTROL}
        return {"run": len(own), **control, **{f"flowsched: {v.value}": _count(own, v) for v in SEVERITY}}

    def _ids(self, verdict: Verdict) -> dict[str, str]:
        return {r.case.id: r.detail for r in self.results if r.flowsched is verdict}


CONTROL = (Verdict.PASS, Verdict.NOT_APPLICABLE)


def _count(results: Iterable[Result], verdict: Verdict) -> int:
    return sum(r.flowsched is verdict for r in results)


def reason_kind(reason: str) -> str:
    """A reason without the details of one case."""
    return reason.split(": ")[0]


def table(data: Mapping[str, Any]) -> str:
    """By plugin or source, in Markdown: how many cases there are, how many ran, and what came of them."""
    rows = data["plugins"]
    columns = list(next(iter(rows.values())))
    lines = ["| plugin or source | " + " | ".join(columns) + " |", "|---" + "|---:" * len(columns) + "|"]
    lines += [f"| {plugin} | " + " | ".join(str(row[c]) for c in columns) + " |" for plugin, row in rows.items()]
    lines.append("| all | " + " | ".join(str(sum(row[c] for row in rows.values())) for c in columns) + " |")
    return "\n".join(lines)


def counts_table(head: str, counts: Mapping[str, int]) -> str:
    """Reasons and how many cases each has."""
    lines = [f"| {reason} | {count} |" for reason, count in sorted(counts.items(), key=lambda e: (-e[1], e[0]))]
    return "\n".join([f"| {head} | cases |", "|---|---:|", *lines])
