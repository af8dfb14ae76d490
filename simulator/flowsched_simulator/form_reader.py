"""From a document to what it describes: its form, the profiles that it names, and all mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from flowsched.cluster.cluster_form import read_profiles
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Document, Problems
from flowsched_models.form import Checked, Form, check

F = TypeVar("F", bound=Form)
Built = TypeVar("Built")


def read_form(
    document: Document,
    problems: Problems,
    form_type: type[F],
    placeholders: Mapping[str, Any],
    profiles_of: Callable[[F], Sequence[str]],
    build: Callable[[Checked[F], F, Catalogue], Built],
) -> Built:
    """What ``build`` makes of a form and its catalogue. Raises :class:`flowsched_models.document.InputError` for all that
    was found, in the form, in the profiles, and by ``build``, which adds to ``problems``.
    """
    checked = check(document, form_type, placeholders=placeholders)
    form = checked.value
    catalogue = read_profiles(problems, document, profiles_of(form)) if form is not None else None
    problems.extend(checked.problems)
    built = None
    if form is not None and catalogue is not None and "profiles" not in checked.broken:
        built = build(checked, form, catalogue)
    problems.raise_any()
    assert built is not None, "a document without problems was read"
    return built
