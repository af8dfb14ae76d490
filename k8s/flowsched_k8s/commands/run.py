"""``flowsched run``: the secondary scheduler, in a cluster or beside it."""

from __future__ import annotations

import asyncio
from logging import getLogger
from pathlib import Path

import click

from flowsched_models.command_line import StrictCommand


@click.command(
    cls=StrictCommand,
    short_help="Run as a secondary Kubernetes scheduler until stopped.",
    epilog="Example: flowsched run --config flowsched.yaml --kubeconfig ~/.kube/config --dry-run",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="A FlowSchedulerConfiguration.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="How to reach the API server.")
@click.option("--dry-run", is_flag=True, help="Decide and log, write nothing.")
@click.option("--records", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the records of rounds.")
@click.option("--events", type=click.Path(path_type=Path), metavar="FILE", help="Record events for flowsched simulate.")
@click.option("-v", "verbosity", count=True, help="Say more; repeat for more still.")
@click.option("--logging-format", type=click.Choice(["text", "json"]), help="How logs are written.")
def run(
    config: Path | None,
    kubeconfig: Path | None,
    dry_run: bool,
    records: Path | None,
    events: Path | None,
    verbosity: int,
    logging_format: str | None,
) -> int:
    """Run as a secondary Kubernetes scheduler until stopped.

    It binds pods whose spec.schedulerName is flowsched. Without --kubeconfig it uses $KUBECONFIG, the cluster that it runs
    in, or ~/.kube/config.

    Exit codes: 0 stopped, 1 the lease was lost or a fault of flowsched, 2 bad input.
    """
    # Only what this command needs takes time to import.
    from flowsched.support.log_lines import set_up_logging
    from flowsched_k8s.api.access import find_access
    from flowsched_k8s.configuration.configuration_file import load_configuration
    from flowsched_k8s.descriptors import provide_descriptors
    from flowsched_k8s.instructions import PodKey
    from flowsched_k8s.process import Process
    from flowsched_models.compiled import tell_of_compiling

    configuration = load_configuration(config)
    logging = configuration.logging
    told = {"format": logging_format or logging.format, "verbosity": max(verbosity, logging.verbosity)}
    changed = {
        "dry_run": dry_run or configuration.dry_run,
        "records": configuration.records.model_copy(update={"directory": records or configuration.records.directory}),
        "events": configuration.events.model_copy(update={"file": events or configuration.events.file}),
        "logging": logging.model_copy(update=told),
    }
    configuration = configuration.model_copy(update=changed)
    set_up_logging(configuration.logging.format, configuration.logging.verbosity, words=(PodKey,))
    # A log line, as everything else that a running scheduler says.
    tell_of_compiling(lambda: getLogger(__name__).info("compiling once, about a minute"))
    provide_descriptors()
    access = find_access(kubeconfig or configuration.client_connection.kubeconfig)
    try:
        return asyncio.run(Process(configuration, access).run())
    except OSError:
        # For other commands it is a file that cannot be written; here it may come from anywhere.
        getLogger(__name__).critical("stopped by a fault", exc_info=True)
        return 1
