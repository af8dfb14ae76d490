"""Seeds on a command line: the first and the last one, as in ``3-22``."""

from __future__ import annotations

import re

import click


class SeedRange(click.ParamType[range]):
    """Reads the first and the last seed; they are whole numbers from 0."""

    name = "FIRST-LAST"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        found = re.fullmatch(r"(\d+)-(\d+)", str(value))
        if found is None:
            self.fail(f"{value!r} is not a first and a last seed, such as 3-22", param, ctx)
        first, last = int(found[1]), int(found[2])
        if last < first:
            self.fail(f"{value!r} has no seed: the last one is before the first", param, ctx)
        return range(first, last + 1)
