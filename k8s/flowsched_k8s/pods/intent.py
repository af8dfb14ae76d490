"""What a pod says of itself in labels and annotations.

Users write these, so they are data: bounded, checked, and never a reason to fail. A value that cannot be used counts as
not given, and one sentence says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import TypeVar

from flowsched.cluster.snapshot import MILLI
from flowsched_k8s import names
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.quantity import whole
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import name_help
from flowsched_models.given_run_time import GIVEN_RUN_TIME
from flowsched_models.quantity import QuantityError, parse_duration_us, parse_milli, parse_rate

WORKLOAD_CLASSES = (names.BATCH, names.LATENCY_SENSITIVE)
LONGEST_VALUE = 256
LONGEST_LIST = 4096
"""Of a value that lists places."""
MOST_WIDTHS = 16
WIDEST_MILLI = 4096 * MILLI
SCALE_RANGE = (0.001, 100_000.0)
GOAL_RANGE_S = (0.1, 30 * 86_400.0)
P95_RANGE_US = (1.0, 60e6)
MOST_QPS = 1e9
UTILITY_RANGE = (-100.0, 1.0)
KEEPS_RUNNING = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")
"""Controllers (of a Deployment the ReplicaSet) that start a pod again when it ends."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_DURATION = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)s)?", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
LARGEST_INPUT = 1e15
_SHOWN = 60

T = TypeVar("T")


@dataclass(frozen=True)
class Slo:
    """A latency goal at a load."""

    p95_us: float
    qps: float
    names_load: bool = field(default=True, compare=False)
    """Whether the load is the goal's own; otherwise it is the one that is annotated, which changes."""


@dataclass(frozen=True)
class Intent:
    """Everything a pod says of itself; a pod that says nothing has the neutral values."""

    profile: str | None = None
    """The measured batch job that it is."""
    service: str | None = None
    """The measured latency service that it is."""
    slo: Slo | None = None
    load_qps: float | None = None
    """What the service serves now, as far as its pod knows."""
    client: str | None = None
    """Load client that the latency is meant to be seen by."""
    scale: float = 1.0
    """Work relative to the profile's."""
    goal_s: float | None = None
    """Seconds from submission to completion that are wished for."""
    widths_milli: tuple[int, ...] = ()
    """Widths it may run at, ascending."""
    min_utility: float | None = None
    """Below this utility it had rather wait, unless it is due."""
    run_s: float | None = None
    """Its run time in seconds on the node that suits it best, as its user expects it, and at most its deadline."""
    interference_class: str = ""
    """What kind of neighbour it is, in words of the cost model."""
    input_mb: float = 0.0
    """Size of its input in MB."""
    locality: tuple[tuple[str, str, float], ...] = ()
    """Where that input is: label of nodes, value, and the share of the input that nodes with that label hold."""
    problems: tuple[str, ...] = ()
    """One sentence for every value that could not be used."""

    @cached_property
    def threads(self) -> tuple[int, ...]:
        """Thread counts that its widths allow, ascending."""
        return tuple(sorted({-(-width // MILLI) for width in self.widths_milli}))


NEUTRAL = Intent()


_PREFIX = f"{names.PREFIX}/"
_WRITTEN = (names.PLACEMENT, names.THREADS, names.CORES, names.WIDTH)
_MOST_STRANGE = 4


def read_intent(pod: Pod, catalogue: Catalogue) -> Intent:
    """Read a pod's labels and annotations; an annotation wins over a label of the same name. Never raises."""
    given = _given(pod)
    unknown = _unknown(pod)
    if not given and not unknown:
        return NEUTRAL
    reader = _Reader(given)
    workload_class = reader.read(names.WORKLOAD_CLASS, _workload_class)
    profile, service = reader.read(names.PROFILE, lambda v: _profile(v, catalogue, workload_class)) or (None, None)
    load_qps = reader.read(names.LOAD, _rate)
    slo = reader.read(names.SLO, lambda v: _slo(v, load_qps))
    clients = catalogue.services[service].clients if service is not None else None
    client = reader.read(names.CLIENT, lambda v: _client(v, clients, service))
    read = Intent(
        profile=profile,
        service=service,
        slo=slo,
        load_qps=load_qps,
        client=client,
        scale=reader.read(names.SCALE, lambda v: _number(v, *SCALE_RANGE)) or 1.0,
        goal_s=reader.read(names.GOAL, lambda v: _duration(v, "a goal")),
        widths_milli=reader.read(names.WIDTHS, _widths) or (),
        min_utility=reader.read(names.MIN_UTILITY, lambda v: _number(v, *UTILITY_RANGE)),
        run_s=reader.read(names.RUN_TIME, lambda v: _run_time(v, pod)),
        interference_class=reader.read(names.INTERFERENCE_CLASS, _one_word) or "",
        input_mb=reader.read(names.INPUT, _megabytes) or 0.0,
        locality=reader.read(names.INPUT_AT, _locality, LONGEST_LIST) or (),
    )
    if slo is not None and service is None:
        reader.problems.append(
            f"{names.SLO} is looked at only with the profile of a latency service in {names.PROFILE}"
        )
    problems = *reader.problems, *unknown
    return replace(read, problems=problems) if problems else read


_KNOWN = (
    names.PROFILE,
    names.WORKLOAD_CLASS,
    names.SLO,
    names.LOAD,
    names.CLIENT,
    names.SCALE,
    names.GOAL,
    names.WIDTHS,
    names.MIN_UTILITY,
    names.RUN_TIME,
    names.INTERFERENCE_CLASS,
    names.INPUT,
    names.INPUT_AT,
)


_ELSEWHERE = (names.GROUP_TOPOLOGY, names.DISRUPTION_MODE, names.RUN_CLASS)
"""They are read where the group is, and where run times are learnt."""
_READ = (*_KNOWN, *_ELSEWHERE)


def _unknown(pod: Pod) -> list[str]:
    """A sentence for names under our prefix that are not read: they are most likely misspelt."""
    stands = (pod.metadata.labels or {}).keys() | (pod.metadata.annotations or {}).keys()
    strange = sorted([n for n in stands if n.startswith(_PREFIX) and n not in _READ and n not in _WRITTEN])
    return [
        _printable(f"there is no annotation {_shown(name)}; {name_help(name, _READ)}")
        for name in strange[:_MOST_STRANGE]
    ]


def _given(pod: Pod) -> dict[str, tuple[str, str]]:
    """(value, where it stands) by name, of those that are read."""
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    found = {}
    for name in _KNOWN:
        if name in annotations:
            found[name] = (annotations[name], "annotation")
        elif name in labels:
            found[name] = (labels[name], "label")
    return found


class _Reader:
    """Reads values one by one and remembers what was wrong with them."""

    def __init__(self, given: Mapping[str, tuple[str, str]]) -> None:
        self._given = given
        self.problems: list[str] = []

    def read(self, name: str, parse: Callable[[str], T], longest: int = LONGEST_VALUE) -> T | None:
        """The value, or None if there is none that can be used."""
        if name not in self._given:
            return None
        text, place = self._given[name]
        try:
            if len(text) > longest:
                raise QuantityError(
                    f"the value has {len(text)} characters, and {longest} are allowed", "write a shorter value"
                )
            return parse(text.strip())
        except QuantityError as error:
            message, help = error.message, error.help
        except (ValueError, ArithmeticError):
            message, help = f"{_shown(text)} cannot be read", ""
        self.problems.append(_printable(f"{place} {name}: {message}" + (f"; {help}" if help else "")))
        return None


def _profile(text: str, catalogue: Catalogue, workload_class: str | None) -> tuple[str | None, str | None]:
    """(job profile, service profile): one of them. A name that is both is what its workload class says."""
    is_job, is_service = text in catalogue.jobs, text in catalogue.services
    if text.endswith(GIVEN_RUN_TIME):
        is_job = False  # of pods without a profile, whose run time is known
    if is_job and not (is_service and workload_class == names.LATENCY_SENSITIVE):
        return text, None
    if is_service:
        return None, text
    known = (*(name for name in catalogue.jobs if not name.endswith(GIVEN_RUN_TIME)), *catalogue.services)
    raise QuantityError(f"there is no profile {_shown(text)}", name_help(text, known))


def _workload_class(text: str) -> str:
    if text not in WORKLOAD_CLASSES:
        raise QuantityError(f"{_shown(text)} is not a workload class", name_help(text, WORKLOAD_CLASSES))
    return text


def _client(text: str, clients: Iterable[str] | None, service: str | None) -> str:
    if clients is None:
        raise QuantityError(
            f"a load client ({_shown(text)}) needs a service to be the client of",
            f"name a service profile in {names.PROFILE}",
        )
    if text not in clients:
        raise QuantityError(f"service {service} was not measured with client {_shown(text)}", name_help(text, clients))
    return text


def _slo(text: str, load_qps: float | None) -> Slo:
    """``p95=1ms@30000qps``; without the load it is the one of the load annotation."""
    help = "write it as p95=1ms@30000qps or p95=800us@30Kqps"
    match = names.SLO_FORM.fullmatch(text)
    if match is None:
        raise QuantityError(f"{_shown(text)} is not a latency goal", help)
    p95_us = _p95(match[1].strip(), help)
    if match[2] is not None:
        return Slo(p95_us, _positive_rate(match[2].strip(), help))
    if not load_qps:
        raise QuantityError(f"{_shown(text)} names no load", f"{help}, or give the load in {names.LOAD}")
    return Slo(p95_us, load_qps, names_load=False)


def _p95(text: str, help: str) -> float:
    p95_us = parse_duration_us(text)
    least, most = P95_RANGE_US
    if not least <= p95_us <= most:
        raise QuantityError(f"a p95 of {_shown(text)} is not between 1us and 60s", help)
    return p95_us


def _positive_rate(text: str, help: str) -> float:
    qps = _rate(text)
    if qps <= 0.0:
        raise QuantityError(f"a load of {_shown(text)} is no load to keep a goal at", help)
    return qps


def _rate(text: str) -> float:
    """``30000``, ``30K``, ``30Kqps``."""
    qps = parse_rate(text.removesuffix("qps").rstrip())
    if qps > MOST_QPS:
        raise QuantityError(
            f"{_shown(text)} is more than {MOST_QPS:,.0f} queries per second", "write it as 30000 or 30K"
        )
    return qps


def _number(text: str, least: float, most: float) -> float:
    help = f"give a number from {least:g} to {most:g}"
    if _NUMBER.fullmatch(text) is None:
        raise QuantityError(f"{_shown(text)} is not a number", help)
    value = float(text)
    if not least <= value <= most:
        raise QuantityError(f"{_shown(text)} is out of range", help)
    return value


def _duration(text: str, what: str) -> float:
    """``90s``, ``5m``, ``1h30m``, or plain seconds."""
    help = "write it as 90s, 5m, 1h30m or as seconds, at most 720h"
    match = _DURATION.fullmatch(text)
    if match is not None and text:
        hours, minutes, rest = match.groups("0")
        seconds = float(3600 * int(hours) + 60 * int(minutes) + Decimal(rest))
    elif _NUMBER.fullmatch(text) is not None:
        seconds = float(text)
    else:
        raise QuantityError(f"{_shown(text)} is not a duration", help)
    least, most = GOAL_RANGE_S
    if not (math.isfinite(seconds) and least <= seconds <= most):
        raise QuantityError(f"{what} of {_shown(text)} is not between {least:g}s and 720h", help)
    return seconds


def _run_time(text: str, pod: Pod) -> float:
    """As a duration; at most until the deadline, at which the pod is stopped. A pod that is kept running has none."""
    run_s = _duration(text, "a run time")
    kind = next((o.kind for o in pod.metadata.owner_references or () if o.controller), "")
    if kind in KEEPS_RUNNING:
        raise QuantityError(f"a {kind} keeps its pods running, so that they have no run time", "leave it out")
    deadline_s = pod.spec.active_deadline_seconds
    return run_s if deadline_s is None or deadline_s <= 0 else min(run_s, float(deadline_s))


def _one_word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise QuantityError(f"{_shown(text)} is not a class of neighbours", "write one word, such as devil or sheep")
    return text


def _megabytes(text: str) -> float:
    """``20Gi``, ``500M``, or bytes, as Kubernetes writes amounts."""
    try:
        size = whole(text)
    except ValueError:
        raise QuantityError(f"{_shown(text)} is not a size", "write it as 20Gi or 500M") from None
    if not 0 <= size <= LARGEST_INPUT:
        raise QuantityError(f"an input of {_shown(text)} is not between 0 and 1P")
    return size / 1e6


def _locality(text: str) -> tuple[tuple[str, str, float], ...]:
    """``topology.kubernetes.io/zone=a:0.6, kubernetes.io/hostname=n1:0.25``."""
    help = "write it as LABEL=VALUE:SHARE, as in topology.kubernetes.io/zone=a:0.6; shares are from 0 to 1"
    found: dict[tuple[str, str], float] = {}
    for part in text.split(","):
        place, colon, share = part.strip().rpartition(":")
        label, equals, value = place.partition("=")
        if not (colon and equals and label.strip() and value.strip()):
            raise QuantityError(f"{_shown(part.strip())} is not a place with a share of the input", help)
        key = label.strip(), value.strip()
        if key in found:
            raise QuantityError(f"{_shown(place)} stands twice", help)
        found[key] = _number(share.strip(), 0.0, 1.0)
    return tuple((label, value, share) for (label, value), share in sorted(found.items()))


def _widths(text: str) -> tuple[int, ...]:
    """``1, 2, 4`` or ``500m,1``: CPU widths, ascending."""
    help = "write widths as 1,2,4 or 500m,1"
    parts = text.split(",")
    if len(parts) > MOST_WIDTHS:
        raise QuantityError(f"{len(parts)} widths are given, and {MOST_WIDTHS} are allowed", help)
    widths = set()
    for part in parts:
        if not part.strip():
            raise QuantityError(f"{_shown(text)} has an empty width", help)
        width = parse_milli(part.strip())
        if width > WIDEST_MILLI:
            raise QuantityError(f"a width of {_shown(part.strip())} is more than {WIDEST_MILLI // MILLI} cores", help)
        widths.add(width)
    return tuple(sorted(widths))


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[: _SHOWN - 1]}…'"


def _printable(text: str) -> str:
    """One line, whatever users wrote."""
    return "".join(c if c.isprintable() else "?" for c in text)
