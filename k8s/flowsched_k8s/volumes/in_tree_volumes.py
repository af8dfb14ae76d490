"""In-tree volumes that a CSI driver attaches since their plugin was migrated: they count against the driver's limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from flowsched_k8s.objects import DiskSource, InTreeSources

MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of a CSINode: the in-tree plugins, by commas, that its kubelet leaves to CSI drivers."""
DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
"""CSI driver of each migrated plugin, by the plugin's name, which is also its provisioner's."""
ALWAYS = frozenset(
    {"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/cinder", "kubernetes.io/gce-pd"}
)
"""Plugins that no supported kubelet has any more: migrated whether the annotation says so or not, as in kube-scheduler."""


class InTreeVolume(NamedTuple):
    """A volume of an in-tree plugin."""

    plugin: str
    handle: str
    """The driver's name of the volume, as far as it tells volumes apart."""


def in_tree_volume(sources: InTreeSources, zone: str = "") -> InTreeVolume | None:
    """The in-tree volume of a pod's volume or of a persistent volume, if it is one. ``zone`` tells GCE disks apart."""
    for attribute, (plugin, handle) in _SOURCES.items():
        disk = getattr(sources, attribute)
        if disk is not None:
            name = handle(disk)
            return InTreeVolume(plugin, f"{zone}/{name}" if plugin == "kubernetes.io/gce-pd" else name)
    return None


def _share(disk: DiskSource) -> str:
    return f"{disk.secret_namespace}/{disk.secret_name}/{disk.share_name}"


_SOURCES: Mapping[str, tuple[str, Callable[[DiskSource], str]]] = {
    # aws://ZONE/VOLUME and VOLUME are the same volume.
    "aws_elastic_block_store": ("kubernetes.io/aws-ebs", lambda disk: disk.volume_id.rsplit("/", 1)[-1]),
    "azure_disk": ("kubernetes.io/azure-disk", lambda disk: disk.disk_uri),
    "azure_file": ("kubernetes.io/azure-file", _share),
    "cinder": ("kubernetes.io/cinder", lambda disk: disk.volume_id),
    "gce_persistent_disk": ("kubernetes.io/gce-pd", lambda disk: disk.pd_name),
    "portworx_volume": ("kubernetes.io/portworx-volume", lambda disk: disk.volume_id),
    "vsphere_volume": ("kubernetes.io/vsphere-volume", lambda disk: disk.volume_path),
}
