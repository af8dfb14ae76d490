"""``python -m flowsched_agent``: the same as ``flowsched agent``."""

from __future__ import annotations

import sys

import click

from flowsched_models.document import InputError


def main() -> int:
    """Run the command line; bad input ends with exit code 2 and no traceback."""
    from flowsched_agent.commands.agent import agent

    try:
        code = agent.main(prog_name="flowsched agent", standalone_mode=False)
    except InputError as error:
        click.echo(str(error), err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
