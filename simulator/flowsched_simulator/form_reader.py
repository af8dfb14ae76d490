"""From a document to what it describes: its header, its form, the profiles that it names, and all mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field

from flowsched.cluster.cluster_form import read_profiles
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Document, Problems
from flowsched_models.form import API_VERSION, Checked, Form, Name, check, check_header


class NamedForm(Form):
    """Base of files that have a name: their kind is narrowed to the one of each."""

    api_version: Literal["flowsched/v1"] = Field(alias="apiVersion")
    kind: str
    name: Name
    description: str = ""

    @property
    def about(self) -> str:
        """The description on one line."""
        return " ".join(self.description.split())


F = TypeVar("F", bound=NamedForm)
Built = TypeVar("Built")


def check_named(document: Document, kind: str, form_type: type[F], **placeholders: Any) -> Checked[F]:
    """The form of a named file; ``placeholders`` stand in for broken keys beside those of the header.

    Raises :class:`flowsched_models.document.InputError` at once where the document is of another kind.
    """
    check_header(document, kind)
    header = {"apiVersion": API_VERSION, "kind": kind, "name": "unnamed"}
    return check(document, form_type, placeholders={**header, **placeholders})


def read_form(
    document: Document,
    problems: Problems,
    kind: str,
    form_type: type[F],
    profiles_of: Callable[[F], Sequence[str]],
    build: Callable[[Checked[F], F, Catalogue], Built],
) -> Built:
    """What ``build`` makes of a form and its catalogue. Raises :class:`flowsched_models.document.InputError` for all that
    was found, in the form, in the profiles, and by ``build``, which adds to ``problems``.
    """
    checked = check_named(document, kind, form_type)
    form = checked.value
    catalogue = read_profiles(problems, document, profiles_of(form)) if form is not None else None
    problems.extend(checked.problems)
    built = None
    if form is not None and catalogue is not None and "profiles" not in checked.broken:
        built = build(checked, form, catalogue)
    problems.raise_any()
    assert built is not None, "a document without problems was read"
    return built
