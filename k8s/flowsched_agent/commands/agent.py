"""``flowsched agent``: control one machine, and put it back."""

from __future__ import annotations

from pathlib import Path

import click

from flowsched_models.command_line import StrictCommand, StrictGroup


@click.group(
    cls=StrictGroup,
    short_help="Share one machine between a latency service and batch jobs.",
    invoke_without_command=True,
    epilog="Example: flowsched agent --config agent.yaml --dry-run --once",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="A NodeAgent configuration.")
@click.option("--dry-run", is_flag=True, help="Read and decide, change nothing.")
@click.option("--once", is_flag=True, help="Decide twice, print what came out, put everything back.")
@click.option("--duration", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop after S seconds.")
@click.option("--state", type=click.Path(path_type=Path), metavar="FILE", help="Instead of the configured state file.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write down every tick.")
@click.option("-v", "verbosity", count=True, help="Say every act and why.")
@click.option("--logging-format", type=click.Choice(["text", "json"]), help="How logs are written.")
@click.pass_context
def agent(
    context: click.Context,
    config: Path | None,
    dry_run: bool,
    once: bool,
    duration: float | None,
    state: Path | None,
    record: Path | None,
    verbosity: int,
    logging_format: str | None,
) -> int:
    """Share one machine between a latency service and batch jobs, by its load and measured profiles.

    Runs until stopped, then puts every setting back; so does a watchdog when the agent is killed.

    Exit codes: 0 stopped, 1 something could not be put back, 2 bad input.
    """
    if context.invoked_subcommand is not None:
        return 0
    if config is None:
        raise click.UsageError("--config is needed to run the agent; sub-commands are listed with --help")
    # Only what this command needs takes time to import.
    from flowsched.support.log_lines import set_up_logging
    from flowsched_agent.configuration_file import load_configuration
    from flowsched_agent.process import run_agent

    configuration = load_configuration(config)
    logging = configuration.logging
    told = {"format": logging_format or logging.format, "verbosity": max(verbosity, logging.verbosity)}
    changed = {
        "dry_run": dry_run or configuration.dry_run,
        "state_file": state or configuration.state_file,
        "logging": logging.model_copy(update=told),
    }
    configuration = configuration.model_copy(update=changed)
    set_up_logging(configuration.logging.format, configuration.logging.verbosity)
    return run_agent(configuration, duration_s=duration, once=once, record=record)


@agent.command(
    cls=StrictCommand,
    short_help="Put back what an agent left behind that was killed.",
    epilog="Example: flowsched agent restore --state /run/flowsched/agent.json",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="The state file of the agent that died.",
)
def restore(state: Path) -> int:
    """Put back what an agent left behind that died together with its watchdog."""
    from flowsched_agent.process import restore_machine

    if not state.exists():
        click.echo(f"there is no state file {state}: no agent that used it left anything behind")
    said = restore_machine(state)
    for sentence in said:
        click.echo(sentence)
    return 1 if any("could be restored" in s or "could not be" in s for s in said) else 0
