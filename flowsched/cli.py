"""The one command, ``flowsched``: finds its sub-commands by entry points and says errors in one sentence each."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

try:
    from functools import cache
    from importlib.metadata import entry_points

    import click

    from flowsched.support.collector import collect_seldom
    from flowsched_models.command_line import StrictGroup
    from flowsched_models.compiled import tell_of_compiling
    from flowsched_models.document import InputError
    from flowsched_models.extras import extra_with, install_extra
except KeyboardInterrupt:  # before main can catch it
    print("interrupted", file=sys.stderr)
    raise SystemExit(INTERRUPTED) from None

GROUP = "flowsched.commands"
SECTIONS = {
    "Simulate and compare": ("scenarios", "policies", "workload", "simulate", "sweep", "compare", "plan"),
    "Decide a round and look into it": ("solve", "inspect", "explain", "whatif", "replay"),
    "Measure, calibrate, predict": ("measure", "calibrate", "validate", "predict"),
    "Kubernetes and machines": ("run", "snapshot", "agent"),
    "Set-up": ("schema", "warm-up"),
}
"""Commands by use, as --help lists them. Those of other packages come last."""
COMPILING = "compiling once, about a minute; it is kept in ~/.cache/flowsched (flowsched warm-up does it ahead)"
"""What stderr says before the first compiled function of this version is made."""

_entries = cache(lambda: entry_points(group=GROUP))  # a look at everything that is installed


class _Commands(StrictGroup):
    """Loads a sub-command when it is asked for, so that one that cannot be loaded breaks nothing else."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(_entries().names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _entries().names:
            return None
        command = _entries()[cmd_name].load()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        known = {name for section in SECTIONS.values() for name in section}
        width = max(map(len, names))
        for title, section in {**SECTIONS, "Other packages": [n for n in names if n not in known]}.items():
            commands = {name: self.get_command(ctx, name) for name in section if name in names}
            rows = [
                (name.ljust(width), command.get_short_help_str(64)) for name, command in commands.items() if command
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@click.group(
    cls=_Commands,
    epilog="Example: flowsched simulate parsec-memcached-2024 --policy flow --policy fcfs",
)
@click.version_option(package_name="flowsched")
def flowsched() -> None:
    """A cluster scheduler: min-cost flow networks place waiting tasks, and records say what decided on each.

    Exit codes: 0 done, 1 a fault of flowsched or a limit of validate that is exceeded, 2 bad input (nothing was
    written), 3 done but some jobs never ended or some runs failed, 4 a replay differs, 130 interrupted.
    """


def main(command: click.Command = flowsched, prog_name: str | None = None) -> None:
    """Run the command line; bad input ends with exit code 2 and no traceback."""
    collect_seldom()
    tell_of_compiling(lambda: click.echo(COMPILING, err=True))
    try:
        code = command.main(prog_name=prog_name, standalone_mode=False)
    except InputError as e:
        click.echo(str(e), err=True)
        code = e.exit_code
    except click.ClickException as e:
        e.show()
        code = e.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = INTERRUPTED
    except ModuleNotFoundError as e:
        extra = extra_with(e.name or "")
        if extra is None:
            raise
        asked = " ".join(["flowsched", *sys.argv[1:2]])
        click.echo(f"{asked}: needs {e.name}, which is not installed; {install_extra(extra)}", err=True)
        code = InputError.exit_code
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        if e.filename is None:
            click.echo(f"cannot write: {reason}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        else:
            help = "see that this user may read and write it, or name another place"
            click.echo(f"{e.filename}: {reason}; {help}", err=True)
            code = InputError.exit_code
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
