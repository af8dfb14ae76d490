"""Verdicts, and the table of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import yaml

from conformance.runner import Answer, Question, as_expected, questions_of
from conformance.scenario import Scenario
from conformance.upstream import PLUGINS, Case

KNOWN = Path(__file__).parent / "known_failures.yaml"
UNSUPPORTED = "not supported by flowsched"
"""In every message about a field that flowsched does not know."""


class Verdict(Enum):
    """How a scheduler did on a case."""

    PASS = "pass"
    REFUSED = "refused"
    """It leaves the pod pending and says which field it does not support."""
    FAIL = "fail"
    """It leaves the pod pending though it fits."""
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
    detail: str
    """Why a verdict is not ``pass``: what was asked, and what came of it."""


def judge(scenario: Scenario, kube: Sequence[Answer], own: Sequence[Answer]) -> Result:
    """The verdicts. Where kube-scheduler does otherwise than the table says, flowsched is measured against it."""
    asked = questions_of(scenario)
    applies = all(as_expected(scenario, q, a) for q, a in zip(asked, kube, strict=True))
    details = [] if applies else [f"kube-scheduler: {_told(q, a)}" for q, a in zip(asked, kube, strict=True)]
    worst = Verdict.PASS
    for question, control, answer in zip(asked, kube, own, strict=True):
        verdict = _verdict(scenario, question, control, answer, applies)
        if verdict is not Verdict.PASS:
            details.append(f"flowsched: {_told(question, answer)}")
        worst = max(worst, verdict, key=SEVERITY.index)
    control_verdict = Verdict.PASS if applies else Verdict.NOT_APPLICABLE
    return Result(scenario.case, control_verdict, worst, "; ".join(details))


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
    found = f"bound to {answer.node}" if answer.bound else f"pending: {answer.message or 'without a word'}"
    evicted = f", evicted {', '.join(sorted(answer.victims))}" if answer.victims else ""
    return f"{expected}; {found}{evicted}"


def known_failures() -> dict[str, str]:
    """Cases that fail, each with its reason."""
    return dict(yaml.safe_load(KNOWN.read_text()) or {})


def problems(results: Iterable[Result], known: Mapping[str, str]) -> list[str]:
    """What makes the run fail: wrong bindings, failures that are not listed, and listed ones that do not fail."""
    found = []
    for result in results:
        name = result.case.id
        if result.flowsched is Verdict.WRONG:
            found.append(f"wrong: {name}: {result.detail}")
        elif result.flowsched is Verdict.FAIL and name not in known:
            found.append(f"fails and is not listed: {name}: {result.detail}")
        elif result.flowsched is not Verdict.FAIL and name in known:
            found.append(f"is listed as failing and does not fail: {name}")
    return found


def table(found: Iterable[Case], results: Sequence[Result]) -> str:
    """By plugin, in Markdown: how many cases there are, how many ran, and what came of them."""
    heads = ["Plugin", "Cases", "Run"]
    heads += [f"kube-scheduler: {v.value}" for v in (Verdict.PASS, Verdict.NOT_APPLICABLE)]
    heads += [f"flowsched: {v.value}" for v in SEVERITY]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    cases = Counter(case.plugin for case in found)
    sums = [0] * (len(heads) - 1)
    for plugin in PLUGINS:
        own = [r for r in results if r.case.plugin == plugin]
        row = [cases[plugin], len(own)]
        row += [sum(r.kube_scheduler is v for r in own) for v in (Verdict.PASS, Verdict.NOT_APPLICABLE)]
        row += [sum(r.flowsched is v for r in own) for v in SEVERITY]
        sums = [a + b for a, b in zip(sums, row, strict=True)]
        lines.append(f"| {plugin} | " + " | ".join(map(str, row)) + " |")
    lines.append("| All | " + " | ".join(map(str, sums)) + " |")
    return "\n".join(lines)


def skipped_table(skipped: Iterable[tuple[Case, str]]) -> str:
    """How many cases were left out, by reason."""
    counts = Counter(reason.split(": ")[0] for _, reason in skipped)
    lines = [f"| {reason} | {count} |" for reason, count in sorted(counts.items(), key=lambda e: (-e[1], e[0]))]
    return "\n".join(["| Left out because | Cases |", "|---|---:|", *lines])
