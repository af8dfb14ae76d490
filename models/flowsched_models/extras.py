"""Parts of flowsched that need more than a plain install, and how they are installed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires


def install_extra(extra: str) -> str:
    """How to install an extra, as the end of a sentence. Once flowsched is published, only this changes, and the README."""
    return f"in your clone of flowsched: pip install '.[{extra}]'"


def extra_with(module: str) -> str | None:
    """The extra that brings a module; None if none does. Its package must have the same name, but for dashes."""
    wanted = module.partition(".")[0].replace("_", "-").lower()
    try:
        lines = requires("flowsched") or []
    except PackageNotFoundError:
        return None
    found = (re.match(r"([\w.-]+).*\bextra\s*==\s*[\"'](\w+)[\"']", line) for line in lines)
    extras = [each[2] for each in found if each and each[1].replace("_", "-").lower() == wanted and each[2] != "dev"]
    return extras[0] if extras else None
