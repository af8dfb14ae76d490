"""What all commands share: options that are refused when they are given twice, suggestions, and times with a unit."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import click

from flowsched_models.quantity import SECONDS_IN

_HELP = {"help_option_names": ["-h", "--help"]}


class StrictCommand(click.Command):
    """A command with ``-h``, whose options of one value are given once: click alone takes the last one silently."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """As click's commands."""
        named["context_settings"] = {**_HELP, **(named.get("context_settings") or {})}
        super().__init__(*args, **named)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises :class:`click.UsageError` for an option that is given twice."""
        if args and not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            for option, times in Counter(given).items():
                if (
                    times > 1
                    and isinstance(option, click.Option)
                    and not (option.multiple or option.is_flag or option.count)
                ):
                    name = max(option.opts, key=len)
                    raise click.BadOptionUsage(name, f"Option '{name}' is given {times} times; give it once.", ctx)
        return super().parse_args(ctx, args)


class StrictGroup(StrictCommand, click.Group):
    """The same for a command of commands, with a suggestion for one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises :class:`click.NoSuchCommand`, which says what was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None


class Seconds(click.ParamType[float]):
    """``10s``, ``500ms``, ``2m``; a number without a unit is refused, but for 0."""

    name = "time"

    def __init__(self, *, above_zero: bool = False) -> None:
        """``above_zero``: 0 is refused too."""
        self._above_zero = above_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, at least 0."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|min|h|d)?", text)
        number = math.nan if found is None else float(found[1])
        if found is None or not math.isfinite(number):
            self.fail(f"'{value}' is not a time; write 10s, 500ms or 2m", param, ctx)
        if found[2] is None and number > 0.0:
            self.fail(f"'{value}' has no unit; write {text}s, {text}ms or {text}m", param, ctx)
        if self._above_zero and number == 0.0:
            self.fail(f"'{value}' must be more than 0; write 10s, 500ms or 2m", param, ctx)
        return number * SECONDS_IN[found[2] or "s"]
