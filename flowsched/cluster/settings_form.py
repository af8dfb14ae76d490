"""Settings as a user gives them: ``KEY=VALUE``, checked all together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from flowsched.cluster.settings import Settings
from flowsched_models.document import InputError, Problem, nearest
from flowsched_models.quantity import QuantityError, number_help

CHOICES: dict[str, tuple[str, ...]] = {
    f.name: f.metadata["choices"] for f in fields(Settings) if "choices" in f.metadata
}
"""What a setting that is a word may be."""
RANGES: dict[str, tuple[float, float]] = {
    f.name: f.metadata["range"] for f in fields(Settings) if "range" in f.metadata
}
"""What a number may be."""
WORDS: dict[str, str] = {f.name: f.metadata["word"] for f in fields(Settings) if "word" in f.metadata}
"""The word that may stand for a number."""
TRUE = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
"""What may be typed for yes and no."""
CHANGE_SETTINGS = (
    "preemption",
    "preemption_limit",
    "preempted_work",
    "migration_moves",
    "migration_price",
    "migration_pause_s",
    "migrated_work",
)
"""Settings about tasks that run already: not for rounds on Kubernetes, nor for plans of all that waits."""
KUBERNETES_SETTINGS = ("kept_per_core",)
"""Settings of rounds on Kubernetes alone."""
SETTING_NAMES = tuple(f.name for f in fields(Settings))


@dataclass(frozen=True)
class Readers:
    """The policies that read settings, where not every policy reads all of them."""

    policies: tuple[str, ...]
    plain: tuple[str, ...]
    """The settings that any of them reads."""
    own: tuple[str, ...] = ()
    """Names with a policy and a dot before them: not for :func:`apply_settings`, but to choose from."""
    help: str = ""
    """What else would help with a setting that no policy reads."""


def apply_settings(
    settings: Settings, assignments: Iterable[str], source: str = "--set", readers: Readers | None = None
) -> Settings:
    """Settings with ``KEY=VALUE`` assignments applied, of the same key the last; without ``readers`` all are read.

    Raises :class:`InputError` with every mistake among them, settings that no policy reads included.
    """
    known = {f.name: type(getattr(settings, f.name)) for f in fields(settings)}
    listed = tuple(known) if readers is None else (*readers.plain, *readers.own)
    changes: dict[str, object] = {}
    problems = []
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip()
        key = key if "." in key else key.replace("-", "_")
        if not equals or key not in known:
            message = f"there is no setting '{key}'" if equals else "is not of the form KEY=VALUE"
            problems.append(Problem(source, None, text, message, _help(key, value.strip(), listed)))
            continue
        try:
            changes[key] = _parse(key, value.strip(), known[key])
        except QuantityError as error:
            problems.append(Problem(source, None, key, error.message, error.help))
    for key, choices in CHOICES.items():
        if key in changes and changes[key] not in choices:
            message = f"there is no {key} '{changes[key]}'"
            problems.append(Problem(source, None, key, message, f"{', '.join(choices[:-1])} or {choices[-1]}"))
    if changes.get("fairness") == 1.0 and (useless := [key for key in ("due_age_s", "due_runs") if key in changes]):
        message = f"{' and '.join(useless)} would have no effect: all that wait are overdue at once"
        problems.append(Problem(source, None, "fairness=1", message, "set fairness below 1, or leave them out"))
    if readers is not None:
        problems += _unread(tuple(key for key in changes if key not in readers.plain), readers, source)
    if problems:
        raise InputError(problems)
    return replace(settings, **changes)  # type: ignore[arg-type]


def _unread(keys: tuple[str, ...], readers: Readers, source: str) -> list[Problem]:
    """One sentence about settings that no policy reads."""
    if not keys:
        return []
    message = f"not read by {' or '.join(readers.policies)}"
    read = ", ".join((*readers.plain, *readers.own))
    hints = ([f"what is read: {read}"] if read else []) + ([readers.help] if readers.help else [])
    return [Problem(source, None, ", ".join(keys), message, "; ".join(hints))]


def _help(key: str, value: str, listed: Sequence[str]) -> str:
    """What to give instead of a name that there is not, and everything that there is."""
    meant = " or ".join(f"'{name}={value or '...'}'" for name in _meant(key, listed))
    if not listed:
        return "there is none to choose from"
    return f"did you mean {meant}? (known: {', '.join(listed)})" if meant else f"known: {', '.join(listed)}"


def _meant(key: str, listed: Sequence[str]) -> list[str]:
    """The names that were probably meant; a policy's own may be asked for without the policy."""
    if key in listed:
        return [key]
    prefix, _, _ = key.rpartition(".")
    if prefix:
        close = nearest(key, listed)
        return [close] if close else []
    short: dict[str, list[str]] = {}
    for name in listed:
        short.setdefault(name.rpartition(".")[2], []).append(name)
    close = nearest(key, short)
    return short[close] if close else []


def _parse(key: str, text: str, kind: type) -> object:
    if kind is bool:
        if text.lower() not in TRUE:
            raise QuantityError(f"'{text}' is neither true nor false")
        return TRUE[text.lower()]
    if kind is str and key not in WORDS:
        return text
    what = "a whole number" if kind is int else "a number"
    least, most = RANGES[key]
    if key in WORDS:
        kind, what = float, f"'{WORDS[key]}' or a number"
        if text == WORDS[key]:
            return text
    try:
        number = kind(text)
    except ValueError:
        raise QuantityError(f"'{text}' is not {what}", number_help(key, text, whole=kind is int)) from None
    if not least <= number <= most:
        raise QuantityError(f"{text} is not {what} from {least:g} to {most:g}")
    return number
