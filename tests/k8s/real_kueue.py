"""Kueue's own controller beside a control plane, for tests: its manifests, its webhooks and its rights."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from plane import SCRIPT, Object, Plane, RefusedError, free_ports, wait_for

FOLDER = SCRIPT.parent

HOME = "kueue-system"
SERVICE = "kueue-webhook-service"
VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
LEFT_OUT = ("Deployment", "APIService", "Service")
"""It runs here as a process, and nothing looks for its metrics or its own API."""
END_WITHIN_S = 30.0


def require_kueue() -> Path:
    """Its program and its manifests. Skips the tests where they were not built: no test compiles for so long."""
    script = [sys.executable, str(FOLDER / "kueue.py"), "path"]
    found = Path(subprocess.run(script, check=True, capture_output=True, text=True).stdout.strip())
    if not found.exists():
        pytest.skip("Kueue is not built; `make kueue` does it, with Go, in six minutes of CPU time")
    return found


@contextlib.contextmanager
def running_kueue(plane: Plane, found: Path) -> Iterator[None]:
    """Kueue for Jobs and groups of plain pods; it answers the API server when this begins."""
    (port,) = free_ports(1)
    folder = plane.folder / "kueue"
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    documents = list(yaml.safe_load_all(plane.kubectl("kustomize", str(found / "config" / "default"))))
    _install(plane, documents, port)
    (said,) = (d["data"]["controller_manager_config.yaml"] for d in documents if d["kind"] == "ConfigMap")
    settings = yaml.safe_load(said) | {
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["pod", "batch/job"]},
        "featureGates": {"VisibilityOnDemand": False},
    }
    configuration = folder / "config.yaml"
    configuration.write_text(yaml.safe_dump(settings))
    kubeconfig = plane.kubeconfig_for(HOME, "kueue-controller-manager")
    log = folder / "kueue.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(found / "kueue"), f"--config={configuration}", "--zap-log-level=2"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
    try:

        def lives() -> bool:
            assert process.poll() is None, f"Kueue ended by itself\n{log.read_text(errors='replace')[-3000:]}"
            return True

        _mount(plane, certificates, lives)
        wait_for(lambda: lives() and _gates(plane), "Kueue to gate pods")
        yield
        lives()
    finally:
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        finally:
            process.kill()


def _install(plane: Plane, documents: list[Object], port: int) -> None:
    """All that runs in no pod. There is no network of services: theirs is a name of this machine instead."""
    for document in documents:
        for hook in document.get("webhooks", ()):
            hook["clientConfig"]["service"]["port"] = port
        if conversion := document.get("spec", {}).get("conversion"):
            conversion["webhook"]["clientConfig"]["service"]["port"] = port
    service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": HOME}}
    service["spec"] = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    first = [d for d in documents if d["kind"] in ("Namespace", "CustomResourceDefinition")]
    plane.admin.apply(first)
    plane.admin.apply([d for d in documents if d not in first and d["kind"] not in LEFT_OUT] + [service])
    kinds = [d["spec"]["names"]["plural"] for d in first if d["kind"] == "CustomResourceDefinition"]
    served = {f"/apis/{VERSION}/{kind}" for kind in kinds}
    wait_for(lambda: all(_answers(plane, path) for path in served), "Kueue's API to be served")


def _answers(plane: Plane, path: str) -> bool:
    try:
        return plane.admin.find(path) is not None
    except RefusedError as error:
        # 429: its storage is being made.
        assert error.status == 429, error
        return False


def _mount(plane: Plane, folder: Path, lives: Callable[[], bool]) -> None:
    """Do what a kubelet does with the Secret in which Kueue has put its certificate."""
    path = f"/api/v1/namespaces/{HOME}/secrets/kueue-webhook-server-cert"

    def filled() -> Object:
        return dict(plane.admin.get(path).get("data") or {}) if lives() else {}

    for name, content in wait_for(filled, "Kueue to make its certificate").items():
        (folder / name).write_bytes(base64.b64decode(content))


def _gates(plane: Plane) -> bool:
    """Whether the API server reaches it: a pod that is only tried comes back with a gate."""
    container = {"name": "main", "image": "test"}
    pod = {"metadata": {"name": "tried", "labels": {QUEUE_LABEL: "none"}}, "spec": {"containers": [container]}}
    try:
        return bool(plane.admin.post("/api/v1/namespaces/default/pods?dryRun=All", pod)["spec"].get("schedulingGates"))
    except RefusedError as error:
        # 403: the namespace has no ServiceAccount yet.
        assert error.status in (403, 500), error
        return False
