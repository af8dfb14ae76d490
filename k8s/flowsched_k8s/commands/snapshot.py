"""``flowsched snapshot``: a live cluster, written down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from flowsched_models.command_line import StrictCommand


@click.command(
    cls=StrictCommand,
    short_help="Write nodes and pods of a live cluster as a snapshot.",
    epilog="Example: flowsched snapshot > cluster.yaml && flowsched solve cluster.yaml",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="The scheduler's configuration.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="How to reach the API server.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Instead of standard output."
)
def snapshot(config: Path | None, kubeconfig: Path | None, out: Path | None) -> None:
    """Write the live cluster's nodes and pods as a snapshot for flowsched solve. Only reads.

    Pods whose constraints a snapshot cannot express are named on standard error.
    """
    # Only what this command needs takes time to import.
    from flowsched_k8s.api.access import find_access
    from flowsched_k8s.api.client import ApiError, UnreachableError
    from flowsched_k8s.configuration.configuration_file import load_configuration
    from flowsched_k8s.records.snapshot_export import export_snapshot
    from flowsched_models.document import InputError
    from flowsched_models.output import make_folder, write_whole

    configuration = load_configuration(config)
    access = find_access(kubeconfig or configuration.client_connection.kubeconfig)
    try:
        text, remarks = asyncio.run(export_snapshot(configuration, access))
    except (ApiError, UnreachableError) as error:
        help = "is it the right cluster, and may you list its nodes and pods?"
        raise InputError.one(access.server, f"cannot be read: {error}", help) from None
    for remark in remarks:
        click.echo(remark, err=True)
    if out is None:
        click.echo(text, nl=False)
    else:
        make_folder(out.parent)
        write_whole(out, text)
